//! Which globs of a run matched a file: a run is a program that `furrow prio run` started, with its children.
//!
//! The command makes a file with one byte for each glob, those of logs first. Every process of the run maps the file, and sets the bytes of the globs that match a file. A glob whose byte is
//! still 0 at the end of the first process is told on stderr: the glob is probably wrong.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::FileClass;
use crate::glob::Glob;
use crate::profile::Profile;
use crate::rules::Rules;

/// The globs of a run, and which of them matched a file.
#[derive(Clone, Copy, Debug)]
pub struct MatchedGlobs<'a> {
    rules: &'a Rules,
    marks: &'a [AtomicU8],
}

impl<'a> MatchedGlobs<'a> {
    /// `marks`: a byte for each glob. `None` if there are fewer or more.
    pub fn new(rules: &'a Rules, marks: &'a [AtomicU8]) -> Option<MatchedGlobs<'a>> {
        (marks.len() == rules.globs()).then_some(MatchedGlobs { rules, marks })
    }

    /// Marks the globs that match a file's path. Does not allocate.
    pub fn mark(&self, path: &[u8]) {
        for (glob, mark) in self.rules.log.iter().chain(&self.rules.bulk).zip(self.marks) {
            if mark.load(Relaxed) == 0 && glob.matches(path) {
                mark.store(1, Relaxed);
            }
        }
    }

    /// The globs of a class that no process of the run has marked.
    pub fn unmatched(&self, class: FileClass) -> impl Iterator<Item = &'a Glob> + use<'a> {
        let globs = self.rules.of(class).iter().zip(self.marks(class));
        globs.filter(|(_, mark)| mark.load(Relaxed) == 0).map(|(glob, _)| glob)
    }

    /// Calls `with` for each sentence that the user should read. `profile`: the profile whose globs are among those of the run. One file of a profile's class is enough: a server
    /// seldom has all of them.
    pub fn warn(&self, profile: Option<&Profile>, mut with: impl FnMut(fmt::Arguments<'_>)) {
        for class in FileClass::ALL {
            let of_profile = profile.map_or(&[][..], |profile| profile.globs(class));
            // A profile's globs come behind those of the command line, which may name one of them too.
            let given = self.rules.of(class).len().saturating_sub(of_profile.len());
            let marks = self.marks(class);
            for (glob, mark) in self.rules.of(class).iter().zip(marks).take(given) {
                if mark.load(Relaxed) == 0 {
                    with(format_args!(
                        "furrow prio: no file matched --{} {:?}\n",
                        class.name(),
                        glob.as_str()
                    ));
                }
            }
            if let Some(profile) = profile.filter(|_| !of_profile.is_empty())
                && marks.iter().skip(given).all(|mark| mark.load(Relaxed) == 0)
            {
                let (name, class) = (profile.name, class.name());
                with(format_args!("furrow prio: no file matched a {class} glob of the profile {name}\n"));
            }
        }
    }

    /// A byte for each glob of a class.
    fn marks(&self, class: FileClass) -> &'a [AtomicU8] {
        let (log, bulk) = self.marks.split_at_checked(self.rules.log.len()).unwrap_or_default();
        match class {
            FileClass::Log => log,
            FileClass::Bulk => bulk,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile;

    fn rules(log: &[&str], bulk: &[&str]) -> Rules {
        let parse = |globs: &[&str]| globs.iter().map(|glob| Glob::parse(glob).unwrap()).collect();
        Rules { log: parse(log), bulk: parse(bulk) }
    }

    fn marks(count: usize) -> Vec<AtomicU8> {
        (0..count).map(|_| AtomicU8::new(0)).collect()
    }

    fn warnings(matched: &MatchedGlobs<'_>, profile: Option<&Profile>) -> Vec<String> {
        let mut lines = Vec::new();
        matched.warn(profile, |line| lines.push(line.to_string()));
        lines
    }

    #[test]
    fn a_glob_that_matched_no_file_is_named() {
        let (rules, marks) = (rules(&["*.log", "wal/*"], &["*.sst", "*.\"blob\""]), marks(4));
        let matched = MatchedGlobs::new(&rules, &marks).unwrap();
        matched.mark(b"/data/wal/a.txt");
        matched.mark(b"/data/1.sst");
        matched.mark(b"/data/other");
        let unmatched = |class| matched.unmatched(class).map(Glob::as_str).collect::<Vec<_>>();
        assert_eq!(
            (unmatched(FileClass::Log), unmatched(FileClass::Bulk)),
            (vec!["*.log"], vec!["*.\"blob\""])
        );
        let expected = ["--log \"*.log\"", "--bulk \"*.\\\"blob\\\"\""];
        assert_eq!(
            warnings(&matched, None),
            expected.map(|glob| format!("furrow prio: no file matched {glob}\n"))
        );
        matched.mark(b"a.log");
        matched.mark(b"a.\"blob\"");
        assert_eq!(warnings(&matched, None), [""; 0]);
    }

    #[test]
    fn a_path_marks_all_globs_that_match() {
        let (rules, marks) = (rules(&["*.log", "wal/*"], &["wal/a*"]), marks(3));
        MatchedGlobs::new(&rules, &marks).unwrap().mark(b"wal/a.log");
        assert!(marks.iter().all(|mark| mark.load(Relaxed) == 1));
    }

    #[test]
    fn one_file_of_a_profile_s_class_is_enough() {
        let redis = profile::find("redis").unwrap();
        let log = [&["own"], redis.log].concat();
        let (rules, marks) = (rules(&log, redis.bulk), marks(log.len() + redis.bulk.len()));
        let matched = MatchedGlobs::new(&rules, &marks).unwrap();
        let all = warnings(&matched, Some(redis));
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(
            all[0].contains("--log \"own\"") && all[1].contains("a log glob of the profile redis"),
            "{all:?}"
        );
        matched.mark(b"appendonlydir/appendonly.aof.1.incr.aof");
        matched.mark(b"/data/dump.rdb");
        assert_eq!(warnings(&matched, Some(redis)), ["furrow prio: no file matched --log \"own\"\n"]);
    }

    #[test]
    fn a_glob_of_the_profile_that_is_given_too_is_named_and_counts_for_the_profile() {
        let rocksdb = profile::find("rocksdb").unwrap();
        let log = [&["*.log"], rocksdb.log].concat();
        let (rules, marks) = (rules(&log, rocksdb.bulk), marks(log.len() + rocksdb.bulk.len()));
        let matched = MatchedGlobs::new(&rules, &marks).unwrap();
        assert_eq!(warnings(&matched, Some(rocksdb)).len(), 3);
        matched.mark(b"/data/MANIFEST-000001");
        matched.mark(b"/data/000002.sst");
        assert_eq!(warnings(&matched, Some(rocksdb)), ["furrow prio: no file matched --log \"*.log\"\n"]);
        matched.mark(b"/data/000003.log");
        assert_eq!(warnings(&matched, Some(rocksdb)), [""; 0]);
    }

    #[test]
    fn marks_of_another_number_of_globs_are_not_used() {
        let rules = rules(&["a"], &["b"]);
        assert!(MatchedGlobs::new(&rules, &marks(1)).is_none());
        assert!(MatchedGlobs::new(&rules, &marks(3)).is_none());
    }
}
