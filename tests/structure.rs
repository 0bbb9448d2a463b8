//! Who may depend on whom. The reference and the port never see each other; nothing sees the command line.

use cargo_metadata::MetadataCommand;

/// The allowed edges between rooms; `assay`, the binary, may see all of them.
const ALLOWED: [(&str, &[&str]); 8] = [
    ("spec", &[]),
    ("reference", &["spec"]),
    ("port", &["spec"]),
    ("fixtures", &["spec"]),
    ("diff", &["spec"]),
    ("mutants", &["spec", "reference", "port"]),
    ("reports", &["diff", "spec"]),
    ("assay", &["spec", "reference", "port", "fixtures", "diff", "mutants", "reports"]),
];

/// Crates that compute; a room that must not do arithmetic of its own must not have them.
const ARITHMETIC: [&str; 4] = ["mlx-rs", "ndarray-linalg", "rayon", "matrixmultiply"];

type Edge = (String, String);

/// Edges from one room to another that nobody allowed.
fn forbidden(edges: &[Edge]) -> Vec<&Edge> {
    let allowed = |from: &str, to: &str| ALLOWED.iter().any(|(room, may)| *room == from && may.contains(&to));
    edges.iter().filter(|(from, to)| !allowed(from, to)).collect()
}

/// (package, dependency) of every kind (normal, dev, build), for all packages of the workspace.
fn dependencies() -> Vec<Edge> {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata runs");
    let of = |package: &cargo_metadata::Package| {
        let from = package.name.to_string();
        package.dependencies.iter().map(move |d| (from.clone(), d.name.clone())).collect::<Vec<_>>()
    };
    metadata.packages.iter().flat_map(of).collect()
}

fn rooms(dependencies: Vec<Edge>) -> Vec<Edge> {
    let room = |name: &str| ALLOWED.iter().any(|(room, _)| *room == name);
    dependencies.into_iter().filter(|(from, to)| room(from) && room(to)).collect()
}

#[test]
fn rooms_depend_only_on_whom_they_may() {
    let edges = rooms(dependencies());
    assert!(edges.len() >= 7, "too few edges to be the whole workspace: {edges:?}");
    assert_eq!(forbidden(&edges), Vec::<&Edge>::new());
}

#[test]
fn every_package_of_the_workspace_is_a_known_room() {
    let mut packages: Vec<String> = dependencies().into_iter().map(|(from, _)| from).collect();
    packages.dedup();
    for package in packages {
        assert!(ALLOWED.iter().any(|(room, _)| *room == package), "`{package}` has no place in ALLOWED");
    }
}

#[test]
fn a_forbidden_edge_is_found() {
    let edge = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let edges =
        [edge("port", "spec"), edge("reference", "port"), edge("port", "reference"), edge("spec", "diff")];
    assert_eq!(forbidden(&edges), [&edges[1], &edges[2], &edges[3]]);
}

#[test]
fn spec_and_diff_hold_no_engine() {
    let all = dependencies();
    // explanation fits an orthogonal map, by a decomposition that no side's forward pass has
    let fits = |(from, to): &Edge| from == "diff" && to == "ndarray-linalg";
    for room in ["spec", "diff", "reports"] {
        let engine = |edge: &&Edge| edge.0 == room && ARITHMETIC.contains(&edge.1.as_str()) && !fits(edge);
        let engines: Vec<&Edge> = all.iter().filter(engine).collect();
        assert_eq!(engines, Vec::<&Edge>::new());
    }
}
