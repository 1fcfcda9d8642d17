//! The shared checks in a real browser's dedicated worker, over WebGPU: `npm run test:web`.

#![cfg(target_arch = "wasm32")]

mod suite;

use burn::tensor::Device;
use cubecl::ir::{ElemType, FloatKind};
use hearth::chat::Message;
use hearth::format::TensorType;
use hearth::generation::CancelToken;
use hearth::inference::{ChatPrompt, GenerationEvent, GenerationOptions, Llama, LoadOptions, ModelLoader};
use hearth::tokenizer::{BpeTokenizer, Tokenizer};
use js_sys::Uint8Array;
use wasm_bindgen::prelude::*;
use wasm_bindgen_test::*;

wasm_bindgen_test_configure!(run_in_dedicated_worker);

#[wasm_bindgen(inline_js = "
    export async function fetchBytes(path) {
        const response = await fetch(new URL(path, self.location.origin));
        if (!response.ok) throw new Error(`${path}: HTTP ${response.status}; \\`npm run model\\` fetches the model`);
        return new Uint8Array(await response.arrayBuffer());
    }
")]
extern "C" {
    #[wasm_bindgen(js_name = fetchBytes, catch)]
    async fn fetch_bytes(path: &str) -> Result<JsValue, JsValue>;
}

async fn gpu() -> Device {
    hearth::device::open().await.expect("a WebGPU device")
}

/// The default model, as the test server serves it from the checkout, pushed in chunks as a download does.
async fn smollm2() -> Llama<BpeTokenizer> {
    const CHUNK: u32 = 1 << 20;
    let bytes = fetch_bytes("/models/SmolLM2-135M-Instruct.Q4_1.gguf").await.expect("the default model");
    let bytes = Uint8Array::from(bytes);
    let mut loader = ModelLoader::new(&gpu().await, LoadOptions::default());
    for start in (0..bytes.length()).step_by(CHUNK as usize) {
        loader.push(&bytes.subarray(start, start + CHUNK).to_vec()).expect("a valid file");
        hearth::device::sync_gpu().await.expect("uploads");
    }
    loader.finish().expect("a whole file")
}

#[wasm_bindgen_test]
async fn the_device_opens_and_a_second_call_gives_the_same() {
    assert_eq!(gpu().await, gpu().await);
    let info = hearth::device::DeviceInfo::of_gpu();
    assert!(info.backend.contains("wgpu"), "{info:?}");
    assert!(info.max_bindings >= 8, "{info:?}");
}

/// Everything here may be repeated on another adapter (`HEARTH_ADAPTER` when this is compiled); that is worth nothing where it runs on the first one again.
#[wasm_bindgen_test]
async fn the_adapter_is_the_one_that_was_asked_for() {
    gpu().await;
    let limit = hearth::device::DeviceInfo::of_gpu().max_buffer_bytes;
    let client = burn_cubecl::CubeDevice::Wgpu(Default::default()).client();
    let has_f16 = client.properties().supports_type(ElemType::Float(FloatKind::F16));
    match option_env!("HEARTH_ADAPTER") {
        Some("f16") => assert_eq!((limit, has_f16), (128 << 20, true)),
        Some(other) => panic!("there is no adapter {other}"),
        None => {}
    }
}

#[wasm_bindgen_test]
async fn matmul_matches_the_reference_decoder() {
    for ty in TensorType::ALL {
        suite::kernels::matmul(&gpu().await, ty).await;
    }
}

#[wasm_bindgen_test]
async fn matmul_matches_ggml() {
    for ty in TensorType::ALL.into_iter().filter(|ty| *ty != TensorType::F32) {
        suite::kernels::matmul_of_ggml_blocks(&gpu().await, ty).await;
    }
}

#[wasm_bindgen_test]
async fn embedding_matches_the_reference_decoder() {
    for ty in TensorType::ALL {
        suite::kernels::embedding(&gpu().await, ty).await;
    }
}

#[wasm_bindgen_test]
async fn fused_projections_match_f64() {
    suite::kernels::stacks(&gpu().await).await;
    suite::kernels::stream(&gpu().await).await;
    suite::kernels::extreme_gates(&gpu().await).await;
}

#[wasm_bindgen_test]
async fn every_tile_gives_the_same_products() {
    suite::kernels::tiles(&gpu().await).await;
}

#[wasm_bindgen_test]
async fn qkv_matches_f64() {
    suite::kernels::qkv(&gpu().await).await;
}

#[wasm_bindgen_test]
async fn attention_matches_f64() {
    suite::kernels::attention(&gpu().await).await;
}

#[wasm_bindgen_test]
async fn sampling_greedy_takes_the_first_of_the_largest() {
    suite::sampling::greedy(&gpu().await).await;
}

#[wasm_bindgen_test]
async fn sampling_top_k_leaves_none_of_the_largest_out() {
    suite::sampling::top_k(&gpu().await).await;
}

#[wasm_bindgen_test]
async fn sampling_penalties_match_the_hosts() {
    suite::sampling::penalize(&gpu().await).await;
}

#[wasm_bindgen_test]
async fn sampling_candidates_draws_what_all_logits_draw() {
    suite::sampling::draws(&gpu().await).await;
}

#[wasm_bindgen_test]
async fn tiny_checkpoints_match_transformers() {
    for checkpoint in suite::tiny::checkpoints() {
        suite::tiny::logits_match(&gpu().await, &checkpoint).await;
    }
}

#[wasm_bindgen_test]
async fn prefill_in_any_chunks_gives_the_same_logits() {
    for checkpoint in suite::tiny::few_checkpoints() {
        suite::tiny::chunks_agree(&gpu().await, &checkpoint).await;
    }
}

#[wasm_bindgen_test]
async fn generation_keeps_its_promises() {
    let device = gpu().await;
    suite::generation::limits(&device).await;
    suite::generation::cancelling(&device).await;
    suite::generation::the_prefix_is_kept(&device).await;
    suite::generation::replays(&device).await;
    suite::generation::seeds(&device).await;
    suite::generation::bad_files(&device).await;
}

#[wasm_bindgen_test]
async fn a_head_beyond_one_kernel_argument_is_split_by_rows() {
    suite::split::large_head(&gpu().await).await;
}

/// One load for everything that needs the real model: its tokenizer, its template, a five-token generation, and the reference's prompts.
#[wasm_bindgen_test]
async fn smollm2_matches_transformers() {
    let mut llama = smollm2().await;

    let ids = llama.tokenizer().encode("The ocean is deep.", false, false).expect("encodes");
    assert_eq!(llama.tokenizer().decode(&ids).expect("decodes"), "The ocean is deep.");

    let prompt = ChatPrompt { messages: vec![Message::user("What is the capital of France?")], now: None };
    suite::smollm2::template_matches(&llama);
    let options = GenerationOptions { sampler: suite::smollm2::greedy(), max_tokens: 5, stop: Vec::new() };
    let mut streamed = String::new();
    let completion = llama
        .chat(&prompt, &options, &CancelToken::default(), |event| {
            if let GenerationEvent::Text { text, .. } = event {
                streamed.push_str(text);
            }
        })
        .await
        .expect("answers");
    assert_eq!(streamed, completion.text);
    assert_eq!(completion.usage.completion_tokens, 5);

    suite::smollm2::opening_is_ready(&mut llama).await;

    let time = suite::speed::report(&mut llama, &gpu().await).await;
    assert!(time.step_ms <= 2000.0, "{time:?}");
    // Timings that another load on the machine falsifies are judged only where that was asked for when this was compiled.
    if option_env!("HEARTH_VERIFY").is_some() {
        assert!(time.matvec_ms >= 0.7 * time.step_ms, "{time:?}");
        // 2 ms for a model of 16 layers.
        assert!(time.enqueue_ms <= 2.0 / 16.0 * llama.session_mut().model().layers.len() as f64, "{time:?}");
        let ratio = suite::speed::long_context_ratio(&mut llama).await;
        assert!(ratio <= 1.7, "{ratio}");
    }

    let prompts = suite::smollm2::prompts(50);
    assert!(prompts.len() >= 3);
    for prompt in prompts {
        suite::smollm2::prompt_matches(&mut llama, &prompt, 16).await;
    }
}

/// Timings: printed always, and judged where `HEARTH_VERIFY` was set when this was compiled.
#[wasm_bindgen_test]
async fn every_type_is_about_as_fast_as_the_arithmetic_allows() {
    let slow = suite::rates::slow_types(&gpu().await).await;
    assert!(option_env!("HEARTH_VERIFY").is_none() || slow.is_empty(), "{slow:?}");
}
