//! Token ids to text while they are generated.

use super::Tokenizer;
use crate::error::Result;

/// Decodes ids one at a time and gives out text as soon as it is certain.
///
/// A token is bytes, and a character may be spread over several tokens: up to three bytes are held back until the rest of the character
/// has come. What [`push`](Self::push) and [`finish`](Self::finish) return joins to exactly what [`Tokenizer::decode`] returns for all ids
/// at once, and one push costs the same however long the text is.
#[derive(Debug)]
pub struct StreamDecoder<'a, T: Tokenizer + ?Sized> {
    tokenizer: &'a T,
    /// The beginning of a character, at most three bytes.
    incomplete: Vec<u8>,
    /// Whether the next byte, if it is a space, is the prefix that encoding puts before every text.
    at_start: bool,
}

impl<'a, T: Tokenizer + ?Sized> StreamDecoder<'a, T> {
    /// For ids that begin a text, as an answer does: SentencePiece's space prefix is taken away.
    pub fn new(tokenizer: &'a T) -> Self {
        StreamDecoder { tokenizer, incomplete: Vec::new(), at_start: tokenizer.adds_space_prefix() }
    }

    /// For ids that go on from text which is already there, as a completion does: a leading space is kept.
    pub fn continuing(tokenizer: &'a T) -> Self {
        StreamDecoder { at_start: false, ..Self::new(tokenizer) }
    }

    /// Takes the next id and returns the text that it made certain, which may be none.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`](crate::error::Error::InvalidParameter) for an id that the vocabulary does not have.
    pub fn push(&mut self, id: u32) -> Result<String> {
        let mut bytes = self.tokenizer.token_bytes(id)?;
        if let Some((&first, rest)) = bytes.split_first() {
            if self.at_start && first == b' ' {
                bytes = rest;
            }
            self.at_start = false;
        }
        self.incomplete.extend_from_slice(bytes);

        let mut text = String::new();
        let mut rest = self.incomplete.as_slice();
        loop {
            match str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = after;
                    // A length means that these bytes can never become a character; none, that more bytes may complete it.
                    if let Some(length) = error.error_len() {
                        text.push(char::REPLACEMENT_CHARACTER);
                        rest = &rest[length..];
                        continue;
                    }
                }
            }
            break;
        }
        self.incomplete = rest.to_vec();
        Ok(text)
    }

    /// Ends the text and returns what was held back: U+FFFD if it ends inside a character.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.incomplete).into_owned()
    }
}
