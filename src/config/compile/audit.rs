//! The audit log.

use std::path::PathBuf;

use super::access;
use crate::config::effective::{self, Origin};
use crate::config::reference as keys;
use crate::config::section::Section;
use crate::config::source::Finding;
use crate::config::{Arguments, Audit, Pattern};

/// Names of members that hold secrets more often than not.
const REDACT: [&str; 7] =
    ["*token*", "*secret*", "*password*", "*passwd*", "*authorization*", "*api*key*", "*credential*"];

/// Reads the audit log, if there is to be one.
pub(crate) fn audit(top: &mut Section<'_>) -> Option<Audit> {
    if !top.has(keys::AUDIT_KEY.name) {
        top.out.put_unset(keys::AUDIT_KEY.name);
        return None;
    }
    Some(top.within(&keys::AUDIT_KEY, |section| {
        let arguments = match section.choice(&keys::AUDIT_ARGUMENTS) {
            "hash" => Arguments::Hash,
            "redacted" => Arguments::Redacted,
            _ => Arguments::Off,
        };
        Audit {
            file: file(section),
            arguments,
            redact: redact(section),
            max_size: section.bounded(&keys::AUDIT_MAX_SIZE).map_or(0, |bytes| bytes.0),
            keep: section.count(&keys::AUDIT_KEEP).unwrap_or_default(),
        }
    }))
}

fn file(section: &mut Section<'_>) -> Option<PathBuf> {
    let Some(text) = section.text(&keys::AUDIT_FILE) else {
        if !section.has(keys::AUDIT_FILE.name) {
            section.out.put(keys::AUDIT_FILE.name, effective::scalar("-"), Origin::Default);
        }
        return None;
    };
    if text.value.is_empty() {
        section.report(Finding::error("`file` is empty").at(text.span).help("`-` is stderr"));
    }
    (text.value != "-").then(|| PathBuf::from(text.value))
}

fn redact(section: &mut Section<'_>) -> Vec<Pattern> {
    if section.has(keys::AUDIT_REDACT.name) {
        let patterns = access::names(section, &keys::AUDIT_REDACT);
        let lower = |pattern: &Pattern| Pattern::on_line(&pattern.as_str().to_lowercase(), pattern.line());
        return patterns.iter().map(lower).collect();
    }
    section.out.put(keys::AUDIT_REDACT.name, effective::list(REDACT), Origin::Default);
    REDACT.into_iter().map(|text| Pattern::on_line(text, 0)).collect()
}
