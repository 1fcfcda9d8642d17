//! The checks that hold on every device: run natively on the CPU and on a GPU by `native.rs`, and in a browser by `web.rs`.
//!
//! References come from elsewhere: `tests/fixtures/` (Hugging Face transformers, ggml), or the exact decoders and `f64` loops here.

pub mod bare;
pub mod generation;
pub mod kernels;
pub mod rates;
pub mod sampling;
pub mod smollm2;
pub mod speed;
pub mod split;
pub mod tiny;

/// The bytes of a file under `tests/fixtures/`, in the test binary (a browser has no files).
macro_rules! fixture {
    ($($path:literal),+) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/", $($path),+)).as_slice()
    };
}
pub(crate) use fixture;

/// Prints a line, in a browser to its console.
macro_rules! say {
    ($($arguments:tt)*) => {{
        #[cfg(target_arch = "wasm32")]
        wasm_bindgen_test::console_log!($($arguments)*);
        #[cfg(not(target_arch = "wasm32"))]
        println!($($arguments)*);
    }};
}
pub(crate) use say;

/// Little-endian `f32` values.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// The largest difference of two vectors; infinite where one holds a NaN.
pub fn max_abs_diff(actual: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(actual.len(), expected.len(), "lengths differ");
    let differences = actual.iter().zip(expected).map(|(a, e)| (a - e).abs());
    differences.map(|diff| if diff.is_nan() { f32::INFINITY } else { diff }).fold(0.0, f32::max)
}

/// The largest difference over the largest magnitude of what was expected.
pub fn relative_diff(actual: &[f32], expected: &[f32]) -> f32 {
    max_abs_diff(actual, expected) / expected.iter().fold(f32::MIN_POSITIVE, |max, e| max.max(e.abs()))
}

/// The index of the largest value, the first of equal ones.
pub fn argmax(values: &[f32]) -> usize {
    values.iter().enumerate().fold(0, |best, (i, value)| if *value > values[best] { i } else { best })
}
