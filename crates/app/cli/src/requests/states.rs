//! States of actors as they are drawn.

/// States with the letters that bars are drawn with, and their colours.
pub(crate) const STATES: [(&str, char, &str); 7] = [
    ("running", '█', "\x1b[32m"),
    ("runnable", 'r', "\x1b[33m"),
    ("queued", 'q', "\x1b[36m"),
    ("lock", 'L', "\x1b[31m"),
    ("disk", 'D', "\x1b[35m"),
    ("network", 'n', "\x1b[34m"),
    ("sleeping", '·', "\x1b[2m"),
];

/// The colour of a state.
pub(crate) fn style(state: &str) -> &'static str {
    STATES.iter().find(|(name, ..)| *name == state).map_or("", |(.., style)| style)
}
