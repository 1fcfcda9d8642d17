//! How long a decode step takes, how much of it the matrix-vector products are, and how much faster a prompt's tokens go.

use super::say;
use burn::tensor::{Device, Tensor};
use hearth::inference::Llama;
use hearth::kernels::{self, BlockWeight};
use hearth::models::llama::{Logits, Transformer};
use hearth::tokenizer::BpeTokenizer;
use web_time::Instant;

/// Steps that are measured; the median counts.
const STEPS: usize = 5;

/// Tokens of the prompt that is measured.
const PROMPT: usize = 32;

/// Medians, in milliseconds.
#[derive(Debug)]
pub struct DecodeTime {
    /// One token through the whole model, its logits read back.
    pub step_ms: f64,
    /// One token of a prompt of 32, in one pass.
    pub prefill_ms: f64,
    /// The same matrix-vector products alone, and one value read back.
    pub matvec_ms: f64,
}

/// Measures both on `device`, where `llama` is.
async fn decode_time(llama: &mut Llama<BpeTokenizer>, device: &Device) -> DecodeTime {
    llama.warm_up().await.expect("runs");
    let session = llama.session_mut();
    let (mut prompts, mut steps, mut products) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..STEPS {
        session.truncate(0);
        let begin = Instant::now();
        session.forward(&[1; PROMPT], Logits::Last).await.expect("runs");
        prompts.push(begin.elapsed().as_secs_f64() * 1e3 / PROMPT as f64);

        let begin = Instant::now();
        session.forward(&[1], Logits::Last).await.expect("runs");
        steps.push(begin.elapsed().as_secs_f64() * 1e3);

        let begin = Instant::now();
        let mut last = None;
        for weight in matrices(session.model()) {
            let x = Tensor::<3>::ones([1, 1, weight.columns()], device);
            last = Some(kernels::matmul(x, weight));
        }
        let y = last.expect("a model has matrices").slice([0..1, 0..1, 0..1]);
        // Natively the data is only waited for when it is looked at.
        let data = y.into_data_async().await.expect("the device answers");
        data.try_into_vec::<f32>().expect("f32");
        products.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    DecodeTime { step_ms: median(steps), prefill_ms: median(prompts), matvec_ms: median(products) }
}

/// Measures and prints.
pub async fn report(llama: &mut Llama<BpeTokenizer>, device: &Device) -> DecodeTime {
    let time = decode_time(llama, device).await;
    let DecodeTime { step_ms, prefill_ms, matvec_ms } = time;
    let share = 100.0 * matvec_ms / step_ms;
    say!("decode: {step_ms:.0} ms a token, of which matrix-vector products {matvec_ms:.0} ms ({share:.0}%)");
    say!("prefill: {prefill_ms:.0} ms a token of {PROMPT}, {:.1} times as fast as decode", step_ms / prefill_ms);
    time
}

/// Every matrix that a decode step multiplies with.
fn matrices(model: &Transformer) -> Vec<&BlockWeight> {
    let layers = model.layers.iter().flat_map(|layer| {
        let (attention, feed_forward) = (&layer.attention, &layer.feed_forward);
        [&attention.wqkv, &attention.wo.weight, &feed_forward.swiglu.linear_inner_outer, &feed_forward.w2.weight]
    });
    layers.chain([model.head()]).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
