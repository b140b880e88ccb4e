//! The class of a file by its path.

use crate::glob::Glob;

/// The class of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileClass {
    /// A log: somebody waits for its synced writes.
    Log,
    /// A file that nobody waits for, such as a snapshot or a table.
    Bulk,
}

impl FileClass {
    /// All classes, in the order of their numbers.
    pub const ALL: [FileClass; 2] = [FileClass::Log, FileClass::Bulk];

    /// The name in messages and counters.
    pub fn name(self) -> &'static str {
        match self {
            FileClass::Log => "log",
            FileClass::Bulk => "bulk",
        }
    }
}

/// The patterns of the logs and of the bulk files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// Patterns of logs.
    pub log: Vec<Glob>,
    /// Patterns of bulk files.
    pub bulk: Vec<Glob>,
}

/// The class of a path by the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Classified {
    /// The file's class.
    pub class: FileClass,
    /// True if patterns of both classes match. The file is a log.
    pub in_both: bool,
}

/// Why rules make no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RulesError {
    /// There is no pattern.
    #[error("no file has a class: give --log 'GLOB', --bulk 'GLOB' or --profile NAME")]
    Empty,
    /// One pattern is given for both classes.
    #[error("the glob {0:?} is given for logs and for bulk: a file has one class")]
    InBoth(String),
}

impl Rules {
    /// Fails if there is no pattern, or if both classes have the same one.
    pub fn check(&self) -> Result<(), RulesError> {
        if self.log.is_empty() && self.bulk.is_empty() {
            return Err(RulesError::Empty);
        }
        match self.log.iter().find(|glob| self.bulk.contains(glob)) {
            Some(glob) => Err(RulesError::InBoth(glob.to_string())),
            None => Ok(()),
        }
    }

    /// The patterns of a class.
    pub fn of(&self, class: FileClass) -> &[Glob] {
        match class {
            FileClass::Log => &self.log,
            FileClass::Bulk => &self.bulk,
        }
    }

    /// Number of patterns.
    pub fn globs(&self) -> usize {
        self.log.len() + self.bulk.len()
    }

    /// The class of the file at `path`; `None` if no pattern matches. A path that patterns of both classes match is a log's. Does not allocate.
    pub fn classify(&self, path: &[u8]) -> Option<Classified> {
        let log = self.log.iter().any(|glob| glob.matches(path));
        let bulk = self.bulk.iter().any(|glob| glob.matches(path));
        match (log, bulk) {
            (true, in_both) => Some(Classified { class: FileClass::Log, in_both }),
            (false, true) => Some(Classified { class: FileClass::Bulk, in_both: false }),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(log: &[&str], bulk: &[&str]) -> Rules {
        let parse = |globs: &[&str]| globs.iter().map(|glob| Glob::parse(glob).unwrap()).collect();
        Rules { log: parse(log), bulk: parse(bulk) }
    }

    #[test]
    fn a_file_that_patterns_of_both_classes_match_is_a_log() {
        let rules = rules(&["*.log"], &["data/*", "*.sst"]);
        rules.check().unwrap();
        let class = |path: &str| rules.classify(path.as_bytes());
        assert_eq!(class("a.log"), Some(Classified { class: FileClass::Log, in_both: false }));
        assert_eq!(class("data/a.log"), Some(Classified { class: FileClass::Log, in_both: true }));
        assert_eq!(class("1.sst"), Some(Classified { class: FileClass::Bulk, in_both: false }));
        assert_eq!(class("1.txt"), None);
    }

    #[test]
    fn rules_without_a_pattern_or_with_one_in_both_classes_are_refused() {
        assert_eq!(rules(&[], &[]).check(), Err(RulesError::Empty));
        assert_eq!(rules(&["a", "b"], &["b"]).check(), Err(RulesError::InBoth("b".into())));
        assert_eq!(rules(&[], &["b"]).check(), Ok(()));
    }
}
