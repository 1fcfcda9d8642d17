//! Finding the written forms of special tokens in text, and telling those that a template wrote from those that a user wrote.

use std::collections::{BTreeSet, HashMap};

/// A stretch of text, cut at its special tokens.
#[derive(Debug, PartialEq)]
pub enum Segment<'a> {
    /// Ordinary text, never empty.
    Text(&'a str),
    /// A special token.
    Special(u32),
}

/// The special tokens of a vocabulary by their written forms.
#[derive(Debug, Default)]
pub struct SpecialTokens {
    ids: HashMap<String, u32>,
    texts: HashMap<u32, String>,
    /// The lengths of the written forms in bytes: all that has to be tried at one place.
    lengths: BTreeSet<usize>,
    /// Whether a written form begins with this byte.
    first_bytes: Vec<bool>,
}

impl SpecialTokens {
    /// From the ids and written forms. Empty ones are never found.
    pub fn new<'a>(tokens: impl Iterator<Item = (u32, &'a str)>) -> Self {
        let mut special = SpecialTokens { first_bytes: vec![false; 256], ..Default::default() };
        for (id, text) in tokens {
            special.texts.insert(id, text.to_string());
            if let Some(&first) = text.as_bytes().first() {
                special.ids.insert(text.to_string(), id);
                special.lengths.insert(text.len());
                special.first_bytes[usize::from(first)] = true;
            }
        }
        special
    }

    /// The written form of special token `id`.
    pub fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(&id).map(String::as_str)
    }

    /// The id of the special token that is written `text`.
    pub fn id(&self, text: &str) -> Option<u32> {
        // Most texts have a length that no special token has, and need no look-up.
        self.lengths.contains(&text.len()).then(|| self.ids.get(text).copied()).flatten()
    }

    /// Whether `left` and `right` joined, or one of them, is the written form of a special token.
    pub fn touches(&self, left: &str, right: &str) -> bool {
        let length = left.len() + right.len();
        self.id(left).is_some()
            || self.id(right).is_some()
            || self.lengths.contains(&length) && self.id(&[left, right].concat()).is_some()
    }

    /// The longest special token at the beginning of `text`: its length in bytes and its id.
    fn at_start(&self, text: &str) -> Option<(usize, u32)> {
        let first = *text.as_bytes().first()?;
        if !self.first_bytes[usize::from(first)] {
            return None;
        }
        (self.lengths.iter().rev()).find_map(|&length| Some((length, *self.ids.get(text.get(..length)?)?)))
    }

    /// Cuts `text` at its special tokens, the leftmost first and the longest of those. One that follows `escape` stays text.
    pub fn split<'a>(&self, text: &'a str, escape: Option<char>) -> Vec<Segment<'a>> {
        let mut segments = Vec::new();
        let (mut begin, mut escaped, mut skip_to) = (0, false, 0);
        for (position, character) in text.char_indices() {
            if position < skip_to {
                continue;
            }
            let found = (!escaped).then(|| self.at_start(&text[position..])).flatten();
            if let Some((length, id)) = found {
                if begin < position {
                    segments.push(Segment::Text(&text[begin..position]));
                }
                segments.push(Segment::Special(id));
                skip_to = position + length;
                begin = skip_to;
            }
            escaped = Some(character) == escape;
        }
        if begin < text.len() {
            segments.push(Segment::Text(&text[begin..]));
        }
        segments
    }

    /// `text` with `escape` before each place where a special token begins, also those that overlap, so that
    /// [`SpecialTokens::split`] finds none.
    pub fn escape(&self, text: &str, escape: char) -> String {
        let mut escaped = String::with_capacity(text.len());
        for (position, character) in text.char_indices() {
            if self.at_start(&text[position..]).is_some() {
                escaped.push(escape);
            }
            escaped.push(character);
        }
        escaped
    }
}

#[cfg(test)]
mod tests {
    use super::Segment::{Special, Text};
    use super::*;

    const MARK: char = '\u{FDD0}';

    fn special() -> SpecialTokens {
        SpecialTokens::new([(1, "<s>"), (2, "</s>"), (3, "<s><s>"), (4, "é"), (5, "")].into_iter())
    }

    #[test]
    fn text_is_cut_at_the_leftmost_longest_special_token() {
        let cases: [(&str, &[Segment]); 6] = [
            ("", &[]),
            ("a<s", &[Text("a<s")]),
            ("a</s>b", &[Text("a"), Special(2), Text("b")]),
            ("<s><s><s>", &[Special(3), Special(1)]),
            ("<<s>>", &[Text("<"), Special(1), Text(">")]),
            ("né", &[Text("n"), Special(4)]),
        ];
        for (text, segments) in cases {
            assert_eq!(special().split(text, Some(MARK)), segments, "{text:?}");
        }
    }

    #[test]
    fn escaped_text_holds_no_special_token_whatever_overlaps() {
        for text in ["<s>", "<s><s>", "a<s><s><s>", "<</s>/s>", "éé<s>", "plain", ""] {
            let escaped = special().escape(text, MARK);
            let segments = special().split(&escaped, Some(MARK));
            let expected: &[Segment] = match text {
                "" => &[],
                _ => &[Text(&escaped)],
            };
            assert_eq!(segments, expected);
            assert_eq!(escaped.replace(MARK, ""), text);
        }
    }

    #[test]
    fn a_special_token_after_escaped_text_is_still_found() {
        let escaped = special().escape("</s>", MARK) + "</s>";
        let text = format!("{MARK}</s>");
        assert_eq!(special().split(&escaped, Some(MARK)), [Text(&text), Special(2)]);
    }
}
