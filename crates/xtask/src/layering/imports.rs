//! Reads one Rust source file: the modules it declares, the names it defines, and the paths it uses.
//!
//! The file is split into tokens by `proc-macro2`; no grammar beyond `mod`, `use`, attributes and paths is needed. Code
//! under `#[cfg(test)]` is left out.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Content of one module: of a file, or of `mod name { ... }` inside a file.
#[derive(Debug, Default)]
pub struct ModuleScope {
    /// Module declarations: `mod name;` and `mod name { ... }`.
    pub children: Vec<ChildModule>,
    /// Imports: one for each name that a `use` brings in.
    pub bindings: Vec<ImportedName>,
    /// Names of the items that the module defines.
    pub defined: BTreeSet<String>,
    /// Paths of two segments or more outside `use` declarations.
    pub paths: Vec<PathUse>,
    /// Every identifier outside `use`, to tell whether an imported name is used in this module.
    pub words: BTreeSet<String>,
    /// True if the file begins with `#![cfg(test)]`.
    pub test_only: bool,
}

/// A module that another module declares.
#[derive(Debug)]
pub struct ChildModule {
    /// Name of the module.
    pub name: String,
    /// The file named by the declaration's attribute `#[path = "..."]`.
    pub path: Option<String>,
    /// The content of an inline module `mod name { ... }`; `None` for `mod name;`.
    pub inline: Option<ModuleScope>,
}

/// A name that a `use` brings in.
#[derive(Debug)]
pub struct ImportedName {
    /// The imported name in this module; `*` for a glob.
    pub name: String,
    /// The imported path as written, without the `*` of a glob.
    pub path: Vec<String>,
    /// The source line of the path's last segment.
    pub line: usize,
    /// True if the `use` has a visibility: a re-export.
    pub public: bool,
    /// True if the `use` stands directly in the module, false if it stands inside a function.
    pub exported: bool,
}

/// A path in an expression, a type or an attribute of the source.
#[derive(Debug)]
pub struct PathUse {
    /// The path's segments, at least two.
    pub path: Vec<String>,
    /// The source line of the path's first segment.
    pub line: usize,
}

/// Parses the text of one source file.
pub fn read(source: &str) -> Result<ModuleScope> {
    let tokens: TokenStream =
        source.parse().map_err(|error| anyhow!("the text cannot be split into tokens: {error}"))?;
    let mut scope = ModuleScope::default();
    TokenReader::new(tokens).read(&mut scope, true);
    Ok(scope)
}

/// Keywords that are followed by the name of the item that they define.
const DEFINING_KEYWORDS: [&str; 9] =
    ["fn", "struct", "enum", "union", "trait", "type", "const", "static", "macro_rules"];

/// Rust keywords that begin an item or statement which ends at `;` or at a block, never at a comma.
const ITEM_KEYWORDS: [&str; 16] = [
    "fn",
    "struct",
    "enum",
    "union",
    "trait",
    "type",
    "const",
    "static",
    "macro_rules",
    "impl",
    "mod",
    "unsafe",
    "async",
    "extern",
    "let",
    "use",
];

/// Walks over the tokens of one token group.
struct TokenReader {
    tokens: Vec<TokenTree>,
    at: usize,
}

impl TokenReader {
    fn new(tokens: TokenStream) -> TokenReader {
        TokenReader { tokens: tokens.into_iter().collect(), at: 0 }
    }

    fn peek(&self, ahead: usize) -> Option<&TokenTree> {
        self.tokens.get(self.at + ahead)
    }

    fn word(&self, ahead: usize) -> Option<String> {
        match self.peek(ahead) {
            Some(TokenTree::Ident(ident)) => Some(plain(ident)),
            _ => None,
        }
    }

    fn punct(&self, ahead: usize, wanted: char) -> bool {
        matches!(self.peek(ahead), Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
    }

    fn colons(&self, ahead: usize) -> bool {
        self.punct(ahead, ':') && self.punct(ahead + 1, ':')
    }

    fn group(&self, ahead: usize, wanted: Delimiter) -> Option<TokenStream> {
        match self.peek(ahead) {
            Some(TokenTree::Group(group)) if group.delimiter() == wanted => Some(group.stream()),
            _ => None,
        }
    }

    fn line(&self) -> usize {
        self.peek(0).map_or(0, |token| token.span().start().line)
    }

    /// Parses the remaining tokens. `items`: they are the items of a module, not the inside of an item.
    fn read(&mut self, scope: &mut ModuleScope, items: bool) {
        let mut public = false;
        let mut file = None;
        while let Some(token) = self.peek(0) {
            let (was_public, was_file) = (std::mem::take(&mut public), file.take());
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    let inner = usize::from(self.punct(1, '!'));
                    let Some(attribute) = self.group(1 + inner, Delimiter::Bracket) else {
                        self.at += 1;
                        continue;
                    };
                    self.at += 2 + inner;
                    let test = is_test(&attribute);
                    if test && inner == 1 {
                        scope.test_only = true;
                    } else if test {
                        self.skip_item();
                    } else {
                        file = path_attribute(&attribute).or(was_file);
                        TokenReader::new(attribute).read(scope, false);
                    }
                }
                // Takes a path that begins at a crate root (`::name`), or the rest of `<T as Trait>::name`.
                TokenTree::Punct(_) if self.colons(0) && self.word(2).is_some() => {
                    self.at += 2;
                    self.parse_path();
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => self.at += 1,
                TokenTree::Group(group) => {
                    let inside = group.stream();
                    self.at += 1;
                    TokenReader::new(inside).read(scope, false);
                }
                TokenTree::Ident(ident) => match plain(ident).as_str() {
                    "pub" => {
                        (public, file) = (true, was_file);
                        self.at += 1;
                        let inside = self.group(0, Delimiter::Parenthesis).map(TokenReader::new);
                        let restriction = inside.and_then(|inside| inside.word(0));
                        if restriction
                            .is_some_and(|word| ["crate", "super", "self", "in"].contains(&word.as_str()))
                        {
                            self.at += 1;
                        }
                    }
                    "use" if !self.punct(1, '<') => {
                        self.at += 1;
                        self.use_tree(&[], was_public, items, scope);
                    }
                    "mod" if self.word(1).is_some() => self.child(was_file, scope),
                    word => {
                        let macro_mark = usize::from(word == "macro_rules");
                        if items
                            && DEFINING_KEYWORDS.contains(&word)
                            && let Some(name) = self.word(1 + macro_mark)
                        {
                            scope.defined.insert(name);
                        }
                        let line = self.line();
                        let path = self.parse_path();
                        scope.words.extend(path.first().cloned());
                        if path.len() > 1 {
                            scope.paths.push(PathUse { path, line });
                        }
                    }
                },
            }
        }
    }

    /// Takes `a::b::c`.
    fn parse_path(&mut self) -> Vec<String> {
        let mut path = Vec::new();
        while let Some(word) = self.word(0) {
            path.push(word);
            self.at += 1;
            if !self.colons(0) || self.word(2).is_none() {
                break;
            }
            self.at += 2;
        }
        path
    }

    /// Takes one tree of a `use`, up to the `,` or `;` behind it.
    fn use_tree(&mut self, prefix: &[String], public: bool, exported: bool, scope: &mut ModuleScope) {
        let mut path = prefix.to_vec();
        // `use ::name` imports from outside the crate: the empty first segment resolves to nothing.
        if self.colons(0) {
            path.push(String::new());
            self.at += 2;
        }
        let mut line = self.line();
        loop {
            if let Some(word) = self.word(0) {
                line = self.line();
                path.push(word);
                self.at += 1;
                if self.colons(0) {
                    self.at += 2;
                    continue;
                }
            } else if self.punct(0, '*') {
                self.at += 1;
                scope.bindings.push(ImportedName { name: "*".into(), path, line, public, exported });
                break;
            } else if let Some(inside) = self.group(0, Delimiter::Brace) {
                self.at += 1;
                let mut inside = TokenReader::new(inside);
                while inside.peek(0).is_some() {
                    inside.use_tree(&path, public, exported, scope);
                }
                break;
            }
            let mut name = path.last().cloned().unwrap_or_default();
            if name == "self" && path.len() > 1 {
                path.pop();
                name = path.last().cloned().unwrap_or_default();
            }
            if self.word(0).as_deref() == Some("as") {
                name = self.word(1).unwrap_or_default();
                self.at += 2;
            }
            scope.bindings.push(ImportedName { name, path, line, public, exported });
            break;
        }
        while self.peek(0).is_some() && !self.punct(0, ',') && !self.punct(0, ';') {
            self.at += 1;
        }
        self.at += 1;
    }

    /// Takes a declaration `mod name;` or `mod name { ... }`.
    fn child(&mut self, path: Option<String>, scope: &mut ModuleScope) {
        let name = self.word(1).unwrap_or_default();
        self.at += 2;
        let inline = self.group(0, Delimiter::Brace).map(|inside| {
            let mut child = ModuleScope::default();
            TokenReader::new(inside).read(&mut child, true);
            child
        });
        self.at += 1;
        scope.children.push(ChildModule { name, path, inline });
    }

    /// Skips an item, statement, field, variant or match arm, with the attributes before it.
    fn skip_item(&mut self) {
        while self.punct(0, '#') && self.group(1, Delimiter::Bracket).is_some() {
            self.at += 2;
        }
        if self.word(0).as_deref() == Some("pub") {
            self.at += 1;
            if self.group(0, Delimiter::Parenthesis).is_some() {
                self.at += 1;
            }
        }
        let first = self.word(0).unwrap_or_default();
        let item = ITEM_KEYWORDS.contains(&first.as_str());
        let mut angles = 0_i32;
        while let Some(token) = self.peek(0) {
            let end = match token {
                TokenTree::Group(group) => {
                    group.delimiter() == Delimiter::Brace && first != "use" && first != "let"
                }
                TokenTree::Punct(punct) => {
                    match punct.as_char() {
                        '<' => angles += 1,
                        '>' => angles = (angles - 1).max(0),
                        _ => {}
                    }
                    punct.as_char() == ';' || (punct.as_char() == ',' && !item && angles == 0)
                }
                _ => false,
            };
            self.at += 1;
            if end {
                // Skips the comma behind the block of a match arm or a variant.
                if self.punct(0, ',') {
                    self.at += 1;
                }
                return;
            }
        }
    }
}

fn plain(ident: &proc_macro2::Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map_or(text.clone(), str::to_owned)
}

/// True for the attributes `cfg(test)` and `cfg(all(.., test, ..))`.
fn is_test(attribute: &TokenStream) -> bool {
    let inside = |name: &str, tokens: &TokenStream| {
        let reader = TokenReader::new(tokens.clone());
        (reader.word(0).as_deref() == Some(name)).then(|| reader.group(1, Delimiter::Parenthesis)).flatten()
    };
    let names_test = |tokens: TokenStream| {
        tokens.into_iter().any(|token| matches!(&token, TokenTree::Ident(ident) if ident == "test"))
    };
    let Some(condition) = inside("cfg", attribute) else { return false };
    match inside("all", &condition) {
        Some(all) => names_test(all),
        None => {
            inside("any", &condition).is_none()
                && inside("not", &condition).is_none()
                && names_test(condition)
        }
    }
}

/// The file that the attribute `path = "..."` names.
fn path_attribute(attribute: &TokenStream) -> Option<String> {
    let reader = TokenReader::new(attribute.clone());
    if reader.word(0).as_deref() != Some("path") || !reader.punct(1, '=') {
        return None;
    }
    Some(reader.peek(2)?.to_string().trim_matches('"').to_owned())
}
