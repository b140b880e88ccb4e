//! The names and contents that a file system may show after a power cut, given the promised and the attempted steps.
//!
//! Each task owns its names, so that tasks are judged one by one. A task's names must be the names after one of the task's
//! steps, between the last promised and the last attempted step: operations on names survive as a prefix. A file's content must
//! be the content after one of the *file's* steps, the last append perhaps in part: content survives as a prefix too,
//! independently of the names. In the target `log` a later log with content means that the earlier logs are whole.

use std::collections::BTreeMap;

use fs::FileKind;

use crate::act::{Act, FileNo};
use crate::plan::{Plan, SHARED_DIRECTORY};
use crate::report::FailureKind;
use crate::trace::Event;
use crate::tree::{Node, Tree};

/// The objects that a mount shows, by path, without the root.
pub(crate) type Snapshot = BTreeMap<String, SeenObject>;

/// The file or directory that a mount shows at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SeenObject {
    Directory,
    File { ino: u64, kind: FileKind, content: Vec<u8> },
}

/// A rule of crash safety that a crash state breaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    pub kind: FailureKind,
    pub what: String,
}

/// Makes the fault of a kind with a description.
pub(crate) fn fault(kind: FailureKind, what: impl std::fmt::Display) -> Fault {
    Fault { kind, what: what.to_string() }
}

/// A step that changes a file's content.
struct ContentChange {
    /// The index of the step in its task.
    step: usize,
    appends: bool,
    /// The file's content after the step.
    after: Vec<u8>,
}

/// The names and contents that one task may leave.
struct TaskModel {
    /// The task's names before step 0, and after each step.
    trees: Vec<Tree>,
    /// For each of `trees` the step that gave a file its newest name: where appended bytes stay in memory, the step wrote those before it.
    named: Vec<BTreeMap<FileNo, usize>>,
    files: BTreeMap<FileNo, Vec<ContentChange>>,
}

/// Progress of a workload at the power cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// For each task the number of steps begun.
    pub attempted: Vec<usize>,
    /// For each task the promised steps.
    pub promised: Vec<Vec<bool>>,
}

impl Progress {
    pub(crate) fn new(tasks: usize) -> Progress {
        Progress { attempted: vec![0; tasks], promised: vec![Vec::new(); tasks] }
    }

    /// Applies an event of a trace to the progress.
    pub(crate) fn did(&mut self, event: &Event) {
        match event {
            Event::Attempt { step } => {
                let (task, index) = Plan::task_and_index(*step);
                self.attempt(task, index);
            }
            Event::Acknowledged { step } => {
                let (task, index) = Plan::task_and_index(*step);
                self.promise(task, index);
            }
            _ => {}
        }
    }

    pub(crate) fn attempt(&mut self, task: usize, index: usize) {
        if let Some(attempted) = self.attempted.get_mut(task) {
            *attempted = (*attempted).max(index + 1);
        }
    }

    pub(crate) fn promise(&mut self, task: usize, index: usize) {
        if let Some(promised) = self.promised.get_mut(task) {
            if promised.len() <= index {
                promised.resize(index + 1, false);
            }
            if let Some(promised) = promised.get_mut(index) {
                *promised = true;
            }
        }
    }

    pub(crate) fn is_promised(&self, task: usize, index: usize) -> bool {
        self.promised.get(task).and_then(|p| p.get(index)).copied().unwrap_or(false)
    }
}

/// The model of a workload on files.
pub(crate) struct Model {
    tasks: Vec<TaskModel>,
    logs_in_order: bool,
}

impl Model {
    /// The model of a workload with `plan`; `logs_in_order` adds the rule across log files, `buffered` the one that a file seen under a new name has the bytes
    /// appended before.
    pub(crate) fn new(plan: &Plan, logs_in_order: bool, buffered: bool) -> Model {
        let tasks = plan.tasks.iter().enumerate();
        let tasks = tasks.map(|(task, acts)| TaskModel::new(plan, task, acts, buffered)).collect();
        Model { tasks, logs_in_order }
    }

    /// The rules that the objects a mount shows, `seen`, break.
    pub(crate) fn judge(&self, plan: &Plan, progress: &Progress, seen: &Snapshot) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut parts: Vec<BTreeMap<&str, &SeenObject>> =
            self.tasks.iter().map(|_| BTreeMap::new()).collect();
        for (path, what) in seen {
            match task_of_path(path).and_then(|task| parts.get_mut(task)) {
                Some(part) => {
                    part.insert(path, what);
                }
                None if path == SHARED_DIRECTORY && *what == SeenObject::Directory => {}
                None => faults
                    .push(Fault { kind: FailureKind::Invented, what: format!("{path} was never created") }),
            }
        }
        if !seen.contains_key(SHARED_DIRECTORY) {
            faults.push(Fault { kind: FailureKind::Lost, what: format!("{SHARED_DIRECTORY} is gone") });
        }
        for (task, (model, part)) in self.tasks.iter().zip(&parts).enumerate() {
            let acts = plan.tasks.get(task).map(Vec::as_slice).unwrap_or_default();
            faults.extend(model.judge(task, acts, progress, part, self.logs_in_order));
        }
        faults
    }
}

/// The task that owns a path.
fn task_of_path(path: &str) -> Option<usize> {
    let rest = path.strip_prefix(SHARED_DIRECTORY).unwrap_or(path).strip_prefix("/t")?;
    let digits = rest.split(['/', '-']).next()?;
    digits.parse().ok()
}

impl TaskModel {
    fn new(plan: &Plan, task: usize, acts: &[Act], buffered: bool) -> TaskModel {
        let mut trees = vec![Tree::default()];
        let mut named = vec![BTreeMap::new()];
        let mut names = BTreeMap::new();
        let mut tree = Tree::default();
        let mut files: BTreeMap<FileNo, Vec<ContentChange>> = BTreeMap::new();
        for (step, act) in acts.iter().enumerate() {
            if let Act::Rename { from, .. } | Act::Link { from, .. } = act
                && buffered
            {
                names.extend(tree.data_files_at_or_below(from).into_iter().map(|file| (file, step)));
            }
            named.push(names.clone());
            tree.apply(act);
            trees.push(tree.clone());
            let Some(file) = act.data_of() else { continue };
            let changes = files.entry(file).or_default();
            let mut after = changes.last().map(|c| c.after.clone()).unwrap_or_default();
            let appends = match act {
                Act::Append { len, .. } => {
                    after.extend(plan.bytes(task, step, *len));
                    true
                }
                Act::Truncate { size, .. } => {
                    after.resize(*size, 0);
                    false
                }
                _ => continue,
            };
            changes.push(ContentChange { step, appends, after });
        }
        TaskModel { trees, named, files }
    }

    fn judge(
        &self,
        task: usize,
        acts: &[Act],
        progress: &Progress,
        seen: &BTreeMap<&str, &SeenObject>,
        logs_in_order: bool,
    ) -> Vec<Fault> {
        let promised = acts
            .iter()
            .enumerate()
            .filter(|(index, act)| act.is_metadata() && progress.is_promised(task, *index))
            .map(|(index, _)| index + 1)
            .max()
            .unwrap_or(0);
        let attempted = progress.attempted.get(task).copied().unwrap_or(0).max(promised);
        let mut best: Option<Vec<Fault>> = None;
        let mut before = None;
        let trees = self.trees.iter().zip(&self.named).take(attempted + 1).skip(promised);
        for (tree, named) in trees {
            // Most steps change no name: equal trees are compared once.
            if before == Some(tree) {
                continue;
            }
            before = Some(tree);
            let faults = self.compare(task, (tree, named), progress, seen, logs_in_order);
            if faults.is_empty() {
                return faults;
            }
            if best.as_ref().is_none_or(|best| faults.len() < best.len()) {
                best = Some(faults);
            }
        }
        let mut faults = best.unwrap_or_default();
        for fault in &mut faults {
            fault.what +=
                &format!(" (task {task}, names promised up to step {promised}, attempted {attempted})");
        }
        faults
    }

    fn compare(
        &self,
        task: usize,
        (tree, named): (&Tree, &BTreeMap<FileNo, usize>),
        progress: &Progress,
        seen: &BTreeMap<&str, &SeenObject>,
        logs_in_order: bool,
    ) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut fault = |kind, what| faults.push(Fault { kind, what });
        let mut inodes: BTreeMap<FileNo, u64> = BTreeMap::new();
        for (path, node) in tree.iter() {
            match (node, seen.get(path)) {
                (_, None) => fault(FailureKind::Lost, format!("{path} is gone")),
                (Node::Directory, Some(SeenObject::Directory)) => {}
                (Node::File { file, kind }, Some(SeenObject::File { ino, kind: found, content })) => {
                    if kind != *found {
                        fault(FailureKind::Invented, format!("{path} is a {found:?} file, not {kind:?}"));
                    }
                    let first = inodes.insert(file, *ino);
                    if first.is_some_and(|first| first != *ino) {
                        fault(
                            FailureKind::Lost,
                            format!("{path} is no longer the same file as its other name"),
                        );
                    }
                    if first.is_none()
                        && let Err((kind, what)) =
                            self.may_have_content(task, (file, named.get(&file)), progress, content)
                    {
                        fault(kind, format!("{path}: {what}"));
                    }
                }
                (node, Some(_)) => fault(FailureKind::Invented, format!("{path} is not {node:?} any more")),
            }
        }
        for path in seen.keys().filter(|path| tree.get(path).is_none()) {
            fault(FailureKind::Invented, format!("{path} should not be there"));
        }
        let distinct: std::collections::BTreeSet<u64> = inodes.values().copied().collect();
        if distinct.len() < inodes.len() {
            fault(FailureKind::Invented, "two files have become one".into());
        }
        if logs_in_order {
            self.judge_log_order(tree, seen, &mut fault);
        }
        faults
    }

    /// Whether a file may have the content that a mount shows. `named`: the step that gave the file its newest name, after the data before it.
    fn may_have_content(
        &self,
        task: usize,
        (file, named): (FileNo, Option<&usize>),
        progress: &Progress,
        found: &[u8],
    ) -> Result<(), (FailureKind, String)> {
        let changes = self.files.get(&file).map(Vec::as_slice).unwrap_or_default();
        let promised =
            changes.iter().rposition(|c| progress.is_promised(task, c.step)).map_or(0, |at| at + 1);
        let written = named.map_or(0, |named| changes.iter().take_while(|c| c.step < *named).count());
        let promised = promised.max(written);
        let begun = progress.attempted.get(task).copied().unwrap_or(0);
        let attempted = changes.iter().take_while(|c| c.step < begun).count().max(promised);
        let after = |n: usize| match n.checked_sub(1) {
            Some(at) => changes.get(at).map(|c| c.after.as_slice()).unwrap_or_default(),
            None => &[],
        };
        let mut shortest = usize::MAX;
        let mut agreed = 0;
        for n in promised..=attempted {
            if after(n) == found {
                return Ok(());
            }
            shortest = shortest.min(after(n).len());
            agreed = agreed.max(after(n).iter().zip(found).take_while(|(a, b)| a == b).count());
            let next = changes.get(n).filter(|c| c.appends && n < attempted);
            if next.is_some_and(|c| found.len() > after(n).len() && c.after.starts_with(found)) {
                return Ok(());
            }
        }
        let kind = if agreed == found.len() && found.len() < shortest {
            FailureKind::Lost
        } else {
            FailureKind::Invented
        };
        let what = format!(
            "{} bytes are there, promised {}, attempted {}; they are right up to byte {agreed}",
            found.len(),
            after(promised).len(),
            after(attempted).len(),
        );
        Err((kind, what))
    }

    /// Checks that an older log is durable before the newer log's first entry.
    fn judge_log_order(
        &self,
        tree: &Tree,
        seen: &BTreeMap<&str, &SeenObject>,
        fault: &mut impl FnMut(FailureKind, String),
    ) {
        let logs: BTreeMap<FileNo, (&str, &[u8])> = tree
            .iter()
            .filter_map(|(path, node)| match (node, seen.get(path)?) {
                (Node::File { file, kind: FileKind::Log }, SeenObject::File { content, .. }) => {
                    Some((file, (path, content.as_slice())))
                }
                _ => None,
            })
            .collect();
        for (newer, (newer_path, content)) in &logs {
            let first = self.files.get(newer).and_then(|changes| changes.first());
            let Some(first) = first.filter(|_| !content.is_empty()) else { continue };
            for (older, (path, content)) in logs.range(..newer) {
                let changes = self.files.get(older).map(Vec::as_slice).unwrap_or_default();
                let whole = changes.iter().rfind(|c| c.step < first.step).map_or(0, |c| c.after.len());
                if content.len() < whole {
                    fault(
                        FailureKind::Lost,
                        format!(
                            "{path} has {} of {whole} bytes, though {newer_path}, begun later, has content",
                            content.len()
                        ),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs::Lifetime;

    const DATA: FileKind = FileKind::Data;

    fn plan() -> Plan {
        let (file, lifetime) = (FileNo(0), Lifetime::NotSet);
        let acts = vec![
            Act::Mkdir { path: "/t0".into() },
            Act::Create { file, path: "/t0/a".into(), kind: DATA, lifetime },
            Act::Append { file, len: 100 },
            Act::Append { file, len: 50 },
            Act::Rename { from: "/t0/a".into(), to: "/t0/b".into() },
        ];
        Plan { seed: 1, tasks: vec![acts] }
    }

    fn snapshot(files: &[(&str, &[u8])]) -> Snapshot {
        let mut seen: Snapshot = [SHARED_DIRECTORY, "/t0"]
            .into_iter()
            .map(|path| (path.to_owned(), SeenObject::Directory))
            .collect();
        for (n, (path, content)) in files.iter().enumerate() {
            let seen_file = SeenObject::File { ino: 10 + n as u64, kind: DATA, content: content.to_vec() };
            seen.insert((*path).to_owned(), seen_file);
        }
        seen
    }

    fn fault_kinds(progress: &Progress, seen: &Snapshot) -> Vec<FailureKind> {
        let plan = plan();
        Model::new(&plan, false, false).judge(&plan, progress, seen).into_iter().map(|f| f.kind).collect()
    }

    #[test]
    fn every_content_between_promise_and_attempt_is_allowed() {
        let mut progress = Progress::new(1);
        progress.attempt(0, 4);
        progress.promise(0, 1);
        progress.promise(0, 2);
        let (one, two) = (plan().bytes(0, 2, 100), plan().bytes(0, 3, 50));
        let all = [one.clone(), two].concat();
        for name in ["/t0/a", "/t0/b"] {
            for len in 100..=150 {
                assert_eq!(fault_kinds(&progress, &snapshot(&[(name, &all[..len])])), []);
            }
        }
        assert_eq!(fault_kinds(&progress, &snapshot(&[("/t0/a", &all[..99])])), [FailureKind::Lost]);
        assert_eq!(
            fault_kinds(&progress, &snapshot(&[("/t0/b", &[&one[..], &[7; 50]].concat())])),
            [FailureKind::Invented]
        );
        assert_eq!(fault_kinds(&progress, &snapshot(&[])), [FailureKind::Lost]);
        assert_eq!(
            fault_kinds(&progress, &snapshot(&[("/t0/a", &one), ("/t0/b", &one)])),
            [FailureKind::Invented]
        );
    }

    #[test]
    fn steps_that_were_never_attempted_may_not_show() {
        let mut progress = Progress::new(1);
        progress.attempt(0, 2);
        let all = [plan().bytes(0, 2, 100), plan().bytes(0, 3, 50)].concat();
        assert_eq!(fault_kinds(&progress, &snapshot(&[("/t0/a", &all[..100])])), []);
        assert_eq!(fault_kinds(&progress, &snapshot(&[("/t0/a", &all[..101])])), [FailureKind::Invented]);
        let mut stray = snapshot(&[]);
        stray.insert("/lost+found".into(), SeenObject::Directory);
        assert_eq!(fault_kinds(&progress, &stray), [FailureKind::Invented]);
    }

    #[test]
    fn a_later_log_with_content_needs_the_earlier_one_whole() {
        let (lifetime, kind) = (Lifetime::Short, FileKind::Log);
        let create = |n: u32| Act::Create { file: FileNo(n), path: format!("/t0/{n}"), kind, lifetime };
        let acts = vec![
            Act::Mkdir { path: "/t0".into() },
            create(0),
            Act::Append { file: FileNo(0), len: 10 },
            create(1),
            Act::Append { file: FileNo(1), len: 10 },
        ];
        let plan = Plan { seed: 1, tasks: vec![acts] };
        let (model, mut progress) = (Model::new(&plan, true, false), Progress::new(1));
        progress.attempt(0, 4);
        let with = |first: usize, second: usize| {
            let mut seen = snapshot(&[]);
            for (n, step, len) in [(0, 2, first), (1, 4, second)] {
                let content = plan.bytes(0, step, 10)[..len].to_vec();
                seen.insert(format!("/t0/{n}"), SeenObject::File { ino: n, kind, content });
            }
            model.judge(&plan, &progress, &seen).len()
        };
        assert_eq!((with(10, 3), with(4, 0), with(9, 1)), (0, 0, 1));
    }
}
