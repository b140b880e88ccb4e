//! Import circles among the source files of a crate.
//!
//! A file imports another one if it names an item that the other one defines: in a `use`, or by a path that begins with
//! `crate`, `super`, `self`, a child module or an imported module. Names are followed through re-exports to the file
//! that defines them, so `crate::Name` is an import of that file and not of `lib.rs`. Declaring a child (`mod child;`)
//! and re-exporting its names are no imports, and test code is left out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::imports::{self, ModuleScope};
use crate::metadata::Workspace;

/// Every import circle of the workspace, as a sentence.
pub fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for (name, krate) in &workspace.crates {
        for root in &krate.roots {
            let circles = circles_below(root).with_context(|| format!("crate {name}"))?;
            problems.extend(circles.iter().map(|circle| format!("crate {name}: {circle}")));
        }
    }
    Ok(problems)
}

/// The import circles among the modules of the crate whose root file is `root`, each as text.
pub fn circles_below(root: &Path) -> Result<Vec<String>> {
    let tree = ModuleTree::load(root)?;
    let imports = tree.imports();
    Ok(components(tree.files.len(), &imports)
        .iter()
        .map(|(files, circle)| tree.describe(files.len(), circle, &imports))
        .collect())
}

/// The place in a source file that makes an import.
#[derive(Clone, Debug)]
struct ImportPlace {
    line: usize,
    path: String,
}

/// All imports by importing and imported file.
type Imports = BTreeMap<(usize, usize), ImportPlace>;

/// A module of the crate's module tree.
#[derive(Debug)]
struct Module {
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    scope: ModuleScope,
}

/// The target of a resolved path.
#[derive(Clone, Copy, Debug)]
enum PathTarget {
    Module(usize),
    /// An item that the file of the module defines.
    Item(usize),
}

/// The modules of one crate.
#[derive(Debug, Default)]
struct ModuleTree {
    root: PathBuf,
    files: Vec<PathBuf>,
    modules: Vec<Module>,
}

/// A path through more re-exports than this counts as a path that ends nowhere.
const MAX_RE_EXPORTS: usize = 32;

impl ModuleTree {
    fn load(root: &Path) -> Result<ModuleTree> {
        let folder = root.parent().context("a source file lies in no folder")?.to_owned();
        let mut tree = ModuleTree { root: folder.clone(), ..ModuleTree::default() };
        tree.add_file(root, &folder, None)?;
        Ok(tree)
    }

    /// Reads the module in `file`, whose child modules are in `folder`. `None` if all of the file is test
    /// code.
    fn add_file(&mut self, file: &Path, folder: &Path, parent: Option<usize>) -> Result<Option<usize>> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let scope = imports::read(&text).with_context(|| format!("cannot read {}", file.display()))?;
        if scope.test_only {
            return Ok(None);
        }
        self.files.push(file.to_owned());
        self.add_module(scope, self.files.len() - 1, folder, parent).map(Some)
    }

    fn add_module(
        &mut self,
        mut scope: ModuleScope,
        file: usize,
        folder: &Path,
        parent: Option<usize>,
    ) -> Result<usize> {
        let declared = std::mem::take(&mut scope.children);
        let module = self.modules.len();
        self.modules.push(Module { file, parent, children: BTreeMap::new(), scope });
        for child in declared {
            let below = folder.join(&child.name);
            let added = match child.inline {
                Some(inline) => Some(self.add_module(inline, file, &below, Some(module))?),
                None => {
                    let beside = self.files.get(file).and_then(|file| file.parent()).unwrap_or(folder);
                    let candidates = match &child.path {
                        Some(path) => vec![beside.join(path)],
                        None => vec![folder.join(format!("{}.rs", child.name)), below.join("mod.rs")],
                    };
                    let Some(path) = candidates.iter().find(|path| path.is_file()) else {
                        bail!("module {} has no file: looked for {candidates:?}", child.name);
                    };
                    self.add_file(path, &below, Some(module))?
                }
            };
            if let (Some(added), Some(module)) = (added, self.modules.get_mut(module)) {
                module.children.insert(child.name, added);
            }
        }
        Ok(module)
    }

    fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (at, module) in self.modules.iter().enumerate() {
            let mut add = |target: Option<PathTarget>, line: usize, path: String| {
                if let Some(PathTarget::Item(file)) = target
                    && file != module.file
                {
                    imports.entry((module.file, file)).or_insert(ImportPlace { line, path });
                }
            };
            for binding in &module.scope.bindings {
                let path = binding.path.join("::");
                let target = self.resolve(at, &binding.path, 0);
                if binding.name == "*" {
                    for name in target.into_iter().flat_map(|target| self.names(target)) {
                        if module.scope.words.contains(name)
                            && let Some(PathTarget::Module(from)) = target
                        {
                            add(self.lookup(from, name, true, 0), binding.line, format!("{path}::{name}"));
                        }
                    }
                    continue;
                }
                let re_export = binding.public
                    && !module.scope.words.contains(&binding.name)
                    && target.is_some_and(|target| self.lies_below(target, at));
                if !re_export {
                    add(target, binding.line, path);
                }
            }
            for used in &module.scope.paths {
                add(self.resolve(at, &used.path, 0), used.line, used.path.join("::"));
            }
        }
        imports
    }

    /// Resolves `path` as written in `module`; `None` if it leads out of the crate.
    fn resolve(&self, module: usize, path: &[String], depth: usize) -> Option<PathTarget> {
        let mut rest = path.iter();
        let mut target = match rest.next()?.as_str() {
            "crate" => PathTarget::Module(0),
            "self" => PathTarget::Module(module),
            "super" => PathTarget::Module(self.modules.get(module)?.parent?),
            first => self.local(module, first, path.len() == 1, depth)?,
        };
        while let (PathTarget::Module(at), Some(name)) = (target, rest.next()) {
            target = match name.as_str() {
                "super" => PathTarget::Module(self.modules.get(at)?.parent?),
                "self" => PathTarget::Module(at),
                name => self.lookup(at, name, rest.len() == 0, depth)?,
            };
        }
        Some(target)
    }

    /// The meaning of `name` as the first segment of a path in `module`.
    fn local(&self, module: usize, name: &str, last: bool, depth: usize) -> Option<PathTarget> {
        let known = self.modules.get(module)?;
        let bound = known.scope.bindings.iter().any(|binding| binding.name == name);
        (known.children.contains_key(name) || bound)
            .then(|| self.find(module, name, last, false, depth))
            .flatten()
    }

    /// The meaning of `name` in `module` for a path that comes from another module.
    fn lookup(&self, module: usize, name: &str, last: bool, depth: usize) -> Option<PathTarget> {
        self.find(module, name, last, true, depth)
    }

    fn find(&self, at: usize, name: &str, last: bool, exported: bool, depth: usize) -> Option<PathTarget> {
        if depth > MAX_RE_EXPORTS {
            return None;
        }
        let module = self.modules.get(at)?;
        let child = module.children.get(name).map(|child| PathTarget::Module(*child));
        if child.is_some() && !last {
            return child;
        }
        let mut bindings = module.scope.bindings.iter().filter(|binding| binding.exported || !exported);
        if let Some(binding) = bindings.find(|binding| binding.name == name) {
            return self.resolve(at, &binding.path, depth + 1);
        }
        if child.is_some() {
            return child;
        }
        if !module.scope.defined.contains(name) {
            for glob in module.scope.bindings.iter().filter(|binding| binding.name == "*" && binding.exported)
            {
                if let Some(PathTarget::Module(from)) = self.resolve(at, &glob.path, depth + 1)
                    && from != at
                    && self.names(PathTarget::Module(from)).contains(name)
                {
                    return self.find(from, name, last, true, depth + 1);
                }
            }
        }
        Some(PathTarget::Item(module.file))
    }

    /// The names that a glob import of `target` brings in.
    fn names(&self, target: PathTarget) -> BTreeSet<&str> {
        let PathTarget::Module(module) = target else { return BTreeSet::new() };
        let Some(module) = self.modules.get(module) else { return BTreeSet::new() };
        let bound =
            module.scope.bindings.iter().filter(|binding| binding.exported).map(|binding| &binding.name);
        bound.chain(&module.scope.defined).map(String::as_str).filter(|name| *name != "*").collect()
    }

    /// True if the file of `target` belongs to a module below `module`.
    fn lies_below(&self, target: PathTarget, module: usize) -> bool {
        let file = match target {
            PathTarget::Module(_) => return false,
            PathTarget::Item(file) => file,
        };
        let mut next =
            self.modules.iter().find(|module| module.file == file).and_then(|module| module.parent);
        while let Some(at) = next {
            if at == module {
                return true;
            }
            next = self.modules.get(at).and_then(|module| module.parent);
        }
        false
    }

    fn describe(&self, size: usize, circle: &[usize], imports: &Imports) -> String {
        let name = |file: usize| {
            let path = self.files.get(file).map(PathBuf::as_path).unwrap_or(Path::new("?"));
            path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
        };
        let mut text = format!("{size} files import each other in a circle; the shortest way around:");
        for (at, from) in circle.iter().enumerate() {
            let to = circle.get((at + 1) % circle.len()).unwrap_or(from);
            if let Some(place) = imports.get(&(*from, *to)) {
                text +=
                    &format!("\n    {}:{} imports {} ({})", name(*from), place.line, name(*to), place.path);
            }
        }
        text
    }
}

/// The sets of files that import each other in circles, and the shortest circle in each set.
fn components(files: usize, imports: &Imports) -> Vec<(BTreeSet<usize>, Vec<usize>)> {
    let mut next = vec![Vec::new(); files];
    for (from, to) in imports.keys() {
        if let Some(next) = next.get_mut(*from) {
            next.push(*to);
        }
    }
    let circles: Vec<Vec<usize>> = (0..files).filter_map(|file| shortest_circle(file, &next)).collect();
    let reached: Vec<BTreeSet<usize>> = (0..files).map(|file| reach(file, &next)).collect();
    let mut components: BTreeMap<BTreeSet<usize>, Vec<usize>> = BTreeMap::new();
    for circle in circles {
        let Some(first) = circle.first().copied() else { continue };
        let reached_by_first = reached.get(first).into_iter().flatten().copied();
        let component: BTreeSet<usize> = reached_by_first
            .filter(|file| reached.get(*file).is_some_and(|back| back.contains(&first)))
            .collect();
        let best = components.entry(component).or_insert_with(|| circle.clone());
        if circle.len() < best.len() {
            *best = circle;
        }
    }
    components.into_iter().collect()
}

/// The shortest chain of imports from the file `start` back to itself.
fn shortest_circle(start: usize, next: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut came_from = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(file) = queue.pop_front() {
        for to in next.get(file).into_iter().flatten() {
            if *to == start {
                let mut circle = vec![file];
                while let Some(before) = circle.last().and_then(|file| came_from.get(file)) {
                    circle.push(*before);
                }
                circle.reverse();
                return Some(circle);
            }
            if !came_from.contains_key(to) {
                came_from.insert(*to, file);
                queue.push_back(*to);
            }
        }
    }
    None
}

/// Every file that `start` imports, directly or through others.
fn reach(start: usize, next: &[Vec<usize>]) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut stack = vec![start];
    while let Some(file) = stack.pop() {
        for to in next.get(file).into_iter().flatten() {
            if reached.insert(*to) {
                stack.push(*to);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests;
