//! The two forms of a log line: for people, and JSON with flat fields.
//!
//! Everything that came from a peer is escaped: control characters, line breaks, and the invisible
//! characters that turn text around never reach a terminal or a log file as they are.
//!
//! Must not know: the events.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::registry::LookupSpan;

/// Bytes of one field that are written; what was emitted may be clipped further.
const MAX_FIELD: usize = 4_096;

/// The beginning of `text`: at most `max` bytes, ending between characters.
pub(super) fn clip(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}

/// The form of log lines for people: `time LEVEL event key=value …`.
#[derive(Clone, Copy, Debug)]
pub(super) struct HumanLine;

/// The form of log lines for machines: one flat JSON object.
#[derive(Clone, Copy, Debug)]
pub(super) struct JsonLine;

impl<S, N> FormatEvent<S, N> for HumanLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        let (colour, dim, end) = match writer.has_ansi_escapes() {
            true => (colour_of(level), "\x1b[2m", "\x1b[0m"),
            false => ("", "", ""),
        };
        writer.write_str(dim)?;
        SystemTime.format_time(&mut writer)?;
        write!(writer, "{end} {colour}{level:>5}{end} ")?;
        let has_name = is_ours(event);
        if !has_name {
            write!(writer, "{dim}{}:{end}", event.metadata().target())?;
        }
        let mut fields = HumanFields { writer: &mut writer, dim, end, has_name, result: Ok(()) };
        event.record(&mut fields);
        fields.result?;
        writer.write_char('\n')
    }
}

fn colour_of(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        _ => "\x1b[34m",
    }
}

/// The time now, as lines have it.
pub(super) fn timestamp() -> String {
    let mut text = String::new();
    // Writing to a text does not fail.
    let _infallible = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// Whether the line is one of an event of ours, whose first field is its name.
fn is_ours(event: &Event<'_>) -> bool {
    let metadata = event.metadata();
    metadata.target().starts_with("waypost")
        && metadata.fields().iter().next().is_some_and(|field| field.name() == "event")
}

struct HumanFields<'a, 'w> {
    writer: &'a mut Writer<'w>,
    dim: &'static str,
    end: &'static str,
    has_name: bool,
    result: fmt::Result,
}

impl HumanFields<'_, '_> {
    fn field(&mut self, field: &Field, value: &dyn fmt::Display, form: Form) {
        if self.result.is_ok() {
            self.result = self.write(field, value, form);
        }
    }

    fn write(&mut self, field: &Field, value: &dyn fmt::Display, form: Form) -> fmt::Result {
        let form = match field.name() {
            "event" if self.has_name => Form::Bare,
            "message" => {
                self.writer.write_char(' ')?;
                Form::Bare
            }
            name => {
                write!(self.writer, " {}{name}={}", self.dim, self.end)?;
                form
            }
        };
        form.open(self.writer)?;
        write!(Escaper::new(self.writer, Dialect::Rust), "{value}")?;
        form.close(self.writer)
    }
}

/// Whether a value stands in quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Bare,
    Quoted,
}

impl Form {
    /// Text that could be taken for more than one value, or for none, is quoted.
    fn of(text: &str) -> Self {
        let is_plain = |c: char| c.is_alphanumeric() || "_-./:*,+@~%".contains(c);
        if !text.is_empty() && text.chars().all(is_plain) { Self::Bare } else { Self::Quoted }
    }

    fn open(self, out: &mut dyn Write) -> fmt::Result {
        if self == Self::Quoted { out.write_char('"') } else { Ok(()) }
    }

    fn close(self, out: &mut dyn Write) -> fmt::Result {
        self.open(out)
    }
}

impl Visit for HumanFields<'_, '_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.field(field, &value, Form::of(clip(value, MAX_FIELD)));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.field(field, &value, Form::Bare);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.field(field, &value, Form::Bare);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.field(field, &value, Form::Bare);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.field(field, &value, Form::Bare);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = debug_text(value);
        self.field(field, &text, Form::of(&text));
    }
}

/// What a value says of itself, up to what a line takes.
fn debug_text(value: &dyn fmt::Debug) -> String {
    let mut text = Bounded(String::new());
    // Ends with an error once the bound is reached, with the beginning in place.
    let _ended_early = write!(text, "{value:?}");
    text.0
}

struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_FIELD.saturating_sub(self.0.len());
        let taken = clip(text, room);
        self.0.push_str(taken);
        if taken.len() < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        writer.write_str("{\"ts\":\"")?;
        SystemTime.format_time(&mut writer)?;
        let metadata = event.metadata();
        let level = match *metadata.level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            _ => "trace",
        };
        write!(writer, "\",\"level\":\"{level}\",\"target\":\"{}\"", metadata.target())?;
        let mut fields = JsonFields { writer: &mut writer, result: Ok(()) };
        event.record(&mut fields);
        fields.result?;
        writer.write_str("}\n")
    }
}

struct JsonFields<'a, 'w> {
    writer: &'a mut Writer<'w>,
    result: fmt::Result,
}

impl JsonFields<'_, '_> {
    fn field(&mut self, field: &Field, form: Form, value: &dyn fmt::Display) {
        if self.result.is_ok() {
            self.result = self.write(field.name(), form, value);
        }
    }

    fn write(&mut self, name: &str, form: Form, value: &dyn fmt::Display) -> fmt::Result {
        // A field of a library must not stand for one of the line's own.
        let mark = if matches!(name, "ts" | "level" | "target") { "_" } else { "" };
        write!(self.writer, ",\"{name}{mark}\":")?;
        form.open(self.writer)?;
        write!(Escaper::new(self.writer, Dialect::Json), "{value}")?;
        form.close(self.writer)
    }
}

impl Visit for JsonFields<'_, '_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.field(field, Form::Quoted, &value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // Infinity and its like are no numbers of JSON.
        self.field(field, if value.is_finite() { Form::Bare } else { Form::Quoted }, &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.field(field, Form::Bare, &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.field(field, Form::Bare, &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.field(field, Form::Bare, &value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.field(field, Form::Quoted, &debug_text(value));
    }
}

/// How an escape is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// `\u{1b}`
    Rust,
    /// `\u001b`
    Json,
}

/// Writes text on, escaped and clipped.
struct Escaper<'a> {
    out: &'a mut dyn Write,
    dialect: Dialect,
    room: usize,
}

impl<'a> Escaper<'a> {
    fn new(out: &'a mut dyn Write, dialect: Dialect) -> Self {
        Self { out, dialect, room: MAX_FIELD }
    }

    fn escape(&mut self, c: char) -> fmt::Result {
        match (c, self.dialect) {
            ('\n', _) => self.out.write_str("\\n"),
            ('\r', _) => self.out.write_str("\\r"),
            ('\t', _) => self.out.write_str("\\t"),
            ('"' | '\\', _) => write!(self.out, "\\{c}"),
            (_, Dialect::Rust) => write!(self.out, "\\u{{{:x}}}", u32::from(c)),
            (_, Dialect::Json) => write!(self.out, "\\u{:04x}", u32::from(c)),
        }
    }
}

/// Whether a character must not stand in a line as it is. All of these have at most four hex digits.
fn is_escaped(c: char) -> bool {
    matches!(c, '"' | '\\')
        || c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl Write for Escaper<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = clip(text, self.room);
        let is_clipped = rest.len() < text.len();
        self.room = if is_clipped { 0 } else { self.room - rest.len() };
        while let Some(at) = rest.find(is_escaped) {
            let (plain, tail) = rest.split_at(at);
            self.out.write_str(plain)?;
            let mut chars = tail.chars();
            if let Some(c) = chars.next() {
                self.escape(c)?;
            }
            rest = chars.as_str();
        }
        self.out.write_str(rest)?;
        if is_clipped { self.out.write_str("…") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str, dialect: Dialect) -> String {
        let mut out = String::new();
        write!(Escaper::new(&mut out, dialect), "{text}").unwrap();
        out
    }

    #[test]
    fn json_escapes_are_read_back_as_the_text() {
        for text in ["", "plain", "\"\\", "a\nb\r\tc", "\0\x1b[31m\x7f\u{85}", "\u{202e}\u{2028}\u{feff}é✓😀"]
        {
            let escaped = escaped(text, Dialect::Json);
            assert!(!escaped.chars().any(char::is_control), "{escaped}");
            assert_eq!(serde_json::from_str::<String>(&format!("\"{escaped}\"")).unwrap(), text);
        }
    }

    #[test]
    fn terminals_get_no_control_characters() {
        assert_eq!(escaped("a\x1b[2J\u{202e}\u{9b}", Dialect::Rust), r"a\u{1b}[2J\u{202e}\u{9b}");
    }

    #[test]
    fn long_text_is_clipped_between_characters() {
        let long = "é".repeat(MAX_FIELD);
        let escaped = escaped(&long, Dialect::Json);
        assert!(escaped.len() <= MAX_FIELD + "…".len() && escaped.ends_with('…'));
        assert_eq!(clip("aé", 2), "a");
        assert_eq!(clip("aé", 3), "aé");
        assert_eq!(debug_text(&long).len(), MAX_FIELD - 1);
    }
}
