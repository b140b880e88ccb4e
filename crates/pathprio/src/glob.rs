//! A pattern for the end of a path.

use std::fmt;

/// Most components of a pattern.
const MOST_COMPONENTS: usize = 32;
/// Most `**` of a pattern: each multiplies the ways in which a path can match.
const MOST_ANY_DEPTHS: usize = 2;

/// A pattern for the end of a path.
///
/// A pattern of `n` components is compared with the last `n` components of a path: `pg_wal/*` matches `pg_wal/0001` and `/data/pg_wal/0001`. A pattern that
/// begins with `/` must match the whole path. Within a component `*` stands for any bytes, also none, `?` for one byte, `[a-z]` for one byte of a set
/// and `[!a-z]` for one outside of it; `\` takes the next byte literally. The component `**` stands for one component or more. Components `.` and
/// empty ones of a path do not count. Matching does not allocate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Glob {
    text: String,
    whole_path: bool,
    components: Vec<Component>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Component {
    /// `**`: one path component or more.
    AnyDepth,
    /// One path component.
    Name(Vec<u8>),
}

/// Why a text is no pattern.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the glob {glob:?} {problem}")]
pub struct GlobError {
    glob: String,
    problem: &'static str,
}

impl Glob {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Glob, GlobError> {
        let refuse = |problem| Err(GlobError { glob: text.to_owned(), problem });
        if text.contains(['\n', '\0']) {
            return refuse("has a line break or a zero byte");
        }
        let names = text.split('/').filter(|name| !name.is_empty() && *name != ".");
        let components: Vec<Component> = names
            .map(|name| if name == "**" { Component::AnyDepth } else { Component::Name(name.into()) })
            .collect();
        if components.is_empty() {
            return refuse("is empty: name the end of a path, such as 'pg_wal/*'");
        }
        if components.len() > MOST_COMPONENTS {
            return refuse("has more than 32 components");
        }
        if components.iter().filter(|component| **component == Component::AnyDepth).count() > MOST_ANY_DEPTHS
        {
            return refuse("has more than two components '**'");
        }
        for component in &components {
            let Component::Name(name) = component else { continue };
            if name == b".." {
                return refuse("has a component '..'");
            }
            if !is_well_formed(name) {
                return refuse("has a '[' without ']', or ends with '\\'");
            }
        }
        Ok(Glob { text: text.to_owned(), whole_path: text.starts_with('/'), components })
    }

    /// True if the pattern matches the end of `path`.
    pub fn matches(&self, path: &[u8]) -> bool {
        if self.whole_path && path.first() != Some(&b'/') {
            return false;
        }
        matches_end(&self.components, path, self.whole_path)
    }

    /// The pattern as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn matches_end(components: &[Component], path: &[u8], whole_path: bool) -> bool {
    let Some((last, before)) = components.split_last() else {
        return !whole_path || last_component(path).is_none();
    };
    let Some((mut head, name)) = last_component(path) else { return false };
    match last {
        Component::Name(pattern) => matches_name(pattern, name) && matches_end(before, head, whole_path),
        Component::AnyDepth => loop {
            if matches_end(before, head, whole_path) {
                return true;
            }
            match last_component(head) {
                Some((shorter, _)) => head = shorter,
                None => return false,
            }
        },
    }
}

/// The last component of a path and the bytes before it; `None` if there is none.
fn last_component(mut path: &[u8]) -> Option<(&[u8], &[u8])> {
    loop {
        while let Some(shorter) = path.strip_suffix(b"/") {
            path = shorter;
        }
        if path.is_empty() {
            return None;
        }
        let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (head, name) = path.split_at(start);
        if name != b"." {
            return Some((head, name));
        }
        path = head;
    }
}

fn is_well_formed(mut pattern: &[u8]) -> bool {
    loop {
        pattern = match pattern {
            [] => return true,
            [b'\\'] => return false,
            [b'\\', _, rest @ ..] => rest,
            [b'[', rest @ ..] => match set_end(rest) {
                Some((_, after)) => after,
                None => return false,
            },
            [_, rest @ ..] => rest,
        };
    }
}

/// Splits what follows a `[` into the set and the bytes behind its `]`. A `]` that is the set's first byte belongs to the set.
fn set_end(after_bracket: &[u8]) -> Option<(&[u8], &[u8])> {
    let first = if after_bracket.first() == Some(&b'!') { 2 } else { 1 };
    let end = after_bracket.iter().skip(first).position(|byte| *byte == b']')? + first;
    let (set, rest) = after_bracket.split_at_checked(end)?;
    Some((set, rest.get(1..)?))
}

/// Compares one path component with one component of a pattern.
fn matches_name(mut pattern: &[u8], mut name: &[u8]) -> bool {
    // The pattern behind the last `*`, and the bytes of the name that the `*` does not stand for.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            star = Some((rest, name));
            pattern = rest;
            continue;
        }
        if pattern.is_empty() && name.is_empty() {
            return true;
        }
        if let Some((rest, left)) = match_byte(pattern, name) {
            (pattern, name) = (rest, left);
            continue;
        }
        // The last `*` takes one byte more.
        let Some((after_star, [_, left @ ..])) = star else { return false };
        star = Some((after_star, left));
        (pattern, name) = (after_star, left);
    }
}

/// Matches one byte of the name. Returns the rest of the pattern and of the name.
fn match_byte<'p, 'n>(pattern: &'p [u8], name: &'n [u8]) -> Option<(&'p [u8], &'n [u8])> {
    let (byte, left) = name.split_first()?;
    match pattern {
        [b'?', rest @ ..] => Some((rest, left)),
        [b'[', rest @ ..] => {
            let (set, after) = set_end(rest)?;
            let (negated, set) = set.strip_prefix(b"!").map_or((false, set), |set| (true, set));
            (is_in_set(set, *byte) != negated).then_some((after, left))
        }
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (literal == byte).then_some((rest, left)),
        [] => None,
    }
}

fn is_in_set(mut set: &[u8], byte: u8) -> bool {
    loop {
        set = match set {
            [] => return false,
            [low, b'-', high, ..] if (*low..=*high).contains(&byte) => return true,
            [_, b'-', _, rest @ ..] => rest,
            [one, ..] if *one == byte => return true,
            [_, rest @ ..] => rest,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(glob: &str, path: &str) -> bool {
        Glob::parse(glob).unwrap().matches(path.as_bytes())
    }

    #[test]
    fn a_pattern_matches_the_end_of_a_path() {
        for path in ["pg_wal/0001", "/data/pg_wal/0001", "./pg_wal/./0001", "/data//pg_wal//0001"] {
            assert!(matches("pg_wal/*", path), "{path}");
        }
        for path in ["0001", "pg_wal", "pg_wal/archive_status/0001", "/data/my_pg_wal/0001", "/pg_wal/"] {
            assert!(!matches("pg_wal/*", path), "{path}");
        }
    }

    #[test]
    fn a_pattern_from_the_root_matches_whole_paths_alone() {
        assert!(matches("/data/*.log", "/data/a.log"));
        assert!(!matches("/data/*.log", "/more/data/a.log"));
        assert!(!matches("/data/*.log", "data/a.log"));
        assert!(matches("/**/a.log", "/x/y/a.log"));
        assert!(!matches("/**/a.log", "/a.log"), "at least one component");
    }

    #[test]
    fn two_stars_stand_for_one_component_or_more() {
        assert!(matches("base/**", "/d/base/1/2"));
        assert!(matches("base/**", "base/1"));
        assert!(!matches("base/**", "/d/base"));
        assert!(matches("a/**/b", "a/x/y/b"));
        assert!(!matches("a/**/b", "a/b"));
    }

    #[test]
    fn wildcards_stay_within_a_component() {
        assert!(matches("log.*", "version-2/log.1f"));
        assert!(matches("*.incr.aof", "a.aof.1.incr.aof"));
        assert!(matches("a?c*", "abc"));
        assert!(!matches("a*c", "a/c"));
        assert!(matches("[a-c][!0-9]", "bx"));
        assert!(!matches("[a-c][!0-9]", "b7"));
        assert!(matches("[]]", "]"));
        assert!(matches(r"\*.log", "*.log"));
        assert!(!matches(r"\*.log", "a.log"));
        assert!(matches("*a*b*c", "xxaxbbxc"));
        assert!(!matches("*a*b*c", "xxaxbbx"));
    }

    #[test]
    fn a_text_that_is_no_pattern_is_refused_in_words() {
        for (text, word) in [("", "empty"), ("/", "empty"), ("a[b", "without ']'"), ("a\\", "ends with")] {
            let error = Glob::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(Glob::parse("../x").is_err());
        assert!(Glob::parse("**/**/**").is_err());
    }
}
