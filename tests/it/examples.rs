//! Every configuration that the repository shows to people is a good one.

use std::path::{Path, PathBuf};

use crate::support::gateway::waypost;

/// The `gateway.yaml` of the root and those of the examples.
fn shown() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let examples = std::fs::read_dir(root.join("examples")).into_iter().flatten().flatten();
    let files = examples.map(|entry| entry.path().join("gateway.yaml"));
    let mut found: Vec<_> = files.chain([root.join("gateway.yaml")]).filter(|file| file.is_file()).collect();
    found.sort();
    found
}

/// Variables that a file names get a value: `${NAME}`, `{env: NAME}`.
fn variables(text: &str) -> Vec<String> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let marks = ["${", "env: "];
    let after = |mark: &'static str| text.split(mark).skip(1);
    let names = marks.into_iter().flat_map(after).map(|rest| rest.split(|letter| !is_name(letter)).next());
    names.flatten().filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[test]
fn every_shown_configuration_passes_the_check() {
    let files = shown();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("gateway.yaml");
    assert!(files.contains(&root), "the root has one");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a file");
        let folder = file.parent().expect("a folder");
        let mut command = waypost(&["check", "-c", "gateway.yaml"], folder);
        for name in variables(&text) {
            command.env(name, "0123456789abcdef0123456789abcdef");
        }
        let output = command.output().expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{}: {said}{}",
            file.display(),
            String::from_utf8_lossy(&output.stdout)
        );
        assert!(!said.to_lowercase().contains("warning"), "{}: {said}", file.display());
    }
}
