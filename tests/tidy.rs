//! Keeps the limits of size and the places of `unsafe`, for every Rust file of the workspace.

use proc_macro2::{Span, TokenStream, TokenTree};
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const FILE_LINES_MAX: usize = 400;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_COLUMNS_MAX: usize = 110;

/// The only files that may hold `unsafe`: the mmap, and the boundary to MLX and its BLAS.
const MAY_BE_UNSAFE: [&str; 2] = ["reference/src/checkpoint.rs", "port/src/engine.rs"];

/// What is untidy in one file, each finding with its line.
fn untidy(path: &str, source: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let lines = source.lines().count();
    if lines > FILE_LINES_MAX {
        findings.push(format!("{path}: {lines} lines, at most {FILE_LINES_MAX}"));
    }
    for (index, line) in source.lines().enumerate() {
        let columns = line.chars().count();
        if columns > LINE_COLUMNS_MAX {
            findings.push(format!("{path}:{}: {columns} columns, at most {LINE_COLUMNS_MAX}", index + 1));
        }
    }
    // what `setup` pastes before generated code cannot open with an inner comment
    if !source.starts_with("//!") && !path.starts_with("port/linux/") {
        findings.push(format!("{path}:1: opens without saying its job (`//!`)"));
    }
    let file = syn::parse_file(source).unwrap_or_else(|e| panic!("failed to parse {path}: {e}"));
    let mut functions = Functions { path, findings: Vec::new() };
    functions.visit_file(&file);
    findings.extend(functions.findings);
    let tokens: TokenStream = source.parse().expect("a file that parses has tokens");
    find_words(path, tokens, &mut findings);
    findings
}

struct Functions<'a> {
    path: &'a str,
    findings: Vec<String>,
}

impl Functions<'_> {
    fn measure(&mut self, name: &syn::Ident, span: Span) {
        let lines = span.end().line - span.start().line + 1;
        if lines > FUNCTION_LINES_MAX {
            let (path, line) = (self.path, span.start().line);
            self.findings
                .push(format!("{path}:{line}: `{name}` has {lines} lines, at most {FUNCTION_LINES_MAX}"));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig.ident, function.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig.ident, function.span());
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.measure(&function.sig.ident, function.span());
        visit::visit_trait_item_fn(self, function);
    }
}

/// Finds the keyword `unsafe` outside its places, and the attribute `ignore`.
fn find_words(path: &str, tokens: TokenStream, findings: &mut Vec<String>) {
    let mut after_hash = false;
    for token in tokens {
        match &token {
            TokenTree::Ident(word) if word == "unsafe" && !MAY_BE_UNSAFE.contains(&path) => {
                findings.push(format!("{path}:{}: `unsafe` outside its places", word.span().start().line));
            }
            TokenTree::Group(group) => {
                let first = group.stream().into_iter().next();
                if after_hash && matches!(first, Some(TokenTree::Ident(word)) if word == "ignore") {
                    findings.push(format!("{path}:{}: an ignored test", group.span().start().line));
                }
                find_words(path, group.stream(), findings);
            }
            _ => {}
        }
        after_hash = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '#');
    }
}

/// Every Rust file of the workspace, as (path from the root, content).
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let hidden = |name: &str| name.starts_with('.') || name == "target";
    let files = walkdir::WalkDir::new(root)
        .into_iter()
        .filter_entry(|e| e.depth() == 0 || !hidden(&e.file_name().to_string_lossy()))
        .map(|entry| entry.expect("the tree can be read").into_path())
        .filter(|path| path.extension().is_some_and(|e| e == "rs"));
    let read = |path: PathBuf| {
        let content = std::fs::read_to_string(&path).expect("a source file can be read");
        (path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned(), content)
    };
    files.map(read).collect()
}

#[test]
fn every_source_file_keeps_the_limits() {
    let sources = sources();
    assert!(sources.len() > 30, "only {} files found", sources.len());
    let findings: Vec<String> = sources.iter().flat_map(|(path, source)| untidy(path, source)).collect();
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn a_long_file_function_and_line_are_found() {
    let body = "    let _ = 1;\n".repeat(FUNCTION_LINES_MAX - 1);
    let rest = "// more\n".repeat(FILE_LINES_MAX);
    let source = format!("//! Job.\nfn long() {{\n{body}}}\n// {}\n{rest}", "x".repeat(LINE_COLUMNS_MAX));
    let findings = untidy("a.rs", &source);
    let words = ["a.rs: 473 lines", "a.rs:73: 113 columns", "a.rs:2: `long` has 71 lines"];
    for (finding, word) in findings.iter().zip(words) {
        assert!(finding.starts_with(word), "{finding}");
    }
    assert_eq!(findings.len(), words.len(), "{findings:?}");
}

#[test]
fn unsafe_and_ignored_tests_are_found_wherever_they_hide() {
    let source = "//! Job.\nmod inner {\n fn f() { unsafe { g() } }\n #[ignore]\n fn t() {}\n}\n";
    let findings = untidy("diff/src/lib.rs", source);
    assert_eq!(
        findings,
        ["diff/src/lib.rs:3: `unsafe` outside its places", "diff/src/lib.rs:4: an ignored test"]
    );
    assert_eq!(untidy("port/src/engine.rs", &source.replace(" #[ignore]\n", "")), Vec::<String>::new());
}

#[test]
fn a_file_that_does_not_say_its_job_is_found() {
    assert_eq!(untidy("a.rs", "fn f() {}\n"), ["a.rs:1: opens without saying its job (`//!`)"]);
}
