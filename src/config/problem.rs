//! Findings about the configuration, and how a person reads them: what, where, the line itself, what to do.
//!
//! Must not know: keys. A secret never gets in here: the lines are masked before they are kept.

use std::fmt;
use std::sync::Arc;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// It can be used, and most likely does not do what was meant.
    Warning,
}

/// One finding about the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, in one line.
    pub message: String,
    /// Where, if it is about a place.
    pub place: Option<Place>,
    /// What to do about it.
    pub help: Vec<String>,
}

/// A place in the file, and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as it was named by whoever loaded it.
    pub file: Arc<str>,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// The line, secrets masked, long ones cut.
    pub text: String,
    /// Which characters of `text` are meant: how many stand before them, and how many they are.
    pub underline: (usize, usize),
}

/// All that is wrong with a configuration, in the order of the file. Displayed as a person reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// So many are displayed; the rest is counted.
    const SHOWN: usize = 50;

    /// The findings, each once, in the order of the file.
    pub(crate) fn new(mut problems: Vec<Problem>) -> Self {
        let position = |problem: &Problem| problem.place.as_ref().map(|place| (place.line, place.column));
        problems.sort_by_key(|problem| position(problem).unwrap_or((usize::MAX, 0)));
        problems.dedup();
        Self(problems)
    }

    /// The findings.
    #[must_use]
    pub fn as_slice(&self) -> &[Problem] {
        &self.0
    }

    /// How many errors and warnings there are, in words.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = |severity| self.0.iter().filter(|problem| problem.severity == severity).count();
        let words = |count: usize, noun: &str| match count {
            1 => format!("1 {noun}"),
            count => format!("{count} {noun}s"),
        };
        let errors = words(count(Severity::Error), "error");
        match count(Severity::Warning) {
            0 => errors,
            warnings => format!("{errors}, {}", words(warnings, "warning")),
        }
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().take(Self::SHOWN).enumerate() {
            if at > 0 {
                formatter.write_str("\n")?;
            }
            problem.fmt(formatter)?;
        }
        match self.0.len().checked_sub(Self::SHOWN) {
            Some(more) if more > 0 => writeln!(formatter, "\n… and {more} more"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        writeln!(formatter, "{severity}: {}", self.message)?;
        let width = self.place.as_ref().map_or(1, |place| place.line.to_string().len());
        if let Some(place) = &self.place {
            let (before, length) = place.underline;
            writeln!(formatter, "{:width$}--> {}:{}:{}", "", place.file, place.line, place.column)?;
            writeln!(formatter, "{:width$} |", "")?;
            writeln!(formatter, "{}", format!("{} | {}", place.line, place.text).trim_end())?;
            writeln!(formatter, "{:width$} | {:before$}{}", "", "", "^".repeat(length.max(1)))?;
        }
        for help in &self.help {
            writeln!(formatter, "{:width$} = help: {help}", "")?;
        }
        Ok(())
    }
}

/// What stands for a secret.
pub(crate) const SECRET: &str = "‹secret›";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_problems_are_counted() {
        let problem = |at: usize| Problem {
            severity: Severity::Error,
            message: at.to_string(),
            place: None,
            help: Vec::new(),
        };
        let shown = Problems::new((0..60).map(problem).collect()).to_string();
        assert!(shown.ends_with("… and 10 more\n"), "{shown}");
    }
}
