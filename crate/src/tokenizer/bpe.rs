//! The tokenizer: a byte-pair encoding over Hugging Face's `tokenizers`, byte-level or SentencePiece.
//!
//! ```text
//! text -> cut at special tokens -> user-defined tokens, normalizer -> pre-tokenizer -> merges -> ids
//! ```
//!
//! Special tokens are not in the vocabulary that the merges work on, so no ordinary text can become one.

use std::collections::HashMap;

use tokenizers::models::bpe::{BPE, BpeBuilder};
use tokenizers::pre_tokenizers::metaspace::PrependScheme;
use tokenizers::{AddedVocabulary, Model, NormalizerWrapper, OffsetType, PreTokenizer, PreTokenizerWrapper};

use super::special::{Segment, SpecialTokens};
use super::vocabulary::{ByteEncoding, SPACE, Token, TokenKind, Vocabulary, byte_token};
use super::{Tokenizer, unknown_id};
use crate::error::{Error, Result};

/// A byte-pair encoding: of GPT-2's kind, which is also Llama 3's and tiktoken's, or of SentencePiece's.
///
/// Built by [`from_gguf`](Self::from_gguf) or [`from_json`](Self::from_json).
#[derive(Debug)]
pub struct BpeTokenizer {
    model: BPE,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    /// For text that follows a special token, where that makes a difference.
    continuing_pre_tokenizer: Option<PreTokenizerWrapper>,
    user_defined: AddedVocabulary,
    special: SpecialTokens,
    pieces: Pieces,
    adds_space_prefix: bool,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    stop_ids: Vec<u32>,
}

impl BpeTokenizer {
    /// Checks a vocabulary and builds its tokenizer.
    pub(super) fn new(mut vocabulary: Vocabulary) -> Result<Self> {
        let size = vocabulary.tokens.len();
        if size == 0 || u32::try_from(size).is_err() {
            return Err(invalid(format!("{size} tokens")));
        }
        let named = [("beginning-of-sequence", vocabulary.bos), ("end-of-sequence", vocabulary.eos)];
        let stops = (vocabulary.stop_ids.iter()).map(|&id| ("end-of-generation", Some(id)));
        for (name, id) in named.into_iter().chain(stops) {
            let Some(id) = id else { continue };
            // Files sometimes call these text. They are signals, whatever the file says.
            match vocabulary.tokens.get_mut(id as usize) {
                Some(token) => token.kind = TokenKind::Control,
                None => {
                    return Err(invalid(format!("the {name} id {id} is not one of the {size} tokens")));
                }
            }
        }

        let special = SpecialTokens::new(
            ids(&vocabulary.tokens)
                .filter(|(_, token)| token.kind.is_special())
                .map(|(id, token)| (id, token.text.as_str())),
        );
        let pieces = Pieces::new(&vocabulary.tokens, vocabulary.encoding)?;
        vocabulary.merges.retain(|(left, right)| !special.touches(left, right));
        let model = build_model(&mut vocabulary)?;

        let mut user_defined = AddedVocabulary::new();
        let added: Vec<_> =
            (vocabulary.added.iter()).filter(|token| special.id(&token.content).is_none()).cloned().collect();
        user_defined.add_tokens(&added, &model, vocabulary.normalizer.as_ref());

        Ok(BpeTokenizer {
            model,
            normalizer: vocabulary.normalizer,
            continuing_pre_tokenizer: vocabulary.pre_tokenizer.clone().map(without_prefix),
            pre_tokenizer: vocabulary.pre_tokenizer,
            user_defined,
            special,
            pieces,
            adds_space_prefix: vocabulary.encoding == ByteEncoding::SentencePiece { space_prefix: true },
            bos: vocabulary.bos,
            eos: vocabulary.eos,
            add_bos: vocabulary.add_bos,
            add_eos: vocabulary.add_eos,
            stop_ids: vocabulary.stop_ids,
        })
    }

    /// Appends the ids of ordinary text.
    fn encode_text(&self, text: &str, pre_tokenizer: Option<&PreTokenizerWrapper>, ids: &mut Vec<u32>) -> Result<()> {
        let failed = |error: tokenizers::Error| invalid(error.to_string());
        let mut words = (self.user_defined).extract_and_normalize(self.normalizer.as_ref(), text);
        if let Some(pre_tokenizer) = pre_tokenizer {
            pre_tokenizer.pre_tokenize(&mut words).map_err(failed)?;
        }
        words.tokenize(|word| self.model.tokenize(word.get())).map_err(failed)?;
        let encoding = (words.into_encoding(None, 0, OffsetType::None)).map_err(failed)?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }
}

impl Tokenizer for BpeTokenizer {
    fn encode(&self, text: &str, bos: bool, eos: bool) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        ids.extend(self.bos.filter(|_| bos));
        self.encode_text(text, self.pre_tokenizer.as_ref(), &mut ids)?;
        ids.extend(self.eos.filter(|_| eos));
        Ok(ids)
    }

    fn encode_with_special(&self, text: &str, escape: Option<char>) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        let mut pre_tokenizer = self.pre_tokenizer.as_ref();
        for segment in self.special.split(text, escape) {
            match segment {
                Segment::Special(id) => ids.push(id),
                Segment::Text(text) => match escape {
                    Some(escape) if text.contains(escape) => {
                        self.encode_text(&text.replace(escape, ""), pre_tokenizer, &mut ids)?
                    }
                    _ => self.encode_text(text, pre_tokenizer, &mut ids)?,
                },
            }
            pre_tokenizer = self.continuing_pre_tokenizer.as_ref();
        }
        Ok(ids)
    }

    fn escape_special(&self, text: &str, escape: char) -> String {
        self.special.escape(text, escape)
    }

    fn token_bytes(&self, id: u32) -> Result<&[u8]> {
        self.pieces.get(id)
    }

    fn adds_space_prefix(&self) -> bool {
        self.adds_space_prefix
    }

    fn special_token(&self, id: u32) -> Option<&str> {
        self.special.text(id)
    }

    fn bos_id(&self) -> Option<u32> {
        self.bos
    }

    fn eos_id(&self) -> Option<u32> {
        self.eos
    }

    fn adds_bos(&self) -> bool {
        self.add_bos
    }

    fn adds_eos(&self) -> bool {
        self.add_eos
    }

    fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    fn vocab_size(&self) -> usize {
        self.pieces.len()
    }
}

/// The bytes of every token, end to end.
#[derive(Debug)]
struct Pieces {
    bytes: Vec<u8>,
    /// Where each token ends.
    ends: Vec<usize>,
}

impl Pieces {
    fn new(tokens: &[Token], encoding: ByteEncoding) -> Result<Self> {
        let byte_of_char = byte_of_char();
        let mut pieces = Pieces { bytes: Vec::new(), ends: Vec::with_capacity(tokens.len()) };
        for (id, Token { text, kind }) in ids(tokens) {
            match (kind, encoding) {
                (TokenKind::Control | TokenKind::Unknown, _) => {}
                (TokenKind::Byte, _) => {
                    let byte = byte_token(text)
                        .ok_or_else(|| invalid(format!("byte token {id} is {text:?} and not <0xNN>")))?;
                    pieces.bytes.push(byte);
                }
                (_, ByteEncoding::SentencePiece { .. }) => {
                    let text = text.replace(SPACE, " ");
                    pieces.bytes.extend_from_slice(text.as_bytes());
                }
                (TokenKind::UserDefined, ByteEncoding::ByteLevel) => {
                    pieces.bytes.extend_from_slice(text.as_bytes());
                }
                (TokenKind::Normal | TokenKind::Unused, ByteEncoding::ByteLevel) => {
                    let bytes: Option<Vec<u8>> = text.chars().map(|c| byte_of_char.get(&c).copied()).collect();
                    let bytes = bytes.unwrap_or_else(|| text.clone().into_bytes());
                    pieces.bytes.extend_from_slice(&bytes);
                }
            }
            pieces.ends.push(pieces.bytes.len());
        }
        Ok(pieces)
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, id: u32) -> Result<&[u8]> {
        let index = id as usize;
        let Some(&end) = self.ends.get(index) else {
            return Err(unknown_id(id, self.len()));
        };
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Ok(&self.bytes[begin..end])
    }
}

/// The merges and the tokens that text may become.
fn build_model(vocabulary: &mut Vocabulary) -> Result<BPE> {
    let unknown = vocabulary.unknown.take();
    let may_occur = |token: &Token| !token.kind.is_special() || unknown.as_ref() == Some(&token.text);
    let by_text = ids(&vocabulary.tokens)
        .filter(|(_, token)| may_occur(token))
        .map(|(id, token)| (token.text.clone(), id))
        .collect::<tokenizers::models::bpe::Vocab>();
    if let Some(unknown) = &unknown
        && !by_text.contains_key(unknown)
    {
        return Err(invalid(format!("the unknown token {unknown:?} is not a token")));
    }
    let mut builder = BpeBuilder::new()
        .vocab_and_merges(by_text, std::mem::take(&mut vocabulary.merges))
        .ignore_merges(vocabulary.ignore_merges)
        .byte_fallback(vocabulary.byte_fallback)
        .fuse_unk(vocabulary.fuse_unknown);
    if let Some(unknown) = unknown {
        builder = builder.unk_token(unknown);
    }
    builder.build().map_err(|error| invalid(error.to_string()))
}

/// The same pre-tokenizer for text that does not begin the prompt: a prefix that only the first word gets is left out.
fn without_prefix(mut pre_tokenizer: PreTokenizerWrapper) -> PreTokenizerWrapper {
    match &mut pre_tokenizer {
        PreTokenizerWrapper::Metaspace(metaspace) if metaspace.get_prepend_scheme() == PrependScheme::First => {
            metaspace.set_prepend_scheme(PrependScheme::Never);
        }
        PreTokenizerWrapper::Sequence(sequence) => {
            for step in sequence.as_mut() {
                *step = without_prefix(step.clone());
            }
        }
        _ => {}
    }
    pre_tokenizer
}

/// Tokens with their ids.
fn ids(tokens: &[Token]) -> impl Iterator<Item = (u32, &Token)> {
    (0..).zip(tokens)
}

/// GPT-2's table of bytes written as characters: a printable Latin-1 byte is its own character, and the others are, in order, those from
/// U+0100 on.
fn byte_of_char() -> HashMap<char, u8> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let own = (0..=255).filter(|&byte| printable(byte));
    let moved = (0..=255).filter(|&byte| !printable(byte));
    (own.map(|byte| (char::from(byte), byte))).chain(('\u{100}'..).zip(moved)).collect()
}

fn invalid(reason: String) -> Error {
    Error::InvalidTokenizer(reason)
}
