//! `waypost import`: the servers of another program's configuration, as one of ours.
//!
//! Must not know: what those files look like.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::check::Report;
use crate::config::import::{Foreign, Imported, Secrets, import as take_over};

/// What is taken over.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Files {
    /// Files of other programs (JSON, with comments or without, or TOML); `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Take secrets over as they are, instead of `${VARIABLE}` in their place.
    #[arg(long)]
    keep_secrets: bool,
}

/// Largest file, in bytes: `~/.claude.json` has all that was ever done in it.
const MAX_FILE: u64 = 64 << 20;

/// Prints the configuration; says on stderr what was changed or left out, and which variables it needs.
///
/// # Errors
/// If a file cannot be read, or has no servers.
pub(super) fn import(files: &Files) -> anyhow::Result<Report> {
    let read: Vec<Foreign> = files.files.iter().map(|path| read(path)).collect::<anyhow::Result<_>>()?;
    let secrets = if files.keep_secrets { Secrets::Keep } else { Secrets::Refer };
    let imported = take_over(&read, secrets)?;
    Ok(Report { stderr: said(&imported), stdout: imported.yaml, code: 0 })
}

fn read(path: &Path) -> anyhow::Result<Foreign> {
    let is_stdin = path == Path::new("-");
    let name = if is_stdin { "stdin".to_owned() } else { path.display().to_string() };
    let mut bytes = Vec::new();
    if is_stdin {
        std::io::stdin().take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    } else {
        let file = std::fs::File::open(path).with_context(|| format!("cannot read {name}"))?;
        file.take(MAX_FILE + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    }
    if bytes.len() as u64 > MAX_FILE {
        bail!("{name} is larger than 64 MiB");
    }
    let text = String::from_utf8(bytes).with_context(|| format!("{name} is not UTF-8"))?;
    Ok(Foreign { name, text })
}

fn said(imported: &Imported) -> String {
    let mut out: String = imported.notes.iter().map(|note| format!("{note}\n")).collect();
    if !imported.variables.is_empty() {
        out.push_str("\nset these variables where Waypost is started:\n");
    }
    let width = imported.variables.iter().map(|variable| variable.name.len()).max().unwrap_or_default();
    for variable in &imported.variables {
        let origin = if variable.was_in_clear { "; its value stood in the file" } else { "" };
        out.push_str(&format!("  {:width$}  {}{origin}\n", variable.name, variable.uses.join(", ")));
    }
    out
}
