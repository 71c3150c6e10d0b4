//! The id of a request.

use bytes::Bytes;

/// The id of a JSON-RPC request: a string or an integer of any size, kept as its text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Id(Bytes);

impl Id {
    /// Takes the text of an id, if it is one that MCP allows: a string, or a number without fraction and
    /// exponent. `null`, floats, booleans and objects are none.
    #[must_use]
    pub fn from_text(text: Bytes) -> Option<Self> {
        let (first, rest) = text.split_first()?;
        let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let good = match first {
            b'"' => true,
            b'-' => digits(rest),
            _ => digits(&text),
        };
        good.then_some(Self(text))
    }

    /// The text, quotes included where it is a string.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The number, if this is one that fits.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        std::str::from_utf8(&self.0).ok()?.parse().ok()
    }
}

impl From<u64> for Id {
    fn from(number: u64) -> Self {
        Self(Bytes::from(number.to_string()))
    }
}

impl std::fmt::Debug for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_strings_and_integers_are_ids() {
        for good in ["0", "-7", "\"\"", "\"a\"", "340282366920938463463374607431768211456"] {
            assert!(Id::from_text(Bytes::from(good)).is_some(), "{good}");
        }
        for bad in ["null", "1.5", "1e2", "true", "{}", "[]", "-", ""] {
            assert!(Id::from_text(Bytes::from(bad)).is_none(), "{bad}");
        }
    }
}
