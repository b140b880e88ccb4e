use std::fs;

use super::*;
use crate::metadata::Crate;

/// The import circles of a crate made of these files; the first one is its root.
fn circles(files: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    circles_below(&folder.path().join(files[0].0)).unwrap()
}

#[test]
fn a_crate_that_imports_downwards_has_no_circle() {
    let found = circles(&[
        ("lib.rs", "mod high; mod low; pub use high::High;"),
        ("high.rs", "use crate::low::Low; pub struct High(Low);"),
        ("low.rs", "pub struct Low;"),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn two_files_that_import_each_other_are_printed_with_the_lines_that_do() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B;\npub struct A(B);"),
        ("b.rs", "//! B.\n\npub struct B(super::a::A);"),
    ]);
    let wanted = "2 files import each other in a circle; the shortest way around:\n    \
                  a.rs:1 imports b.rs (crate::b::B)\n    b.rs:3 imports a.rs (super::a::A)";
    assert_eq!(found, [wanted]);
}

#[test]
fn an_import_through_a_re_export_counts_for_the_file_that_defines_the_name() {
    let files = [
        ("lib.rs", "mod a; mod b; pub use a::A; pub use b::deep::B;"),
        ("a.rs", "use crate::B; pub struct A(B);"),
        ("b/mod.rs", "pub mod deep;"),
        ("b/deep.rs", "use crate::A; pub struct B(A);"),
    ];
    let found = circles(&files);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("a.rs:1 imports b/deep.rs (crate::B)"), "{}", found[0]);
}

#[test]
fn re_exports_in_a_row_and_renamed_ones_are_followed() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::c::Other; pub struct A(Other);"),
        ("b.rs", "use crate::a::A; pub struct B(A);"),
        ("c.rs", "pub use crate::c_face::*; mod unused {} pub use super::b::B as Other;"),
    ]);
    assert!(found[0].contains("a.rs:1 imports b.rs (crate::c::Other)"), "{}", found[0]);
}

#[test]
fn a_parent_that_only_declares_and_re_exports_its_children_imports_nothing() {
    let found = circles(&[
        ("lib.rs", "mod zone; pub const SIZE: u64 = 1;"),
        ("zone/mod.rs", "mod state; pub use state::State; pub struct Id;"),
        ("zone/state.rs", "use super::Id; pub struct State(Id, [u8; crate::SIZE]);"),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_parent_that_uses_a_child_which_uses_the_parent_is_a_circle() {
    let found = circles(&[
        ("lib.rs", "mod zone;"),
        ("zone/mod.rs", "mod state; pub use state::State; pub struct Id(State);"),
        ("zone/state.rs", "pub struct State(super::Id);"),
    ]);
    assert_eq!(found.len(), 1);
}

#[test]
fn paths_that_begin_with_a_child_or_an_imported_module_count() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a/mod.rs", "mod inner; pub fn go() { inner::go() }"),
        ("a/inner.rs", "use crate::b; pub fn go() { b::go() }"),
        ("b.rs", "pub fn go() { println!(\"{}\", crate::a::inner::go()) }"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("b.rs:1 imports a/inner.rs"), "{}", found[0]);
}

#[test]
fn names_taken_through_a_glob_count_if_the_file_uses_them() {
    let files = |glob_user| {
        [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub struct A; pub struct Unused; use crate::b::B; type C = B;"),
            ("b.rs", glob_user),
        ]
    };
    assert_eq!(circles(&files("use crate::a::*; pub struct B(A);")).len(), 1);
    assert_eq!(circles(&files("use crate::a::*; pub struct B;")).len(), 0);
}

#[test]
fn test_code_is_left_out() {
    let low = "pub struct Low;\n#[cfg(test)]\nuse crate::high::{High, Higher};\n#[cfg(test)] mod tests;
        #[cfg(all(test, not(loom)))] mod more { use crate::high::High; }
        #[cfg(test)] #[test] fn it() -> Vec<u8> { crate::high::go() }
        struct S { #[cfg(test)] field: BTreeMap<u8, crate::high::High>, rest: u8 }";
    let found = circles(&[
        ("lib.rs", "mod high; mod low;"),
        ("high.rs", "use crate::low::Low; pub struct High(Low); pub struct Higher; pub fn go() {}"),
        ("low.rs", low),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn code_that_also_a_feature_brings_in_counts() {
    let low = |condition| format!("pub struct Low; #[cfg({condition})] use crate::high::High;");
    for condition in ["any(test, feature = \"x\")", "not(test)", "feature = \"x\""] {
        let files = [
            ("lib.rs", "mod high; mod low;".to_owned()),
            ("high.rs", "use crate::low::Low; pub struct High(Low);".to_owned()),
            ("low.rs", low(condition)),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        assert_eq!(circles(&files).len(), 1, "{condition}");
    }
}

#[test]
fn comments_strings_visibilities_and_other_crates_are_no_imports() {
    let low = "// crate::high::High\n/* crate::high::High */\n/// [`crate::high::High`]
        pub(in crate::low) struct Low; const TEXT: &str = \"crate::high::High\"; use ::high::High;
        fn f() { let _ = ::high::x(); let _ = std::mem::take(&mut 1); }";
    let found = circles(&[
        ("lib.rs", "mod high; mod low;"),
        ("high.rs", "use crate::low::Low; pub struct High(Low);"),
        ("low.rs", low),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn modules_inside_a_file_belong_to_the_file() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub mod inner { pub struct A(super::super::b::B); } use inner::A; type T = A;"),
        ("b.rs", "use crate::a::inner::A; pub struct B(A);"),
    ]);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("2 files"), "{}", found[0]);
}

#[test]
fn the_shortest_circle_of_each_component_is_printed() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
        ("a.rs", "pub struct A(crate::b::B);"),
        ("b.rs", "pub struct B(crate::c::C);"),
        ("c.rs", "pub struct C(crate::a::A, crate::b::B);"),
        ("d.rs", "pub struct D(crate::e::E);"),
        ("e.rs", "pub struct E(crate::d::D);"),
    ]);
    assert_eq!(found.len(), 2);
    assert!(found[0].starts_with("3 files") && found[0].matches("imports").count() == 2, "{}", found[0]);
}

fn workspace(files: &[(&str, &str)]) -> (tempfile::TempDir, Workspace) {
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
    let mut workspace = Workspace::default();
    let roots = vec![folder.path().join("lib.rs")];
    workspace.crates.insert("units".into(), Crate { roots, ..Crate::default() });
    (folder, workspace)
}

#[test]
fn a_circle_names_its_crate() {
    let a = ("a.rs", "pub struct A(crate::b::B);");
    let (_folder, circular) =
        workspace(&[("lib.rs", "mod a; mod b;"), a, ("b.rs", "pub struct B(crate::a::A);")]);
    let (_other, straight) = workspace(&[("lib.rs", "mod a; mod b;"), a, ("b.rs", "pub struct B;")]);
    let problems = check(&circular).unwrap();
    assert!(matches!(&problems[..], [only] if only.starts_with("crate units: ")), "{problems:?}");
    assert!(check(&straight).unwrap().is_empty());
}

#[test]
fn a_declared_module_without_a_file_is_an_error() {
    let (folder, _) = workspace(&[("lib.rs", "mod missing;")]);
    let error = circles_below(&folder.path().join("lib.rs")).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error:#}");
}
