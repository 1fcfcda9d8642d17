//! The tiny checkpoints (random weights; Llama 3.2's and TinyLlama's architecture) against Hugging Face transformers in `f32`.

use super::{fixture, floats, relative_diff};
use burn::tensor::Device;
use hearth::error::Result;
use hearth::inference::{Llama, LoadOptions, ModelLoader};
use hearth::kernels::KvPrecision;
use hearth::models::llama::Logits;
use hearth::tokenizer::BpeTokenizer;
use serde_json::Value;

/// Logits may differ from the reference by this share of the largest.
const TOLERANCE: f32 = 1e-3;

/// A checkpoint in one tensor type.
pub struct Checkpoint {
    /// For messages.
    pub name: &'static str,
    ty: &'static str,
    gguf: &'static [u8],
    reference: &'static [u8],
    /// All positions' logits of the sequence of 130 tokens, where the file's weights are those of the reference.
    logits_130: Option<&'static [u8]>,
}

/// Every checkpoint.
pub fn checkpoints() -> Vec<Checkpoint> {
    macro_rules! checkpoint {
        ($model:literal, $ty:literal, $lossless:expr) => {
            Checkpoint {
                name: concat!($model, " ", $ty),
                ty: $ty,
                gguf: fixture!("tiny/", $model, "/", $ty, ".gguf"),
                reference: fixture!("tiny/", $model, "/reference.json"),
                logits_130: if $lossless { Some(fixture!("tiny/", $model, "/logits_130.f32")) } else { None },
            }
        };
    }
    vec![
        checkpoint!("llama32", "F16", true),
        checkpoint!("llama32", "Q8_0", false),
        checkpoint!("llama32", "Q4_0", false),
        checkpoint!("llama32", "Q4_1", false),
        checkpoint!("llama32", "Q5_0", false),
        checkpoint!("llama32", "Q5_1", false),
        checkpoint!("llama32", "Q2_K", false),
        checkpoint!("llama32", "Q3_K", false),
        checkpoint!("llama32", "Q4_K", false),
        checkpoint!("llama32", "Q4_K_M", false),
        checkpoint!("llama32", "Q5_K", false),
        checkpoint!("llama32", "Q6_K", false),
        checkpoint!("llama32", "IQ4_NL", false),
        checkpoint!("llama32", "IQ4_XS", false),
        checkpoint!("tinyllama", "F32", true),
        checkpoint!("tinyllama", "F16", true),
        checkpoint!("tinyllama", "BF16", true),
        checkpoint!("tinyllama", "Q8_0", false),
        checkpoint!("tinyllama", "Q4_0", false),
    ]
}

/// Those that differ in more than the type of their matrices: both architectures, and a mixture of types.
pub fn few_checkpoints() -> Vec<Checkpoint> {
    checkpoints()
        .into_iter()
        .filter(|checkpoint| ["llama32 F16", "llama32 Q4_K_M", "tinyllama Q4_0"].contains(&checkpoint.name))
        .collect()
}

impl Checkpoint {
    /// The model on `device`, pushed in chunks that end inside fields and tensors.
    pub fn load(&self, device: &Device, max_seq_len: usize) -> Llama<BpeTokenizer> {
        load(self.gguf, device, max_seq_len).expect("a valid file")
    }

    /// The file.
    pub fn gguf(&self) -> &'static [u8] {
        self.gguf
    }

    /// The first tokens that the reference generates after its sequence of 33.
    pub fn greedy_after_33(&self) -> Vec<u32> {
        ids(&self.reference()["greedy32_after_33"])
    }

    fn reference(&self) -> Value {
        serde_json::from_slice(self.reference).expect("JSON")
    }

    /// The reference's input of `length` tokens.
    pub fn sequence(&self, length: usize) -> Vec<u32> {
        let reference = self.reference();
        ids(&reference["seqs"][length.to_string()])
    }
}

/// Loads a file from memory, pushed in chunks.
pub fn load(gguf: &[u8], device: &Device, max_seq_len: usize) -> Result<Llama<BpeTokenizer>> {
    // As exact as the reference.
    let kv_precision = KvPrecision::F32;
    let mut loader = ModelLoader::new(device, LoadOptions { max_seq_len, kv_precision });
    for chunk in gguf.chunks(9973) {
        loader.push(chunk)?;
    }
    loader.finish()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

/// Logits after 7 and 130 tokens equal those of the reference with the same (dequantized) weights, and all 130 positions' where it has them.
pub async fn logits_match(device: &Device, checkpoint: &Checkpoint) {
    let mut session = checkpoint.load(device, 2048).into_session();
    for length in [7, 130] {
        let expected = &checkpoint.reference()["gguf"][checkpoint.ty]["hf_deq_last"][length.to_string()];
        let expected: Vec<f32> =
            expected.as_array().expect("logits").iter().map(|v| v.as_f64().expect("f32") as f32).collect();
        session.reset();
        let last = session.forward(&checkpoint.sequence(length), Logits::Last).await.expect("runs");
        let diff = relative_diff(&last, &expected);
        assert!(diff <= TOLERANCE, "{} after {length} tokens: relative difference {diff:e}", checkpoint.name);
    }
    if let Some(all) = checkpoint.logits_130 {
        session.reset();
        let logits = session.forward(&checkpoint.sequence(130), Logits::All).await.expect("runs");
        let diff = relative_diff(&logits, &floats(all));
        assert!(diff <= TOLERANCE, "{} at all positions: relative difference {diff:e}", checkpoint.name);
    }
}

/// One pass, chunks of 1, 7 and 64, and a rewind that replaces the end, all give the same last logits.
pub async fn chunks_agree(device: &Device, checkpoint: &Checkpoint) {
    let tokens = checkpoint.sequence(130);
    let mut session = checkpoint.load(device, 2048).into_session();
    let whole = session.forward(&tokens, Logits::Last).await.expect("runs");
    for size in [1, 7, 64] {
        session.reset();
        let mut last = Vec::new();
        for chunk in tokens.chunks(size) {
            last = session.forward(chunk, Logits::Last).await.expect("runs");
        }
        let diff = relative_diff(&last, &whole);
        assert!(diff <= TOLERANCE, "{} in chunks of {size}: relative difference {diff:e}", checkpoint.name);
    }
    session.truncate(100);
    session.forward(&tokens[..9], Logits::Last).await.expect("runs");
    assert_eq!(session.keep_prefix(&tokens), 100);
    let last = session.forward(&tokens[100..], Logits::Last).await.expect("runs");
    assert!(relative_diff(&last, &whole) <= TOLERANCE, "{} after a rewind", checkpoint.name);
}
