//! What the documentation says is there: files and headings that it links to, tests that it names,
//! and the programs that it quotes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().nth(2);
    root.expect("the testkit is two folders below the workspace")
        .to_owned()
}

/// Files below a folder with an extension.
fn below(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            below(&path, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

fn pages() -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    below(&root().join("docs"), "md", &mut paths);
    for entry in fs::read_dir(root())
        .expect("the workspace can be read")
        .flatten()
    {
        if entry.path().extension().is_some_and(|e| e == "md") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a page can be read");
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

/// A page's lines outside fenced blocks, and the blocks with their language.
fn split(text: &str) -> (Vec<&str>, Vec<(&str, Vec<&str>)>) {
    let mut prose = Vec::new();
    let mut blocks: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), is_inside) {
            (Some(language), false) => {
                blocks.push((language, Vec::new()));
                is_inside = true;
            }
            (Some(_), true) => is_inside = false,
            (None, true) => blocks.last_mut().expect("one is open").1.push(line),
            (None, false) => prose.push(line),
        }
    }
    assert!(!is_inside, "a block is never closed");
    (prose, blocks)
}

/// The links of a line: text and target.
fn links(line: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("](") {
        let text = line[..at].rfind('[').map_or("", |open| &line[open + 1..at]);
        let rest = &line[at + 2..];
        if let Some(end) = rest.find(')') {
            found.push((text, &rest[..end]));
        }
    }
    found
}

/// The anchors of a page's headings, as they are made of them where the pages are shown.
fn anchors(text: &str) -> BTreeSet<String> {
    let (prose, _) = split(text);
    let headings = prose.iter().filter(|line| line.starts_with('#'));
    let slug = |line: &&str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().replace(' ', "-")
    };
    headings.map(slug).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut dead = Vec::new();
    let mut count = 0;
    for (path, text) in pages() {
        for (_, target) in split(&text).0.iter().flat_map(|line| links(line)) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            count += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            let is_there = file.exists()
                && (anchor.is_empty()
                    || fs::read_to_string(&file).is_ok_and(|text| anchors(&text).contains(anchor)));
            if !is_there {
                dead.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(count > 50, "links are found: {count}");
    assert!(dead.is_empty(), "links that lead nowhere: {dead:#?}");
}

/// Whether a name stands alone on a line of a list that a macro makes tests of.
fn is_made_by_a_macro(source: &str, name: &str) -> bool {
    let list = source.split_once("\nreplays! {\n").map(|(_, list)| list);
    list.is_some_and(|list| list.lines().any(|line| line.trim() == name))
}

#[test]
fn tests_that_are_named_exist() {
    let mut missing = Vec::new();
    let mut count = 0;
    for (path, text) in pages() {
        for (text, target) in split(&text).0.iter().flat_map(|line| links(line)) {
            let name = text.trim_matches('`');
            let is_name = text.starts_with('`') && target.ends_with(".rs");
            let is_function =
                name.contains('_') && name.chars().all(|c| c.is_alphanumeric() || c == '_');
            if !is_name || !is_function {
                continue;
            }
            count += 1;
            let source =
                fs::read_to_string(path.parent().unwrap().join(target)).unwrap_or_default();
            let is_there = [format!("fn {name}("), format!("fn {name}<")]
                .iter()
                .any(|start| source.contains(start))
                || is_made_by_a_macro(&source, name);
            if !is_there {
                missing.push(format!("{}: {name} in {target}", path.display()));
            }
        }
    }
    assert!(count > 20, "names are found: {count}");
    assert!(missing.is_empty(), "named and not there: {missing:#?}");
}

/// The rows of the tables whose head ends with a column of proofs, as cells.
fn rows_with_proofs<'t>(prose: &[&'t str]) -> Vec<Vec<&'t str>> {
    let cells = |line: &'t str| -> Vec<&'t str> {
        let inner = line.trim().trim_matches('|');
        inner.split('|').map(str::trim).collect()
    };
    let mut rows = Vec::new();
    let mut is_inside = false;
    for (line, next) in prose.iter().zip(prose.iter().skip(1).chain([&""])) {
        if !line.starts_with('|') {
            is_inside = false;
        } else if next.starts_with("|---") {
            is_inside = cells(line).last() == Some(&"proof");
        } else if is_inside && !line.starts_with("|---") {
            rows.push(cells(line));
        }
    }
    rows
}

/// What stands in backquotes in a text.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Whether a checker has this name.
fn is_checker(name: &str) -> bool {
    let mut sources = Vec::new();
    below(
        &root().join("crates/testkit/src/simulation/checkers"),
        "rs",
        &mut sources,
    );
    let literal = format!("\"{name}\"");
    let has_it =
        |path: &PathBuf| fs::read_to_string(path).is_ok_and(|text| text.contains(&literal));
    sources.iter().any(has_it)
}

/// Whether a script is there and knows the options, itself or in the program that it starts.
fn is_command(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let script = root().join(words.next().unwrap_or_default());
    let Ok(mut text) = fs::read_to_string(&script) else {
        return false;
    };
    let mut programs = Vec::new();
    below(&root().join("crates"), "rs", &mut programs);
    let name = script.file_name().unwrap_or_default();
    for program in programs
        .iter()
        .filter(|path| path.file_stem() == Some(name))
    {
        text.push_str(&fs::read_to_string(program).unwrap_or_default());
    }
    let mut options = words.filter(|word| word.starts_with("--"));
    options.all(|option| text.contains(option) || text.contains(&option[2..].replace('-', "_")))
}

/// Each promise and each point of failure names a test; each checker and command is there.
#[test]
fn proofs_of_the_guarantees_exist() {
    let page = fs::read_to_string(root().join("docs/guarantees.md")).expect("the page is there");
    let (prose, _) = split(&page);
    let rows = rows_with_proofs(&prose);
    assert!(rows.len() > 20, "rows are found: {}", rows.len());
    let mut wrong = Vec::new();
    for row in &rows {
        let (subject, proof) = (row[0], row[row.len() - 1]);
        if !links(proof)
            .iter()
            .any(|(text, target)| text.starts_with('`') && target.ends_with(".rs"))
        {
            wrong.push(format!("{subject} has no test"));
        }
        if let Some((_, checkers)) = proof.split_once("checker") {
            for name in quoted(checkers) {
                if !is_checker(name) {
                    wrong.push(format!("{subject}: no checker is called {name}"));
                }
            }
        }
    }
    let mut commands = 0;
    for command in prose.iter().flat_map(|line| quoted(line)) {
        if command.starts_with("scripts/") {
            commands += 1;
            if !is_command(command) {
                wrong.push(format!("{command} is no command"));
            }
        }
    }
    assert!(commands > 3, "commands are found: {commands}");
    assert!(wrong.is_empty(), "named and not there: {wrong:#?}");
}

#[test]
fn quoted_programs_are_those_that_run() {
    let mut sources = Vec::new();
    below(&root().join("examples"), "rs", &mut sources);
    for crate_folder in fs::read_dir(root().join("crates")).unwrap().flatten() {
        below(&crate_folder.path().join("examples"), "rs", &mut sources);
    }
    let lines_of = |path: PathBuf| -> Vec<String> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    };
    let sources: Vec<Vec<String>> = sources.into_iter().map(lines_of).collect();
    let mut foreign = Vec::new();
    let mut count = 0;
    for (path, text) in pages() {
        for (language, lines) in split(&text).1 {
            if language != "rust" {
                continue;
            }
            count += 1;
            let lines: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
            let is_in = |source: &Vec<String>| source.windows(lines.len()).any(|w| w == lines);
            if !sources.iter().any(is_in) {
                foreign.push(format!("{}: {}", path.display(), lines.join("\n")));
            }
        }
    }
    assert!(count > 5, "blocks are found: {count}");
    assert!(foreign.is_empty(), "in no example: {foreign:#?}");
}
