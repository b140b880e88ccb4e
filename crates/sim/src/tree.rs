//! The model of a file system's namespace: paths and their objects.

use std::collections::BTreeMap;
use std::ops::Bound;

use fs::FileKind;

use crate::act::{Act, FileNo};

/// The file or directory that a path names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Node {
    Directory,
    File { file: FileNo, kind: FileKind },
}

/// All paths of a task, without the directories that the task did not make.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tree(BTreeMap<String, Node>);

impl Tree {
    /// Applies a task's step, which is legal by construction. A step that changes no name does nothing.
    pub(crate) fn apply(&mut self, act: &Act) {
        match act {
            Act::Mkdir { path } => {
                self.0.insert(path.clone(), Node::Directory);
            }
            Act::Rmdir { path } | Act::Unlink { path } => {
                self.0.remove(path);
            }
            Act::Create { file, path, kind, .. } => {
                self.0.insert(path.clone(), Node::File { file: *file, kind: *kind });
            }
            Act::Link { from, to } => {
                if let Some(node) = self.0.get(from).copied() {
                    self.0.insert(to.clone(), node);
                }
            }
            Act::Rename { from, to } => {
                let below: Vec<String> = self.entries_below(from).map(|(path, _)| path.to_owned()).collect();
                for path in below {
                    let tail = path.strip_prefix(from.as_str()).unwrap_or_default().to_owned();
                    if let Some(node) = self.0.remove(&path) {
                        self.0.insert(format!("{to}{tail}"), node);
                    }
                }
                if let Some(node) = self.0.remove(from) {
                    self.0.insert(to.clone(), node);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Node)> {
        self.0.iter().map(|(path, node)| (path.as_str(), *node))
    }

    pub(crate) fn get(&self, path: &str) -> Option<Node> {
        self.0.get(path).copied()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The number of a file's names.
    pub(crate) fn links(&self, file: FileNo) -> usize {
        self.0.values().filter(|node| matches!(node, Node::File { file: f, .. } if *f == file)).count()
    }

    /// The data files at a path and below it.
    pub(crate) fn data_files_at_or_below(&self, path: &str) -> Vec<FileNo> {
        let nodes = self.get(path).into_iter().chain(self.entries_below(path).map(|(_, node)| node));
        let data = |node| match node {
            Node::File { file, kind: FileKind::Data } => Some(file),
            _ => None,
        };
        nodes.filter_map(data).collect()
    }

    /// Whether a directory has no entries.
    pub(crate) fn is_empty(&self, directory: &str) -> bool {
        self.entries_below(directory).next().is_none()
    }

    fn entries_below(&self, directory: &str) -> impl Iterator<Item = (&str, Node)> {
        let prefix = format!("{directory}/");
        self.0
            .range::<String, _>((Bound::Excluded(prefix.clone()), Bound::Unbounded))
            .take_while(move |(path, _)| path.starts_with(&prefix))
            .map(|(path, node)| (path.as_str(), *node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rename_moves_a_directory_with_its_entries() {
        let mut tree = Tree::default();
        let file = Node::File { file: FileNo(0), kind: FileKind::Data };
        for path in ["/a", "/a/b", "/ab"] {
            tree.apply(&Act::Mkdir { path: path.into() });
        }
        tree.apply(&Act::Create {
            file: FileNo(0),
            path: "/a/b/f".into(),
            kind: FileKind::Data,
            lifetime: fs::Lifetime::NotSet,
        });
        tree.apply(&Act::Rename { from: "/a".into(), to: "/z".into() });
        let paths: Vec<_> = tree.iter().collect();
        let directory = Node::Directory;
        assert_eq!(paths, [("/ab", directory), ("/z", directory), ("/z/b", directory), ("/z/b/f", file)]);
        assert!(tree.is_empty("/ab") && !tree.is_empty("/z/b"));
    }

    #[test]
    fn a_rename_over_a_file_leaves_one_name() {
        let mut tree = Tree::default();
        for (n, path) in ["/a", "/b"].into_iter().enumerate() {
            let (kind, lifetime) = (FileKind::Data, fs::Lifetime::NotSet);
            tree.apply(&Act::Create { file: FileNo(n as u32), path: path.into(), kind, lifetime });
        }
        tree.apply(&Act::Rename { from: "/a".into(), to: "/b".into() });
        assert_eq!((tree.len(), tree.links(FileNo(0)), tree.links(FileNo(1))), (1, 1, 0));
    }
}
