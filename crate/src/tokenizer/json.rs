//! The tokenizer that Hugging Face's `tokenizer.json` describes, with `tokenizer_config.json` beside it.

use std::collections::HashMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use tokenizers::{AddedToken, NormalizerWrapper, PreTokenizerWrapper};

use super::BpeTokenizer;
use super::end_tokens::end_ids;
use super::vocabulary::{ByteEncoding, SPACE, Token, TokenKind, Vocabulary, byte_token};
use crate::error::{Error, Result};

/// Names of the token that begins a sequence, for files that do not say.
const BOS_NAMES: [&str; 4] = ["<|begin_of_text|>", "<s>", "<bos>", "<|startoftext|>"];

/// Names of the token that ends a sequence, for files that do not say.
const EOS_NAMES: [&str; 4] = ["<|end_of_text|>", "</s>", "<eos>", "<|endoftext|>"];

impl BpeTokenizer {
    /// The tokenizer of a `tokenizer.json`, whose model must be a BPE with a byte-level or SentencePiece decoder.
    ///
    /// Its post-processor tells which tokens begin and end a sequence; if it does not, their usual names do. Where there is a
    /// `tokenizer_config.json`, prefer [`from_json_with_config`](Self::from_json_with_config).
    ///
    /// # Errors
    /// [`Error::UnsupportedModel`] for another kind of model, [`Error::InvalidTokenizer`] for a file that is broken.
    pub fn from_json(tokenizer: &[u8]) -> Result<Self> {
        Self::from_parts(tokenizer, Config::default())
    }

    /// The tokenizer of a `tokenizer.json`, with the tokens that begin and end a sequence from `tokenizer_config.json`.
    ///
    /// # Errors
    /// Those of [`from_json`](Self::from_json), for either file.
    pub fn from_json_with_config(tokenizer: &[u8], config: &[u8]) -> Result<Self> {
        let config =
            serde_json::from_slice(config).map_err(|error| invalid(format!("tokenizer_config.json: {error}")))?;
        Self::from_parts(tokenizer, config)
    }

    fn from_parts(tokenizer: &[u8], config: Config) -> Result<Self> {
        let broken = |error: serde_json::Error| invalid(format!("tokenizer.json: {error}"));
        let kind = serde_json::from_slice::<ModelKind>(tokenizer).map_err(broken)?;
        if let Some(kind) = kind.model.kind
            && kind != "BPE"
        {
            return Err(unsupported("model", format!("it is {kind}; BPE is supported")));
        }
        let file: File = serde_json::from_slice(tokenizer).map_err(broken)?;
        BpeTokenizer::new(file.into_vocabulary(config)?)
    }
}

/// As much of the file as says whether the rest can be read.
#[derive(Deserialize)]
struct ModelKind {
    model: ModelKindEntry,
}

#[derive(Deserialize)]
struct ModelKindEntry {
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<AddedTokenEntry>,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    model: Model,
}

#[derive(Deserialize)]
struct AddedTokenEntry {
    id: u32,
    #[serde(flatten)]
    token: AddedToken,
}

#[derive(Deserialize)]
struct Model {
    vocab: HashMap<String, u32>,
    merges: Vec<Merge>,
    unk_token: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
    dropout: Option<IgnoredAny>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
}

/// A merge, as older and newer files write it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Text(String),
    Pair(String, String),
}

/// What `tokenizer_config.json` says about the ends of a sequence.
#[derive(Deserialize, Default)]
struct Config {
    bos_token: Option<TokenName>,
    eos_token: Option<TokenName>,
    add_bos_token: Option<bool>,
    add_eos_token: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TokenName {
    Text(String),
    Token { content: String },
}

impl TokenName {
    fn into_text(self) -> String {
        match self {
            TokenName::Text(text) | TokenName::Token { content: text } => text,
        }
    }
}

impl File {
    fn into_vocabulary(self, config: Config) -> Result<Vocabulary> {
        let model = self.model;
        let unusual = [
            ("dropout", model.dropout.is_some()),
            ("continuing_subword_prefix", model.continuing_subword_prefix.is_some_and(|text| !text.is_empty())),
            ("end_of_word_suffix", model.end_of_word_suffix.is_some_and(|text| !text.is_empty())),
        ];
        if let Some((name, _)) = unusual.into_iter().find(|(_, present)| *present) {
            return Err(unsupported(name, "byte-level and SentencePiece BPE have none".into()));
        }
        let encoding = byte_encoding(&self.decoder)?;
        let tokens = tokens(model.vocab, &self.added_tokens, model.byte_fallback)?;

        let id = |text: &str| {
            let special = self.added_tokens.iter().find(|entry| entry.token.content == text);
            let position = || tokens.iter().position(|token| token.text == text);
            special.map(|entry| entry.id).or_else(|| u32::try_from(position()?).ok())
        };
        let declared = |name: Option<TokenName>| match name.map(TokenName::into_text) {
            None => Ok(None),
            Some(text) => {
                id(&text).map(Some).ok_or_else(|| invalid(format!("{text:?} of tokenizer_config.json is not a token")))
            }
        };
        let usual = |names: &[&str]| {
            let added = |name: &&str| {
                let entry = (self.added_tokens.iter()).find(|entry| entry.token.content == *name)?;
                Some(entry.id)
            };
            names.iter().find_map(added)
        };
        let (begins, ends) = sequence_template(&self.post_processor);
        let bos = declared(config.bos_token)?.or_else(|| begins.and_then(id)).or_else(|| usual(&BOS_NAMES));
        let eos = declared(config.eos_token)?.or_else(|| ends.and_then(id)).or_else(|| usual(&EOS_NAMES));

        let merges = (model.merges.into_iter())
            .map(|merge| match merge {
                Merge::Pair(left, right) => Ok((left, right)),
                Merge::Text(text) => (text.split_once(' '))
                    .map(|(left, right)| (left.to_string(), right.to_string()))
                    .ok_or_else(|| invalid(format!("the merge {text:?} is not a pair"))),
            })
            .collect::<Result<_>>()?;
        Ok(Vocabulary {
            stop_ids: end_ids(&tokens, eos),
            merges,
            encoding,
            normalizer: self.normalizer,
            pre_tokenizer: self.pre_tokenizer,
            ignore_merges: model.ignore_merges,
            byte_fallback: model.byte_fallback,
            fuse_unknown: model.fuse_unk,
            unknown: model.unk_token,
            bos,
            eos,
            add_bos: config.add_bos_token.unwrap_or(begins.is_some()),
            add_eos: config.add_eos_token.unwrap_or(ends.is_some()),
            added: (self.added_tokens.into_iter()).map(|entry| entry.token).filter(|token| !token.special).collect(),
            tokens,
        })
    }
}

/// The tokens by id. An id that nothing has becomes a token without text.
fn tokens(vocab: HashMap<String, u32>, added: &[AddedTokenEntry], byte_fallback: bool) -> Result<Vec<Token>> {
    let entries = vocab.len() + added.len();
    let added_ids = added.iter().map(|entry| entry.id);
    let last = vocab.values().copied().chain(added_ids).max().unwrap_or(0) as usize;
    if last > 2 * entries {
        return Err(invalid(format!("{entries} tokens, and one of them has the id {last}")));
    }
    let unused = Token { text: String::new(), kind: TokenKind::Unused };
    let mut tokens = vec![unused; last + 1];
    for (text, id) in vocab {
        let byte = byte_fallback && byte_token(&text).is_some();
        let kind = match byte {
            true => TokenKind::Byte,
            false => TokenKind::Normal,
        };
        tokens[id as usize] = Token { text, kind };
    }
    for entry in added {
        let kind = match entry.token.special {
            true => TokenKind::Control,
            false => TokenKind::UserDefined,
        };
        tokens[entry.id as usize] = Token { text: entry.token.content.clone(), kind };
    }
    Ok(tokens)
}

/// How the decoder's steps, in a sequence or alone, turn tokens into bytes.
fn byte_encoding(decoder: &Value) -> Result<ByteEncoding> {
    let alone = std::slice::from_ref(decoder);
    let steps = decoder["decoders"].as_array().map_or(alone, Vec::as_slice);
    let step = |kind: &str| steps.iter().find(|step| step["type"] == kind);
    if step("ByteLevel").is_some() {
        return Ok(ByteEncoding::ByteLevel);
    }
    if let Some(metaspace) = step("Metaspace") {
        let never = metaspace["prepend_scheme"] == "never" || metaspace["add_prefix_space"] == false;
        return Ok(ByteEncoding::SentencePiece { space_prefix: !never });
    }
    let spaces = SPACE.to_string();
    if step("Replace").is_some_and(|replace| replace["pattern"]["String"] == spaces.as_str()) {
        let strips = |strip: &Value| strip["start"].as_u64().is_some_and(|count| count > 0);
        return Ok(ByteEncoding::SentencePiece { space_prefix: step("Strip").is_some_and(strips) });
    }
    Err(unsupported("decoder", "supported are ByteLevel and SentencePiece's".into()))
}

/// The special tokens that the post-processor puts before and after a single sequence.
fn sequence_template(post_processor: &Value) -> (Option<&str>, Option<&str>) {
    let alone = std::slice::from_ref(post_processor);
    let steps = post_processor["processors"].as_array().map_or(alone, Vec::as_slice);
    let Some(template) = steps.iter().find_map(|step| step["single"].as_array()) else {
        return (None, None);
    };
    (template.first().and_then(special_token), template.last().and_then(special_token))
}

/// The name of the special token in this place of a template.
fn special_token(entry: &Value) -> Option<&str> {
    entry["SpecialToken"]["id"].as_str()
}

fn invalid(reason: String) -> Error {
    Error::InvalidTokenizer(reason)
}

fn unsupported(what: &str, reason: String) -> Error {
    Error::UnsupportedModel { what: format!("tokenizer.json {what}"), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::Tokenizer;

    /// SentencePiece as newer files write it. The merges make `<s>` out of text, which is not to happen.
    fn file() -> Value {
        let added = |id: u32, content: &str, special: bool| {
            serde_json::json!({
                "id": id, "content": content, "special": special,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            })
        };
        serde_json::json!({
            "version": "1.0",
            "added_tokens": [
                added(0, "<unk>", true), added(1, "<s>", true), added(2, "</s>", true), added(9, "<fn>", false),
            ],
            "normalizer": null,
            "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            },
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ]},
            "model": {
                "type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
                "vocab": {
                    "<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3, "a": 4, "b": 5, "▁a": 6, "ab": 7, "<0x0A>": 8,
                    "<fn>": 9, "s": 10, "<": 11, ">": 12, "<s": 13,
                },
                "merges": [["▁", "a"], ["a", "b"], ["<", "s"], ["<s", ">"]],
            },
        })
    }

    fn tokenizer(file: &Value) -> Result<BpeTokenizer> {
        BpeTokenizer::from_json(file.to_string().as_bytes())
    }

    #[test]
    fn a_newer_sentencepiece_file_gives_the_ids_of_python() {
        let tokenizer = tokenizer(&file()).unwrap();
        // From Python's tokenizers 0.23.3: text, ids, decoded text.
        let cases: [(&str, &[u32], &str); 6] = [
            ("ab", &[6, 5], "ab"),
            ("a</s>ab", &[6, 2, 7], "aab"),
            ("</s>a b", &[2, 4, 3, 5], "a b"),
            ("ab<fn>ab", &[6, 5, 9, 7], "ab<fn>ab"),
            ("<s>", &[1], ""),
            ("a a", &[6, 6], "a a"),
        ];
        for (text, ids, decoded) in cases {
            assert_eq!(tokenizer.encode_with_special(text, None).unwrap(), ids, "{text}");
            assert_eq!(tokenizer.decode(ids).unwrap(), decoded, "{text}");
        }
        assert_eq!(tokenizer.encode("<s>", true, false).unwrap(), [1, 3, 13, 12], "text stays text");
        assert!(tokenizer.adds_bos() && !tokenizer.adds_eos());
        assert_eq!((tokenizer.bos_id(), tokenizer.eos_id()), (Some(1), Some(2)));
        assert_eq!(tokenizer.stop_ids(), [2]);
        assert_eq!(tokenizer.vocab_size(), 14);
    }

    #[test]
    fn the_config_decides_about_the_ends_of_a_sequence() {
        let config = r#"{"bos_token": {"content": "</s>"}, "eos_token": "<fn>", "add_bos_token": false}"#;
        let file = file().to_string();
        let with = |config: &str| BpeTokenizer::from_json_with_config(file.as_bytes(), config.as_bytes());
        let tokenizer = with(config).unwrap();
        assert_eq!((tokenizer.bos_id(), tokenizer.eos_id()), (Some(2), Some(9)));
        assert!(!tokenizer.adds_bos());
        assert_eq!(tokenizer.special_token(9), Some("<fn>"), "what ends a sequence is special");
        let error = with(r#"{"eos_token": "<nothing>"}"#).unwrap_err();
        assert!(error.to_string().contains("<nothing>"), "{error}");
    }

    #[test]
    fn what_cannot_be_used_is_an_error_that_says_why() {
        let change = |pointer: &str, value: Value| {
            let mut file = file();
            *file.pointer_mut(pointer).unwrap() = value;
            tokenizer(&file).unwrap_err()
        };
        let cases = [
            (change("/model/type", "Unigram".into()), "unsupported_model", "Unigram"),
            (change("/model/vocab", 3.into()), "invalid_tokenizer", "tokenizer.json"),
            (change("/model/vocab/a", 4_000_000_000u32.into()), "invalid_tokenizer", "4000000000"),
            (change("/model/merges/0/1", "zz".into()), "invalid_tokenizer", "zz"),
            (change("/model/merges/0", "zz".into()), "invalid_tokenizer", "zz"),
            (change("/model/unk_token", "<?>".into()), "invalid_tokenizer", "<?>"),
            (change("/decoder", Value::Null), "unsupported_model", "decoder"),
            (change("/pre_tokenizer/type", "Nothing".into()), "invalid_tokenizer", "tokenizer.json"),
        ];
        for (error, code, detail) in cases {
            assert_eq!(error.code(), code, "{error}");
            assert!(error.to_string().contains(detail), "{error}");
        }
        assert_eq!(BpeTokenizer::from_json(b"").unwrap_err().code(), "invalid_tokenizer");
    }
}
