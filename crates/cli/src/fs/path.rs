//! Paths on this machine and on the drive.

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A path to copy from or to. `fs:/dir/file` lies on the drive; any other path, and `host:PATH`, on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A path on this machine.
    Host(PathBuf),
    /// An absolute path on the drive.
    Drive(String),
}

impl FromStr for Place {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Place, Infallible> {
        Ok(match text.strip_prefix("fs:") {
            Some(path) => Place::Drive(absolute(path)),
            None => Place::Host(text.strip_prefix("host:").unwrap_or(text).into()),
        })
    }
}

impl Place {
    /// The path's last part.
    pub fn name(&self) -> Option<String> {
        let path = match self {
            Place::Host(path) => path.as_path(),
            Place::Drive(path) => Path::new(path),
        };
        Some(path.file_name()?.to_string_lossy().into_owned())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host(path) => write!(f, "{}", path.display()),
            Place::Drive(path) => write!(f, "fs:{path}"),
        }
    }
}

/// A drive's path from the root, without a slash at its end. Users may leave the first slash and `fs:` out.
pub fn absolute(path: &str) -> String {
    let path = path.strip_prefix("fs:").unwrap_or(path);
    format!("/{}", path.trim_matches('/'))
}

/// The path of `name` within the directory `parent`.
pub fn join(parent: &str, name: &str) -> String {
    format!("{}/{name}", parent.trim_end_matches('/'))
}

/// The path's ancestors below the root, from the first to the path itself: `/a`, `/a/b`.
pub fn ancestors(path: &str) -> Vec<String> {
    let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).chain([path.len()]);
    ends.filter_map(|end| path.get(..end)).filter(|path| path.len() > 1).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_prefix_leads_to_the_drive() {
        let place = |text: &str| text.parse::<Place>().unwrap();
        assert_eq!(place("fs:/a/b"), Place::Drive("/a/b".into()));
        assert_eq!(place("fs:a/"), Place::Drive("/a".into()));
        assert_eq!(place("fs:"), Place::Drive("/".into()));
        assert_eq!(place("/a/b"), Place::Host("/a/b".into()));
        assert_eq!(place("host:fs:x"), Place::Host("fs:x".into()));
    }

    #[test]
    fn a_name_below_the_root_gets_one_slash() {
        assert_eq!(join("/", "a"), "/a");
        assert_eq!(join("/a", "b"), "/a/b");
    }

    #[test]
    fn the_ancestors_of_a_path_end_with_the_path() {
        assert_eq!(ancestors("/a/b/c"), ["/a", "/a/b", "/a/b/c"]);
        assert_eq!(ancestors("/a"), ["/a"]);
        assert_eq!(ancestors("/"), [""; 0]);
    }
}
