//! Findings about the configuration, and how a person reads them: what, where, the line itself, what to do.
//!
//! Must not know: keys. A secret never gets in here: the lines are masked before they are kept.

use std::fmt;
use std::sync::Arc;

use super::tree::Span;

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

/// What a reader finds; becomes a [`Problem`] once it is known what must be masked.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) message: String,
    pub(crate) span: Option<Span>,
    pub(crate) help: Vec<String>,
}

impl Finding {
    pub(crate) fn error(message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, message: message.into(), span: None, help: Vec::new() }
    }

    pub(crate) fn warning(message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(message) }
    }

    pub(crate) fn at(self, span: Span) -> Self {
        Self { span: Some(span), ..self }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }
}

/// The text that findings are about, and which of its bytes are secrets.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    pub(crate) file: Arc<str>,
    pub(crate) text: &'a str,
    pub(crate) masks: Vec<(usize, usize)>,
}

/// What stands for a secret.
pub(crate) const SECRET: &str = "‹secret›";
/// Longest line that is shown whole, in characters.
const LINE_WIDTH: usize = 120;

impl Source<'_> {
    pub(crate) fn problem(&self, finding: Finding) -> Problem {
        let Finding { severity, message, span, help } = finding;
        Problem { severity, message, place: span.map(|span| self.place(span)), help }
    }

    fn place(&self, span: Span) -> Place {
        let (line_start, line) = self.line(span.line);
        let start = char_offset(line, span.column.saturating_sub(1));
        let wanted = span.end.saturating_sub(span.start);
        let end = start.saturating_add(wanted).min(line.trim_end().len()).max(start);
        let mut shown = Vec::new();
        let mut underline = (usize::MAX, 0);
        let mut offset = 0;
        while let Some(character) = line.get(offset..).and_then(|rest| rest.chars().next()) {
            if (start..end.max(start + 1)).contains(&offset) || (offset > start && underline.0 == usize::MAX)
            {
                underline.0 = underline.0.min(shown.len());
            }
            let before = shown.len();
            let next = match self.mask_end(line_start + offset) {
                Some(masked) => {
                    shown.extend(SECRET.chars());
                    (masked - line_start).clamp(offset + 1, line.len())
                }
                None => {
                    shown.push(if character.is_control() { ' ' } else { character });
                    offset + character.len_utf8()
                }
            };
            if offset < end && next > start {
                underline.1 += shown.len() - before;
            }
            offset = next;
        }
        if underline.0 == usize::MAX {
            underline.0 = shown.len();
        }
        let (text, underline) = cut(&shown, underline);
        Place { file: Arc::clone(&self.file), line: span.line, column: span.column, text, underline }
    }

    /// A line by its number, and the offset of its first byte. The mark that some editors put first is no part.
    fn line(&self, number: usize) -> (usize, &str) {
        let mut start = if self.text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let text = self.text.get(start..).unwrap_or_default();
        for (at, line) in text.split_inclusive('\n').enumerate() {
            if at + 1 == number {
                return (start, line.trim_end_matches(['\n', '\r']));
            }
            start += line.len();
        }
        (start, "")
    }

    /// The end of the secret that this byte is in.
    fn mask_end(&self, offset: usize) -> Option<usize> {
        self.masks.iter().filter(|(start, end)| (*start..*end).contains(&offset)).map(|(_, end)| *end).max()
    }
}

/// The offset of the character with this index.
fn char_offset(line: &str, index: usize) -> usize {
    line.char_indices().nth(index).map_or(line.len(), |(offset, _)| offset)
}

/// Cuts a long line to a window that holds the start of what is meant.
fn cut(line: &[char], (before, length): (usize, usize)) -> (String, (usize, usize)) {
    let length = length.max(1);
    if line.len() <= LINE_WIDTH {
        return (line.iter().collect(), (before, length));
    }
    let first = before.saturating_sub(LINE_WIDTH / 3).min(line.len() - LINE_WIDTH);
    let window: String = line.iter().skip(first).take(LINE_WIDTH).collect();
    let head = if first > 0 { "… " } else { "" };
    let tail = if first + LINE_WIDTH < line.len() { " …" } else { "" };
    let before = before - first;
    let length = length.min(LINE_WIDTH.saturating_sub(before)).max(1);
    (format!("{head}{window}{tail}"), (before + head.chars().count(), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, masks: &[(usize, usize)], span: Span) -> String {
        let source = Source { file: "f.yaml".into(), text, masks: masks.to_vec() };
        source.problem(Finding::error("wrong").at(span).help("do right")).to_string()
    }

    #[test]
    fn reads_like_a_compiler() {
        let span = Span { start: 7, end: 12, line: 2, column: 3 };
        let wanted = "error: wrong\n --> f.yaml:2:3\n  |\n2 |   tokns: 1\n  |   ^^^^^\n  = help: do right\n";
        assert_eq!(shown("a:\n  tokns: 1\n", &[], span), wanted);
    }

    #[test]
    fn secrets_are_masked_and_the_caret_still_points() {
        let text = "t: [abc, zz]\n";
        let wanted = "error: wrong\n --> f.yaml:1:10\n  |\n1 | t: [‹secret›, zz]\n  |               ^^\n  = help: do right\n";
        assert_eq!(shown(text, &[(4, 7)], Span { start: 9, end: 11, line: 1, column: 10 }), wanted);
        let wanted = "error: wrong\n --> f.yaml:1:5\n  |\n1 | t: [‹secret›, zz]\n  |     ^^^^^^^^\n  = help: do right\n";
        assert_eq!(shown(text, &[(4, 7)], Span { start: 4, end: 7, line: 1, column: 5 }), wanted);
    }

    #[test]
    fn a_secret_over_several_lines_is_masked_on_each() {
        let text = "t: |\n  abc\n  def\nu: 1\n";
        let masks = [(7, 17)];
        assert!(
            shown(text, &masks, Span { start: 7, end: 17, line: 2, column: 3 }).contains("2 |   ‹secret›\n")
        );
        assert!(
            shown(text, &masks, Span { start: 13, end: 14, line: 3, column: 3 }).contains("3 | ‹secret›\n")
        );
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let text = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let shown = shown(&text, &[], Span { start: 500, end: 501, line: 1, column: 501 });
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[3].chars().count() < 140);
        let caret = lines[4].chars().position(|c| c == '^').unwrap();
        assert_eq!(lines[3].chars().nth(caret), Some('X'));
    }

    #[test]
    fn places_past_the_end_do_no_harm() {
        for span in [
            Span { start: 99, end: 120, line: 9, column: 9 },
            Span { start: 4, end: 4, line: 1, column: 5 },
            Span::default(),
        ] {
            assert!(shown("ä: ü", &[(0, 99)], span).contains('^'));
        }
    }

    #[test]
    fn marks_and_tabs_do_not_shift_the_caret() {
        let shown = shown("\u{feff}a:\tX\r\n", &[], Span { start: 6, end: 7, line: 1, column: 4 });
        assert!(shown.contains("1 | a: X\n  |    ^\n"), "{shown}");
    }

    #[test]
    fn many_problems_are_counted() {
        let problem = |at: usize| {
            Source { file: "f".into(), text: "", masks: vec![] }.problem(Finding::error(at.to_string()))
        };
        let shown = Problems::new((0..60).map(problem).collect()).to_string();
        assert!(shown.ends_with("… and 10 more\n"), "{shown}");
    }
}
