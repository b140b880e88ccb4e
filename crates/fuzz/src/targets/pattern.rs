//! A slow and plain matcher of patterns for paths, with which `pathprio::glob` is compared. It takes every way in which a pattern can match at once, and goes back on none.
#![allow(clippy::indexing_slicing, reason = "an index out of bounds fails the target, as it should")]

/// One step of a pattern for a component.
enum Step {
    /// `*`: any bytes.
    Any,
    /// One byte of a set of 256.
    One(Box<[bool; 256]>),
}

/// True if the pattern, which must be well formed, matches the end of the path.
pub(super) fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let from_root = pattern.first() == Some(&b'/');
    if from_root && path.first() != Some(&b'/') {
        return false;
    }
    let (pattern, path) = (components(pattern), components(path));
    // Place n of `reached` is true if the first parts of the pattern match up to component n of the path. A pattern that is not from the root may begin at any component.
    let mut reached: Vec<bool> = (0..=path.len()).map(|at| at == 0 || !from_root).collect();
    for part in pattern {
        let mut next = vec![false; path.len() + 1];
        for at in 0..path.len() {
            if !reached[at] {
                continue;
            }
            if part == b"**" {
                next[at + 1..].fill(true);
            } else if matches_name(part, path[at]) {
                next[at + 1] = true;
            }
        }
        reached = next;
    }
    reached[path.len()]
}

fn components(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").collect()
}

fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    for step in steps(pattern) {
        let mut next = vec![false; name.len() + 1];
        for at in 0..=name.len() {
            match &step {
                Step::Any => next[at] = reached[..=at].contains(&true),
                Step::One(set) => next[at] = at > 0 && reached[at - 1] && set[usize::from(name[at - 1])],
            }
        }
        reached = next;
    }
    reached[name.len()]
}

fn steps(pattern: &[u8]) -> Vec<Step> {
    let (mut steps, mut at) = (Vec::new(), 0);
    while at < pattern.len() {
        let mut set = Box::new([false; 256]);
        match pattern[at] {
            b'*' => steps.push(Step::Any),
            b'?' => steps.push(Step::One(Box::new([true; 256]))),
            b'\\' => {
                at += 1;
                set[usize::from(pattern[at])] = true;
                steps.push(Step::One(set));
            }
            b'[' => {
                let negated = pattern.get(at + 1) == Some(&b'!');
                let begin = at + 1 + usize::from(negated);
                // The first byte of a set may be a bracket.
                let end =
                    (begin + 1..).find(|end| pattern[*end] == b']').expect("the pattern is well formed");
                let mut one = begin;
                while one < end {
                    let is_range = one + 2 < end && pattern[one + 1] == b'-';
                    let high = if is_range { pattern[one + 2] } else { pattern[one] };
                    (pattern[one]..=high).for_each(|byte| set[usize::from(byte)] = true);
                    one += if is_range { 3 } else { 1 };
                }
                if negated {
                    set.iter_mut().for_each(|is_in| *is_in = !*is_in);
                }
                steps.push(Step::One(set));
                at = end;
            }
            literal => {
                set[usize::from(literal)] = true;
                steps.push(Step::One(set));
            }
        }
        at += 1;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn the_reference_matches_by_the_documented_rules() {
        for (pattern, path, expected) in [
            ("pg_wal/*", "/data/./pg_wal//0001", true),
            ("pg_wal/*", "pg_wal/archive_status/0001", false),
            ("base/**", "/d/base/1/2", true),
            ("base/**", "/d/base", false),
            ("/data/*.log", "/more/data/a.log", false),
            ("/**/a.log", "/a.log", false),
            ("[a-c][!0-9]", "bx", true),
            ("[]]*\\*", "]x*", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), path.as_bytes()), expected, "{pattern} {path}");
        }
    }
}
