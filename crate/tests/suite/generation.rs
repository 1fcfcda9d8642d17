//! What a generation promises besides right logits: limits, cancelling, the kept prefix, repeatable sampling; and what a bad file gets.

use super::tiny::{Checkpoint, checkpoints, load};
use burn::tensor::Device;
use hearth::error::Error;
use hearth::generation::sampler::SamplerConfig;
use hearth::generation::{CancelToken, FinishReason};
use hearth::inference::{Completion, GenerationEvent, GenerationOptions, Llama};
use hearth::tokenizer::BpeTokenizer;
use std::ops::ControlFlow;

fn llama32() -> Checkpoint {
    checkpoints().swap_remove(0)
}

fn options(temperature: f32, seed: u64, max_tokens: usize) -> GenerationOptions {
    GenerationOptions {
        sampler: SamplerConfig { temperature, seed, ..SamplerConfig::default() },
        max_tokens,
        stop: Vec::new(),
    }
}

async fn complete(llama: &mut Llama<BpeTokenizer>, prompt: &[u32], options: &GenerationOptions) -> Completion {
    llama.complete(prompt, options, &CancelToken::default(), |_| ()).await.expect("runs")
}

/// Greedy tokens are the reference's, an answer ends at its limit and at the context's, and a prompt that does not fit is refused.
pub async fn limits(device: &Device) {
    let checkpoint = llama32();
    let (prompt, expected) = (checkpoint.sequence(33), checkpoint.greedy_after_33());
    let mut llama = checkpoint.load(device, 40);

    let completion = complete(&mut llama, &prompt, &options(0.0, 0, 5)).await;
    assert_eq!((completion.finish_reason, completion.usage.completion_tokens), (FinishReason::Length, 5));
    let session = llama.session_mut();
    assert_eq!(session.tokens()[33..], expected[..session.tokens().len() - 33]);

    let completion = complete(&mut llama, &prompt, &options(0.0, 0, 100)).await;
    // The context holds 40: seven after the prompt, and the last one needs no place.
    assert_eq!((completion.finish_reason, completion.usage.completion_tokens), (FinishReason::Length, 8));

    let long = checkpoint.sequence(130);
    let error = llama.complete(&long, &options(0.0, 0, 1), &CancelToken::default(), |_| ()).await.unwrap_err();
    assert_eq!(error, Error::ContextLengthExceeded { actual: 130, max: 40 });
}

/// Cancelling ends the answer with the token that it came in, and the next answer is as if nothing had happened.
pub async fn cancelling(device: &Device) {
    let checkpoint = llama32();
    let prompt = checkpoint.sequence(7);
    let mut llama = checkpoint.load(device, 128);
    let whole = complete(&mut llama, &prompt, &options(0.0, 0, 12)).await;

    let cancel = CancelToken::default();
    let cancelled = llama
        .complete(&prompt, &options(0.0, 0, 12), &cancel, |event| {
            if let GenerationEvent::Text { tokens: 3, .. } = event {
                cancel.cancel();
            }
        })
        .await
        .expect("runs");
    assert_eq!((cancelled.finish_reason, cancelled.usage.completion_tokens), (FinishReason::Cancelled, 3));
    assert!(whole.text.starts_with(cancelled.text.trim_end_matches(char::REPLACEMENT_CHARACTER)));
    assert_eq!(complete(&mut llama, &prompt, &options(0.0, 0, 12)).await.text, whole.text);
}

/// A prompt that goes on from the last one computes only what is new, and its answer is that of a cold run.
pub async fn the_prefix_is_kept(device: &Device) {
    let checkpoint = llama32();
    let long = checkpoint.sequence(130);
    let mut llama = checkpoint.load(device, 256);
    let cold = complete(&mut llama, &long, &options(0.0, 0, 8)).await;
    assert_eq!(cold.usage.cached_tokens, 0);

    llama.session_mut().reset();
    complete(&mut llama, &long[..60], &options(0.0, 0, 4)).await;
    let mut prefill = Vec::new();
    let warm = llama
        .complete(&long, &options(0.0, 0, 8), &CancelToken::default(), |event| {
            if let GenerationEvent::Prefill { done, total } = event {
                prefill.push((done, total));
            }
        })
        .await
        .expect("runs");
    assert_eq!(prefill, [(60, 130), (124, 130), (130, 130)]);
    assert_eq!((warm.usage.cached_tokens, warm.usage.prompt_tokens), (60, 130));
    assert_eq!(warm.text, cold.text);
}

/// The same seed gives the same answer, another seed another.
pub async fn seeds(device: &Device) {
    let checkpoint = llama32();
    let prompt = checkpoint.sequence(7);
    let mut llama = checkpoint.load(device, 128);
    let first = complete(&mut llama, &prompt, &options(1.0, 1, 16)).await.text;
    assert_eq!(complete(&mut llama, &prompt, &options(1.0, 1, 16)).await.text, first);
    assert_ne!(complete(&mut llama, &prompt, &options(1.0, 2, 16)).await.text, first);
}

/// Each kind of bad file gets its code, and a message that names what is wrong.
pub async fn bad_files(device: &Device) {
    let good = llama32().gguf();
    let edited = |from: &[u8], to: &[u8]| {
        let at = good.windows(from.len()).position(|window| window == from).expect("the file holds it");
        let mut bytes = good.to_vec();
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    };
    let architecture = b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama";
    let mamba = b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0mamba";
    for (what, bytes, code, words) in [
        ("another architecture", edited(architecture, mamba), "unsupported_model", "mamba"),
        (
            "a missing tensor",
            edited(b"blk.1.ffn_up.weight", b"blk.1.ffn_UP.weight"),
            "invalid_file",
            "blk.1.ffn_up.weight",
        ),
        ("no heads", edited(b"head_count\x04\0\0\0\x04", b"head_count\x04\0\0\0\x00"), "invalid_file", "head_count"),
        ("a truncated file", good[..good.len() - 1].to_vec(), "truncated_file", "truncated"),
        ("no file", Vec::new(), "truncated_file", "header"),
    ] {
        let error = load(&bytes, device, 128).expect_err(what);
        assert_eq!(error.code(), code, "{what}: {error}");
        assert!(error.to_string().contains(words), "{what}: {error}");
    }
}

/// Replayed launches give the tokens that launches enqueued anew give, over 256 tokens: greedy ones, penalized ones, and drawn ones; and the reference's where it goes.
pub async fn replays(device: &Device) {
    let checkpoint = llama32();
    let prompt = checkpoint.sequence(33);
    let mut llama = checkpoint.load(device, 512);
    for sampler in [
        SamplerConfig { temperature: 0.0, ..SamplerConfig::default() },
        SamplerConfig { temperature: 0.0, repetition_penalty: 1.3, ..SamplerConfig::default() },
        SamplerConfig { temperature: 1.0, seed: 7, frequency_penalty: 0.2, ..SamplerConfig::default() },
        SamplerConfig { temperature: 1.0, seed: 7, top_k: 0, ..SamplerConfig::default() },
    ] {
        let mut answers = Vec::new();
        for replay in [true, false] {
            let session = llama.session_mut();
            session.set_replay(replay);
            session.reset();
            let cancel = CancelToken::default();
            let next = session.prefill(&prompt, &cancel, |_, _| ()).await.expect("runs").expect("not cancelled");
            let mut tokens = Vec::new();
            let on_token = |token| {
                tokens.push(token);
                Ok(if tokens.len() == 256 {
                    ControlFlow::Break(FinishReason::Length)
                } else {
                    ControlFlow::Continue(())
                })
            };
            session.decode(next, &mut sampler.build().expect("valid"), &[], &cancel, on_token).await.expect("runs");
            answers.push(tokens);
        }
        assert_eq!(answers[0].len(), 256);
        assert_eq!(answers[0], answers[1], "{sampler:?}");
        if sampler.temperature == 0.0 && sampler.repetition_penalty == 1.0 {
            let expected = checkpoint.greedy_after_33();
            assert_eq!(answers[0][..expected.len()], expected);
        }
    }
}
