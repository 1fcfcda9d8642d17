//! Exact decoding of any tensor type to f32, and the types that are floats already.
//!
//! The results are those of ggml's own decoders, bit for bit: the same operations in the same order.

use super::{decode_blocks as block, decode_super_blocks as super_block};
use crate::error::{Error, Result};
use crate::format::TensorType;

/// Decodes whole blocks of type `ty` into `out`.
///
/// # Errors
/// [`Error::InvalidParameter`] when `out` does not hold whole blocks, or `blocks` is not as long as they are.
pub fn dequantize(ty: TensorType, blocks: &[u8], out: &mut [f32]) -> Result<()> {
    let (block_len, block_bytes) = (ty.block_len(), ty.block_bytes());
    if !out.len().is_multiple_of(block_len) {
        let reason = format!("{} values are no whole blocks of {block_len} of type {ty}", out.len());
        return Err(Error::InvalidParameter { name: "out", reason });
    }
    let expected = out.len() / block_len * block_bytes;
    if blocks.len() != expected {
        let reason = format!("{} values of type {ty} take {expected} bytes, and there are {}", out.len(), blocks.len());
        return Err(Error::InvalidParameter { name: "blocks", reason });
    }
    let decode = match ty {
        TensorType::F32 => f32,
        TensorType::F16 => f16,
        TensorType::BF16 => bf16,
        TensorType::Q4_0 => block::q4_0,
        TensorType::Q4_1 => block::q4_1,
        TensorType::Q5_0 => block::q5_0,
        TensorType::Q5_1 => block::q5_1,
        TensorType::Q8_0 => block::q8_0,
        TensorType::IQ4_NL => block::iq4_nl,
        TensorType::Q2_K => super_block::q2_k,
        TensorType::Q3_K => super_block::q3_k,
        TensorType::Q4_K => super_block::q4_k,
        TensorType::Q5_K => super_block::q5_k,
        TensorType::Q6_K => super_block::q6_k,
        TensorType::IQ4_XS => super_block::iq4_xs,
    };
    decode(blocks, out);
    Ok(())
}

/// The value of the bits of an f16.
///
/// Free of branches, so that loops over it become vector code where neither the compiler nor the target (WebAssembly) has an instruction for it.
#[inline]
pub fn f16_to_f32(bits: u16) -> f32 {
    // Exponent and mantissa, moved to where an f32 has them.
    const EXPONENT: u32 = 0x7c00 << 13;
    // What the exponent lacks: an f16's is biased by 15, an f32's by 127.
    const REBIAS: u32 = (127 - 15) << 23;
    // 2^-14, the smallest normal f16. A subnormal one is a mantissa of that exponent without the leading 1.
    const SMALLEST_NORMAL: u32 = (127 - 14) << 23;

    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let exponent = magnitude & EXPONENT;
    let normal = magnitude + REBIAS;
    let infinite_or_nan = normal + REBIAS;
    let subnormal = (f32::from_bits(magnitude + SMALLEST_NORMAL) - f32::from_bits(SMALLEST_NORMAL)).to_bits();
    let finite = if exponent == 0 { subnormal } else { normal };
    f32::from_bits(sign | if exponent == EXPONENT { infinite_or_nan } else { finite })
}

/// The f16 whose bytes are at `offset` of a block.
#[inline]
pub(super) fn f16_at<const BYTES: usize>(block: &[u8; BYTES], offset: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[offset], block[offset + 1]]))
}

/// Each block of `BYTES` bytes with the place for its `LEN` values.
#[inline]
pub(super) fn each_block<'a, const BYTES: usize, const LEN: usize>(
    blocks: &'a [u8],
    out: &'a mut [f32],
) -> impl Iterator<Item = (&'a [u8; BYTES], &'a mut [f32; LEN])> {
    blocks.as_chunks().0.iter().zip(out.as_chunks_mut().0)
}

fn f32(bytes: &[u8], out: &mut [f32]) {
    for (&bytes, value) in bytes.as_chunks().0.iter().zip(out) {
        *value = f32::from_le_bytes(bytes);
    }
}

fn f16(bytes: &[u8], out: &mut [f32]) {
    for (&bytes, value) in bytes.as_chunks().0.iter().zip(out) {
        *value = f16_to_f32(u16::from_le_bytes(bytes));
    }
}

/// An f32 without the lower half of its bits.
fn bf16(bytes: &[u8], out: &mut [f32]) {
    for (&bytes, value) in bytes.as_chunks().0.iter().zip(out) {
        *value = f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;

    fn bytes(hex: &Json) -> Vec<u8> {
        let hex = hex.as_str().unwrap();
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }

    #[test]
    fn every_type_decodes_to_the_bits_of_ggml() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/dequant_blocks.json");
        let fixture: Json = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        for ty in TensorType::ALL.into_iter().filter(|&ty| ty != TensorType::F32) {
            let reference = &fixture["types"][ty.name()];
            assert_eq!(reference["ggml_type_id"], ty.ggml_id());
            assert_eq!(reference["block_size"], ty.block_len());
            assert_eq!(reference["type_size"], ty.block_bytes());
            for case in ["quantized", "random"] {
                let (blocks, expected) = (&reference["cases"][case]["raw_hex"], &reference["cases"][case]["f32_hex"]);
                let expected = bytes(expected);
                let expected: Vec<u32> = expected.as_chunks().0.iter().map(|&bits| u32::from_le_bytes(bits)).collect();
                assert!(expected.len() >= 64);
                let mut out = vec![f32::NAN; expected.len()];
                dequantize(ty, &bytes(blocks), &mut out).unwrap();
                let out: Vec<u32> = out.into_iter().map(f32::to_bits).collect();
                let differing = out.iter().zip(&expected).position(|(a, b)| a != b);
                assert_eq!(differing, None, "{ty} {case}: the first value that differs");
            }
        }
    }

    #[test]
    fn f32_keeps_its_bits() {
        let values = [0.0, -0.0, 1.5, f32::MIN_POSITIVE / 2.0, f32::INFINITY, -3.25e-20];
        let mut out = [f32::NAN; 6];
        dequantize(TensorType::F32, &values.map(f32::to_le_bytes).concat(), &mut out).unwrap();
        assert_eq!(out.map(f32::to_bits), values.map(f32::to_bits));
    }

    #[test]
    fn all_65536_f16_values_are_those_of_the_half_crate() {
        for bits in 0..=u16::MAX {
            let expected = half::f16::from_bits(bits).to_f32();
            let value = f16_to_f32(bits);
            assert!(
                value.to_bits() == expected.to_bits() || value.is_nan() && expected.is_nan(),
                "{bits:#06x}: {value}"
            );
        }
    }

    #[test]
    fn rejects_lengths_that_do_not_agree() {
        for ty in TensorType::ALL {
            let mut out = vec![0.0; 2 * ty.block_len()];
            let exact = vec![0; 2 * ty.block_bytes()];
            assert_eq!(dequantize(ty, &exact, &mut out), Ok(()));
            assert_eq!(dequantize(ty, &[], &mut []), Ok(()));
            for wrong in [&exact[1..], &exact[ty.block_bytes()..], &[], &[&exact[..], &[0]].concat()] {
                let error = dequantize(ty, wrong, &mut out).unwrap_err();
                let text =
                    format!("invalid value for blocks: {} values of type {ty} take {} bytes", out.len(), exact.len());
                assert!(error.to_string().starts_with(&text), "{error}");
            }
        }
        let error = dequantize(TensorType::Q4_0, &[0; 18], &mut [0.0; 31]).unwrap_err().to_string();
        assert_eq!(error, "invalid value for out: 31 values are no whole blocks of 32 of type Q4_0");
    }
}
