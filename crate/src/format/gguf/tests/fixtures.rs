//! Files that llama.cpp wrote, compared with what other programs say of them.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::super::{Array, Metadata, Value};
use super::{Recording, parse};
use crate::test_fixtures::read;

fn json(name: &str) -> Json {
    serde_json::from_slice(&read(name)).unwrap()
}

/// Parses a file in chunks of several sizes, and checks that what it says is the same each time.
fn parse_in_chunks(file: &[u8]) -> Recording {
    let recording = parse(file, &[file.len()]).unwrap();
    for size in [1, 7, 4096, 65536] {
        assert!(parse(file, &[size]).unwrap() == recording, "in chunks of {size}");
    }
    recording
}

/// Every checkpoint among the fixtures, as `llama32` and `Q4_0`.
fn checkpoints() -> Vec<(&'static str, String)> {
    let mut checkpoints = Vec::new();
    for model in ["llama32", "tinyllama"] {
        let folder = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/tiny/{}"), model);
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if let Some(ty) = name.strip_suffix(".gguf") {
                checkpoints.push((model, ty.to_owned()));
            }
        }
    }
    assert!(checkpoints.len() >= 9, "{checkpoints:?}");
    checkpoints
}

#[test]
fn every_checkpoint_has_the_tensor_types_and_the_size_that_its_quantizer_reported() {
    for (model, ty) in checkpoints() {
        let file = read(&format!("tiny/{model}/{ty}.gguf"));
        let header = parse_in_chunks(&file).header;
        let expected = &json(&format!("tiny/{model}/reference.json"))["gguf"][&ty];
        let mut counts = BTreeMap::new();
        for tensor in &header.tensors {
            *counts.entry(tensor.ty.name().to_owned()).or_insert(0u64) += 1;
        }
        assert_eq!(serde_json::to_value(counts).unwrap(), expected["tensor_types"], "{model} {ty}");
        assert_eq!(header.version, 3);
        assert_eq!(header.alignment, 32);
        assert_eq!(header.total_bytes().next_multiple_of(32), expected["bytes"].as_u64().unwrap(), "{model} {ty}");
    }
}

#[test]
fn every_checkpoint_has_the_shapes_of_its_hugging_face_config() {
    for (model, ty) in checkpoints() {
        let header = parse(&read(&format!("tiny/{model}/{ty}.gguf")), &[4096]).unwrap().header;
        let config = json(&format!("tiny/{model}/config.json"));
        let metadata = &header.metadata;
        let number = |name: &str| config[name].as_u64().unwrap();
        for (key, name) in [
            ("llama.embedding_length", "hidden_size"),
            ("llama.feed_forward_length", "intermediate_size"),
            ("llama.block_count", "num_hidden_layers"),
            ("llama.attention.head_count", "num_attention_heads"),
            ("llama.attention.head_count_kv", "num_key_value_heads"),
            ("llama.context_length", "max_position_embeddings"),
            ("tokenizer.ggml.bos_token_id", "bos_token_id"),
        ] {
            assert_eq!(u64::from(metadata.require_u32(key).unwrap()), number(name), "{model} {ty} {key}");
        }
        let theta = f64::from(metadata.require_f32("llama.rope.freq_base").unwrap());
        assert_eq!(Some(theta), config["rope_theta"].as_f64());
        let epsilon = metadata.require_f32("llama.attention.layer_norm_rms_epsilon").unwrap();
        assert_eq!(Some(epsilon), config["rms_norm_eps"].as_f64().map(|epsilon| epsilon as f32));
        assert_eq!(metadata.require_str("general.architecture"), Ok("llama"));

        let shape = |name: &str| {
            let tensor = header.tensors.iter().find(|tensor| tensor.name == name).unwrap();
            (tensor.columns(), tensor.rows())
        };
        let (hidden, inner) = (number("hidden_size"), number("intermediate_size"));
        assert_eq!(shape("token_embd.weight"), (hidden, number("vocab_size")));
        assert_eq!(shape("blk.1.ffn_down.weight"), (inner, hidden));
        assert_eq!(shape("blk.0.attn_k.weight"), (hidden, number("num_key_value_heads") * number("head_dim")));
        assert_eq!(shape("output_norm.weight"), (hidden, 1));
        let tied = !header.tensors.iter().any(|tensor| tensor.name == "output.weight");
        assert_eq!(Some(tied), config["tie_word_embeddings"].as_bool());
    }
}

#[test]
fn the_vocabulary_in_the_metadata_is_that_of_tokenizer_json() {
    let header = parse(&read("tiny/llama32/Q4_0.gguf"), &[1000]).unwrap().header;
    let tokens = header.metadata.require_strings("tokenizer.ggml.tokens").unwrap();
    let tokenizer = json("tiny/llama32/tokenizer.json");
    let mut expected = BTreeMap::new();
    for (token, id) in tokenizer["model"]["vocab"].as_object().unwrap() {
        expected.insert(id.as_u64().unwrap(), token.clone());
    }
    for token in tokenizer["added_tokens"].as_array().unwrap() {
        expected.insert(token["id"].as_u64().unwrap(), token["content"].as_str().unwrap().to_owned());
    }
    assert_eq!(tokens, expected.into_values().collect::<Vec<_>>());

    let merges = header.metadata.require_strings("tokenizer.ggml.merges").unwrap();
    let expected = tokenizer["model"]["merges"].as_array().unwrap();
    let expected = expected.iter().map(|merge| match merge {
        Json::Array(pair) => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
        merge => merge.as_str().unwrap().to_owned(),
    });
    assert_eq!(merges, expected.collect::<Vec<_>>());
}

#[test]
fn tensor_bytes_are_the_numbers_of_the_model() {
    // The weights are exact in all three types, so each file must say the same of them.
    let mut weights = ["F32", "F16", "BF16"].map(|ty| {
        let Recording { header, tensors } = parse(&read(&format!("tiny/tinyllama/{ty}.gguf")), &[999]).unwrap();
        let values = header.tensors.iter().zip(tensors).map(|(tensor, bytes)| {
            let mut values = vec![0.0; (tensor.columns() * tensor.rows()) as usize];
            let halves = bytes.as_chunks::<2>().0.iter().map(|&half| u16::from_le_bytes(half));
            match tensor.ty.name() {
                "F32" => values
                    .copy_from_slice(&bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect::<Vec<_>>()),
                "F16" => values.iter_mut().zip(halves).for_each(|(v, bits)| *v = half::f16::from_bits(bits).to_f32()),
                "BF16" => values.iter_mut().zip(halves).for_each(|(v, bits)| *v = half::bf16::from_bits(bits).to_f32()),
                other => panic!("{other}"),
            }
            (tensor.name.clone(), values)
        });
        values.collect::<BTreeMap<_, _>>()
    });
    let first = weights[0].clone();
    assert_eq!(first.len(), 21);
    assert!(first.values().flatten().any(|&value| value != 0.0 && value.abs() < 1.0));
    for other in &mut weights[1..] {
        assert!(*other == first);
    }
}

#[test]
fn the_vocabularies_of_llama_2_and_3_are_whole_and_take_no_tensors() {
    let metadata = |name: &str| -> Metadata {
        let file = read(name);
        let Recording { header, tensors } = parse_in_chunks(&file);
        assert_eq!(header.total_bytes(), file.len() as u64);
        assert!(tensors.is_empty());
        header.metadata
    };
    let llama3 = metadata("vocab/ggml-vocab-llama-bpe.gguf");
    let tokens = llama3.require_strings("tokenizer.ggml.tokens").unwrap();
    assert_eq!((tokens.len(), tokens[128_000].as_str()), (128_256, "<|begin_of_text|>"));
    assert_eq!(llama3.require_strings("tokenizer.ggml.merges").unwrap().len(), 280_147);
    assert_eq!(llama3.require_str("tokenizer.ggml.model"), Ok("gpt2"));

    let llama2 = metadata("vocab/ggml-vocab-llama-spm.gguf");
    let tokens = llama2.require_strings("tokenizer.ggml.tokens").unwrap();
    assert_eq!((tokens.len(), tokens[2].as_str(), tokens[31_999].as_str()), (32_000, "</s>", "\u{7ed9}"));
    assert_eq!(llama2.require_f32s("tokenizer.ggml.scores").unwrap().len(), 32_000);
    assert_eq!(llama2.require_i32s("tokenizer.ggml.token_type").unwrap()[..4], [2, 3, 3, 6]);
    assert!(matches!(llama2.get("tokenizer.ggml.token_type"), Some(Value::Array(Array::I32(_)))));
    assert_eq!(llama2.bool("tokenizer.ggml.add_eos_token"), Ok(Some(false)));
}
