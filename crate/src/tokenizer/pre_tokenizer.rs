//! How byte-level vocabularies cut text into words before they look for tokens, by the name in `tokenizer.ggml.pre`.
//!
//! The name is llama.cpp's; the regular expressions are the ones that the models' own tokenizers publish. A wrong one gives ids that
//! look right and a model that answers worse, so an unknown name is an error.

use tokenizers::PreTokenizerWrapper;
use tokenizers::SplitDelimiterBehavior::Isolated;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};

use crate::error::{Error, Result};

/// Llama 3: contractions, words with one character before them, up to three digits, punctuation, line breaks, spaces.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Qwen 2: as Llama 3, with each digit alone.
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// What llama.cpp does for a file without a name: these, one after the other.
const UNNAMED: [&str; 4] = [
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
];

/// A way to cut text into words.
#[derive(Debug)]
pub struct PreTokenizer {
    /// The steps.
    pub steps: PreTokenizerWrapper,
    /// Whether a word that is a token is taken as it is, whatever the merges say.
    pub ignore_merges: bool,
    /// Whether prompts begin with the beginning-of-sequence token if the file does not say.
    pub add_bos: bool,
}

/// The pre-tokenizer with this name.
///
/// # Errors
/// [`Error::UnsupportedModel`] for a name that is not known here.
pub fn by_name(name: &str) -> Result<PreTokenizer> {
    let (steps, llama3) = match name {
        "llama-bpe" | "llama3" | "llama-v3" => (regexes(&[LLAMA3])?, true),
        "smaug-bpe" => (regexes(&[LLAMA3])?, false),
        "qwen2" | "deepseek-r1-qwen" => (regexes(&[QWEN2])?, false),
        "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" => {
            (sequence(vec![PreTokenizerWrapper::Digits(Digits::new(true)), byte_level(true)]), false)
        }
        "gpt-2" | "gpt2" | "phi-2" | "olmo" | "mpt" | "gigachat" => (byte_level(true), false),
        "default" => (regexes(&UNNAMED)?, false),
        _ => {
            return Err(Error::UnsupportedModel {
                what: format!("tokenizer.ggml.pre {name:?}"),
                reason: "supported are llama-bpe, smollm, qwen2, gpt-2 and default".into(),
            });
        }
    };
    Ok(PreTokenizer { steps, ignore_merges: llama3, add_bos: llama3 })
}

/// Cuts at the matches of each expression in turn, then writes bytes as characters.
fn regexes(patterns: &[&str]) -> Result<PreTokenizerWrapper> {
    let mut steps = Vec::new();
    for &pattern in patterns {
        let split = Split::new(SplitPattern::Regex(pattern.to_string()), Isolated, false)
            .map_err(|error| Error::InvalidTokenizer(format!("pre-tokenizer: {error}")))?;
        steps.push(PreTokenizerWrapper::Split(split));
    }
    steps.push(byte_level(false));
    Ok(sequence(steps))
}

/// Writes bytes as characters, and cuts into words by GPT-2's expression before that if asked to.
fn byte_level(use_regex: bool) -> PreTokenizerWrapper {
    PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, use_regex))
}

fn sequence(steps: Vec<PreTokenizerWrapper>) -> PreTokenizerWrapper {
    PreTokenizerWrapper::Sequence(Sequence::new(steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_an_error_that_says_what_is_supported() {
        let error = by_name("tekken").unwrap_err();
        assert_eq!(error.code(), "unsupported_model");
        assert!(error.to_string().contains("\"tekken\""), "{error}");
        assert!(error.to_string().contains("llama-bpe"), "{error}");
    }

    #[test]
    fn every_named_pre_tokenizer_compiles() {
        for name in ["llama-bpe", "smaug-bpe", "qwen2", "smollm", "gpt-2", "default"] {
            assert!(by_name(name).is_ok(), "{name}");
        }
    }
}
