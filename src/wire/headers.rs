//! MCP's HTTP headers: their names, and how text that no header may hold is put into one.
//!
//! Spec: 2026-07-28, basic/transports/streamable-http, "Value Encoding".

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderName;

/// The revision that a request is written in.
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The session that a request belongs to. Legacy revisions only.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The last event that a client has received of a stream that it comes back to. Legacy revisions only.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The method of the request in the body. Modern revisions only.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// What the request in the body names. Modern revisions only.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// What the names of headers begin with that mirror an argument of a tool. Modern revisions only.
pub const PARAM_PREFIX: &str = "mcp-param-";

const OPENING: &str = "=?base64?";
const CLOSING: &str = "?=";

/// A header value claims to be Base64 and is none, or is not UTF-8 inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header value is marked as Base64, but is not valid Base64 of UTF-8 text")]
pub struct BadValue;

/// Writes any text so that a header may hold it: as it is where it is plain visible ASCII, else as
/// `=?base64?…?=`. The result is always a valid header value.
#[must_use]
pub fn encode_value(text: &str) -> Cow<'_, str> {
    let is_plain = text.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
        && !text.starts_with(' ')
        && !text.ends_with(' ')
        && encoded_part(text).is_none();
    if is_plain {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{OPENING}{}{CLOSING}", STANDARD.encode(text)))
}

/// Reads what [`encode_value`] wrote; a value without the marks is itself.
///
/// # Errors
/// If the value has both marks and between them no Base64 of UTF-8 text.
pub fn decode_value(value: &str) -> Result<Cow<'_, str>, BadValue> {
    let Some(encoded) = encoded_part(value) else {
        return Ok(Cow::Borrowed(value));
    };
    let bytes = STANDARD.decode(encoded).map_err(|_| BadValue)?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| BadValue)
}

fn encoded_part(value: &str) -> Option<&str> {
    value.strip_prefix(OPENING)?.strip_suffix(CLOSING)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_specification_hold() {
        for (text, value) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("", ""),
            ("a b", "a b"),
            ("=?base64?=", "=?base64?="),
            ("=?BASE64?eA==?=", "=?BASE64?eA==?="),
        ] {
            assert_eq!(encode_value(text), value, "{text:?}");
            assert_eq!(decode_value(value).unwrap(), text, "{value:?}");
        }
    }

    #[test]
    fn what_is_marked_and_no_base64_is_refused() {
        for bad in ["=?base64?%%?=", "=?base64?eA?=", "=?base64?/w==?=", "=?base64? eA==?="] {
            assert_eq!(decode_value(bad), Err(BadValue), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_survives_and_fits_a_header(text in any::<String>()) {
            let value = encode_value(&text);
            prop_assert!(HeaderValue::from_str(&value).is_ok());
            prop_assert_eq!(decode_value(&value).unwrap(), text.as_str());
        }
    }
}
