//! From a finding, which knows a place in the text, to a problem, which shows its line.
//!
//! Must not know: what is a secret, only where secrets stand. Nothing that is masked gets out of here.

use std::sync::Arc;

use super::problem::{Place, Problem, SECRET, Severity};
use super::tree::Span;

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

/// The text that findings are about, and where its secrets stand.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    file: Arc<str>,
    text: &'a str,
    /// Where each line begins.
    lines: Vec<usize>,
    /// Ranges of bytes, in order, apart from each other.
    masks: Vec<(usize, usize)>,
}

/// Longest line that is shown whole, in characters.
const LINE_WIDTH: usize = 120;
/// Of a longer line, so many bytes to each side are looked at.
const WINDOW: usize = 1_024;
/// Longest message, in characters: keys and values are repeated in them.
const MESSAGE_WIDTH: usize = 400;

impl<'a> Source<'a> {
    /// `masks` are the ranges of bytes that must not be shown.
    pub(crate) fn new(file: Arc<str>, text: &'a str, mut masks: Vec<(usize, usize)>) -> Self {
        masks.sort_unstable();
        masks.dedup_by(|next, before| {
            let is_joined = next.0 <= before.1;
            if is_joined {
                before.1 = before.1.max(next.1);
            }
            is_joined
        });
        // The mark that some editors put first is no part of the first line.
        let first = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(first).chain(breaks).collect();
        Self { file, text, lines, masks }
    }

    pub(crate) fn problem(&self, finding: Finding) -> Problem {
        let Finding { severity, message, span, help } = finding;
        let help = help.iter().map(|help| one_line(help)).collect();
        Problem { severity, message: one_line(&message), place: span.map(|span| self.place(span)), help }
    }

    fn place(&self, span: Span) -> Place {
        let (line_start, line) = self.line(span.line);
        // A span without bytes has a line and a column only.
        let start = match span.start.checked_sub(line_start) {
            Some(start) if span.start > 0 && start <= line.len() => start,
            _ => char_offset(line, span.column.saturating_sub(1)),
        };
        let wanted = span.end.saturating_sub(span.start);
        let end = start.saturating_add(wanted).min(line.trim_end().len()).max(start);
        let from = line.floor_char_boundary(start.saturating_sub(WINDOW));
        let to = line.ceil_char_boundary(start.saturating_add(WINDOW));
        let mut shown = Shown { is_cut_before: from > 0, is_cut_after: to < line.len(), ..Shown::default() };
        let mut offset = from;
        while let Some(character) = line.get(offset..to).and_then(|rest| rest.chars().next()) {
            let masked = self.mask_end(line_start + offset);
            let next = masked.map_or(offset + character.len_utf8(), |end| (end - line_start).min(line.len()));
            if offset <= start && start < next {
                shown.before = shown.text.len();
            }
            let length = shown.text.len();
            match masked {
                Some(_) => shown.text.extend(SECRET.chars()),
                None => shown.text.push(if character.is_control() { ' ' } else { character }),
            }
            if offset < end && start < next {
                shown.length += shown.text.len() - length;
            }
            offset = next;
        }
        if start >= offset {
            shown.before = shown.text.len();
        }
        let (text, underline) = shown.cut();
        Place { file: Arc::clone(&self.file), line: span.line, column: span.column, text, underline }
    }

    /// A line by its number, and the offset of its first byte.
    fn line(&self, number: usize) -> (usize, &str) {
        let Some(start) = number.checked_sub(1).and_then(|at| self.lines.get(at)) else {
            return (self.text.len(), "");
        };
        let end = self.lines.get(number).copied().unwrap_or(self.text.len());
        (*start, self.text.get(*start..end).unwrap_or_default().trim_end_matches(['\n', '\r']))
    }

    /// The end of the secret that this byte is in.
    fn mask_end(&self, offset: usize) -> Option<usize> {
        let after = self.masks.partition_point(|(start, _)| *start <= offset);
        let (_, end) = self.masks.get(after.checked_sub(1)?)?;
        (offset < *end).then_some(*end)
    }
}

/// A piece of a line, and which of its characters are meant.
#[derive(Debug, Default)]
struct Shown {
    text: Vec<char>,
    before: usize,
    length: usize,
    is_cut_before: bool,
    is_cut_after: bool,
}

impl Shown {
    /// Cuts it to a width that a terminal shows, around the start of what is meant.
    fn cut(self) -> (String, (usize, usize)) {
        let length = self.length.max(1);
        let first = match self.text.len().checked_sub(LINE_WIDTH) {
            Some(spare) => self.before.saturating_sub(LINE_WIDTH / 3).min(spare),
            None => 0,
        };
        let head = if first > 0 || self.is_cut_before { "… " } else { "" };
        let tail = if first + LINE_WIDTH < self.text.len() || self.is_cut_after { " …" } else { "" };
        let window: String = self.text.iter().skip(first).take(LINE_WIDTH).collect();
        let before = self.before - first;
        let length = length.min(LINE_WIDTH.saturating_sub(before)).max(1);
        (format!("{head}{window}{tail}"), (before + head.chars().count(), length))
    }
}

/// The offset of the character with this index.
fn char_offset(line: &str, index: usize) -> usize {
    line.char_indices().nth(index).map_or(line.len(), |(offset, _)| offset)
}

/// A message may repeat what stands in the file: nothing in it may steer a terminal, or flood it.
fn one_line(message: &str) -> String {
    let mut out = String::with_capacity(message.len().min(MESSAGE_WIDTH));
    for (at, character) in message.chars().enumerate() {
        if at == MESSAGE_WIDTH {
            out.push('…');
            break;
        }
        if character.is_control() {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, masks: &[(usize, usize)], span: Span) -> String {
        let source = Source::new("f.yaml".into(), text, masks.to_vec());
        source.problem(Finding::error("wrong").at(span).help("do right")).to_string()
    }

    #[test]
    fn reads_like_a_compiler() {
        let span = Span { start: 5, end: 10, line: 2, column: 3 };
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
    fn a_place_far_into_a_huge_line_is_found_soon() {
        let text = format!("{}X{}", "ü".repeat(100_000), "secret".repeat(100_000));
        let span = Span { start: 200_000, end: 200_001, line: 1, column: 100_001 };
        let shown = shown(&text, &[(200_001, text.len())], span);
        assert!(shown.contains("X‹secret›"), "{shown}");
        assert!(!shown.contains("secretsecret") && shown.contains("| … ü"), "{shown}");
    }

    #[test]
    fn messages_cannot_steer_a_terminal() {
        let source = Source::new("f".into(), "", Vec::new());
        let problem =
            source.problem(Finding::error(format!("a\u{1b}[31m\n{}", "x".repeat(10_000))).help("\r"));
        assert!(problem.message.starts_with("a\\u{1b}[31m\\nxxx") && problem.message.len() < 500);
        assert_eq!(problem.help, ["\\r"]);
    }

    #[test]
    fn overlapping_secrets_are_one() {
        let text = "abcdefgh";
        let shown = shown(text, &[(3, 5), (1, 4), (1, 2)], Span { start: 6, end: 7, line: 1, column: 7 });
        assert!(shown.contains("1 | a‹secret›fgh\n"), "{shown}");
    }
}
