//! A vocabulary as its file states it, before it becomes a tokenizer: the common ground of GGUF and `tokenizer.json`.

use std::collections::HashMap;

use tokenizers::{AddedToken, NormalizerWrapper, PreTokenizerWrapper};

use crate::error::{Error, Result};

/// The character that stands for a space in SentencePiece vocabularies.
pub const SPACE: char = '\u{2581}';

/// What a token is for. The numbers are those of SentencePiece and of `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Text.
    Normal,
    /// Stands for text that the vocabulary cannot express.
    Unknown,
    /// A signal, not text: special.
    Control,
    /// Text that is one token wherever it occurs.
    UserDefined,
    /// A place that is kept free.
    Unused,
    /// One byte, written `<0xNN>`.
    Byte,
}

impl TokenKind {
    /// The kind with this number in a file.
    pub fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            1 => TokenKind::Normal,
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            5 => TokenKind::Unused,
            6 => TokenKind::Byte,
            _ => return None,
        })
    }

    /// Whether tokens of this kind are signals, which have no text.
    pub fn is_special(self) -> bool {
        matches!(self, TokenKind::Control | TokenKind::Unknown)
    }
}

/// A token as its file writes it.
#[derive(Debug, Clone)]
pub struct Token {
    /// The written form, in which [`ByteEncoding`] hides the bytes.
    pub text: String,
    /// What it is for.
    pub kind: TokenKind,
}

/// How the written form of a token stands for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteEncoding {
    /// Each character is one byte, by GPT-2's table.
    ByteLevel,
    /// Plain text with [`SPACE`] for spaces, and byte tokens `<0xNN>` for what has no token.
    SentencePiece {
        /// Whether a space is put before the text to encode.
        space_prefix: bool,
    },
}

/// Everything that makes a tokenizer.
#[derive(Debug)]
pub struct Vocabulary {
    /// By id.
    pub tokens: Vec<Token>,
    /// Pairs of written forms to join, the best first.
    pub merges: Vec<(String, String)>,
    /// How written forms stand for bytes.
    pub encoding: ByteEncoding,
    /// What is done to the text first.
    pub normalizer: Option<NormalizerWrapper>,
    /// How the text is cut into words, within which tokens are found.
    pub pre_tokenizer: Option<PreTokenizerWrapper>,
    /// Whether a word that is a token is taken as it is, whatever the merges say.
    pub ignore_merges: bool,
    /// Whether what has no token becomes byte tokens.
    pub byte_fallback: bool,
    /// Whether neighbouring unknown tokens become one.
    pub fuse_unknown: bool,
    /// The written form of the token for what has no other.
    pub unknown: Option<String>,
    /// Tokens that are found in the text before anything else, special ones excepted.
    pub added: Vec<AddedToken>,
    /// The id that begins a sequence.
    pub bos: Option<u32>,
    /// The id that ends a sequence.
    pub eos: Option<u32>,
    /// Whether a prompt begins with `bos`.
    pub add_bos: bool,
    /// Whether a text ends with `eos`.
    pub add_eos: bool,
    /// The ids that end a generation.
    pub stop_ids: Vec<u32>,
}

/// The merges that the scores of a SentencePiece vocabulary amount to, the best first.
///
/// SentencePiece joins the neighbours whose union is the piece with the highest score; so every way of cutting a piece in two pieces is a
/// merge, and its rank is that of the piece. Among the cuts of one piece, and among pieces of equal score, the order is that of
/// the conversion in Hugging Face's `transformers`: longer parts first.
pub fn merges_from_scores(tokens: &[Token], scores: &[f32]) -> Result<Vec<(String, String)>> {
    if scores.len() != tokens.len() {
        return Err(Error::InvalidTokenizer(format!("{} scores for {} tokens", scores.len(), tokens.len())));
    }
    let joinable = |token: &Token| !token.kind.is_special() && token.kind != TokenKind::Byte;
    let ids: HashMap<&str, usize> = (tokens.iter().enumerate())
        .filter(|(_, token)| joinable(token))
        .map(|(id, token)| (token.text.as_str(), id))
        .collect();
    let mut merges = Vec::new();
    for (token, &score) in tokens.iter().zip(scores) {
        if !joinable(token) {
            continue;
        }
        for (cut, _) in token.text.char_indices().skip(1) {
            let (left, right) = token.text.split_at(cut);
            if let (Some(&left_id), Some(&right_id)) = (ids.get(left), ids.get(right)) {
                merges.push((score, left, right, left_id, right_id));
            }
        }
    }
    merges.sort_by(|a, b| {
        let by_length = |merge: &(f32, &str, &str, usize, usize)| (merge.1.chars().count(), merge.2.chars().count());
        (b.0.total_cmp(&a.0)).then_with(|| by_length(b).cmp(&by_length(a))).then_with(|| (a.3, a.4).cmp(&(b.3, b.4)))
    });
    Ok((merges.into_iter()).map(|(_, left, right, ..)| (left.to_string(), right.to_string())).collect())
}

/// The byte that `<0xNN>` stands for.
pub fn byte_token(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_follow_the_scores_and_leave_special_and_byte_tokens_alone() {
        let token = |text: &str, kind| Token { text: text.into(), kind };
        let normal = TokenKind::Normal;
        let tokens = [
            token("<s>", TokenKind::Control),
            token("<", normal),
            token("s>", normal),
            token("<0x41>", TokenKind::Byte),
            token("0x41>", normal),
            token("a", normal),
            token("b", normal),
            token("ab", normal),
            token("aba", normal),
        ];
        let scores = [0.0, -1.0, -1.0, 0.0, -1.0, -3.0, -3.0, -2.0, -1.5];
        let merges = merges_from_scores(&tokens, &scores).unwrap();
        let merge = |a: &str, b: &str| (a.to_string(), b.to_string());
        assert_eq!(merges, [merge("ab", "a"), merge("a", "b")]);
    }

    #[test]
    fn as_many_scores_as_tokens_are_required() {
        let error = merges_from_scores(&[], &[1.0]).unwrap_err();
        assert_eq!(error, Error::InvalidTokenizer("1 scores for 0 tokens".into()));
    }
}
