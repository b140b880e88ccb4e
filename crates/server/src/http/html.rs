//! Escaping of text for HTML.

/// Replaces the characters in `text` that have a meaning in HTML by entities.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
