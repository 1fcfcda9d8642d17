//! Text to token ids and back: the vocabularies that GGUF files and `tokenizer.json` declare, over Hugging Face's `tokenizers`.
//!
//! Both families that Llama models use are byte-pair encodings: byte-level ones with a list of merges (GPT-2, Llama 3, SmolLM2,
//! Qwen) and SentencePiece ones, whose merges follow from the scores of the pieces (Llama 2, TinyLlama). Both become one
//! [`BpeTokenizer`].
//!
//! A *special token* (`<|im_end|>`, `</s>`) is a signal between a chat template and a model, not text. Three rules follow from that:
//! [`Tokenizer::encode`] never produces one from text; [`Tokenizer::encode_with_special`] does, for text that a template wrote; and
//! special tokens decode to nothing. For a template's text with a user's text inside it, see [`Tokenizer::escape_special`].
//!
//! Generated text goes through a [`StreamDecoder`], because a token is bytes and may end inside a character.

mod bpe;
mod end_tokens;
mod gguf;
mod json;
mod pre_tokenizer;
mod special;
mod stream;
mod vocabulary;

#[cfg(all(test, not(target_arch = "wasm32")))]
mod fixture_tests;

pub use bpe::BpeTokenizer;
pub use stream::StreamDecoder;

use crate::error::{Error, Result};

/// Turns text into token ids and token ids into text.
///
/// The names are Burn-LM's; what can fail returns a `Result`.
pub trait Tokenizer {
    /// The ids of `text`, with the ids that begin and end a sequence around them where asked for and where the vocabulary has them.
    ///
    /// The text of a special token in `text` is ordinary text.
    ///
    /// # Errors
    /// [`Error::InvalidTokenizer`] if the vocabulary contradicts itself.
    fn encode(&self, text: &str, bos: bool, eos: bool) -> Result<Vec<u32>>;

    /// The ids of `text`, in which the text of a special token becomes that token, unless [`Tokenizer::escape_special`] put `escape`
    /// before it. Every `escape` is left out.
    ///
    /// The text between two special tokens is encoded as a whole.
    ///
    /// # Errors
    /// [`Error::InvalidTokenizer`] if the vocabulary contradicts itself.
    fn encode_with_special(&self, text: &str, escape: Option<char>) -> Result<Vec<u32>>;

    /// `text` with `escape` before each place where the text of a special token begins, so that
    /// [`Tokenizer::encode_with_special`] takes it for text. `escape` must be a character that `text` does not hold.
    fn escape_special(&self, text: &str, escape: char) -> String;

    /// The text of `ids`. Special tokens have none; bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for an id that the vocabulary does not have.
    fn decode(&self, ids: &[u32]) -> Result<String> {
        let mut decoder = StreamDecoder::new(self);
        let mut text = String::new();
        for &id in ids {
            text.push_str(&decoder.push(id)?);
        }
        text.push_str(&decoder.finish());
        Ok(text)
    }

    /// The bytes that token `id` stands for: none for a special token, and not necessarily whole characters.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for an id that the vocabulary does not have.
    fn token_bytes(&self, id: u32) -> Result<&[u8]>;

    /// Whether encoding puts a space before the text, which decoding has to take away again (SentencePiece).
    fn adds_space_prefix(&self) -> bool;

    /// The text of special token `id`, if it is one.
    fn special_token(&self, id: u32) -> Option<&str>;

    /// The id that begins a sequence.
    fn bos_id(&self) -> Option<u32>;

    /// The id that ends a sequence.
    fn eos_id(&self) -> Option<u32>;

    /// Whether the model expects [`Tokenizer::bos_id`] before a prompt.
    fn adds_bos(&self) -> bool;

    /// Whether the model expects [`Tokenizer::eos_id`] after a text.
    fn adds_eos(&self) -> bool;

    /// All ids that end a generation (end of sequence, of turn, of message), in ascending order.
    fn stop_ids(&self) -> &[u32];

    /// The number of ids.
    fn vocab_size(&self) -> usize;
}

/// The error for an id past the end of the vocabulary.
fn unknown_id(id: u32, vocab_size: usize) -> Error {
    Error::InvalidParameter {
        name: "token id",
        reason: format!("{id} is not in the vocabulary of {vocab_size} tokens"),
    }
}
