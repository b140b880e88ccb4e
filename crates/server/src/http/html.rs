//! Text in HTML.

/// The text with the characters escaped that HTML gives a meaning.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
