//! The fork: which era a message belongs to. A pure function of its headers and its body.
//!
//! Must not know: sessions, what the message asks for.

use http::HeaderMap;

use super::media::single;
use crate::mcp::{Era, Message, Method, ObjectView, ProtocolVersion, Raw, key};
use crate::wire::headers::{PROTOCOL_VERSION, SESSION_ID};

/// The era of one message.
///
/// Modern is what carries a revision in its `_meta`, unless that revision has a handshake (a client that
/// fell back); and what has no `_meta`, but names a modern revision in its header, or is a `server/discover`
/// that names none, as only a malformed modern message does. A message that comes in a session, or
/// opens one, is legacy: hosted connectors send newer versions in the header than they negotiated.
pub(super) fn classify(headers: &HeaderMap, message: &Message) -> Era {
    let (text, method, params) = match message {
        Message::Request(request) => (&request.text, &*request.method, &request.params),
        Message::Notification(notification) => {
            (&notification.text, &*notification.method, &notification.params)
        }
        Message::Response(_) => return Era::Legacy,
    };
    let method = Method::known(method);
    let is_handshake = method == Some(Method::Initialize);
    if is_handshake && params.get(text, "protocolVersion").is_some() {
        return Era::Legacy;
    }
    match declared(text, params) {
        Some(version) => version
            .string()
            .and_then(|date| ProtocolVersion::known(&date))
            .map_or(Era::Modern, ProtocolVersion::era),
        None if is_handshake || headers.contains_key(SESSION_ID) => Era::Legacy,
        None => {
            let named = single(headers, PROTOCOL_VERSION).and_then(ProtocolVersion::known);
            let unnamed = if method == Some(Method::Discover) { Era::Modern } else { Era::Legacy };
            named.map_or(unnamed, ProtocolVersion::era)
        }
    }
}

/// The revision in `params._meta`.
fn declared(text: &bytes::Bytes, params: &ObjectView) -> Option<Raw> {
    params.inner(text, "_meta")?.raw(text, key::PROTOCOL_VERSION)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderValue;

    use super::*;
    use crate::wire::json;

    const MODERN: &str = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
    const FUTURE: &str = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01"}}"#;
    const PAST: &str = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-06-18"}}"#;
    const ODD: &str = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}"#;

    fn era(method: &str, params: &str, version: Option<&'static str>, session: Option<&'static str>) -> Era {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let message = json::parse(Bytes::from(text)).unwrap();
        let pairs = [(PROTOCOL_VERSION, version), (SESSION_ID, session)].into_iter();
        let headers = pairs.filter_map(|(name, value)| Some((name, HeaderValue::from_static(value?))));
        classify(&headers.collect(), &message)
    }

    #[test]
    fn each_message_has_one_era() {
        use Era::{Legacy, Modern};
        let asks = |version: &str| format!(r#"{{"protocolVersion":"{version}","capabilities":{{}}}}"#);
        for (method, params, version, session, expected) in [
            ("tools/list", MODERN, Some("2026-07-28"), None, Modern),
            ("tools/list", MODERN, None, None, Modern),
            ("tools/list", MODERN, Some("2026-07-28"), Some("s"), Modern),
            ("tools/list", FUTURE, Some("2099-01-01"), None, Modern),
            ("tools/list", ODD, None, None, Modern),
            ("tools/list", PAST, Some("2025-06-18"), None, Legacy),
            ("tools/list", "{}", None, None, Legacy),
            ("tools/list", "{}", Some("2025-06-18"), None, Legacy),
            ("tools/list", "{}", Some("2026-07-28"), None, Modern),
            ("tools/list", "{}", Some("2026-07-28"), Some("s"), Legacy),
            ("tools/list", "{}", Some("2099-01-01"), None, Legacy),
            ("tools/list", "{}", Some("foobar"), None, Legacy),
            ("server/discover", "{}", None, None, Modern),
            ("server/discover", "{}", Some("2025-11-25"), None, Legacy),
            ("server/discover", "{}", None, Some("s"), Legacy),
            ("server/discover", MODERN, Some("2026-07-28"), None, Modern),
            ("server/discover", FUTURE, Some("2099-01-01"), None, Modern),
            ("initialize", &asks("2025-11-25"), None, None, Legacy),
            ("initialize", &asks("2026-07-28"), Some("2026-07-28"), None, Legacy),
            ("initialize", &asks("2099-01-01"), Some("2099-01-01"), None, Legacy),
            ("initialize", "{}", Some("2026-07-28"), None, Legacy),
            ("initialize", MODERN, Some("2026-07-28"), None, Modern),
            ("ping", MODERN, Some("2026-07-28"), None, Modern),
            ("no/such", MODERN, Some("2026-07-28"), None, Modern),
            ("no/such", "{}", None, Some("s"), Legacy),
        ] {
            assert_eq!(
                era(method, params, version, session),
                expected,
                "{method} {params} {version:?} {session:?}"
            );
        }
    }

    #[test]
    fn responses_are_legacy_and_notifications_follow_their_meta() {
        let parse = |text: &'static str| json::parse(Bytes::from_static(text.as_bytes())).unwrap();
        let none = HeaderMap::new();
        assert_eq!(classify(&none, &parse(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)), Era::Legacy);
        assert_eq!(
            classify(&none, &parse(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)),
            Era::Legacy
        );
        let modern = r#"{"jsonrpc":"2.0","method":"n","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        assert_eq!(classify(&none, &parse(modern)), Era::Modern);
    }
}
