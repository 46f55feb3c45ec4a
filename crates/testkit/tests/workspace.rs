//! The rules of the workspace, held by a test: which way dependencies point, how long files are,
//! and what no file contains.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

/// Longest source file, in lines; a longer one holds more than one thing.
const LINES_MAX: usize = 600;

/// Crates from left to right, each with what it may depend on. Development dependencies may point
/// left or sideways, and to the testkit.
const CRATES: &[(&str, &[&str])] = &[
    ("onceward-core", &[]),
    ("onceward-macros", &[]),
    ("onceward-postgres", &["onceward-core"]),
    ("onceward-sqlite", &["onceward-core"]),
    ("onceward-console", &["onceward-core"]),
    ("onceward-brokers", &["onceward-core"]),
    ("onceward-testkit", &["onceward-core"]),
    (
        "onceward",
        &[
            "onceward-core",
            "onceward-macros",
            "onceward-postgres",
            "onceward-sqlite",
        ],
    ),
    ("onceward-orders", &["onceward", "onceward-brokers"]),
    ("onceward-torture", &["onceward", "onceward-testkit"]),
    (
        "onceward-cli",
        &[
            "onceward-core",
            "onceward-postgres",
            "onceward-sqlite",
            "onceward-brokers",
            "onceward-console",
            "onceward",
            "onceward-orders",
        ],
    ),
    (
        "onceward-fuzz",
        &[
            "onceward-core",
            "onceward-postgres",
            "onceward-console",
            "onceward-testkit",
            "onceward",
            "onceward-cli",
        ],
    ),
];

/// How far right a crate stands.
fn rank(name: &str) -> usize {
    match name {
        "onceward-core" => 0,
        "onceward" => 2,
        "onceward-orders" | "onceward-torture" => 3,
        "onceward-cli" => 4,
        "onceward-fuzz" => 5,
        _ => 1,
    }
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().nth(2);
    root.expect("the testkit is two folders below the workspace")
        .to_owned()
}

fn metadata() -> Value {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(root())
        .output()
        .expect("cargo runs, it runs this test");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {said}");
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}

/// For each crate its dependencies inside the workspace, with their kind.
fn dependencies() -> BTreeMap<String, Vec<(String, String)>> {
    let text = |value: &Value| value.as_str().unwrap_or("normal").to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(&metadata()["packages"]);
    let names: Vec<String> = packages.iter().map(|p| text(&p["name"])).collect();
    let inside = |package: &Value| {
        let all = list(&package["dependencies"]);
        let kind = |d: &Value| match d["optional"].as_bool() {
            Some(true) => "optional".to_owned(),
            _ => text(&d["kind"]),
        };
        let all = all.iter().map(|d| (text(&d["name"]), kind(d)));
        all.filter(|(name, _)| names.contains(name)).collect()
    };
    packages
        .iter()
        .map(|package| (text(&package["name"]), inside(package)))
        .collect()
}

#[test]
fn dependencies_point_left() {
    let found = dependencies();
    let mut wrong = Vec::new();
    for (name, dependencies) in &found {
        let Some((_, allowed)) = CRATES.iter().find(|(known, _)| known == name) else {
            wrong.push(format!("{name} has no place in this test's table"));
            continue;
        };
        for (dependency, kind) in dependencies {
            let is_allowed = match kind.as_str() {
                "dev" => {
                    let is_testkit = dependency == "onceward-testkit" && rank(name) > 0;
                    is_testkit || rank(dependency) <= rank(name)
                }
                // The simulation, behind a feature that no crate turns on.
                "optional" if name == "onceward-testkit" => dependency == "onceward",
                _ => allowed.contains(&dependency.as_str()),
            };
            if !is_allowed {
                wrong.push(format!("{name} -> {dependency} ({kind})"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "dependencies that point right: {wrong:#?}"
    );
    assert_eq!(
        found.len(),
        CRATES.len(),
        "crates in the table and in the workspace"
    );
}

/// Files that are checked: everything written by hand below the workspace's folders.
fn files(extensions: &[&str]) -> Vec<(PathBuf, String)> {
    let mut folders: Vec<PathBuf> = ["crates", "examples", "docs", "scripts", ".ci", ".config"]
        .iter()
        .map(|folder| root().join(folder))
        .collect();
    let mut paths: Vec<PathBuf> = fs::read_dir(root())
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_built = path.file_name().is_some_and(|name| name == "target");
            match path.is_dir() {
                true if !is_built => folders.push(path),
                true => {}
                false => paths.push(path),
            }
        }
    }
    paths.sort();
    let wanted = |path: &Path| {
        let extension = path.extension().map_or("", |e| e.to_str().unwrap_or(""));
        extensions.contains(&extension)
    };
    let wanted: Vec<PathBuf> = paths.into_iter().filter(|path| wanted(path)).collect();
    let texts = wanted.into_iter().filter_map(|path| {
        let text = fs::read_to_string(&path).ok()?;
        let path = path.strip_prefix(root()).unwrap_or(&path).to_owned();
        Some((path, text))
    });
    texts.collect()
}

#[test]
fn files_are_short() {
    let sources = files(&["rs"]);
    assert!(
        sources.len() > 20,
        "the sources are found: {}",
        sources.len()
    );
    let long: Vec<String> = sources
        .iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(path, lines)| format!("{} has {lines} lines", path.display()))
        .collect();
    assert!(long.is_empty(), "longer than {LINES_MAX} lines: {long:#?}");
}

/// Where a text occurs that starts a path or a macro, as path and line.
fn occurrences(files: &[(PathBuf, String)], needle: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in files {
        for (number, line) in (1..).zip(text.lines()) {
            let starts_there = |(at, _): (usize, &str)| {
                let before = line[..at].chars().next_back();
                before.is_none_or(|c| !c.is_alphanumeric() && !"_-./~$}".contains(c))
            };
            if line.match_indices(needle).any(starts_there) {
                found.push(format!("{}:{number}: {needle}", path.display()));
            }
        }
    }
    found
}

#[test]
fn nothing_is_left_to_be_written() {
    let sources = files(&["rs"]);
    // Put together here so that this file does not find itself.
    let macros = ["todo", "unimplemented"].map(|name| format!("{name}!("));
    let found: Vec<String> = macros
        .iter()
        .flat_map(|m| occurrences(&sources, m))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_file_names_a_place_on_somebodys_machine() {
    let texts = files(&[
        "rs", "toml", "md", "sql", "sh", "yml", "yaml", "json", "py", "html", "",
    ]);
    assert!(texts.iter().any(|(path, _)| path.ends_with("scripts/test")));
    let places = ["work", "root", "home", "Users"].map(|name| format!("/{name}/"));
    let found: Vec<String> = places.iter().flat_map(|p| occurrences(&texts, p)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_crate_keeps_the_workspaces_lints() {
    let manifests = files(&["toml"]);
    let manifests = manifests.iter().filter(|(path, _)| {
        let is_crate = path.starts_with("crates") || path.starts_with("examples");
        is_crate && path.ends_with("Cargo.toml")
    });
    let mut count = 0;
    for (path, text) in manifests {
        count += 1;
        let lints = text.split("[lints]").nth(1).map_or("", str::trim_start);
        assert!(lints.starts_with("workspace = true"), "{}", path.display());
    }
    assert_eq!(count, CRATES.len());
}
