//! The shared checks on the CPU device and on the native GPU adapter (lavapipe where there is no GPU).

#![cfg(not(target_arch = "wasm32"))]

mod suite;

use burn::tensor::Device;
use cubecl::future::block_on;
use hearth::format::TensorType;
use hearth::inference::{Llama, LoadOptions, ModelLoader};
use hearth::tokenizer::BpeTokenizer;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Tests run side by side, except while one measures time.
static CLOCK: RwLock<()> = RwLock::new(());

/// Held by a test that takes what time it takes.
fn beside_others() -> RwLockReadGuard<'static, ()> {
    CLOCK.read().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a test that measures time: no other runs.
fn alone() -> RwLockWriteGuard<'static, ()> {
    CLOCK.write().unwrap_or_else(PoisonError::into_inner)
}

fn gpu() -> Device {
    block_on(hearth::device::open())
        .expect("a Vulkan, Metal or DX12 adapter; on Linux without a GPU install mesa-vulkan-drivers")
}

/// Whether the long sets run too: `npm run verify` sets it.
fn verify() -> bool {
    std::env::var_os("HEARTH_VERIFY").is_some()
}

/// The types that ggml's reference blocks exist for.
fn quantized() -> impl Iterator<Item = TensorType> {
    TensorType::ALL.into_iter().filter(|ty| *ty != TensorType::F32)
}

/// One test a device for each check.
macro_rules! on_both_devices {
    ($($name:ident: $check:expr;)*) => {
        mod cpu {
            use super::*;
            $(#[test] fn $name() { let _guard = beside_others(); block_on($check(hearth::device::cpu())) })*
        }
        mod wgpu {
            use super::*;
            $(#[test] fn $name() { let _guard = beside_others(); block_on($check(gpu())) })*
        }
    };
}

on_both_devices! {
    matmul_matches_the_reference_decoder: async |device| for ty in TensorType::ALL { suite::kernels::matmul(&device, ty).await };
    matmul_matches_ggml: async |device| for ty in quantized() { suite::kernels::matmul_of_ggml_blocks(&device, ty).await };
    embedding_matches_the_reference_decoder: async |device| for ty in TensorType::ALL { suite::kernels::embedding(&device, ty).await };
    stacks_of_several_types_match_f64: async |device| suite::kernels::stacks(&device).await;
    the_residual_stream_matches_f64: async |device| suite::kernels::stream(&device).await;
    extreme_gates_match_f64: async |device| suite::kernels::extreme_gates(&device).await;
    every_tile_gives_the_same_products: async |device| suite::kernels::tiles(&device).await;
    qkv_matches_f64: async |device| suite::kernels::qkv(&device).await;
    attention_matches_f64: async |device| suite::kernels::attention(&device).await;
    sampling_greedy_takes_the_first_of_the_largest: async |device| suite::sampling::greedy(&device).await;
    sampling_top_k_leaves_none_of_the_largest_out: async |device| suite::sampling::top_k(&device).await;
    sampling_penalties_match_the_hosts: async |device| suite::sampling::penalize(&device).await;
    sampling_candidates_draws_what_all_logits_draw: async |device| suite::sampling::draws(&device).await;
    tiny_checkpoints_match_transformers: async |device| for checkpoint in suite::tiny::checkpoints() { suite::tiny::logits_match(&device, &checkpoint).await };
    prefill_in_any_chunks_gives_the_same_logits: async |device| for checkpoint in suite::tiny::few_checkpoints() { suite::tiny::chunks_agree(&device, &checkpoint).await };
    generation_keeps_its_limits: async |device| suite::generation::limits(&device).await;
    cancelling_ends_with_the_token_it_came_in: async |device| suite::generation::cancelling(&device).await;
    the_common_prefix_is_computed_once: async |device| suite::generation::the_prefix_is_kept(&device).await;
    replayed_launches_give_the_same_tokens: async |device| suite::generation::replays(&device).await;
    a_seed_repeats_an_answer: async |device| suite::generation::seeds(&device).await;
    bad_files_get_their_codes: async |device| suite::generation::bad_files(&device).await;
}

#[test]
fn a_head_beyond_one_kernel_argument_is_split_by_rows() {
    let _guard = beside_others();
    block_on(suite::split::large_head(&gpu()));
}

fn smollm2(device: &Device) -> Llama<BpeTokenizer> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/SmolLM2-135M-Instruct.Q4_1.gguf");
    let bytes = std::fs::read(path).expect("the default model: `npm run model` fetches it");
    let mut loader = ModelLoader::new(device, LoadOptions::default());
    loader.push(&bytes).expect("a valid file");
    loader.finish().expect("a whole file")
}

#[test]
fn smollm2_matches_transformers_on_the_cpu() {
    let _guard = beside_others();
    let mut llama = smollm2(&hearth::device::cpu());
    suite::smollm2::template_matches(&llama);
    block_on(async {
        for prompt in suite::smollm2::prompts(usize::MAX) {
            suite::smollm2::prompt_matches(&mut llama, &prompt, 64).await;
        }
        suite::smollm2::passage_matches(&mut llama).await;
    });
}

#[test]
fn smollm2_matches_transformers_on_the_gpu() {
    let _guard = beside_others();
    let mut llama = smollm2(&gpu());
    block_on(async {
        suite::smollm2::opening_is_ready(&mut llama).await;
        let (longest, steps) = if verify() { (usize::MAX, 64) } else { (50, 16) };
        let prompts = suite::smollm2::prompts(longest);
        assert!(prompts.len() >= 3);
        for prompt in prompts {
            suite::smollm2::prompt_matches(&mut llama, &prompt, steps).await;
        }
        if verify() {
            suite::smollm2::passage_matches(&mut llama).await;
        }
    });
}

#[test]
fn a_prompt_is_faster_than_decoding_and_a_long_context_little_slower() {
    let _guard = alone();
    let mut llama = smollm2(&gpu());
    block_on(async {
        let time = suite::speed::report(&mut llama, &gpu()).await;
        assert!(time.prefill_ms < time.step_ms, "{time:?}");
        if verify() {
            let ratio = suite::speed::long_context_ratio(&mut llama).await;
            assert!(ratio <= 1.7, "{ratio}");
        }
    });
}

/// Printed always, judged by `npm run verify` alone, since another load on the machine falsifies it.
#[test]
fn every_type_is_about_as_fast_as_the_arithmetic_allows() {
    let _guard = alone();
    let slow = block_on(suite::rates::slow_types(&gpu()));
    assert!(!verify() || slow.is_empty(), "{slow:?}");
}
