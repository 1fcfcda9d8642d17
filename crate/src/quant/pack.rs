//! How a quantized matrix lies in device memory.
//!
//! A GGUF block mixes its scale and its values at odd byte offsets (18 bytes for Q4_0), which a GPU cannot load in one go. Packing separates
//! them and orders both so that neighbouring units, which work on neighbouring rows, read neighbouring words:
//!
//! ```text
//! panel = 32 rows            words:  [panel][block of 32 columns][vector][row in panel]   one 128-bit vector each
//!                            scales: [panel][block of 32 columns][row in panel]           one f16, or an f16 scale and an f16 minimum
//! ```
//!
//! Within a block, lane `i` of a vector holds the values for columns `4 j + i`, one `j` per bit field, so that one shift and one mask of a
//! vector give the four weights that belong to four neighbouring activations. Nothing is rounded: packing permutes the file's bits (and
//! stores two's complement bytes with 128 added, so that they decode like the nibbles).
//! Rows are padded to whole panels with zero blocks.

use crate::error::{Error, Result};
use crate::format::TensorType;

/// Rows of a panel: units that work side by side read one contiguous run of `32 × 16` bytes.
pub const PANEL_ROWS: usize = 32;
/// Columns of a packed block, whatever the file's block length.
pub const BLOCK_COLUMNS: usize = 32;

/// How the values of a packed block are encoded; the kernels are generic over it at compile time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PackedFormat {
    /// 4-bit values stored with 8 added, and one f16 scale a block: `d * (q - 8)`. GGUF Q4_0.
    I4,
    /// Unsigned 4-bit values, an f16 scale and an f16 minimum a block: `d * q + m`. GGUF Q4_1.
    U4Min,
    /// 8-bit values stored with 128 added, and one f16 scale a block: `d * (q - 128)`. GGUF Q8_0.
    I8,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    Bf16,
    /// IEEE single precision.
    F32,
}

impl PackedFormat {
    /// The packed format for a file's tensor type, or an error that says which types can be run.
    pub fn of(ty: TensorType) -> Result<Self> {
        match ty {
            TensorType::Q4_0 => Ok(Self::I4),
            TensorType::Q4_1 => Ok(Self::U4Min),
            TensorType::Q8_0 => Ok(Self::I8),
            TensorType::F16 => Ok(Self::F16),
            TensorType::BF16 => Ok(Self::Bf16),
            TensorType::F32 => Ok(Self::F32),
            other => Err(Error::UnsupportedModel {
                what: format!("tensor type {}", other.name()),
                reason: "this release runs F32, F16, BF16, Q8_0, Q4_1 and Q4_0".into(),
            }),
        }
    }

    /// 128-bit vectors that hold the values of one block.
    pub const fn vectors(self) -> usize {
        match self {
            Self::I4 | Self::U4Min => 1,
            Self::I8 => 2,
            Self::F16 | Self::Bf16 => 4,
            Self::F32 => 8,
        }
    }

    /// Bytes of scales and minima of one block: 0, 2 or 4.
    pub const fn scale_bytes(self) -> usize {
        match self {
            Self::I4 | Self::I8 => 2,
            Self::U4Min => 4,
            Self::F16 | Self::Bf16 | Self::F32 => 0,
        }
    }

    /// Bytes of one block in the file, for 32 columns.
    const fn file_bytes(self) -> usize {
        self.vectors() * 16 + self.scale_bytes()
    }
}

/// A packed matrix: see the module's picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// Values, a multiple of 16 bytes.
    pub words: Vec<u8>,
    /// Scales and minima, a multiple of 4 bytes; 4 zero bytes where the format has none, so that a buffer exists to bind.
    pub scales: Vec<u8>,
}

/// Checks that a kernel exists for `rows × columns` values of type `ty` and that `blocks` has the length that they need.
///
/// # Errors
/// `UnsupportedModel` for a type without a kernel or for columns that are no multiple of 32, `InvalidFile` for another length.
pub fn check(ty: TensorType, rows: usize, columns: usize, blocks: &[u8]) -> Result<PackedFormat> {
    let format = PackedFormat::of(ty)?;
    if columns == 0 || !columns.is_multiple_of(BLOCK_COLUMNS) {
        return Err(Error::UnsupportedModel {
            what: format!("a matrix of {columns} columns"),
            reason: format!("the columns must be a multiple of {BLOCK_COLUMNS}"),
        });
    }
    let row_bytes = columns / BLOCK_COLUMNS * format.file_bytes();
    if blocks.len() != rows * row_bytes {
        return Err(Error::InvalidFile {
            format: "GGUF",
            field: "tensor data".into(),
            reason: format!("{} bytes for {rows} rows of {row_bytes} bytes", blocks.len()),
        });
    }
    Ok(format)
}

/// Packs `rows × columns` values in the file's layout of type `ty` (row after row, blocks along a row).
///
/// # Errors
/// As [`check`].
pub fn pack(ty: TensorType, rows: usize, columns: usize, blocks: &[u8]) -> Result<Packed> {
    let format = check(ty, rows, columns, blocks)?;
    let row_blocks = columns / BLOCK_COLUMNS;
    let row_bytes = row_blocks * format.file_bytes();
    let panels = rows.div_ceil(PANEL_ROWS);
    let vectors = format.vectors();
    let scale_bytes = format.scale_bytes();
    let mut words = vec![0u8; panels * row_blocks * vectors * PANEL_ROWS * 16];
    let mut scales = vec![0u8; (panels * row_blocks * scale_bytes * PANEL_ROWS).max(4)];
    for (row, bytes) in blocks.chunks_exact(row_bytes).enumerate() {
        let (panel, lane) = (row / PANEL_ROWS, row % PANEL_ROWS);
        for (column, block) in bytes.chunks_exact(format.file_bytes()).enumerate() {
            let index = panel * row_blocks + column;
            let (scale, values) = block.split_at(scale_bytes);
            scales[(index * PANEL_ROWS + lane) * scale_bytes..][..scale_bytes].copy_from_slice(scale);
            for vector in 0..vectors {
                let at = ((index * vectors + vector) * PANEL_ROWS + lane) * 16;
                words[at..at + 16].copy_from_slice(&vector_of(format, values, vector));
            }
        }
    }
    Ok(Packed { words, scales })
}

/// The 16 bytes (four little-endian words, one a lane) of vector `vector` of a block whose values are `values`.
fn vector_of(format: PackedFormat, values: &[u8], vector: usize) -> [u8; 16] {
    let mut lanes = [0u32; 4];
    for (i, lane) in lanes.iter_mut().enumerate() {
        match format {
            // Columns 0-15 are the low nibbles of the file's 16 bytes, columns 16-31 the high ones.
            PackedFormat::I4 | PackedFormat::U4Min => {
                for j in 0..8 {
                    let column = 4 * j + i;
                    let nibble = (values[column % 16] >> (4 * (column / 16))) & 15;
                    *lane |= u32::from(nibble) << (4 * j);
                }
            }
            PackedFormat::I8 => {
                for j in 0..4 {
                    *lane |= u32::from(values[16 * vector + 4 * j + i] ^ 0x80) << (8 * j);
                }
            }
            PackedFormat::F16 | PackedFormat::Bf16 => {
                for j in 0..2 {
                    let at = 2 * (8 * vector + 4 * j + i);
                    *lane |= u32::from(u16::from_le_bytes([values[at], values[at + 1]])) << (16 * j);
                }
            }
            PackedFormat::F32 => {
                let at = 4 * (4 * vector + i);
                *lane = u32::from_le_bytes([values[at], values[at + 1], values[at + 2], values[at + 3]]);
            }
        }
    }
    let mut bytes = [0u8; 16];
    for (bytes, lane) in bytes.chunks_exact_mut(4).zip(lanes) {
        bytes.copy_from_slice(&lane.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ground rule of the layout, written the other way round than `pack`: where the nibble of (row, column) must be.
    fn nibble(packed: &Packed, row_blocks: usize, row: usize, column: usize) -> u8 {
        let block = (row / 32) * row_blocks + column / 32;
        let word = (block * 32 + row % 32) * 4 + (column % 4);
        let bytes: [u8; 4] = packed.words[word * 4..][..4].try_into().unwrap();
        ((u32::from_le_bytes(bytes) >> (4 * ((column % 32) / 4))) & 15) as u8
    }

    #[test]
    fn every_nibble_and_scale_of_q4_1_is_where_the_layout_says() {
        let (rows, columns) = (37, 64);
        let blocks: Vec<u8> = (0..rows * columns / 32 * 20).map(|i| (i * 37 % 251) as u8).collect();
        let packed = pack(TensorType::Q4_1, rows, columns, &blocks).unwrap();
        assert_eq!(packed.words.len(), 64 * 64 / 2);
        assert_eq!(packed.scales.len(), 64 * 2 * 4);
        for row in 0..rows {
            for column in 0..columns {
                let block = &blocks[(row * 2 + column / 32) * 20..][..20];
                let c = column % 32;
                let expected = if c < 16 { block[4 + c] & 15 } else { block[4 + c - 16] >> 4 };
                assert_eq!(nibble(&packed, 2, row, column), expected, "row {row} column {column}");
                let scale = ((row / 32 * 2 + column / 32) * 32 + row % 32) * 4;
                assert_eq!(packed.scales[scale..scale + 4], block[..4]);
            }
        }
    }

    #[test]
    fn device_bytes_equal_file_bytes_for_whole_panels() {
        for (ty, file_bytes) in [(TensorType::Q4_0, 18), (TensorType::Q4_1, 20), (TensorType::Q8_0, 34)] {
            let packed = pack(ty, 64, 96, &vec![1; 64 * 3 * file_bytes]).unwrap();
            assert_eq!(packed.words.len() + packed.scales.len(), 64 * 3 * file_bytes);
        }
    }

    #[test]
    fn refuses_columns_that_are_no_multiple_of_32_and_data_of_another_length() {
        assert_eq!(pack(TensorType::Q4_0, 1, 48, &[0; 27]).unwrap_err().code(), "unsupported_model");
        assert_eq!(pack(TensorType::Q4_0, 1, 32, &[0; 17]).unwrap_err().code(), "invalid_file");
    }
}
