//! What the audit log is asked for.
//!
//! Must not know: how it is written.

use std::path::PathBuf;

use super::Pattern;

/// The audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Where it goes; `None` is standard error.
    pub file: Option<PathBuf>,
    /// What of the arguments of a call is in it. Default nothing.
    pub arguments: Arguments,
    /// Names of members whose values are never in it.
    pub redact: Vec<Pattern>,
    /// Bytes of one file; a full one is put aside. Default 100 MiB.
    pub max_size: u64,
    /// How many files are kept that were put aside. Default 5.
    pub keep: usize,
}

/// What of the arguments of a call is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arguments {
    /// Nothing.
    #[default]
    Off,
    /// Their SHA-256: which calls had the same ones.
    Hash,
    /// All, but the values of members with certain names.
    Redacted,
}
