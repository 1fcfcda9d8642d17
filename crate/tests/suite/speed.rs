//! How long a decode step takes, how much of it the matrix-vector products are, and how much faster a prompt's tokens go.

use super::say;
use super::smollm2::greedy;
use burn::tensor::{Device, Tensor};
use hearth::generation::{CancelToken, FinishReason, Session};
use hearth::inference::Llama;
use hearth::kernels;
use hearth::models::llama::Logits;
use hearth::tokenizer::BpeTokenizer;
use std::ops::ControlFlow;
use web_time::Instant;

/// Steps that are measured; the median counts.
const STEPS: usize = 5;

/// Tokens of the prompt that is measured.
const PROMPT: usize = 64;

/// Medians, in milliseconds.
#[derive(Debug)]
pub struct DecodeTime {
    /// One greedy token through the whole model, replayed, its id read back.
    pub step_ms: f64,
    /// One token of a prompt, in one pass.
    pub prefill_ms: f64,
    /// The same matrix-vector products alone, and one value read back.
    pub matvec_ms: f64,
    /// What the host needs to enqueue a step.
    pub enqueue_ms: f64,
}

/// Measures all on `device`, where `llama` is.
async fn decode_time(llama: &mut Llama<BpeTokenizer>, device: &Device) -> DecodeTime {
    llama.warm_up().await.expect("runs");
    let session = llama.session_mut();
    let (mut prompts, mut steps, mut products, mut enqueues) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..STEPS {
        session.truncate(0);
        let begin = Instant::now();
        session.forward(&[1; PROMPT], Logits::Last).await.expect("runs");
        prompts.push(milliseconds(begin) / PROMPT as f64);

        steps.extend(greedy_steps(session, PROMPT, 2).await);

        let begin = Instant::now();
        let mut last = None;
        for weight in session.model().weights() {
            let x = Tensor::<3>::ones([1, 1, weight.columns()], device);
            last = Some(kernels::matmul(x, weight));
        }
        let y = last.expect("a model has matrices").slice([0..1, 0..1, 0..1]);
        // Natively the data is only waited for when it is looked at.
        let data = y.into_data_async().await.expect("the device answers");
        data.try_into_vec::<f32>().expect("f32");
        products.push(milliseconds(begin));
        enqueues.push(session.enqueue_time().await.expect("runs").map_or(0.0, |time| time.as_secs_f64() * 1e3));
    }
    DecodeTime {
        step_ms: median(steps),
        prefill_ms: median(prompts),
        matvec_ms: median(products),
        enqueue_ms: median(enqueues),
    }
}

/// Milliseconds of each of `count` greedy steps after a prompt of `length` tokens.
async fn greedy_steps(session: &mut Session, length: usize, count: usize) -> Vec<f64> {
    let cancel = CancelToken::default();
    let next = session.prefill(&vec![1; length], &cancel, |_, _| ()).await.expect("runs").expect("not cancelled");
    let mut times = Vec::new();
    let mut last = Instant::now();
    // The first token is chosen from the prompt's logits; the others are steps.
    let on_token = |_| {
        times.push(milliseconds(last));
        last = Instant::now();
        Ok(if times.len() > count { ControlFlow::Break(FinishReason::Length) } else { ControlFlow::Continue(()) })
    };
    let mut sampler = greedy().build().expect("valid");
    session.decode(next, &mut sampler, &[], &cancel, on_token).await.expect("runs");
    times.split_off(1)
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Measures and prints.
pub async fn report(llama: &mut Llama<BpeTokenizer>, device: &Device) -> DecodeTime {
    let time = decode_time(llama, device).await;
    let DecodeTime { step_ms, prefill_ms, matvec_ms, enqueue_ms } = time;
    let share = 100.0 * matvec_ms / step_ms;
    say!("decode: {step_ms:.0} ms a token, of which matrix-vector products {matvec_ms:.0} ms ({share:.0}%)");
    say!("prefill: {prefill_ms:.0} ms a token of {PROMPT}, {:.1} times as fast as decode", step_ms / prefill_ms);
    say!("enqueueing a step: {enqueue_ms:.2} ms for {} layers", llama.session_mut().model().layers.len());
    time
}

/// How much longer a token takes at the end of a context of 2,048 tokens than after 128.
pub async fn long_context_ratio(llama: &mut Llama<BpeTokenizer>) -> f64 {
    let session = llama.session_mut();
    session.reset();
    let short = median(greedy_steps(session, 128, STEPS).await);
    let long = median(greedy_steps(session, 2048 - STEPS - 1, STEPS).await);
    say!("decode: {short:.0} ms a token after 128 tokens, {long:.0} ms at 2,048 ({:.2} times)", long / short);
    long / short
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
