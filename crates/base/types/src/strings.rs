//! Texts as numbers, so that values of events are numbers throughout.

use std::collections::HashMap;
use std::sync::Arc;

/// Texts of a stream, each stored once and named by a code.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    texts: Vec<Arc<str>>,
    codes: HashMap<Arc<str>, u32>,
}

impl Strings {
    /// The code of a text, a new one if need be. The last code stands for all texts beyond.
    pub fn code(&mut self, text: &str) -> u32 {
        if let Some(code) = self.codes.get(text) {
            return *code;
        }
        let Ok(code) = u32::try_from(self.texts.len()) else { return u32::MAX };
        let text: Arc<str> = text.into();
        self.texts.push(text.clone());
        self.codes.insert(text, code);
        code
    }

    /// The code of a text, if it has one.
    pub fn find(&self, text: &str) -> Option<u32> {
        self.codes.get(text).copied()
    }

    /// The text of a code.
    pub fn text(&self, code: u32) -> Option<&str> {
        self.texts.get(code as usize).map(|text| &**text)
    }

    /// All texts, each at its code.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(|text| &**text)
    }

    /// The text that a field of an event has for its value; none is empty.
    pub fn of_value(&self, value: u64) -> &str {
        u32::try_from(value).ok().and_then(|code| self.text(code)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_code() {
        let mut strings = Strings::default();
        assert_eq!(["a", "", "a", "b"].map(|text| strings.code(text)), [0, 1, 0, 2]);
        assert_eq!(["b", "c"].map(|text| strings.find(text)), [Some(2), None]);
        assert_eq!(strings.all().collect::<Vec<_>>(), ["a", "", "b"]);
        assert_eq!([0, 3].map(|code| strings.text(code)), [Some("a"), None]);
        assert_eq!([2, 3, 1 << 32].map(|value| strings.of_value(value)), ["b", "", ""]);
    }
}
