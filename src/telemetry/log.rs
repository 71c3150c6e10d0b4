//! Where log lines go: standard error, at the level and in the form that the configuration says.
//!
//! Must not know: the events.

use std::io::{self, IsTerminal};

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::line::{HumanLine, JsonLine};
use super::writer::{LineQueue, Lines};
use crate::config::{Log, LogFormat};

/// Why the log could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The level is neither a level nor a filter.
    #[error("`{0}` is neither a log level (error, warn, info, debug, trace, off) nor a filter: {1}")]
    Level(String, String),
    /// There is a log already: this is for the beginning of the program only.
    #[error("the log has been set up before")]
    Twice,
    /// There is no thread to write it.
    #[error("the log cannot be written: {0}")]
    Thread(io::Error),
}

/// The log of this process. Dropping it waits until what was said is written, for a second at the most.
#[derive(Debug)]
#[must_use = "the last lines are lost unless this is dropped at the end of the program"]
pub struct OpenLog(LineQueue);

impl Drop for OpenLog {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// Sends the log of this process to standard error, which a thread of its own writes. Colour only on a terminal,
/// and not with `NO_COLOR`.
///
/// # Errors
/// See [`LogError`].
pub fn init(log: &Log) -> Result<OpenLog, LogError> {
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colour = match io::stderr().is_terminal() && !is_plain {
        true => Colour::Ansi,
        false => Colour::None,
    };
    let queue = LineQueue::start(Lines::Log, io::stderr()).map_err(LogError::Thread)?;
    let subscriber = subscriber(log, colour, queue.clone())?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Twice)?;
    Ok(OpenLog(queue))
}

/// Whether `level` is a level or a filter.
///
/// # Errors
/// `LogError::Level` with what is wrong about it.
pub fn check_level(level: &str) -> Result<(), LogError> {
    filter(level).map(drop)
}

/// Whether lines have colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    Ansi,
    None,
}

/// What writes the lines of events to `writer`.
pub(super) fn subscriber<W>(
    log: &Log,
    colour: Colour,
    writer: W,
) -> Result<Box<dyn Subscriber + Send + Sync>, LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_writer(writer)
        .with_ansi(colour == Colour::Ansi)
        // It would print to standard error, which is what just failed, and panic.
        .log_internal_errors(false)
        .with_env_filter(filter(&log.level)?);
    Ok(match log.format {
        LogFormat::Human => Box::new(builder.event_format(HumanLine).finish()),
        LogFormat::Json => Box::new(builder.event_format(JsonLine).finish()),
    })
}

/// A bare level is that of Waypost itself; libraries stay at `warn`, or below where less is asked for.
fn filter(level: &str) -> Result<EnvFilter, LogError> {
    let level = level.trim();
    let directives = match level.to_ascii_lowercase().as_str() {
        bare @ ("off" | "error" | "warn") => bare.to_owned(),
        bare @ ("info" | "debug" | "trace") => format!("warn,waypost={bare}"),
        _ => level.to_owned(),
    };
    let wrong = |why: String| LogError::Level(level.to_owned(), why);
    if level.is_empty() {
        return Err(wrong("it is empty".to_owned()));
    }
    if let Some(part) = directives.split(',').find(|part| is_misspelt_level(part)) {
        return Err(wrong(format!("`{part}` is no level")));
    }
    EnvFilter::try_new(&directives).map_err(|error| wrong(error.to_string()))
}

/// A single word is taken for the name of a library by the filter, so that `inof` would silence everything.
fn is_misspelt_level(directive: &str) -> bool {
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let is_level = levels.iter().any(|level| level.eq_ignore_ascii_case(directive.trim()));
    let is_word = directive.trim().chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    is_word && !is_level
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_filters_are_told_from_misspellings() {
        for good in ["info", "WARN", "off", "trace", "waypost=debug,hyper=warn", "warn,waypost::call=off"] {
            assert!(check_level(good).is_ok(), "{good}");
        }
        for bad in ["", "inof", "info,debgu", "waypost=loud", "a=b=c"] {
            assert!(check_level(bad).is_err(), "{bad}");
        }
    }
}
