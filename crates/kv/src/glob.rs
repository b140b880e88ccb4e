//! Glob patterns of KEYS, SCAN and CONFIG GET: `*`, `?`, `[a-c]`, `[^x]`, and `\` before a literal character.

/// Whether `text` matches `pattern`. The time is at most proportional to the product of their lengths.
pub fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Backtracking point: the pattern after the last star, and the first byte of text that the star does not match yet.
    let mut star: Option<(usize, usize)> = None;
    loop {
        let matched = match (pattern.get(p), text.get(t)) {
            (Some(b'*'), _) => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            (None, None) => return true,
            (Some(_), Some(&byte)) => match_element(pattern, p, byte),
            _ => None,
        };
        match (matched, star) {
            (Some(next), _) => {
                p = next;
                t += 1;
            }
            (None, Some((after, from))) if from < text.len() => {
                star = Some((after, from + 1));
                p = after;
                t = from + 1;
            }
            _ => return false,
        }
    }
}

/// The index of the pattern's next element, if the element at `p` matches `byte`.
fn match_element(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match *pattern.get(p)? {
        b'?' => Some(p + 1),
        b'[' => match_class(pattern, p + 1, byte),
        b'\\' => match pattern.get(p + 1) {
            Some(&literal) => (literal == byte).then_some(p + 2),
            None => (byte == b'\\').then_some(p + 1),
        },
        literal => (literal == byte).then_some(p + 1),
    }
}

/// [`one`] for the class whose first member is at `p`. A class without `]` ends with the pattern.
fn match_class(pattern: &[u8], mut p: usize, byte: u8) -> Option<usize> {
    let negated = pattern.get(p) == Some(&b'^');
    if negated {
        p += 1;
    }
    let mut hit = false;
    loop {
        match (pattern.get(p), pattern.get(p + 1), pattern.get(p + 2)) {
            (None, ..) => return (hit != negated).then_some(p),
            (Some(b']'), ..) => return (hit != negated).then_some(p + 1),
            (Some(b'\\'), Some(&literal), _) => {
                hit |= literal == byte;
                p += 2;
            }
            (Some(&a), Some(b'-'), Some(&b)) => {
                hit |= (a.min(b)..=a.max(b)).contains(&byte);
                p += 3;
            }
            (Some(&literal), ..) => {
                hit |= literal == byte;
                p += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::glob;
    use proptest::prelude::*;

    #[test]
    fn patterns_match_as_clients_expect() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h*llo", "heeeello", true),
            ("h*l*o", "hallo!", false),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("key:*:x", "key:1:y:x", true),
            ("[abc", "b", true),
            ("**a", "bba", true),
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn any_pattern_ends(pattern: Vec<u8>, text: Vec<u8>) {
            glob(&pattern, &text);
        }

        #[test]
        fn a_text_matches_itself_escaped(text: Vec<u8>) {
            let escaped: Vec<u8> = text.iter().flat_map(|&b| [b'\\', b]).collect();
            prop_assert!(glob(&escaped, &text));
        }
    }
}
