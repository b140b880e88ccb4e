//! The patterns of well-known programs.

use crate::rules::FileClass;

/// The patterns of a program's files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// The profile's name.
    pub name: &'static str,
    /// Patterns of its logs.
    pub log: &'static [&'static str],
    /// Patterns of its bulk files.
    pub bulk: &'static [&'static str],
}

impl Profile {
    /// The patterns of a class.
    pub fn globs(&self, class: FileClass) -> &'static [&'static str] {
        match class {
            FileClass::Log => self.log,
            FileClass::Bulk => self.bulk,
        }
    }
}

/// The profiles, by name.
pub const PROFILES: &[Profile] = &[
    Profile { name: "zookeeper", log: &["version-2/log.*"], bulk: &["version-2/snapshot.*"] },
    Profile {
        name: "postgres",
        log: &["pg_wal/*"],
        bulk: &[
            "base/**",
            "global/*",
            "pg_tblspc/**",
            "PG_*/**",
            "pg_xact/*",
            "pg_multixact/*/*",
            "pg_subtrans/*",
            "pg_commit_ts/*",
            "pg_logical/**",
        ],
    },
    Profile {
        name: "redis",
        // Until redis 6 the append-only file is one file; since 7 it is a base and increments with a manifest.
        log: &["appendonly.aof", "*.incr.aof", "temp-*.aof.incr", "appendonlydir/*.manifest"],
        bulk: &["*.rdb", "temp-*.aof", "*.base.aof"],
    },
    Profile { name: "rocksdb", log: &["*.log", "MANIFEST-*"], bulk: &["*.sst", "*.blob"] },
];

/// The profile of that name.
pub fn find(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileClass::{Bulk, Log};
    use crate::glob::Glob;
    use crate::rules::Rules;

    fn class(name: &str, path: &str) -> Option<FileClass> {
        let profile = find(name).unwrap();
        let parse = |globs: &[&str]| globs.iter().map(|glob| Glob::parse(glob).unwrap()).collect();
        let rules = Rules { log: parse(profile.log), bulk: parse(profile.bulk) };
        rules.check().unwrap();
        let classified = rules.classify(path.as_bytes())?;
        assert!(!classified.in_both, "{path}");
        Some(classified.class)
    }

    #[test]
    fn files_of_well_known_programs_have_their_class() {
        for (profile, path, expected) in [
            ("zookeeper", "/var/lib/zookeeper/version-2/log.1", Some(Log)),
            ("zookeeper", "/var/lib/zookeeper/version-2/snapshot.0", Some(Bulk)),
            ("zookeeper", "/var/log/zookeeper/zookeeper.log", None),
            ("postgres", "pg_wal/000000010000000000000001", Some(Log)),
            ("postgres", "pg_wal/xlogtemp.17", Some(Log)),
            ("postgres", "base/5/1249_fsm", Some(Bulk)),
            ("postgres", "base/pgsql_tmp/pgsql_tmp1.0", Some(Bulk)),
            ("postgres", "pg_tblspc/16/PG_15_202209061/5/17", Some(Bulk)),
            ("postgres", "pg_multixact/offsets/0000", Some(Bulk)),
            ("postgres", "postmaster.pid", None),
            ("redis", "appendonlydir/appendonly.aof.1.incr.aof", Some(Log)),
            ("redis", "appendonlydir/appendonly.aof.1.base.rdb", Some(Bulk)),
            ("redis", "appendonlydir/appendonly.aof.1.base.aof", Some(Bulk)),
            ("redis", "appendonlydir/appendonly.aof.manifest", Some(Log)),
            ("redis", "temp-rewriteaof-bg-7.aof", Some(Bulk)),
            ("redis", "temp-7.rdb", Some(Bulk)),
            ("redis", "appendonly.aof", Some(Log)),
            ("rocksdb", "/db/000004.log", Some(Log)),
            ("rocksdb", "/db/000005.sst", Some(Bulk)),
        ] {
            assert_eq!(class(profile, path), expected, "{profile}: {path}");
        }
    }
}
