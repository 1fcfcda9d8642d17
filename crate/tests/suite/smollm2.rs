//! SmolLM2-135M-Instruct Q4_1, the default model, against Hugging Face transformers in `f32` on the same (dequantized) weights.

use super::{argmax, fixture, floats, max_abs_diff, say};
use hearth::chat::Message;
use hearth::generation::sampler::SamplerConfig;
use hearth::generation::{CancelToken, FinishReason};
use hearth::inference::{ChatPrompt, GenerationOptions, Llama};
use hearth::tokenizer::{BpeTokenizer, Tokenizer};
use serde_json::Value;
use std::ops::ControlFlow;

/// Logits may differ from the reference by this much.
const LOGIT_TOLERANCE: f32 = 0.02;

/// One of the reference's prompts.
pub struct Prompt {
    /// For messages.
    pub name: String,
    ids: Vec<u32>,
    greedy_ids: Vec<u32>,
    margins: Vec<f64>,
    /// The largest of the last position's logits.
    top: Vec<(usize, f32)>,
    /// All of them, where the fixtures hold them.
    logits: Option<Vec<f32>>,
}

/// Always the likeliest token.
pub fn greedy() -> SamplerConfig {
    SamplerConfig { temperature: 0.0, ..SamplerConfig::default() }
}

fn reference() -> Value {
    serde_json::from_slice(fixture!("smollm2/hf_f32.json")).expect("JSON")
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

/// The reference's prompts of up to `longest` tokens.
pub fn prompts(longest: usize) -> Vec<Prompt> {
    let reference = reference();
    let prompts = reference["prompts"].as_array().expect("prompts").iter().map(|prompt| {
        let name = prompt["name"].as_str().expect("a name").to_owned();
        let logits = match name.as_str() {
            "ocean" => Some(floats(fixture!("smollm2/last_logits_ocean.f32"))),
            "raw_one_token" => Some(floats(fixture!("smollm2/last_logits_raw_one_token.f32"))),
            "long_summary" => Some(floats(fixture!("smollm2/last_logits_long_summary.f32"))),
            "unicode" => Some(floats(fixture!("smollm2/last_logits_unicode.f32"))),
            _ => None,
        };
        let top = prompt["last_logits"]["top20"].as_array().expect("top20").iter();
        Prompt {
            name,
            ids: ids(&prompt["prompt_ids"]),
            greedy_ids: ids(&prompt["greedy_ids"]),
            margins: prompt["margins"].as_array().expect("margins").iter().map(|m| m.as_f64().expect("f64")).collect(),
            top: top
                .map(|pair| (pair[0].as_u64().expect("id") as usize, pair[1].as_f64().expect("f64") as f32))
                .collect(),
            logits,
        }
    });
    prompts.filter(|prompt| prompt.ids.len() <= longest).collect()
}

/// Every conversation of the reference becomes the reference's token ids, through the model's own template and tokenizer.
pub fn template_matches(llama: &Llama<BpeTokenizer>) {
    let mut conversations = 0;
    for prompt in reference()["prompts"].as_array().expect("prompts") {
        if let Ok(messages) = serde_json::from_value::<Vec<Message>>(prompt["messages"].clone()) {
            let encoded = llama.encode_chat(&ChatPrompt { messages, now: None }).expect("renders");
            assert_eq!(encoded, ids(&prompt["prompt_ids"]), "{}", prompt["name"]);
            conversations += 1;
        }
    }
    assert_eq!(conversations, 7);
}

/// After a warm-up, and again after a reset, what the reference's conversations have in common need not be computed, and the answer is the reference's.
pub async fn opening_is_ready(llama: &mut Llama<BpeTokenizer>) {
    const STEPS: usize = 8;
    let reference = reference();
    let asked = |name: &str| {
        let mut prompts = reference["prompts"].as_array().expect("prompts").iter();
        prompts.find(|prompt| prompt["name"] == name).expect("one of the prompts")
    };
    let (ocean, other) = (asked("ocean"), asked("long_summary"));
    let common =
        ids(&ocean["prompt_ids"]).into_iter().zip(ids(&other["prompt_ids"])).take_while(|(a, b)| a == b).count();
    assert!(common > 10, "the model has a system prompt of its own");

    llama.warm_up().await.expect("runs");
    let prompt =
        ChatPrompt { messages: serde_json::from_value(ocean["messages"].clone()).expect("messages"), now: None };
    let options = GenerationOptions { sampler: greedy(), max_tokens: STEPS, stop: Vec::new() };
    for _ in 0..2 {
        let completion = llama.chat(&prompt, &options, &CancelToken::default(), |_| ()).await.expect("answers");
        assert_eq!(completion.usage.cached_tokens, common);
        let expected = llama.tokenizer().decode(&ids(&ocean["greedy_ids"])[..STEPS]).expect("decodes");
        assert_eq!(completion.text, expected);
        llama.reset();
    }
}

/// The last position's logits are the reference's, and so are the first `steps` greedy tokens after them (the reference ran past the end of text).
pub async fn prompt_matches(llama: &mut Llama<BpeTokenizer>, prompt: &Prompt, steps: usize) {
    let session = llama.session_mut();
    session.reset();
    let cancel = CancelToken::default();
    let next = session.prefill(&prompt.ids, &cancel, |_, _| ()).await.expect("runs").expect("not cancelled");
    let logits = next.read().await.expect("the device answers");

    let top: (Vec<f32>, Vec<f32>) = prompt.top.iter().map(|(id, logit)| (logits[*id], *logit)).unzip();
    let mut diff = max_abs_diff(&top.0, &top.1);
    if let Some(expected) = &prompt.logits {
        diff = diff.max(max_abs_diff(&logits, expected));
    }
    assert!(diff <= LOGIT_TOLERANCE, "{}: logits differ by {diff}", prompt.name);
    assert_eq!(argmax(&logits), prompt.top[0].0, "{}: top-1", prompt.name);

    let mut generated = Vec::new();
    let mut sampler = greedy().build().expect("valid");
    let reason = session
        .decode(next, &mut sampler, &[], &cancel, |token| {
            generated.push(token);
            Ok(if generated.len() == steps {
                ControlFlow::Break(FinishReason::Length)
            } else {
                ControlFlow::Continue(())
            })
        })
        .await
        .expect("runs");
    assert_eq!(reason, FinishReason::Length);
    if let Some(step) = (0..steps).find(|step| generated[*step] != prompt.greedy_ids[*step]) {
        panic!(
            "{}: greedy token {step} differs; the reference's margin there is {}",
            prompt.name, prompt.margins[step]
        );
    }
    say!("{}: {} tokens, logits within {diff:.5}, {steps} greedy tokens equal", prompt.name, prompt.ids.len());
}

/// The passage's negative log-likelihood is within 0.1% of the reference's, and the top-1 of at least 99.5% of its positions is the same.
#[cfg(not(target_arch = "wasm32"))]
pub async fn passage_matches(llama: &mut Llama<BpeTokenizer>) {
    let reference = reference();
    let passage = &reference["nll"]["alice"];
    let tokens = ids(&passage["ids"]);
    let expected_top1 = ids(&passage["argmax_ids"]);
    let expected_nll = passage["sum_nll"].as_f64().expect("f64");

    let session = llama.session_mut();
    session.reset();
    let mut top1 = Vec::new();
    for chunk in tokens.chunks(64) {
        let logits = session.forward(chunk, hearth::models::llama::Logits::All).await.expect("runs");
        top1.extend(logits.chunks(logits.len() / chunk.len()).map(|row| argmax(row) as u32));
    }
    let agree = top1.iter().zip(&expected_top1).filter(|(a, b)| a == b).count() as f64 / top1.len() as f64;
    assert!(agree >= 0.995, "top-1 agreement {agree}");

    let nll: f64 = llama.negative_log_likelihood(&tokens).await.expect("runs").iter().sum();
    let relative = (nll - expected_nll).abs() / expected_nll;
    assert!(relative <= 1e-3, "NLL {nll} instead of {expected_nll}");
    say!("passage: NLL {nll:.3} (reference {expected_nll:.3}), top-1 agreement {:.2}%", 100.0 * agree);
}
