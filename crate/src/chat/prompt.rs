//! From messages to token ids, without ever taking a user's text for a special token.
//!
//! A template writes `<|im_end|>` as text, and a user can write the same. So, before the template runs, a mark is put before each special
//! token in the messages: a character that they do not hold. The tokenizer takes a marked special token for text and drops the marks.

use super::{ChatTemplate, Message, RenderOptions};
use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;

impl ChatTemplate {
    /// The token ids of the prompt for `messages`.
    ///
    /// The special tokens that the template writes become their ids; those in the messages stay ordinary text. Where the model expects a
    /// beginning-of-sequence token and the template does not write it, it is put first, as llama.cpp does.
    ///
    /// # Errors
    /// Those of [`render`](Self::render) and of [`Tokenizer::encode_with_special`].
    pub fn encode(
        &self,
        tokenizer: &(impl Tokenizer + ?Sized),
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<Vec<u32>> {
        let mark = unused_character(self.source(), messages)?;
        let marked: Vec<Message> = (messages.iter())
            .map(|message| Message {
                role: tokenizer.escape_special(&message.role, mark),
                content: tokenizer.escape_special(&message.content, mark),
            })
            .collect();
        let prompt = self.render(&marked, options)?;
        let mut ids = tokenizer.encode_with_special(&prompt, Some(mark))?;
        if let Some(bos) = tokenizer.bos_id()
            && tokenizer.adds_bos()
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        Ok(ids)
    }
}

/// A character that neither the template nor a message holds: one of the noncharacters that Unicode keeps for such uses, or, if someone
/// has used them all, a private one.
fn unused_character(template: &str, messages: &[Message]) -> Result<char> {
    let texts = || {
        let of_messages = messages.iter().flat_map(|m| [m.role.as_str(), m.content.as_str()]);
        std::iter::once(template).chain(of_messages)
    };
    ('\u{FDD0}'..='\u{FDEF}')
        .chain('\u{F0000}'..='\u{F00FF}')
        .find(|&candidate| !texts().any(|text| text.contains(candidate)))
        .ok_or_else(|| Error::InvalidParameter {
            name: "messages",
            reason:
                "they hold every noncharacter from U+FDD0 to U+FDEF and every private character from U+F0000 to U+F00FF"
                    .into(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_a_character_that_nobody_wrote() {
        let messages = [Message::user("a\u{FDD0}"), Message::new("\u{FDD1}", "")];
        assert_eq!(unused_character("\u{FDD2}", &messages), Ok('\u{FDD3}'));
        let all: String = ('\u{FDD0}'..='\u{FDEF}').collect();
        let messages = [Message::user(all)];
        assert_eq!(unused_character("", &messages), Ok('\u{F0000}'));
    }
}
