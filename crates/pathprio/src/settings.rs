//! The environment by which `furrow prio run` hands its arguments to the preloaded library.

use crate::glob::{Glob, GlobError};
use crate::rules::Rules;

/// The format of the variables. A library of another version leaves the program alone.
pub const VERSION: &str = "1";

/// Environment variable with [`VERSION`]. Without it the library does nothing.
pub const VERSION_VARIABLE: &str = "FURROW_PRIO";
/// Environment variable with the patterns of logs, one a line.
pub const LOG_VARIABLE: &str = "FURROW_PRIO_LOG";
/// Environment variable with the patterns of bulk files, one a line.
pub const BULK_VARIABLE: &str = "FURROW_PRIO_BULK";
/// Environment variable with the absolute path of the file that the counters are appended to. Without it they go to stderr.
pub const COUNTERS_VARIABLE: &str = "FURROW_PRIO_COUNTERS";
/// Environment variable with the absolute path of the directory of [pages](crate::page).
pub const PAGES_VARIABLE: &str = "FURROW_PRIO_PAGES";
/// Environment variable with the number of the process that the command became. That process prints its counters even if all are zero.
pub const ROOT_VARIABLE: &str = "FURROW_PRIO_ROOT";
/// Environment variable with the absolute path of the file of the run's [matched globs](crate::matched). Without it globs that match no file are not told.
pub const MATCHED_VARIABLE: &str = "FURROW_PRIO_MATCHED";
/// Environment variable with the name of the profile whose patterns are among the others.
pub const PROFILE_VARIABLE: &str = "FURROW_PRIO_PROFILE";

/// The patterns as the value of a variable.
pub fn encode_globs(globs: &[Glob]) -> String {
    globs.iter().map(Glob::as_str).collect::<Vec<_>>().join("\n")
}

/// The rules of two variables' values.
pub fn decode_rules(log: &str, bulk: &str) -> Result<Rules, GlobError> {
    // Not `lines`, which takes a carriage return off a pattern's end.
    let decode = |value: &str| {
        let globs = value.split('\n').filter(|_| !value.is_empty());
        globs.map(Glob::parse).collect::<Result<Vec<_>, _>>()
    };
    Ok(Rules { log: decode(log)?, bulk: decode(bulk)? })
}

/// The ending of pages' names in the directory of pages.
pub const PAGE_SUFFIX: &str = ".page";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_back_from_the_environment_as_they_were() {
        let globs = |texts: &[&str]| texts.iter().map(|text| Glob::parse(text).unwrap()).collect();
        let rules = Rules { log: globs(&["a b/*", "*.log:x", "ends with a return\r"]), bulk: Vec::new() };
        assert_eq!(decode_rules(&encode_globs(&rules.log), &encode_globs(&rules.bulk)), Ok(rules));
    }
}
