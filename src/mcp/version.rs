//! Revisions of the protocol, and what each has. The only place where versions are compared.

/// The two eras of MCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// Revisions with the `initialize` handshake, up to 2025-11-25.
    Legacy,
    /// Revisions in which every request stands alone, from 2026-07-28 on.
    Modern,
}

/// A revision that Waypost speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ProtocolVersion {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

impl ProtocolVersion {
    /// All, oldest first.
    pub const ALL: [Self; 5] =
        [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25, Self::V2026_07_28];
    /// The newest with a handshake.
    pub const NEWEST_LEGACY: Self = Self::V2025_11_25;
    /// The newest.
    pub const NEWEST: Self = Self::V2026_07_28;

    /// The date, as it goes over the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The revision with this date.
    #[must_use]
    pub fn known(date: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == date)
    }

    /// The era that it belongs to.
    #[must_use]
    pub fn era(self) -> Era {
        if self >= Self::V2026_07_28 { Era::Modern } else { Era::Legacy }
    }

    /// What `initialize` answers to the version that a client asks for: itself where it is known and has a
    /// handshake, else the newest that has one.
    #[must_use]
    pub fn negotiate(asked: &str) -> Self {
        Self::known(asked).filter(|version| version.era() == Era::Legacy).unwrap_or(Self::NEWEST_LEGACY)
    }

    /// Whether requests may come as a JSON array. Only 2025-03-26 has that.
    #[must_use]
    pub fn has_batches(self) -> bool {
        self == Self::V2025_03_26
    }

    /// Whether streams begin with an event that has an id and no message. Older clients take that for a broken one.
    #[must_use]
    pub fn has_priming_events(self) -> bool {
        self >= Self::V2025_11_25
    }

    /// Whether implementations have titles.
    #[must_use]
    pub fn has_titles(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// Whether implementations have icons, descriptions and websites.
    #[must_use]
    pub fn has_icons(self) -> bool {
        self >= Self::V2025_11_25
    }

    /// Whether a caller may ask for a task. Only 2025-11-25 has that.
    #[must_use]
    pub fn has_tasks_by_caller(self) -> bool {
        self == Self::V2025_11_25
    }

    /// Whether `text` has the form of a revision, known or not (`YYYY-MM-DD`).
    #[must_use]
    pub fn is_well_formed(text: &str) -> bool {
        let bytes = text.as_bytes();
        bytes.len() == 10
            && bytes.iter().enumerate().all(|(index, byte)| match index {
                4 | 7 => *byte == b'-',
                _ => byte.is_ascii_digit(),
            })
    }
}

impl std::fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiation_never_fails() {
        for (asked, given) in [
            ("2024-11-05", "2024-11-05"),
            ("2025-06-18", "2025-06-18"),
            ("2025-11-25", "2025-11-25"),
            ("2026-07-28", "2025-11-25"),
            ("2099-01-01", "2025-11-25"),
            ("", "2025-11-25"),
            ("1.0", "2025-11-25"),
        ] {
            assert_eq!(ProtocolVersion::negotiate(asked).as_str(), given, "{asked}");
        }
    }

    #[test]
    fn the_form_of_a_version_is_a_date() {
        assert!(ProtocolVersion::is_well_formed("2099-01-01"));
        for bad in ["foobar", "2025/11/25", "2025-1-1", "", "2025-11-25 ", "２025-11-25"] {
            assert!(!ProtocolVersion::is_well_formed(bad), "{bad}");
        }
    }
}
