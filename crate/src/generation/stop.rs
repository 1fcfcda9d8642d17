//! Stop strings: a generation ends where one of them begins, although tokens end anywhere.

use crate::error::{Error, Result};

/// Text that may be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emitted {
    /// What to add to the text shown so far; may be empty.
    pub text: String,
    /// Whether a stop string has come: this is the last text.
    pub stopped: bool,
}

/// Finds stop strings in text that comes in pieces.
///
/// The text given out ends before the stop string that is complete first, wherever the pieces are cut. What may be the beginning of a stop
/// string is held back until it is clear that it is not; that is less than the longest stop string, so a push costs the same however
/// long the text is.
///
/// ```
/// # use hearth::generation::stop::StopStrings;
/// let mut stop = StopStrings::new(&["User:".into()])?;
/// let emitted = stop.push("Fine. Us");
/// assert_eq!((emitted.text.as_str(), emitted.stopped), ("Fine. ", false));
/// let emitted = stop.push("er: and");
/// assert_eq!((emitted.text.as_str(), emitted.stopped), ("", true));
/// # Ok::<(), hearth::error::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct StopStrings {
    strings: Vec<String>,
    held: String,
    stopped: bool,
}

impl StopStrings {
    /// For these strings, possibly none.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for one without characters, before which every text would end.
    pub fn new(strings: &[String]) -> Result<Self> {
        if strings.iter().any(String::is_empty) {
            return Err(Error::InvalidParameter {
                name: "stop",
                reason: "a stop string without characters stops everything: leave it out".into(),
            });
        }
        Ok(StopStrings { strings: strings.to_vec(), held: String::new(), stopped: false })
    }

    /// Takes the next piece of text and returns what can be shown. After a stop string nothing can.
    pub fn push(&mut self, delta: &str) -> Emitted {
        if !self.stopped {
            self.held.push_str(delta);
            if let Some(begin) = self.first_stop() {
                self.held.truncate(begin);
                self.stopped = true;
                return self.emit(begin);
            }
        }
        self.emit(self.certain())
    }

    /// Ends the text and returns the rest of it: the beginning of a stop string that never became one.
    pub fn finish(&mut self) -> String {
        self.emit(self.held.len()).text
    }

    /// Whether a stop string has come.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Where the stop string begins that ends first, and of those that end there the longest.
    fn first_stop(&self) -> Option<usize> {
        let place = |stop: &String| {
            let begin = self.held.find(stop.as_str())?;
            Some((begin + stop.len(), begin))
        };
        let (_, begin) = self.strings.iter().filter_map(place).min()?;
        Some(begin)
    }

    /// How many bytes of the held text cannot belong to a stop string.
    fn certain(&self) -> usize {
        let may_go_on = |&begin: &usize| {
            let rest = &self.held[begin..];
            self.strings.iter().any(|stop| stop.starts_with(rest))
        };
        let longest = self.strings.iter().map(String::len).max().unwrap_or(0);
        let earliest = self.held.len().saturating_sub(longest);
        (self.held.char_indices())
            .map(|(index, _)| index)
            .skip_while(|&index| index < earliest)
            .find(may_go_on)
            .unwrap_or(self.held.len())
    }

    fn emit(&mut self, bytes: usize) -> Emitted {
        Emitted { text: self.held.drain(..bytes).collect(), stopped: self.stopped }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn strings(strings: &[&str]) -> StopStrings {
        let strings: Vec<String> = strings.iter().map(|s| s.to_string()).collect();
        StopStrings::new(&strings).unwrap()
    }

    #[test]
    fn text_is_held_back_only_while_it_may_be_a_stop_string() {
        // Stop strings; pieces and what each lets out; what the end lets out.
        type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);
        let cases: [Case; 8] = [
            (&[], &[("a", "a"), ("", ""), ("b", "b")], ""),
            (&["END"], &[("aE", "a"), ("N", ""), ("Db", "")], ""),
            (&["END"], &[("aE", "a"), ("Nb", "ENb")], ""),
            (&["END"], &[("aEN", "a")], "EN"),
            (&["END"], &[("EEEN", "EE"), ("D", "")], ""),
            (&["aab"], &[("aa", ""), ("a", "a"), ("b", "")], ""),
            (&["\n\n", "é!"], &[("x\n", "x"), ("é", "\n"), ("\n", "é")], "\n"),
            (&["世界"], &[("你好世", "你好"), ("人", "世人")], ""),
        ];
        for (stop, pieces, rest) in cases {
            let mut stop_strings = strings(stop);
            for (piece, out) in pieces {
                assert_eq!(&stop_strings.push(piece).text, out, "{stop:?} {pieces:?}");
            }
            assert_eq!(stop_strings.finish(), rest, "{stop:?} {pieces:?}");
        }
    }

    #[test]
    fn the_stop_string_that_is_complete_first_counts() {
        for (stop, text, expected) in
            [(&["abcd", "c"][..], "xabcd", "xab"), (&["bc", "abc"], "xabc", "x"), (&["b", "a"], "xab", "x")]
        {
            let mut stop_strings = strings(stop);
            let emitted = stop_strings.push(text);
            assert_eq!((emitted.text.as_str(), emitted.stopped), (expected, true));
            assert_eq!(stop_strings.push("more").text, "");
            assert_eq!(stop_strings.finish(), "");
        }
    }

    proptest! {
        #[test]
        fn however_it_is_cut_the_text_ends_before_the_first_stop_string(
            text in "[abé]{0,24}",
            stop in prop::collection::vec("[abé]{1,4}", 0..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            // The first character at which the text so far ends with a stop string; then the longest of those.
            let characters: Vec<usize> = text.char_indices().map(|(i, c)| i + c.len_utf8()).collect();
            let expected = characters.iter().find_map(|&end| {
                let ending = stop.iter().filter(|s| text[..end].ends_with(s.as_str()));
                ending.map(|s| &text[..end - s.len()]).min_by_key(|text| text.len())
            });

            let mut ends: Vec<usize> = (cuts.iter().filter(|_| !characters.is_empty()))
                .map(|cut| *cut.get(&characters))
                .collect();
            ends.push(text.len());
            ends.sort_unstable();
            let mut stop_strings = StopStrings::new(&stop).unwrap();
            let (mut shown, mut stopped, mut begin) = (String::new(), false, 0);
            for end in ends {
                let emitted = stop_strings.push(&text[begin..end]);
                shown.push_str(&emitted.text);
                stopped = emitted.stopped;
                begin = end;
            }
            shown.push_str(&stop_strings.finish());
            prop_assert_eq!(stopped, expected.is_some());
            prop_assert_eq!(shown, expected.unwrap_or(&text));
        }
    }

    #[test]
    fn a_stop_string_without_characters_is_an_error() {
        match StopStrings::new(&[String::new()]) {
            Err(Error::InvalidParameter { name, .. }) => assert_eq!(name, "stop"),
            other => panic!("{other:?}"),
        }
    }
}
