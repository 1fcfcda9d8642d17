//! How a quantized matrix lies in device memory.
//!
//! A GGUF block mixes its scale and its codes at odd byte offsets (18 bytes for Q4_0, 210 for Q6_K), which a GPU cannot load in one go. Packing
//! separates them and orders them so that neighbouring units, which work on neighbouring rows, read neighbouring words. A panel is 32 rows, a block
//! 32 columns (a super-block is eight of them); everything of a panel lies together:
//!
//! ```text
//! words, 128-bit vectors   codes      [block][vector][row]     4 bits of every code, or all 8, 16 or 32
//!                          2-bit plane [block / 2][row]        the upper bits of 6-bit codes; all of 2-bit and the lower of 3-bit codes
//! scales, 32-bit words     scales     [block or super-block][row]     an f16, or an f16 scale and an f16 minimum
//!                          sub-scales [block / 2 or 4][row]    of a super-block: 16 or 8 bits a block
//!                          1-bit plane [block][row]            the uppermost bit of 3-bit and 5-bit codes: bit c for column c
//! ```
//!
//! Within a block, lane `i` of a vector holds the codes of columns `4 j + i`, one `j` per bit field, so that one shift and one mask of a vector
//! give the four codes that belong to four neighbouring activations. The planes of fewer bits are laid so that the codes of all even `j`, and those of all odd `j`,
//! are put together at once, a byte each: byte `b` of a lane of the 2-bit plane holds `j = 2 b` in bits 0 and 1 and `j = 2 b + 1` in bits 2 and 3, for an even block in
//! its lower half and for the odd one in its upper half. Nothing is rounded: packing permutes the file's bits, and widens the 6-bit sub-scales of super-blocks to
//! bytes, which makes a matrix at most 4% larger than its file. Rows are padded to whole panels with zero blocks.

use super::block_format::{BlockFormat, Codes};
use super::codes::Parts;
use crate::error::{Error, Result};
use crate::format::TensorType;

/// Rows of a panel: units that work side by side read one contiguous run of `32 × 16` bytes.
pub const PANEL_ROWS: usize = 32;
/// Columns of a packed block, whatever the file's block length.
pub const BLOCK_COLUMNS: usize = 32;
/// Packed blocks of a super-block.
pub const SUPER_BLOCKS: usize = 8;

/// What a packed code stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PackedCodes {
    /// The integer `code - offset`.
    Unsigned {
        /// The code that stands for 0.
        offset: u32,
    },
    /// One of the 16 levels of `IQ4_NL`.
    Levels,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    Bf16,
    /// IEEE single precision.
    F32,
}

/// The scales of a packed block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PackedScales {
    /// There are none: the codes are floats.
    None,
    /// An f16 scale a block: `scale * number`, and with a minimum an f16 that is added.
    One {
        /// Whether there is a minimum.
        minimum: bool,
    },
    /// An f16 scale a super-block, and a small integer for every `len` columns: `scale * sub_scale * number`. With a minimum, an f16 minimum times another
    /// small integer is subtracted.
    ///
    /// The integers of a block are: with 32 columns and a minimum, an unsigned byte each; with 16 columns and a minimum, two bytes with 4 unsigned bits each
    /// (the scale's are the lower ones); without a minimum, a signed byte for each `len` columns.
    Two {
        /// Columns that share all scales: 16 or 32.
        len: usize,
        /// Whether there is a minimum.
        minimum: bool,
    },
}

/// How the values of a matrix are encoded; the kernels are generic over it at compile time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PackedFormat {
    /// Bits of a code.
    pub bits: u32,
    /// What a code stands for.
    pub codes: PackedCodes,
    /// What it is multiplied with.
    pub scales: PackedScales,
}

impl PackedFormat {
    /// The packed format of a tensor type.
    pub const fn of(ty: TensorType) -> Self {
        let format = BlockFormat::of(ty);
        let codes = match (ty, format.codes) {
            (TensorType::F16, _) => PackedCodes::F16,
            (TensorType::BF16, _) => PackedCodes::Bf16,
            (_, Codes::Float) => PackedCodes::F32,
            (_, Codes::Levels(_)) => PackedCodes::Levels,
            (_, Codes::Unsigned { offset }) => PackedCodes::Unsigned { offset: offset as u32 },
            // Stored with 128 added.
            (_, Codes::Signed) => PackedCodes::Unsigned { offset: 128 },
        };
        let minimum = format.has_minimum();
        let scales = match format.scale_levels() {
            0 => PackedScales::None,
            1 => PackedScales::One { minimum },
            _ => PackedScales::Two { len: format.scale_len(), minimum },
        };
        Self { bits: format.bits, codes, scales }
    }

    /// Vectors a block of the plane that holds 4 bits of every code, or all of 8, 16 or 32; 0 where the 2-bit plane holds the lowest bits.
    pub const fn code_vectors(self) -> usize {
        match self.bits {
            4..=6 => 1,
            8 | 16 | 32 => self.bits as usize / 4,
            _ => 0,
        }
    }

    /// Whether there is a 2-bit plane.
    pub const fn has_pair_plane(self) -> bool {
        matches!(self.bits, 2 | 3 | 6)
    }

    /// Whether there is a 1-bit plane.
    pub const fn has_bit_plane(self) -> bool {
        matches!(self.bits, 3 | 5)
    }

    /// Columns that share all their scales.
    pub const fn scale_len(self) -> usize {
        match self.scales {
            PackedScales::Two { len, .. } => len,
            _ => BLOCK_COLUMNS,
        }
    }

    /// Whether values are `scale * code + something`: codes with an offset or a minimum.
    pub const fn has_bias(self) -> bool {
        match (self.codes, self.scales) {
            (_, PackedScales::One { minimum: true } | PackedScales::Two { minimum: true, .. }) => true,
            (PackedCodes::Unsigned { offset }, _) => offset > 0,
            _ => false,
        }
    }

    /// Whether there are scales.
    pub const fn has_scales(self) -> bool {
        !matches!(self.scales, PackedScales::None)
    }

    /// Blocks whose sub-scales share a 32-bit word; 0 where there are none.
    pub const fn sub_scale_blocks(self) -> usize {
        match self.scales {
            PackedScales::Two { len: 32, minimum: false } => 4,
            PackedScales::Two { .. } => 2,
            _ => 0,
        }
    }

    /// Where the parts of a panel of `row_blocks` blocks begin.
    pub const fn layout(self, row_blocks: usize) -> PanelLayout {
        let pair_plane = row_blocks * self.code_vectors() * PANEL_ROWS;
        let words = pair_plane + if self.has_pair_plane() { row_blocks / 2 * PANEL_ROWS } else { 0 };
        let sub_scales = match self.scales {
            PackedScales::None => 0,
            PackedScales::One { minimum: false } => row_blocks * PANEL_ROWS / 2,
            PackedScales::One { minimum: true } => row_blocks * PANEL_ROWS,
            PackedScales::Two { minimum: false, .. } => row_blocks / SUPER_BLOCKS * PANEL_ROWS / 2,
            PackedScales::Two { minimum: true, .. } => row_blocks / SUPER_BLOCKS * PANEL_ROWS,
        };
        let bit_plane = match self.sub_scale_blocks() {
            0 => sub_scales,
            blocks => sub_scales + row_blocks / blocks * PANEL_ROWS,
        };
        let scales = bit_plane + if self.has_bit_plane() { row_blocks * PANEL_ROWS } else { 0 };
        PanelLayout { pair_plane, words, sub_scales, bit_plane, scales }
    }
}

/// Where the parts of a panel begin: the codes and the scales at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PanelLayout {
    /// The 2-bit plane, in vectors.
    pub pair_plane: usize,
    /// Vectors of a panel.
    pub words: usize,
    /// The sub-scales, in 32-bit words.
    pub sub_scales: usize,
    /// The 1-bit plane, in 32-bit words.
    pub bit_plane: usize,
    /// 32-bit words of a panel's scales.
    pub scales: usize,
}

/// A packed matrix: see the module's picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// Codes, a multiple of 16 bytes.
    pub words: Vec<u8>,
    /// Scales, a multiple of 4 bytes; 4 zero bytes where the format has none, so that a buffer exists to bind.
    pub scales: Vec<u8>,
}

/// Checks that `rows × columns` values of type `ty` can be packed and that `blocks` has the length that they need.
///
/// # Errors
/// `UnsupportedModel` for columns that are no multiple of 32 and of the type's block, `InvalidFile` for another length.
pub fn check(ty: TensorType, rows: usize, columns: usize, blocks: &[u8]) -> Result<PackedFormat> {
    let multiple = BLOCK_COLUMNS.max(ty.block_len());
    if columns == 0 || !columns.is_multiple_of(multiple) {
        return Err(Error::UnsupportedModel {
            what: format!("a matrix of {columns} columns in {}", ty.name()),
            reason: format!("the columns must be a multiple of {multiple}"),
        });
    }
    let row_bytes = columns / ty.block_len() * ty.block_bytes();
    if blocks.len() != rows * row_bytes {
        return Err(Error::InvalidFile {
            format: "GGUF",
            field: "tensor data".into(),
            reason: format!("{} bytes for {rows} rows of {row_bytes} bytes", blocks.len()),
        });
    }
    Ok(PackedFormat::of(ty))
}

/// Packs `rows × columns` values in the file's layout of type `ty` (row after row, blocks along a row).
///
/// # Errors
/// As [`check`].
pub fn pack(ty: TensorType, rows: usize, columns: usize, blocks: &[u8]) -> Result<Packed> {
    let format = check(ty, rows, columns, blocks)?;
    let layout = format.layout(columns / BLOCK_COLUMNS);
    let panels = rows.div_ceil(PANEL_ROWS);
    let mut words = vec![0u8; panels * layout.words * 16];
    let mut scales = vec![0u8; (panels * layout.scales * 4).max(4)];
    let row_bytes = blocks.len() / rows.max(1);
    for (row, bytes) in blocks.chunks_exact(row_bytes.max(1)).enumerate() {
        let (panel, lane) = (row / PANEL_ROWS, row % PANEL_ROWS);
        let row = PackedRow {
            format,
            layout,
            lane,
            words: &mut words[panel * layout.words * 16..][..layout.words * 16],
            scales: &mut scales[panel * layout.scales * 4..][..layout.scales * 4],
        };
        match format.codes {
            PackedCodes::Unsigned { .. } | PackedCodes::Levels => row.put_quantized(ty, bytes),
            PackedCodes::F16 | PackedCodes::Bf16 | PackedCodes::F32 => row.put_floats(bytes),
        }
    }
    Ok(Packed { words, scales })
}

/// One row's place in its panel.
struct PackedRow<'a> {
    format: PackedFormat,
    layout: PanelLayout,
    lane: usize,
    words: &'a mut [u8],
    scales: &'a mut [u8],
}

impl PackedRow<'_> {
    fn put_quantized(mut self, ty: TensorType, bytes: &[u8]) {
        let mut parts = Parts::default();
        let blocks_in = ty.block_len() / BLOCK_COLUMNS;
        for (index, block) in bytes.chunks_exact(ty.block_bytes()).enumerate() {
            parts.read(ty, block);
            self.put_scale(index, parts.scale);
            for (b, codes) in parts.codes.as_chunks::<BLOCK_COLUMNS>().0.iter().take(blocks_in).enumerate() {
                self.put_codes(index * blocks_in + b, codes);
                self.put_sub_scale(index * blocks_in + b, parts.sub_scales[b]);
            }
        }
    }

    /// The f16 scale (and minimum) of a block or super-block.
    fn put_scale(&mut self, index: usize, scale: [u8; 4]) {
        let (PackedScales::One { minimum } | PackedScales::Two { minimum, .. }) = self.format.scales else { return };
        let bytes = if minimum { 4 } else { 2 };
        let at = (index * PANEL_ROWS + self.lane) * bytes;
        self.scales[at..at + bytes].copy_from_slice(&scale[..bytes]);
    }

    fn put_sub_scale(&mut self, block: usize, sub_scale: u16) {
        let blocks = self.format.sub_scale_blocks();
        if blocks == 0 {
            return;
        }
        let bytes = 4 / blocks;
        let word = self.layout.sub_scales + block / blocks * PANEL_ROWS + self.lane;
        let at = word * 4 + block % blocks * bytes;
        self.scales[at..at + bytes].copy_from_slice(&sub_scale.to_le_bytes()[..bytes]);
    }

    fn put_codes(&mut self, block: usize, codes: &[u8; BLOCK_COLUMNS]) {
        let bits = self.format.bits;
        if self.format.code_vectors() == 1 {
            self.or_vector(block * PANEL_ROWS, |i| field(codes, i, 4, |code| code & 15));
        } else if bits == 8 {
            for (vector, codes) in codes.as_chunks::<16>().0.iter().enumerate() {
                self.or_vector((2 * block + vector) * PANEL_ROWS, |i| field(codes, i, 8, |code| code));
            }
        }
        if self.format.has_pair_plane() {
            let shift = if bits == 6 { 4 } else { 0 };
            let at = self.layout.pair_plane + block / 2 * PANEL_ROWS;
            self.or_vector(at, |i| {
                let mut lane = 0;
                for (j, codes) in codes.as_chunks::<4>().0.iter().enumerate() {
                    lane |= u32::from(codes[i] >> shift & 3) << (8 * (j / 2) + 2 * (j % 2));
                }
                lane << (4 * (block % 2))
            });
        }
        if self.format.has_bit_plane() {
            let mut plane = 0u32;
            for (column, code) in codes.iter().enumerate() {
                plane |= u32::from(code >> (bits - 1) & 1) << column;
            }
            let at = (self.layout.bit_plane + block * PANEL_ROWS + self.lane) * 4;
            self.scales[at..at + 4].copy_from_slice(&plane.to_le_bytes());
        }
    }

    fn put_floats(mut self, bytes: &[u8]) {
        let width = self.format.bits as usize / 8;
        let fields = 4 / width;
        // A vector holds 16 bytes: `fields` fields of each of 4 lanes.
        for (vector, bytes) in bytes.chunks_exact(16).enumerate() {
            self.or_vector(vector * PANEL_ROWS, |i| {
                let mut lane = 0u32;
                for j in 0..fields {
                    for (k, byte) in bytes[(4 * j + i) * width..][..width].iter().enumerate() {
                        lane |= u32::from(*byte) << (8 * (j * width + k));
                    }
                }
                lane
            });
        }
    }

    /// Puts bits into the four lanes of the row's vector in the run of vectors that begins at `first`.
    fn or_vector(&mut self, first: usize, lane: impl Fn(usize) -> u32) {
        let bytes = &mut self.words[(first + self.lane) * 16..][..16];
        for (i, word) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *word = (u32::from_le_bytes(*word) | lane(i)).to_le_bytes();
        }
    }
}

/// Lane `i` of a vector: `bits` bits of the codes of columns `4 j + i`, lowest `j` in the lowest bits.
#[inline]
fn field(codes: &[u8], i: usize, bits: u32, part: impl Fn(u8) -> u8) -> u32 {
    let mut lane = 0;
    for (j, codes) in codes.as_chunks::<4>().0.iter().enumerate() {
        lane |= u32::from(part(codes[i])) << (bits * j as u32);
    }
    lane
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ground rule of the layout, written the other way round than `pack`: where bit `bit` of the code of (row, column) must be.
    fn code_bit(packed: &Packed, format: PackedFormat, row_blocks: usize, row: usize, column: usize, bit: u32) -> u8 {
        let layout = format.layout(row_blocks);
        let (panel, lane, block, c) = (row / 32, row % 32, column / 32, column % 32);
        let word = |bytes: &[u8], index: usize| u32::from_le_bytes(bytes[4 * index..][..4].try_into().unwrap());
        let vector_lane = |vector: usize| word(&packed.words, (panel * layout.words + vector) * 4 + c % 4);
        let taken = if format.code_vectors() == 0 { 0 } else { format.bits.min(4) };
        let bits = if format.bits == 8 {
            let vector = (2 * block + c / 16) * 32 + lane;
            vector_lane(vector) >> (8 * (c % 16 / 4) as u32 + bit)
        } else if bit < taken {
            vector_lane(block * 32 + lane) >> (4 * (c / 4) as u32 + bit)
        } else if format.has_pair_plane() && bit < taken + 2 {
            let vector = layout.pair_plane + block / 2 * 32 + lane;
            let (j, bit) = ((c / 4) as u32, bit - taken);
            vector_lane(vector) >> (8 * (j / 2) + 4 * (block % 2) as u32 + 2 * (j % 2) + bit)
        } else {
            word(&packed.scales, panel * layout.scales + layout.bit_plane + block * 32 + lane) >> c
        };
        (bits & 1) as u8
    }

    #[test]
    fn every_bit_of_every_code_is_where_the_layout_says() {
        let (rows, columns) = (37, 512);
        for ty in TensorType::ALL.into_iter().filter(|ty| BlockFormat::of(*ty).scale_levels() > 0) {
            let row_bytes = columns / ty.block_len() * ty.block_bytes();
            let blocks: Vec<u8> = (0..rows * row_bytes).map(|i| (i * 37 % 251) as u8).collect();
            let packed = pack(ty, rows, columns, &blocks).unwrap();
            let format = PackedFormat::of(ty);
            let mut parts = Parts::default();
            for row in 0..rows {
                for (index, block) in blocks[row * row_bytes..][..row_bytes].chunks(ty.block_bytes()).enumerate() {
                    parts.read(ty, block);
                    for (i, code) in parts.codes[..ty.block_len()].iter().enumerate() {
                        let column = index * ty.block_len() + i;
                        let read = (0..format.bits)
                            .map(|bit| code_bit(&packed, format, columns / 32, row, column, bit) << bit)
                            .sum::<u8>();
                        assert_eq!(read, *code, "{ty} row {row} column {column}");
                    }
                }
            }
        }
    }

    /// The parts of a block, put together by the formula in `BlockFormat`, are what the reference decoder gives.
    #[test]
    fn the_parts_of_a_block_make_its_values() {
        for ty in TensorType::ALL.into_iter().filter(|ty| BlockFormat::of(*ty).scale_levels() > 0) {
            let mut block: Vec<u8> = (0..ty.block_bytes()).map(|i| (i * 89 + 7) as u8).collect();
            // Scales that are finite: every f16 with this upper byte is.
            for byte in block.iter_mut().filter(|byte| **byte & 0x7c == 0x7c) {
                *byte ^= 0x40;
            }
            let mut expected = vec![0.0; ty.block_len()];
            crate::quant::dequantize(ty, &block, &mut expected).unwrap();
            let mut parts = Parts::default();
            parts.read(ty, &block);
            let half = |at: usize| crate::quant::f16_to_f32(u16::from_le_bytes([parts.scale[at], parts.scale[at + 1]]));
            let format = PackedFormat::of(ty);
            for (i, expected) in expected.iter().enumerate() {
                let code = f32::from(parts.codes[i]);
                let number = match format.codes {
                    PackedCodes::Unsigned { offset } => code - offset as f32,
                    _ => f32::from(crate::quant::IQ4_LEVELS[usize::from(parts.codes[i])]),
                };
                let [low, high] = parts.sub_scales[i / 32].to_le_bytes();
                let byte = if i % 32 < 16 { low } else { high };
                let value = match format.scales {
                    PackedScales::None => unreachable!(),
                    PackedScales::One { minimum: false } => half(0) * number,
                    PackedScales::One { minimum: true } => half(0) * number + half(2),
                    PackedScales::Two { len: 32, minimum: false } => half(0) * f32::from(low as i8) * number,
                    PackedScales::Two { minimum: false, .. } => half(0) * f32::from(byte as i8) * number,
                    PackedScales::Two { len: 32, minimum: true } => {
                        half(0) * f32::from(low) * number - half(2) * f32::from(high)
                    }
                    PackedScales::Two { minimum: true, .. } => {
                        half(0) * f32::from(byte & 15) * number - half(2) * f32::from(byte >> 4)
                    }
                };
                assert_eq!(value, *expected, "{ty} value {i}");
            }
        }
    }

    #[test]
    fn device_bytes_are_at_most_4_percent_more_than_the_files_for_whole_panels() {
        for ty in TensorType::ALL {
            let file = 64 * 512 / ty.block_len() * ty.block_bytes();
            let packed = pack(ty, 64, 512, &vec![1; file]).unwrap();
            let scales = if PackedFormat::of(ty).has_scales() { packed.scales.len() } else { 0 };
            let device = packed.words.len() + scales;
            assert!(device >= file && device as f64 <= 1.04 * file as f64, "{ty}: {device} for {file}");
        }
    }

    #[test]
    fn refuses_columns_that_are_no_multiple_of_a_block_and_data_of_another_length() {
        assert_eq!(pack(TensorType::Q4_0, 1, 48, &[0; 27]).unwrap_err().code(), "unsupported_model");
        assert_eq!(pack(TensorType::Q4_K, 1, 128, &[0; 72]).unwrap_err().code(), "unsupported_model");
        assert_eq!(pack(TensorType::Q4_0, 1, 32, &[0; 17]).unwrap_err().code(), "invalid_file");
    }
}
