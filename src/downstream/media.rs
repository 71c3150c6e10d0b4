//! What a client sends and what it takes: `Content-Type`, `Content-Encoding`, `Accept`.
//!
//! Must not know: MCP.

use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName};

use crate::translate::from_legacy::Asking;

/// The two types in which an answer can come, as far as the client takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepts {
    /// JSON or an event stream.
    Both,
    /// One JSON document.
    Json,
    /// An event stream.
    Stream,
    /// Neither.
    Nothing,
}

impl Accepts {
    /// Reads `Accept`; without one, or with an empty one, anything is taken.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let ranges = values.flat_map(|value| value.split(',')).filter(|range| !range.trim().is_empty());
        let mut ranges = ranges.peekable();
        if ranges.peek().is_none() {
            return Self::Both;
        }
        let (mut json, mut stream) = (false, false);
        for range in ranges {
            let (name, parameters) = range.split_once(';').unwrap_or((range, ""));
            if parameters.split(';').any(is_refusal) {
                continue;
            }
            let covers =
                |options: &[&str]| options.iter().any(|name_| name.trim().eq_ignore_ascii_case(name_));
            json |= covers(&["*/*", "application/*", "application/json"]);
            stream |= covers(&["*/*", "text/*", "text/event-stream"]);
        }
        match (json, stream) {
            (true, true) => Self::Both,
            (true, false) => Self::Json,
            (false, true) => Self::Stream,
            (false, false) => Self::Nothing,
        }
    }

    pub(super) fn takes_json(self) -> bool {
        matches!(self, Self::Both | Self::Json)
    }

    pub(super) fn takes_stream(self) -> bool {
        matches!(self, Self::Both | Self::Stream)
    }

    /// Whether the client can be asked on the stream of its call.
    pub(super) fn asking(self) -> Asking {
        match self.takes_stream() {
            true => Asking::Possible,
            false => Asking::Impossible,
        }
    }
}

/// Whether a parameter is a quality of zero.
fn is_refusal(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else { return false };
    name.trim().eq_ignore_ascii_case("q") && value.trim().parse().is_ok_and(|quality: f32| quality <= 0.0)
}

/// Whether the body is declared as plain JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let is_json = |value: &str| {
        let name = value.split(';').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("application/json")
    };
    single(headers, CONTENT_TYPE).is_some_and(is_json)
}

/// Whether the body is compressed or otherwise encoded.
pub(super) fn is_encoded(headers: &HeaderMap) -> bool {
    let is_identity =
        |value: &http::HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity");
    !headers.get_all(CONTENT_ENCODING).iter().all(is_identity)
}

/// The value of a header that is there once, in visible characters.
pub(super) fn single(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() { None } else { value.to_str().ok() }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(name: HeaderName, values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn str_10_accept_is_read_leniently() {
        for (values, expected) in [
            (vec![], Accepts::Both),
            (vec!["*/*"], Accepts::Both),
            (vec!["application/json"], Accepts::Json),
            (vec!["text/event-stream"], Accepts::Stream),
            (vec!["application/json, text/event-stream"], Accepts::Both),
            (vec!["application/json", "text/event-stream"], Accepts::Both),
            (vec!["Application/JSON;charset=utf-8 , TEXT/event-stream;q=0.5"], Accepts::Both),
            (vec!["application/*"], Accepts::Json),
            (vec!["text/*"], Accepts::Stream),
            (vec!["application/json;q=0, text/event-stream"], Accepts::Stream),
            (vec!["*/*;q=0.0"], Accepts::Nothing),
            (vec!["image/png"], Accepts::Nothing),
            (vec![""], Accepts::Both),
            (vec![" , "], Accepts::Both),
        ] {
            assert_eq!(Accepts::of(&headers(ACCEPT, &values)), expected, "{values:?}");
        }
    }

    #[test]
    fn bodies_are_plain_json() {
        for good in ["application/json", "Application/Json; charset=UTF-8", "application/json;x"] {
            assert!(is_json(&headers(CONTENT_TYPE, &[good])), "{good}");
        }
        for bad in [vec![], vec!["text/plain"], vec!["application/jsonp"], vec!["application/json"; 2]] {
            assert!(!is_json(&headers(CONTENT_TYPE, &bad)), "{bad:?}");
        }
        assert!(!is_encoded(&headers(CONTENT_ENCODING, &[])));
        assert!(!is_encoded(&headers(CONTENT_ENCODING, &["Identity"])));
        assert!(is_encoded(&headers(CONTENT_ENCODING, &["gzip"])));
        assert!(is_encoded(&headers(CONTENT_ENCODING, &["identity", "br"])));
    }
}
