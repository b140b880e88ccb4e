//! Paths: absolute, UTF-8, parts separated by slashes.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind, Result};
use crate::metadata::format::record::MAX_NAME;
use crate::metadata::state::{Node, ROOT_INO, State};

/// The parts of a path.
pub(crate) fn parts<'a>(doing: &'static str, path: &'a str) -> Result<Vec<&'a str>> {
    let invalid = |why: &str| Err(Error::new(ErrorKind::Invalid, doing).at_path(path).because(why));
    let Some(rest) = path.strip_prefix('/') else { return invalid("paths begin with a slash") };
    let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
    if parts.iter().any(|part| matches!(*part, "." | "..")) {
        return invalid("'.' and '..' are not supported; give the whole path");
    }
    if parts.iter().any(|part| part.contains('\0')) {
        return invalid("a name has no zero bytes");
    }
    if parts.iter().any(|part| part.len() > MAX_NAME) {
        return Err(Error::new(ErrorKind::TooLarge, doing)
            .at_path(path)
            .because(format!("a name has at most {MAX_NAME} bytes")));
    }
    Ok(parts)
}

impl State {
    /// The inode at the end of the path `parts`.
    pub(crate) fn resolve(&self, doing: &'static str, path: &str, parts: &[&str]) -> Result<u64> {
        let mut at = ROOT_INO;
        for part in parts {
            let missing = || Error::new(ErrorKind::NotFound, doing).at_path(path);
            at = *self.directory(doing, path, at)?.get(*part).ok_or_else(missing)?;
        }
        Ok(at)
    }

    /// The directory that holds the path's last part, and the name of that part.
    pub(crate) fn parent<'a>(&self, doing: &'static str, path: &'a str) -> Result<(u64, &'a str)> {
        let parts = parts(doing, path)?;
        let Some((name, up)) = parts.split_last() else {
            return Err(Error::new(ErrorKind::IsADirectory, doing).at_path(path).because("it is the root"));
        };
        let parent = self.resolve(doing, path, up)?;
        self.directory(doing, path, parent)?;
        Ok((parent, name))
    }

    /// The entries of directory `ino`.
    pub(crate) fn directory(
        &self,
        doing: &'static str,
        path: &str,
        ino: u64,
    ) -> Result<&BTreeMap<String, u64>> {
        match self.nodes.get(&ino) {
            Some(Node::Directory { entries, .. }) => Ok(entries),
            _ => Err(Error::new(ErrorKind::NotADirectory, doing).at_path(path)),
        }
    }

    /// The inode of the entry `name` in directory `parent`.
    pub(crate) fn lookup(&self, parent: u64, name: &str) -> Option<u64> {
        match self.nodes.get(&parent) {
            Some(Node::Directory { entries, .. }) => entries.get(name).copied(),
            _ => None,
        }
    }
}
