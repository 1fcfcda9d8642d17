//! The tokenizer that a GGUF file's metadata describes (`tokenizer.ggml.*`).

use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{Prepend, Replace, Sequence};
use tokenizers::{AddedToken, NormalizerWrapper};

use super::end_tokens::end_ids;
use super::vocabulary::{ByteEncoding, SPACE, Token, TokenKind, Vocabulary, merges_from_scores};
use super::{BpeTokenizer, pre_tokenizer};
use crate::error::{Error, Result};
use crate::format::gguf::Metadata;

impl BpeTokenizer {
    /// The tokenizer of a GGUF file: `tokenizer.ggml.model` must be `gpt2` (byte-level, with merges and a known
    /// `tokenizer.ggml.pre`) or `llama` (SentencePiece, with scores).
    ///
    /// Where the file does not say, a prompt begins with the beginning-of-sequence token for `llama` and for Llama 3's
    /// pre-tokenizer, and SentencePiece puts a space before the text, as llama.cpp does.
    ///
    /// # Errors
    /// [`Error::UnsupportedModel`] for another kind of tokenizer, [`Error::InvalidTokenizer`] for one that contradicts itself,
    /// [`Error::InvalidFile`] for an entry that is missing or has the wrong type.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self> {
        let model = metadata.require_str("tokenizer.ggml.model")?;
        let mut vocabulary = match model {
            "gpt2" => byte_level(metadata)?,
            "llama" => sentence_piece(metadata)?,
            _ => {
                return Err(Error::UnsupportedModel {
                    what: format!("tokenizer.ggml.model {model:?}"),
                    reason: "supported are gpt2 (byte-level BPE) and llama (SentencePiece)".into(),
                });
            }
        };
        vocabulary.added = (vocabulary.tokens.iter())
            .filter(|token| token.kind == TokenKind::UserDefined)
            .map(|token| AddedToken::from(token.text.as_str(), false).normalized(false))
            .collect();
        vocabulary.bos = metadata.u32("tokenizer.ggml.bos_token_id")?;
        vocabulary.eos = metadata.u32("tokenizer.ggml.eos_token_id")?;
        if let Some(add) = metadata.bool("tokenizer.ggml.add_bos_token")? {
            vocabulary.add_bos = add;
        }
        vocabulary.add_eos = (metadata.bool("tokenizer.ggml.add_eos_token")?).unwrap_or(false);
        let declared = [
            vocabulary.eos,
            metadata.u32("tokenizer.ggml.eot_token_id")?,
            metadata.u32("tokenizer.ggml.eom_token_id")?,
        ];
        vocabulary.stop_ids = end_ids(&vocabulary.tokens, declared.into_iter().flatten());
        BpeTokenizer::new(vocabulary)
    }
}

/// A byte-level vocabulary with merges.
fn byte_level(metadata: &Metadata) -> Result<Vocabulary> {
    let name = metadata.str("tokenizer.ggml.pre")?.unwrap_or("default");
    let pre_tokenizer = pre_tokenizer::by_name(name)?;
    let merges = metadata.require_strings("tokenizer.ggml.merges")?;
    let merges = (merges.iter().map(|merge| pair(merge))).collect::<Result<_>>()?;
    Ok(Vocabulary {
        tokens: tokens(metadata)?,
        merges,
        encoding: ByteEncoding::ByteLevel,
        normalizer: None,
        pre_tokenizer: Some(pre_tokenizer.steps),
        ignore_merges: pre_tokenizer.ignore_merges,
        byte_fallback: false,
        fuse_unknown: false,
        unknown: None,
        added: Vec::new(),
        bos: None,
        eos: None,
        add_bos: pre_tokenizer.add_bos,
        add_eos: false,
        stop_ids: Vec::new(),
    })
}

/// A SentencePiece vocabulary with scores. The whole text is one word.
fn sentence_piece(metadata: &Metadata) -> Result<Vocabulary> {
    let tokens = tokens(metadata)?;
    let merges = merges_from_scores(&tokens, metadata.require_f32s("tokenizer.ggml.scores")?)?;
    let space_prefix = (metadata.bool("tokenizer.ggml.add_space_prefix")?).unwrap_or(true);

    let replace = Replace::new(ReplacePattern::String(" ".to_string()), SPACE.to_string())
        .map_err(|error| Error::InvalidTokenizer(error.to_string()))?;
    let mut steps = Vec::new();
    if space_prefix {
        steps.push(NormalizerWrapper::Prepend(Prepend::new(SPACE.to_string())));
    }
    steps.push(NormalizerWrapper::Replace(replace));

    let unknown = (tokens.iter()).find(|token| token.kind == TokenKind::Unknown).map(|token| token.text.clone());
    Ok(Vocabulary {
        tokens,
        merges,
        encoding: ByteEncoding::SentencePiece { space_prefix },
        normalizer: Some(NormalizerWrapper::Sequence(Sequence::new(steps))),
        pre_tokenizer: None,
        ignore_merges: false,
        byte_fallback: true,
        fuse_unknown: true,
        unknown,
        added: Vec::new(),
        bos: None,
        eos: None,
        add_bos: true,
        add_eos: false,
        stop_ids: Vec::new(),
    })
}

/// The tokens with their kinds; all are text where the file does not say.
fn tokens(metadata: &Metadata) -> Result<Vec<Token>> {
    let texts = metadata.require_strings("tokenizer.ggml.tokens")?;
    let kinds = metadata.i32s("tokenizer.ggml.token_type")?;
    if let Some(kinds) = &kinds
        && kinds.len() != texts.len()
    {
        return Err(Error::InvalidTokenizer(format!("{} token types for {} tokens", kinds.len(), texts.len())));
    }
    (texts.iter().enumerate())
        .map(|(id, text)| {
            let number = kinds.as_ref().map_or(1, |kinds| kinds[id]);
            let kind = TokenKind::from_number(number)
                .ok_or_else(|| Error::InvalidTokenizer(format!("token {id} has the unknown type {number}")))?;
            Ok(Token { text: text.clone(), kind })
        })
        .collect()
}

/// The two parts of a merge. A space stands between them, and never in them, as byte-level text has none; but the first
/// character may be anything.
fn pair(merge: &str) -> Result<(String, String)> {
    let second = merge.char_indices().nth(1).map(|(index, _)| index);
    let space = second.and_then(|from| Some(from + merge[from..].find(' ')?));
    space
        .map(|at| (merge[..at].to_string(), merge[at + 1..].to_string()))
        .ok_or_else(|| Error::InvalidTokenizer(format!("the merge {merge:?} is not a pair")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::gguf::Parser;
    use crate::tokenizer::Tokenizer;

    fn string(text: &str) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
    }

    /// An entry of the type with this number, which has these bytes.
    fn entry(key: &str, number: u32, value: Vec<u8>) -> Vec<u8> {
        [string(&format!("tokenizer.ggml.{key}")), number.to_le_bytes().to_vec(), value].concat()
    }

    fn array(key: &str, number: u32, elements: &[Vec<u8>]) -> Vec<u8> {
        let length = (elements.len() as u64).to_le_bytes();
        entry(key, 9, [&number.to_le_bytes()[..], &length, &elements.concat()].concat())
    }

    fn texts(key: &str, texts: &[&str]) -> Vec<u8> {
        let elements: Vec<_> = texts.iter().map(|text| string(text)).collect();
        array(key, 8, &elements)
    }

    fn kinds(kinds: &[i32]) -> Vec<u8> {
        let elements: Vec<_> = kinds.iter().map(|kind| kind.to_le_bytes().to_vec()).collect();
        array("token_type", 5, &elements)
    }

    fn number(key: &str, value: u32) -> Vec<u8> {
        entry(key, 4, value.to_le_bytes().to_vec())
    }

    fn tokenizer(entries: &[Vec<u8>]) -> Result<BpeTokenizer> {
        let mut bytes = [b"GGUF", &3u32.to_le_bytes()[..], &0u64.to_le_bytes()].concat();
        bytes.extend((entries.len() as u64).to_le_bytes());
        bytes.extend(entries.concat());
        let mut parser = Parser::new();
        parser.push(&bytes, &mut |_| Ok(())).unwrap();
        BpeTokenizer::from_gguf(&parser.header().unwrap().metadata)
    }

    fn byte_level(more: &[Vec<u8>]) -> Result<BpeTokenizer> {
        let mut entries = vec![
            entry("model", 8, string("gpt2")),
            entry("pre", 8, string("gpt-2")),
            texts("tokens", &["a", "b", "ab", "<|im_end|>", "Ġ", "ĠĠ"]),
            texts("merges", &["a b", "Ġ Ġ"]),
        ];
        entries.extend_from_slice(more);
        tokenizer(&entries)
    }

    #[test]
    fn a_token_that_ends_a_generation_is_special_whatever_the_file_calls_it() {
        let tokenizer = byte_level(&[number("eot_token_id", 1)]).unwrap();
        assert_eq!(tokenizer.stop_ids(), [1, 3]);
        assert_eq!(tokenizer.encode_with_special("a<|im_end|>", None).unwrap(), [0, 3]);
        assert_eq!(tokenizer.decode(&[2, 3]).unwrap(), "ab");
    }

    #[test]
    fn user_defined_tokens_are_found_before_words_are() {
        let tokenizer = byte_level(&[kinds(&[1, 1, 4, 3, 1, 4])]).unwrap();
        // "ĠĠ" is user-defined: it is found where it is written so, and not as two spaces.
        assert_eq!(tokenizer.encode("aab", false, false).unwrap(), [0, 2]);
        assert_eq!(tokenizer.decode(&[5]).unwrap(), "ĠĠ");
        assert_eq!(tokenizer.encode("ĠĠ", false, false).unwrap(), [5]);
    }

    #[test]
    fn what_cannot_be_used_is_an_error_that_says_why() {
        let texts_only = [entry("model", 8, string("llama")), texts("tokens", &["<unk>", "a"])];
        let with_scores =
            [&texts_only[..], &[array("scores", 6, &[0f32.to_le_bytes().to_vec(), 1f32.to_le_bytes().to_vec()])]]
                .concat();
        let odd_byte = [&with_scores[..], &[kinds(&[2, 6])]].concat();
        let cases = [
            (tokenizer(&[]), "invalid_file", "tokenizer.ggml.model"),
            (tokenizer(&[entry("model", 8, string("bert"))]), "unsupported_model", "bert"),
            (tokenizer(&texts_only), "invalid_file", "tokenizer.ggml.scores"),
            (tokenizer(&odd_byte), "invalid_tokenizer", "byte token 1"),
            (byte_level(&[number("eos_token_id", 6)]), "invalid_tokenizer", "6"),
            (byte_level(&[number("bos_token_id", u32::MAX)]), "invalid_tokenizer", "4294967295"),
            (byte_level(&[kinds(&[1])]), "invalid_tokenizer", "1 token types for 6 tokens"),
            (byte_level(&[kinds(&[1, 1, 1, 1, 1, 9])]), "invalid_tokenizer", "unknown type 9"),
        ];
        for (result, code, detail) in cases {
            let error = result.unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert!(error.to_string().contains(detail), "{error}");
        }
        for merge in ["ab", "", "a zz"] {
            let error = tokenizer(&[
                entry("model", 8, string("gpt2")),
                texts("tokens", &["a", "b", "ab"]),
                texts("merges", &[merge]),
            ]);
            assert_eq!(error.unwrap_err().code(), "invalid_tokenizer", "{merge:?}");
        }
    }
}
