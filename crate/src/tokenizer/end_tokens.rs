//! The tokens that end a generation, known by their names.
//!
//! Files name one end-of-sequence id, but a chat model ends its turn with another token as often as not (Llama 3 has three). Running past
//! it makes the model play both sides of the conversation, so every token with one of these names ends a generation.

use super::vocabulary::{Token, TokenKind};

/// Names that mean the end in every vocabulary that has them.
const END_NAMES: [&str; 15] = [
    "</s>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|return|>",
    "<|eot|>",
    "<|eom|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<|end_of_turn|>",
    "<EOT>",
    "<eos>",
];

/// The ids that end a generation: the `declared` ones and those with a well-known name, in ascending order.
///
/// A file may wrongly call one of these tokens text. A name in `<|` and `|>` is believed all the same; others, such as `</s>`, also
/// occur in real text (it is HTML), and are not.
pub fn end_ids(tokens: &[Token], declared: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let by_name = (0..).zip(tokens).filter_map(|(id, token)| {
        let unmistakable =
            token.text.starts_with("<|") || matches!(token.kind, TokenKind::Control | TokenKind::UserDefined);
        (unmistakable && END_NAMES.contains(&token.text.as_str())).then_some(id)
    });
    let mut ids: Vec<u32> = declared.into_iter().chain(by_name).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_and_well_known_tokens_end_a_generation() {
        let token = |text: &str, kind| Token { text: text.into(), kind };
        let tokens = [
            token("<|im_end|>", TokenKind::Control),
            token("</s>", TokenKind::Normal),
            token("<|eot_id|>", TokenKind::Normal),
            token("<end_of_turn>", TokenKind::UserDefined),
            token("stop", TokenKind::Control),
        ];
        assert_eq!(end_ids(&tokens, [4, 0]), [0, 2, 3, 4]);
    }
}
