//! Where a program's file names lie: on the drive, or on the host. Names are compared as text; symbolic links are not followed.

/// The directory of the host's names whose files lie on the drive. The directory itself is the drive's root directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Root {
    /// The path's parts: no empty ones, no `.`, no `..`.
    parts: Vec<Vec<u8>>,
}

/// Where a name lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// On the host.
    Host,
    /// On the drive, under this path.
    Drive(Vec<u8>),
    /// The name has a `..`, and lies below the root if the `..` is resolved, or if it is not.
    Ambiguous,
}

impl Root {
    /// The root at `path`; `None` if the path is relative or has a `..`.
    pub fn parse(path: &str) -> Option<Root> {
        let parts: Vec<&[u8]> = parts(path.as_bytes()).collect();
        let usable = path.starts_with('/') && !parts.contains(&&b".."[..]);
        usable.then(|| Root { parts: parts.into_iter().map(<[u8]>::to_vec).collect() })
    }

    /// Where `name` lies. `directory`, the process's current directory, is asked for if the name is relative.
    pub fn place(&self, name: &[u8], directory: impl FnOnce() -> Vec<u8>) -> Place {
        let mut full = if name.starts_with(b"/") { Vec::new() } else { directory() };
        full.push(b'/');
        full.extend_from_slice(name);
        let given: Vec<&[u8]> = parts(&full).collect();
        if given.contains(&&b".."[..]) {
            let is_below = self.below(&given).is_some() || self.below(&resolve(&given)).is_some();
            return if is_below { Place::Ambiguous } else { Place::Host };
        }
        match self.below(&given) {
            None => Place::Host,
            Some([]) => Place::Drive(b"/".to_vec()),
            Some(rest) => Place::Drive(rest.iter().flat_map(|part| [&b"/"[..], part].concat()).collect()),
        }
    }

    /// The host's path of the drive's path `path`.
    pub fn on_host(&self, path: &[u8]) -> Vec<u8> {
        let of_root = self.parts.iter().map(Vec::as_slice);
        of_root.chain(parts(path)).flat_map(|part| [&b"/"[..], part].concat()).collect()
    }

    /// The parts of `given` below the root; `None` if it lies elsewhere.
    fn below<'a, 'b>(&self, given: &'a [&'b [u8]]) -> Option<&'a [&'b [u8]]> {
        let (of_root, rest) = given.split_at_checked(self.parts.len())?;
        of_root.iter().zip(&self.parts).all(|(part, root)| part == root).then_some(rest)
    }
}

fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".")
}

/// The parts of a path without `..`, each of which takes the part before it away.
fn resolve<'a>(given: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let mut resolved = Vec::new();
    for part in given {
        if *part == b".." {
            resolved.pop();
        } else {
            resolved.push(*part);
        }
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(root: &str, name: &str) -> Place {
        Root::parse(root).unwrap().place(name.as_bytes(), || b"/data/here".to_vec())
    }

    fn drive(path: &str) -> Place {
        Place::Drive(path.into())
    }

    #[test]
    fn names_below_the_root_lie_on_the_drive() {
        for (name, expected) in [
            ("/data/db/CURRENT", drive("/db/CURRENT")),
            ("/data//db/./LOCK", drive("/db/LOCK")),
            ("db/LOG", drive("/here/db/LOG")),
            ("./db", drive("/here/db")),
            ("/data", drive("/")),
            ("/data/", drive("/")),
            ("/database/db", Place::Host),
            ("/dat", Place::Host),
            ("/", Place::Host),
        ] {
            assert_eq!(place("/data", name), expected, "{name}");
        }
        assert_eq!(place("/", "/any/where"), drive("/any/where"));
    }

    #[test]
    fn two_dots_that_could_reach_the_root_are_refused() {
        for name in ["/data/../data/db", "/data/db/../x", "/other/../data/db", "../db", "/data/.."] {
            assert_eq!(place("/data", name), Place::Ambiguous, "{name}");
        }
        assert_eq!(place("/data", "/other/../x"), Place::Host);
        assert_eq!(place("/data", "/../other"), Place::Host);
    }

    #[test]
    fn bytes_that_are_not_utf_8_stay() {
        let root = Root::parse("/data").unwrap();
        let place = root.place(b"/data/\xff", Vec::new);
        assert_eq!(place, Place::Drive(b"/\xff".to_vec()));
        assert_eq!(root.on_host(b"/db/CURRENT"), b"/data/db/CURRENT");
    }
}
