//! The tokenizers against ids that Hugging Face's Python `tokenizers` and llama.cpp agreed on.

use std::sync::LazyLock;

use serde_json::Value;

use super::{BpeTokenizer, StreamDecoder, Tokenizer};
use crate::format::gguf::{Metadata, Parser};
use crate::test_fixtures::read;

const SMOLLM2: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/SmolLM2-135M-Instruct.Q4_1.gguf");

fn json(path: &str) -> Value {
    serde_json::from_slice(&read(path)).unwrap()
}

fn metadata(file: &[u8]) -> Metadata {
    let mut parser = Parser::new();
    for chunk in file.chunks(1 << 20) {
        if parser.header().is_none() {
            parser.push(chunk, &mut |_| Ok(())).unwrap();
        }
    }
    parser.header().expect("a whole header").metadata.clone()
}

fn fixture_gguf(path: &str) -> BpeTokenizer {
    BpeTokenizer::from_gguf(&metadata(&read(path))).unwrap()
}

/// Llama 3's vocabulary, read once: it is the largest.
static LLAMA3: LazyLock<BpeTokenizer> = LazyLock::new(|| fixture_gguf("vocab/ggml-vocab-llama-bpe.gguf"));

fn smollm2() -> BpeTokenizer {
    let file = std::fs::read(SMOLLM2).unwrap_or_else(|error| panic!("{SMOLLM2}: {error}; `npm run model` fetches it"));
    BpeTokenizer::from_gguf(&metadata(&file)).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    let number = |id: &Value| u32::try_from(id.as_u64().unwrap()).unwrap();
    value.as_array().unwrap().iter().map(number).collect()
}

/// What decoding gives back: SentencePiece reads its sign for a space as a space.
fn decodable(tokenizer: &BpeTokenizer, text: &str) -> String {
    match tokenizer.adds_space_prefix() {
        true => text.replace('\u{2581}', " "),
        false => text.to_string(),
    }
}

/// Encodes every text with and without special tokens, and decodes the ids again.
fn check_pairs(tokenizer: &BpeTokenizer, pairs: &Value, expected_count: usize) {
    let special = |&id: &u32| tokenizer.special_token(id).is_some();
    let pairs = pairs.as_array().unwrap();
    assert_eq!(pairs.len(), expected_count);
    for pair in pairs {
        let text = pair["text"].as_str().unwrap();
        let with_special = ids(&pair["ids"]);
        let encoded = tokenizer.encode_with_special(text, None).unwrap();
        assert_eq!(encoded, with_special, "{text:?} with special tokens");

        let ordinary = match pair.get("ids_no_special") {
            Some(value) => ids(value),
            // "<unk>" is listed a second time, without the ids of its text.
            None if with_special.iter().any(special) => continue,
            None => with_special,
        };
        let encoded = tokenizer.encode(text, false, false).unwrap();
        assert_eq!(encoded, ordinary, "{text:?} as ordinary text");
        let escaped = tokenizer.escape_special(text, '\u{FDD0}');
        let encoded = (tokenizer.encode_with_special(&escaped, Some('\u{FDD0}'))).unwrap();
        assert_eq!(encoded, ordinary, "{text:?} escaped");
        let expected = decodable(tokenizer, text);
        assert_eq!(tokenizer.decode(&ordinary).unwrap(), expected);
    }
}

#[test]
fn smollm2_encodes_every_pair() {
    check_pairs(&smollm2(), &json("smollm2/tokenizer.json")["pairs"], 214);
}

#[test]
fn llama3_encodes_every_pair() {
    let tokenizer = &*LLAMA3;
    check_pairs(tokenizer, &json("tokenizers/llama3_pairs.json")["pairs"], 210);
}

#[test]
fn llama2_encodes_every_pair() {
    let tokenizer = fixture_gguf("vocab/ggml-vocab-llama-spm.gguf");
    check_pairs(&tokenizer, &json("tokenizers/llama2_pairs.json")["pairs"], 210);
}

#[test]
fn the_tiny_checkpoints_encode_every_pair() {
    for name in ["llama32", "tinyllama"] {
        let tokenizer = fixture_gguf(&format!("tiny/{name}/F16.gguf"));
        let reference = json(&format!("tiny/{name}/reference.json"));
        check_pairs(&tokenizer, &reference["tokenizer_pairs"], 6);
    }
}

#[test]
fn tokenizer_json_gives_the_ids_of_the_gguf() {
    let file = |name| read(&format!("tiny/llama32/{name}"));
    let config = file("tokenizer_config.json");
    let tokenizer = BpeTokenizer::from_json_with_config(&file("tokenizer.json"), &config).unwrap();
    let reference = json("tiny/llama32/reference.json");
    check_pairs(&tokenizer, &reference["tokenizer_pairs"], 6);

    let gguf = fixture_gguf("tiny/llama32/F16.gguf");
    assert_eq!(tokenizer.bos_id(), gguf.bos_id());
    assert_eq!(tokenizer.eos_id(), gguf.eos_id());
    assert_eq!(tokenizer.stop_ids(), gguf.stop_ids());
    assert_eq!(tokenizer.vocab_size(), gguf.vocab_size());
    for pair in json("tokenizers/llama3_pairs.json")["pairs"].as_array().unwrap() {
        let text = pair["text"].as_str().unwrap();
        assert_eq!(
            tokenizer.encode_with_special(text, None).unwrap(),
            gguf.encode_with_special(text, None).unwrap(),
            "{text:?}"
        );
    }
}

#[test]
fn prompts_of_the_reference_run_are_encoded_as_they_were() {
    let tokenizer = smollm2();
    for prompt in json("smollm2/hf_f32.json")["prompts"].as_array().unwrap() {
        let text = prompt["prompt_text"].as_str().unwrap();
        let encoded = tokenizer.encode_with_special(text, None).unwrap();
        assert_eq!(encoded, ids(&prompt["prompt_ids"]), "{}", prompt["name"]);
    }
}

#[test]
fn streaming_gives_the_part_of_each_prefix_that_is_certain() {
    let tokenizer = smollm2();
    let cases = json("smollm2/tokenizer.json")["streaming_decode"].clone();
    for case in cases.as_array().unwrap() {
        let ids = ids(&case["ids"]);
        let prefixes = case["decode_prefixes"].as_array().unwrap();
        let bytes = case["token_bytes_hex"].as_array().unwrap();
        let mut decoder = StreamDecoder::new(&tokenizer);
        let (mut text, mut all) = (String::new(), Vec::new());
        for ((&id, prefix), bytes) in ids.iter().zip(prefixes).zip(bytes) {
            let token = tokenizer.token_bytes(id).unwrap();
            let hex: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, bytes.as_str().unwrap());
            all.extend_from_slice(token);
            text.push_str(&decoder.push(id).unwrap());
            let prefix = prefix.as_str().unwrap();
            let certain = match str::from_utf8(&all) {
                Ok(_) => prefix,
                Err(_) => prefix.strip_suffix('\u{FFFD}').unwrap(),
            };
            assert_eq!(text, certain);
        }
        text.push_str(&decoder.finish());
        assert_eq!(text, case["text"].as_str().unwrap());
    }
    assert_eq!(cases.as_array().unwrap().len(), 8);
}

#[test]
fn every_token_that_ends_a_generation_is_known() {
    let llama3 = &*LLAMA3;
    assert_eq!(llama3.stop_ids(), [128001, 128009]);
    assert_eq!(smollm2().stop_ids(), [0, 2]);
    let llama2 = fixture_gguf("vocab/ggml-vocab-llama-spm.gguf");
    assert_eq!(llama2.stop_ids(), [2]);
    assert_eq!(fixture_gguf("tiny/llama32/F16.gguf").stop_ids(), [509, 511]);
}

#[test]
fn the_beginning_of_a_sequence_is_added_where_the_model_expects_it() {
    let smollm2 = smollm2();
    assert!(!smollm2.adds_bos());
    assert_eq!(smollm2.encode("The", true, true).unwrap(), [1, 504, 2]);
    let llama3 = &*LLAMA3;
    assert!(llama3.adds_bos(), "the default of llama-bpe");
    assert_eq!(llama3.encode("", true, false).unwrap(), [128000]);
    assert_eq!(llama3.special_token(128000), Some("<|begin_of_text|>"));
    let llama2 = fixture_gguf("vocab/ggml-vocab-llama-spm.gguf");
    assert!(llama2.adds_bos() && !llama2.adds_eos());
}

#[test]
fn a_completion_keeps_the_space_that_an_answer_loses() {
    let tokenizer = fixture_gguf("vocab/ggml-vocab-llama-spm.gguf");
    let ids = tokenizer.encode("Hello world", false, false).unwrap();
    let stream = |mut decoder: StreamDecoder<BpeTokenizer>| {
        let text: String = ids.iter().map(|&id| decoder.push(id).unwrap()).collect();
        text + &decoder.finish()
    };
    assert_eq!(stream(StreamDecoder::new(&tokenizer)), "Hello world");
    assert_eq!(stream(StreamDecoder::continuing(&tokenizer)), " Hello world");
}

#[test]
fn ids_outside_the_vocabulary_are_errors() {
    let tokenizer = fixture_gguf("tiny/tinyllama/F16.gguf");
    for id in [512, u32::MAX] {
        let error = tokenizer.decode(&[id]).unwrap_err();
        assert_eq!(error.code(), "invalid_parameter");
    }
}

#[test]
fn streamed_text_joins_to_the_text_of_the_bytes() {
    use proptest::prelude::*;

    let tokenizers = [fixture_gguf("tiny/llama32/F16.gguf"), fixture_gguf("tiny/tinyllama/F16.gguf")];
    proptest!(|(ids in prop::collection::vec(0u32..512, 0..60), which in 0usize..2)| {
        let tokenizer = &tokenizers[which];
        let mut bytes = Vec::new();
        for &id in &ids {
            bytes.extend_from_slice(tokenizer.token_bytes(id).unwrap());
        }
        let prefix = usize::from(tokenizer.adds_space_prefix() && bytes.first() == Some(&b' '));
        let whole = String::from_utf8_lossy(&bytes[prefix..]).into_owned();

        let mut decoder = StreamDecoder::new(tokenizer);
        let mut joined = String::new();
        for &id in &ids {
            joined.push_str(&decoder.push(id).unwrap());
            // What is given out is certain: it is never taken back.
            prop_assert!(whole.starts_with(&joined));
        }
        joined.push_str(&decoder.finish());
        prop_assert_eq!(&joined, &whole);
        prop_assert_eq!(tokenizer.decode(&ids).unwrap(), whole);
    });
}

#[test]
fn encoding_and_decoding_gives_any_text_back() {
    use proptest::prelude::*;

    let tokenizers = [fixture_gguf("tiny/llama32/F16.gguf"), fixture_gguf("tiny/tinyllama/F16.gguf")];
    proptest!(|(text in "(\\PC|[ \\n\\t]|<\\|eot_id\\|>|</s>){0,24}", which in 0usize..2)| {
        let tokenizer = &tokenizers[which];
        let ids = tokenizer.encode(&text, false, false).unwrap();
        prop_assert!(ids.iter().all(|&id| tokenizer.special_token(id).is_none()));
        let expected = decodable(tokenizer, &text);
        prop_assert_eq!(tokenizer.decode(&ids).unwrap(), expected);
    });
}
