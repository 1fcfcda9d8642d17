//! A matrix that is larger than what a device takes as one kernel argument, in a product and in a lookup.

use super::kernels::{Mix, assert_close, doubles, ids, random_blocks, read, tensor};
use burn::tensor::{Device, Tensor};
use hearth::device::DeviceInfo;
use hearth::format::TensorType;
use hearth::kernels::{self, BlockShape, BlockWeight};
use hearth::quant::dequantize;

/// Head and embedding of Llama 3.2 1B, in the type that files of mixed 4 bits have them in.
const HEAD: BlockShape = BlockShape { ty: TensorType::Q6_K, rows: 128_256, columns: 2048 };
/// What the codes of the head take on a device: more than the 128 MiB that every device has to take at once.
const HEAD_BYTES: u64 = (HEAD.rows * HEAD.columns * 6 / 8) as u64;

/// The head lies on `device`, the GPU, in as many parts as its limit asks for, and neither a product, for one token and for several, nor a lookup shows
/// where one ends and the next begins.
pub async fn large_head(device: &Device) {
    let mut mix = Mix(300);
    let blocks = random_blocks(&mut mix, HEAD.ty, HEAD.rows * HEAD.columns);
    let weight = BlockWeight::from_blocks(HEAD, &blocks, device).expect("packs");

    let limit = DeviceInfo::of_gpu().max_buffer_bytes;
    let parts = weight.parts();
    assert!(parts.len() as u64 >= HEAD_BYTES.div_ceil(limit), "{} parts for a limit of {limit} bytes", parts.len());
    assert_eq!(parts.len() > 1, HEAD_BYTES > limit, "{} parts for a limit of {limit} bytes", parts.len());
    assert_eq!(parts.iter().map(|part| part.shape().rows).sum::<usize>(), HEAD.rows);

    let mut row = vec![0.0; HEAD.columns];
    let row_blocks = || blocks.chunks(blocks.len() / HEAD.rows);
    let batches = [1, 5].map(|tokens| (tokens, mix.floats(tokens * HEAD.columns)));
    let mut expected = batches.each_ref().map(|(tokens, _)| vec![0.0; tokens * HEAD.rows]);
    for (index, blocks) in row_blocks().enumerate() {
        dequantize(HEAD.ty, blocks, &mut row).expect("valid blocks");
        for ((_, x), expected) in batches.iter().zip(&mut expected) {
            for (token, x) in x.chunks(HEAD.columns).enumerate() {
                let terms = x.iter().zip(&row).map(|(x, w)| f64::from(*x) * f64::from(*w));
                expected[token * HEAD.rows + index] = terms.sum();
            }
        }
    }
    for ((tokens, x), expected) in batches.iter().zip(&expected) {
        let y = kernels::matmul(tensor(x, [1, *tokens, HEAD.columns], device), &weight);
        assert_close(&read(y).await, expected, &format!("product of {tokens} with {} parts", parts.len()));
    }

    let mut tokens = vec![0, HEAD.rows - 1];
    let mut boundary = 0;
    for part in &parts[1..] {
        boundary += part.shape().rows;
        tokens.extend([boundary - 1, boundary]);
    }
    let mut rows = Vec::new();
    for token in &tokens {
        dequantize(HEAD.ty, row_blocks().nth(*token).expect("a row"), &mut row).expect("valid blocks");
        rows.extend_from_slice(&row);
    }
    let words: Vec<u32> = tokens.iter().map(|token| *token as u32).collect();
    let tokens = ids(&words, [1, words.len()], device);
    let stream = kernels::embed(tokens, &weight, Tensor::ones([HEAD.columns], device));
    assert_close(&read(stream.hidden()).await, &doubles(&rows), &format!("lookup in {} parts", parts.len()));
}
