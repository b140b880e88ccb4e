//! Plans of the crash explorer's targets `fs` and `log`: the steps of several tasks, as a function of a seed.

use std::collections::{BTreeMap, BTreeSet};

use fs::{FileKind, Lifetime};

use crate::act::{Act, FileNo};
use crate::shape::Style;
use crate::tree::{Node, Tree};
use crate::{Rng, Step, Target};

/// The steps of each task of a workload. Every step is legal after the steps before it.
#[derive(Debug)]
pub(crate) struct Plan {
    pub seed: u64,
    pub tasks: Vec<Vec<Act>>,
}

/// The directory in which every task has entries of its own.
pub(crate) const SHARED_DIRECTORY: &str = "/shared";

/// Most files that a task has open for writing.
const MAX_OPEN_FILES: usize = 3;
/// Most logs that a task has open for writing, where logs overlap.
const MAX_OPEN_LOGS: usize = 2;
/// Most bytes of a task's files. Above this a task removes files before it writes more.
const MAX_LIVE_BYTES: usize = 64 << 10;

impl Plan {
    /// The plan of a workload of `seed` for `target`, which is not the engine.
    pub(crate) fn new(target: Target, seed: u64, steps: usize, style: Style) -> Plan {
        let tasks = (0..style.tasks)
            .map(|task| {
                let mut planner = TaskPlanner::new(task, Rng::at(seed, &[task as u64]), style);
                while planner.acts.len() < steps {
                    match target {
                        Target::Log => planner.log_step(),
                        Target::Fs
                        | Target::Engine
                        | Target::LevelDb
                        | Target::Array
                        | Target::Waltz
                        | Target::Stage
                        | Target::Prio
                        | Target::Groups
                        | Target::Tables => planner.fs_step(),
                    }
                }
                planner.acts
            })
            .collect();
        Plan { seed, tasks }
    }

    /// The number of a task's step, unique in the workload.
    pub(crate) fn step(task: usize, index: usize) -> Step {
        Step((task as u64) << 32 | index as u64)
    }

    /// The task that a step belongs to, and its index in the task.
    pub(crate) fn task_and_index(step: Step) -> (usize, usize) {
        ((step.0 >> 32) as usize, (step.0 & 0xffff_ffff) as usize)
    }

    /// The bytes that a step appends: no two steps append the same, and none appends zeroes.
    pub(crate) fn bytes(&self, task: usize, index: usize, len: usize) -> Vec<u8> {
        let mut rng = Rng::at(self.seed, &[task as u64, index as u64, 0xda7a]);
        let mut out = Vec::with_capacity(len + 8);
        while out.len() < len {
            out.extend_from_slice(&(rng.draw() | 0x0101_0101_0101_0101).to_le_bytes());
        }
        out.truncate(len);
        out
    }
}

/// Draws the steps of one task, and keeps the state that decides which steps are legal.
struct TaskPlanner {
    rng: Rng,
    acts: Vec<Act>,
    tree: Tree,
    sizes: BTreeMap<FileNo, usize>,
    kinds: BTreeMap<FileNo, FileKind>,
    open: BTreeSet<FileNo>,
    files: u32,
    names: u32,
    task: usize,
    /// The open and closed logs of the target `log`, oldest first.
    logs: Vec<(FileNo, String)>,
    style: Style,
}

impl TaskPlanner {
    fn new(task: usize, rng: Rng, style: Style) -> TaskPlanner {
        let mut planner = TaskPlanner {
            rng,
            acts: Vec::new(),
            tree: Tree::default(),
            sizes: BTreeMap::new(),
            kinds: BTreeMap::new(),
            open: BTreeSet::new(),
            files: 0,
            names: 0,
            task,
            logs: Vec::new(),
            style,
        };
        let home = planner.random_directory();
        planner.push(Act::Mkdir { path: home });
        planner
    }

    fn random_directory(&self) -> String {
        format!("/t{}", self.task)
    }

    fn push(&mut self, act: Act) {
        self.tree.apply(&act);
        match &act {
            Act::Create { file, kind, .. } => {
                self.sizes.insert(*file, 0);
                self.kinds.insert(*file, *kind);
                self.open.insert(*file);
            }
            Act::Reopen { file, .. } => {
                self.open.insert(*file);
            }
            Act::Append { file, len } => *self.sizes.entry(*file).or_default() += len,
            Act::Truncate { file, size, .. } => {
                self.sizes.insert(*file, *size);
            }
            Act::Close { file } => {
                self.open.remove(file);
            }
            _ => {}
        }
        self.acts.push(act);
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.rng.index(from.len())).cloned()
    }

    fn directories(&self) -> Vec<String> {
        self.tree.iter().filter(|(_, n)| matches!(n, Node::Directory)).map(|(p, _)| p.to_owned()).collect()
    }

    /// Names of a task's files; `single`: only of files with exactly one name.
    fn file_names(&self, single: bool) -> Vec<(String, FileNo)> {
        let files = self.tree.iter().filter_map(|(p, n)| match n {
            Node::File { file, .. } => Some((p.to_owned(), file)),
            Node::Directory => None,
        });
        files.filter(|(_, file)| !single || self.tree.links(*file) == 1).collect()
    }

    fn fresh_path(&mut self) -> String {
        self.names += 1;
        if self.rng.chance(20) {
            return format!("{SHARED_DIRECTORY}/t{}-{}", self.task, self.names);
        }
        let directories = self.directories();
        let directory = self.pick(&directories).unwrap_or_else(|| self.random_directory());
        // Some names are long, so that metadata records differ in size.
        let tail = if self.rng.chance(10) { "n".repeat(1 + self.rng.index(200)) } else { String::new() };
        format!("{directory}/f{}{tail}", self.names)
    }

    fn live_bytes(&self) -> usize {
        let named: BTreeSet<FileNo> = self.file_names(false).into_iter().map(|(_, f)| f).collect();
        self.sizes.iter().filter(|(f, _)| named.contains(f) || self.open.contains(f)).map(|(_, s)| s).sum()
    }

    fn random_length(&mut self) -> usize {
        match self.rng.below(10) {
            0 => 1 + self.rng.index(60),
            1..5 => 1 + self.rng.index(4000),
            5..8 => 1 + self.rng.index(12 << 10),
            8 => 4096 * (1 + self.rng.index(4)),
            _ => 1 + self.rng.index(72 << 10),
        }
    }

    fn fs_step(&mut self) {
        if self.live_bytes() > MAX_LIVE_BYTES {
            return self.make_room();
        }
        let open: Vec<FileNo> = self.open.iter().copied().collect();
        match self.rng.below(100) {
            0..12 => {
                if open.len() < MAX_OPEN_FILES {
                    self.create();
                }
            }
            12..42 => {
                if let Some(file) = self.pick(&open) {
                    let len = self.random_length();
                    self.push(Act::Append { file, len });
                }
            }
            42..45 => {
                if let Some(file) = self.pick(&open) {
                    self.push(Act::Flush { file });
                }
            }
            45..56 => {
                if let Some(file) = self.pick(&open) {
                    self.push(Act::Sync { file });
                }
            }
            56..63 => {
                if let Some(file) = self.pick(&open) {
                    self.push(Act::Close { file });
                }
            }
            63..67 => self.reopen(),
            67..72 => self.truncate(),
            72..76 => {
                self.names += 1;
                let directories = self.directories();
                if let Some(parent) = self.pick(&directories) {
                    self.push(Act::Mkdir { path: format!("{parent}/d{}", self.names) });
                }
            }
            76..78 => {
                let home = self.random_directory();
                let empty: Vec<String> =
                    self.directories().into_iter().filter(|d| self.tree.is_empty(d)).collect();
                if let Some(path) = self.pick(&empty).filter(|path| *path != home) {
                    self.push(Act::Rmdir { path });
                }
            }
            78..86 => self.rename(),
            86..89 => {
                let files = self.file_names(false);
                if let Some((from, _)) = self.pick(&files) {
                    let to = self.fresh_path();
                    self.push(Act::Link { from, to });
                }
            }
            89..95 => {
                let files = self.file_names(false);
                if let Some((path, _)) = self.pick(&files) {
                    self.push(Act::Unlink { path });
                }
            }
            _ => self.push(Act::SyncAll),
        }
    }

    fn create(&mut self) {
        let replaceable: Vec<_> =
            self.file_names(true).into_iter().filter(|(_, file)| !self.open.contains(file)).collect();
        let over = self.rng.chance(20).then(|| self.pick(&replaceable)).flatten().map(|(path, _)| path);
        let path = over.unwrap_or_else(|| self.fresh_path());
        let kind = if self.rng.chance(15) { FileKind::Log } else { FileKind::Data };
        let lifetimes =
            [Lifetime::NotSet, Lifetime::Short, Lifetime::Medium, Lifetime::Long, Lifetime::Extreme];
        let lifetime = self.pick(&lifetimes).unwrap_or_default();
        let file = FileNo(self.files);
        self.files += 1;
        self.push(Act::Create { file, path, kind, lifetime });
    }

    fn reopen(&mut self) {
        let closed: Vec<_> =
            self.file_names(false).into_iter().filter(|(_, f)| !self.open.contains(f)).collect();
        if self.open.len() < MAX_OPEN_FILES
            && let Some((path, file)) = self.pick(&closed)
        {
            self.push(Act::Reopen { file, path });
        }
    }

    fn truncate(&mut self) {
        let data: Vec<_> = self
            .file_names(false)
            .into_iter()
            .filter(|(_, file)| self.kinds.get(file) == Some(&FileKind::Data))
            .collect();
        if let Some((path, file)) = self.pick(&data) {
            let size = self.rng.index(self.sizes.get(&file).map_or(1, |s| s + 1));
            let path = (!self.open.contains(&file)).then_some(path);
            self.push(Act::Truncate { file, size, path });
        }
    }

    fn rename(&mut self) {
        if self.rng.chance(15) {
            // A rename of a directory moves its entries too.
            let home = self.random_directory();
            let movable: Vec<String> = self.directories().into_iter().filter(|d| *d != home).collect();
            if let Some(from) = self.pick(&movable) {
                self.names += 1;
                let to = format!("{home}/m{}", self.names);
                self.push(Act::Rename { from, to });
            }
            return;
        }
        let files = self.file_names(false);
        let Some((from, file)) = self.pick(&files) else { return };
        let others: Vec<_> = files.iter().filter(|(_, other)| *other != file).cloned().collect();
        let over = self.rng.chance(60).then(|| self.pick(&others)).flatten().map(|(path, _)| path);
        let to = over.unwrap_or_else(|| self.fresh_path());
        self.push(Act::Rename { from, to });
    }

    /// Makes room on the drive: removes, truncates or replaces a file.
    fn make_room(&mut self) {
        let files = self.file_names(false);
        match self.pick(&files) {
            Some((path, _)) => self.push(Act::Unlink { path }),
            None => {
                let open: Vec<FileNo> = self.open.iter().copied().collect();
                if let Some(file) = self.pick(&open) {
                    self.push(Act::Close { file });
                }
            }
        }
        // A file that has lost its names still holds its blocks while it is open.
        let orphan = self.open.iter().copied().find(|file| self.tree.links(*file) == 0);
        if let Some(file) = orphan {
            self.push(Act::Close { file });
        }
    }

    fn log_step(&mut self) {
        let current = self.logs.last().map(|(file, _)| *file).filter(|file| self.open.contains(file));
        let full = current.and_then(|file| self.sizes.get(&file)).is_some_and(|size| *size > 40 << 10);
        let oldest = (self.logs.len() > 3).then(|| self.logs.first().cloned()).flatten();
        // Some appends go to an older log that is still open.
        let older = self.older_log().filter(|_| self.rng.chance(35));
        let current = current.map(|file| older.unwrap_or(file));
        match (self.rng.below(100), current) {
            (_, None) => self.new_log(),
            (0..5, Some(_)) => self.new_log(),
            _ if full => self.new_log(),
            (5..55, Some(file)) => {
                let len = match self.rng.below(8) {
                    0..5 => 1 + self.rng.index(2000),
                    5..7 => 1 + self.rng.index(9000),
                    _ => 1 + self.rng.index(60 << 10),
                };
                self.push(Act::Append { file, len });
            }
            (55..65, Some(file)) => self.push(Act::Flush { file }),
            (65..85, Some(file)) => self.push(Act::Sync { file }),
            (85..88, Some(file)) => self.push(Act::Close { file }),
            (88..91, _) => {
                // The log is reopened and continued: a new epoch at the recorded end.
                if let Some((file, path)) = self.logs.last().cloned() {
                    if self.open.contains(&file) {
                        self.push(Act::Close { file });
                    }
                    self.push(Act::Reopen { file, path });
                }
            }
            (91..97, _) => {
                if let Some((file, path)) = oldest {
                    self.logs.remove(0);
                    if self.open.contains(&file) {
                        self.push(Act::Close { file });
                    }
                    self.push(Act::Unlink { path });
                }
            }
            _ => self.push(Act::SyncAll),
        }
        if self.live_bytes() > MAX_LIVE_BYTES && self.logs.len() > 1 {
            let (file, path) = self.logs.remove(0);
            if self.open.contains(&file) {
                self.push(Act::Close { file });
            }
            self.push(Act::Unlink { path });
        }
    }

    /// An older log that is still open beside the newest one.
    fn older_log(&self) -> Option<FileNo> {
        let (newest, _) = self.logs.last()?;
        self.open.iter().copied().find(|file| file != newest)
    }

    /// Rolls to a new log: the old log is closed before or after, as RocksDB does both.
    fn new_log(&mut self) {
        let old = self.logs.last().map(|(file, _)| *file).filter(|file| self.open.contains(file));
        if self.style.overlap {
            // Logs are closed until one more may be open.
            while self.open.len() >= MAX_OPEN_LOGS
                && let Some(file) = self.open.first().copied()
            {
                self.push(Act::Close { file });
            }
        }
        let before = self.rng.chance(50);
        let overlap = self.style.overlap && !before;
        if let (Some(file), true) = (old, before) {
            self.push(Act::Close { file });
        }
        self.names += 1;
        let path = format!("{}/{:06}.log", self.random_directory(), self.names);
        let file = FileNo(self.files);
        self.files += 1;
        self.push(Act::Create { file, path: path.clone(), kind: FileKind::Log, lifetime: Lifetime::Short });
        if let (Some(file), false, false) = (old, before, overlap) {
            self.push(Act::Close { file });
        }
        self.logs.push((file, path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_a_function_of_its_seed() {
        let plan = |target, seed| Plan::new(target, seed, 80, Style::default()).tasks;
        for target in [Target::Fs, Target::Log] {
            assert_eq!(plan(target, 5), plan(target, 5));
            assert_ne!(plan(target, 5), plan(target, 6));
        }
    }

    #[test]
    fn plans_hold_every_kind_of_step() {
        let mut kinds = BTreeSet::new();
        for seed in 0..20 {
            for act in Plan::new(Target::Fs, seed, 80, Style::default()).tasks.into_iter().flatten() {
                kinds.insert(format!("{act:?}").split([' ', '{']).next().unwrap_or_default().to_owned());
            }
        }
        assert_eq!(kinds.len(), 13, "{kinds:?}");
    }

    #[test]
    fn no_two_steps_write_the_same_bytes() {
        let plan = Plan::new(Target::Fs, 1, 10, Style::default());
        assert_ne!(plan.bytes(0, 1, 64), plan.bytes(0, 2, 64));
        assert_ne!(plan.bytes(0, 1, 64), plan.bytes(1, 1, 64));
        assert!(plan.bytes(2, 3, 5000).iter().all(|b| *b != 0));
    }
}
