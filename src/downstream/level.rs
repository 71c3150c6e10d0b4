//! Levels of log messages, and which of them a client wants.

use crate::mcp::Raw;

/// The levels of MCP, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl Level {
    const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// The names of all levels, for an error message.
    pub(super) const NAMES: &str = "debug, info, notice, warning, error, critical, alert, emergency";

    fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    /// The level that a JSON text names.
    pub(super) fn read(raw: &Raw) -> Option<Self> {
        let name = raw.string()?;
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }

    /// The level as JSON text.
    pub(super) fn raw(self) -> Raw {
        Raw::from_text(self.as_str())
    }
}

/// Which log messages go to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logs {
    /// All that come.
    All,
    /// Those of this level and above. A level that nobody knows counts as above.
    From(Level),
    /// None.
    Off,
}

impl Logs {
    /// Whether a message of the level that `raw` names is wanted.
    pub(super) fn want(self, raw: Option<&Raw>) -> bool {
        match self {
            Self::All => true,
            Self::From(least) => raw.and_then(Level::read).is_none_or(|level| level >= least),
            Self::Off => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_lets_itself_and_what_is_above_through() {
        for (logs, level, expected) in [
            (Logs::All, "debug", true),
            (Logs::Off, "emergency", false),
            (Logs::From(Level::Warning), "notice", false),
            (Logs::From(Level::Warning), "warning", true),
            (Logs::From(Level::Warning), "emergency", true),
            (Logs::From(Level::Warning), "bespoke", true),
        ] {
            assert_eq!(logs.want(Some(&Raw::from_text(level))), expected, "{logs:?} {level}");
        }
        assert_eq!(Level::read(&Raw::from_text("Info")), None);
        for level in Level::ALL {
            assert_eq!(Level::read(&level.raw()), Some(level));
            assert!(Level::NAMES.contains(level.as_str()));
        }
    }
}
