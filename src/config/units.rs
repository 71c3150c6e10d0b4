//! Durations, sizes and rates as people write them: a number and its unit, never a bare number.
//!
//! Must not know: keys, files.

use std::fmt;
use std::time::Duration;

use super::Rate;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bytes(pub(crate) u64);

/// Something that is written as a number and a unit.
pub(crate) trait Unit: Copy + Ord + fmt::Debug + Send + Sync + 'static {
    /// What it is called in messages and in the reference.
    const NOUN: &'static str;
    /// How it is written.
    const FORMS: &'static str;

    /// Whether YAML takes it for a number.
    const IS_NUMBER: bool = false;

    /// Reads it; `None` if it is not written so.
    fn parse(text: &str) -> Option<Self>;

    /// What to write where a number was written without its unit, if that can be known.
    fn guess(text: &str) -> Option<String> {
        let _unknown = text;
        None
    }

    /// Writes it, with the largest unit that leaves a whole number.
    fn write(self) -> String;

    /// A regular expression for what [`Self::parse`] reads.
    fn pattern() -> String;
}

const DURATIONS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const SIZES: [(&str, u64); 8] = [
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
];

const PERIODS: [(&str, u64); 12] = [
    ("ms", 1),
    ("s", 1_000),
    ("sec", 1_000),
    ("second", 1_000),
    ("m", 60_000),
    ("min", 60_000),
    ("minute", 60_000),
    ("h", 3_600_000),
    ("hour", 3_600_000),
    ("d", 86_400_000),
    ("day", 86_400_000),
    ("week", 604_800_000),
];

/// Bare numbers from here on are most likely milliseconds.
const LEAST_MILLIS: u64 = 1_000;

impl Unit for Duration {
    const NOUN: &'static str = "duration";
    const FORMS: &'static str = "`500ms`, `30s`, `10m`, `2h` or `1d`";

    fn parse(text: &str) -> Option<Self> {
        let (count, unit) = split(text)?;
        let factor = factor(&DURATIONS, unit)?;
        count.checked_mul(factor).map(Self::from_millis)
    }

    fn guess(text: &str) -> Option<String> {
        let count: u64 = text.parse().ok()?;
        // Programs that count seconds seldom wait so long; those that count milliseconds seldom wait so short.
        if count < LEAST_MILLIS {
            return Some(format!("write `{count}s` if it counts seconds, `{count}ms` if milliseconds"));
        }
        let millis = Self::from_millis(count).write();
        Some(format!("write `{millis}` if it counts milliseconds, `{count}s` if seconds"))
    }

    fn write(self) -> String {
        let millis = u64::try_from(self.as_millis()).unwrap_or(u64::MAX);
        if millis == 0 { "0s".to_owned() } else { whole(millis, &DURATIONS) }
    }

    fn pattern() -> String {
        format!(r"^[0-9]+\s*({})$", names(&DURATIONS))
    }
}

impl Unit for Bytes {
    const NOUN: &'static str = "size";
    const FORMS: &'static str = "`4MiB`, `512KiB`, `1GB` or `1024B`";

    fn parse(text: &str) -> Option<Self> {
        let (count, unit) = split(text)?;
        let factor = factor(&SIZES, unit)?;
        count.checked_mul(factor).map(Self)
    }

    fn guess(text: &str) -> Option<String> {
        let count: u64 = text.parse().ok()?;
        Some(format!("write `{count}B` if it counts bytes, `{count}MiB` if mebibytes"))
    }

    fn write(self) -> String {
        whole(self.0, &SIZES)
    }

    fn pattern() -> String {
        format!(r"^[0-9]+\s*({})$", names(&SIZES))
    }
}

impl Unit for u64 {
    const NOUN: &'static str = "count";
    const FORMS: &'static str = "`100` or `10_000`";
    const IS_NUMBER: bool = true;

    fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('+').unwrap_or(text);
        let is_number = digits.starts_with(|c: char| c.is_ascii_digit())
            && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
        // One that is too large for the type is out of any bounds.
        is_number.then(|| digits.replace('_', "").parse().unwrap_or(Self::MAX))
    }

    fn write(self) -> String {
        self.to_string()
    }

    fn pattern() -> String {
        "^[+]?[0-9][0-9_]*$".to_owned()
    }
}

impl Rate {
    /// How rates are written.
    pub(crate) const FORMS: &'static str =
        "`60/min`, `5/s`, `1000/h`, `10/day` or `1/10s`: 1 to 1000000, in at most 31 days";
    /// The greatest count.
    const MAX_COUNT: u32 = 1_000_000;
    /// The longest period.
    const MAX_PERIOD: Duration = Duration::from_secs(31 * 86_400);

    /// A regular expression for what [`Self::parse`] reads.
    pub(crate) fn pattern() -> String {
        format!(r"^[0-9][0-9_]*\s*/\s*([0-9]+\s*)?({})$", names(&PERIODS))
    }

    /// Reads a rate. `None` if it is not written so, or none at all (`0/s`), or out of bounds.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (count, period) = text.split_once('/')?;
        let count = u32::try_from(u64::parse(count.trim_end())?).ok()?;
        let period = period.trim_start();
        let (times, unit) =
            if period.starts_with(|c: char| c.is_ascii_digit()) { split(period)? } else { (1, period) };
        let millis = factor(&PERIODS, unit)?.checked_mul(times)?;
        let period = Duration::from_millis(millis);
        ((1..=Self::MAX_COUNT).contains(&count) && millis > 0 && period <= Self::MAX_PERIOD)
            .then_some(Self { count, period })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = self.period.write();
        let period = match period.as_str() {
            "1m" => "min",
            "1d" => "day",
            other => other
                .strip_prefix('1')
                .filter(|unit| !unit.starts_with(|c: char| c.is_ascii_digit()))
                .unwrap_or(other),
        };
        write!(formatter, "{}/{period}", self.count)
    }
}

/// The names of units, as alternatives of a regular expression.
fn names(units: &[(&str, u64)]) -> String {
    units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("|")
}

/// A whole number and the unit behind it.
fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = text.split_at_checked(end)?;
    Some((count.parse().ok()?, unit.trim_start()))
}

fn factor(units: &[(&str, u64)], unit: &str) -> Option<u64> {
    units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor)
}

fn whole(count: u64, units: &[(&str, u64)]) -> String {
    let best = units.iter().rev().find(|(_, factor)| count >= *factor && count.is_multiple_of(*factor));
    let (unit, factor) = best.or(units.first()).copied().unwrap_or(("", 1));
    format!("{}{unit}", count / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_carry_units() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("10m", 600_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("0s", 0),
            ("30 s", 30_000),
        ] {
            assert_eq!(Duration::parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "30", "s", "-1s", "1.5s", "30S", "1h30m", "30sec", "18446744073709551615d", "٣s"] {
            assert_eq!(Duration::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_shown_with_its_unit() {
        for (text, wanted) in
            [("60", "write `60s` if"), ("30000", "write `30s` if it counts milliseconds, `30000s`")]
        {
            assert!(Duration::guess(text).unwrap().starts_with(wanted), "{text}");
        }
        assert!(Bytes::guess("1024").unwrap().starts_with("write `1024B` if"));
        for text in ["", "1.5", "60sec", "-1"] {
            assert_eq!((Duration::guess(text), Bytes::guess(text), u64::guess(text)), (None, None, None));
        }
    }

    #[test]
    fn sizes_carry_units() {
        for (text, bytes) in
            [("4MiB", 4 << 20), ("512KiB", 512 << 10), ("1GB", 1_000_000_000), ("1024B", 1024), ("3kB", 3000)]
        {
            assert_eq!(Bytes::parse(text), Some(Bytes(bytes)), "{text}");
        }
        for text in ["", "4", "4M", "4mib", "MiB", "-4MiB", "99999999999GiB"] {
            assert_eq!(Bytes::parse(text), None, "{text}");
        }
    }

    #[test]
    fn rates_carry_a_period() {
        for (text, count, seconds) in [
            ("60/min", 60, 60),
            ("5/s", 5, 1),
            ("1000/h", 1000, 3600),
            ("10/day", 10, 86_400),
            ("1/10s", 1, 10),
            ("60 / min", 60, 60),
        ] {
            assert_eq!(
                Rate::parse(text),
                Some(Rate { count, period: Duration::from_secs(seconds) }),
                "{text}"
            );
        }
        for text in
            ["", "60", "0/s", "60/", "/s", "60/0s", "60/year", "-1/s", "1.5/s", "5000000000/s", "1/1000d"]
        {
            assert_eq!(Rate::parse(text), None, "{text}");
        }
    }

    #[test]
    fn counts_are_whole_decimal_numbers() {
        for (text, count) in
            [("0", 0), ("100", 100), ("10_000", 10_000), ("+5", 5), ("99999999999999999999", u64::MAX)]
        {
            assert_eq!(u64::parse(text), Some(count), "{text}");
        }
        for text in ["", "-1", "1.0", "1e3", "0x10", "_1"] {
            assert_eq!(u64::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for text in ["0s", "500ms", "30s", "90s", "10m", "2h", "1d"] {
            assert_eq!(Duration::parse(text).unwrap().write(), text);
        }
        for text in ["1B", "16MiB", "1GiB", "1500B", "3kB", "1MB"] {
            assert_eq!(Bytes::parse(&Bytes::parse(text).unwrap().write()), Bytes::parse(text));
        }
        for text in ["60/min", "5/s", "1000/h", "10/day", "1/10s", "3/11m"] {
            assert_eq!(Rate::parse(text).unwrap().to_string(), text);
        }
    }
}
