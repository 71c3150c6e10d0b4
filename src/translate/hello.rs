//! How a conversation with a server opens, in either era: what we say, and what its answer tells.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::mcp::{Body, Code, Era, Id, ProtocolVersion, Raw, Response, TaskMode, code_of, extension, key};

/// What a server said about itself when it was first spoken to.
#[derive(Clone, Debug)]
pub struct Hello {
    /// The revision to speak with it.
    pub version: ProtocolVersion,
    /// Its `ServerCapabilities`; `None` where it was not asked, or did not say.
    pub capabilities: Option<Raw>,
    /// Its `Implementation`.
    pub server_info: Option<Raw>,
    /// Its instructions to the model.
    pub instructions: Option<String>,
}

impl Hello {
    /// The opening of a server that said nothing about itself.
    #[must_use]
    pub fn silent(version: ProtocolVersion) -> Self {
        Self { version, capabilities: None, server_info: None, instructions: None }
    }

    /// Whether the server declares a capability at the top level.
    #[must_use]
    pub fn has(&self, capability: &str) -> bool {
        self.capability(capability).is_some_and(|raw| raw.bytes().as_ref() != b"null")
    }

    /// The kind of tasks that the server has for tools.
    #[must_use]
    pub fn tasks(&self) -> Option<TaskMode> {
        let capabilities = self.capabilities.as_ref()?;
        match self.version.era() {
            Era::Modern => extension::declares(capabilities, extension::TASKS).then_some(TaskMode::ByServer),
            Era::Legacy => {
                let mut found = self.capability("tasks")?;
                for key in ["requests", "tools", "call"] {
                    found = found.object().raw(found.bytes(), key)?;
                }
                found.is_object().then_some(TaskMode::ByCaller)
            }
        }
    }

    /// What the server declares under a capability.
    #[must_use]
    pub fn capability(&self, capability: &str) -> Option<Raw> {
        let capabilities = self.capabilities.as_ref()?;
        capabilities.object().raw(capabilities.bytes(), capability)
    }
}

/// What an answer to `server/discover` says about the era of its server.
#[derive(Clone, Debug)]
pub enum Discovery {
    /// It is modern, and this is what it says.
    Modern(Hello),
    /// It is modern, but did not like this request; its capabilities stay unknown.
    ModernUnheard,
    /// It has revisions with a handshake only, by its own word or because it does not know the method.
    Legacy,
    /// It is modern, and has no revision that we speak.
    NoCommonVersion(Vec<String>),
}

/// Why an answer to `initialize` opens nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoHandshake {
    /// The server is modern: it refused the method with an error that only modern servers have.
    Modern,
    /// It refused with another error.
    Refused(i64, String),
    /// It answered with a revision that we do not speak, or with none.
    UnknownVersion(String),
}

/// What we call ourselves: an `Implementation`.
#[must_use]
pub fn client_info() -> Raw {
    Raw::from_value(&json!({"name": "waypost", "version": env!("CARGO_PKG_VERSION")}))
}

/// The reserved `_meta` of a request of our own, with these `ClientCapabilities`: as JSON text by key.
#[must_use]
pub fn own_meta(version: ProtocolVersion, capabilities: &Value) -> Vec<(&'static str, Raw)> {
    vec![
        (key::PROTOCOL_VERSION, Raw::from_text(version.as_str())),
        (key::CLIENT_INFO, client_info()),
        (key::CLIENT_CAPABILITIES, Raw::from_value(capabilities)),
    ]
}

/// Writes a request of our own. `params` and `meta` are left out where they are empty.
#[must_use]
pub fn write_request(id: &Id, method: &str, params: &[(&str, Raw)], meta: &[(&str, Raw)]) -> Bytes {
    let member = |(name, value): &(&str, Raw)| format!("{}:{}", Value::from(*name), value.text());
    let members = |list: &[(&str, Raw)]| list.iter().map(member).collect::<Vec<_>>();
    let mut params = members(params);
    if !meta.is_empty() {
        params.push(format!("\"_meta\":{{{}}}", members(meta).join(",")));
    }
    let params = match params.is_empty() {
        true => String::new(),
        false => format!(",\"params\":{{{}}}", params.join(",")),
    };
    let id = String::from_utf8_lossy(id.bytes());
    Bytes::from(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{}{params}}}", Value::from(method)))
}

/// Writes `server/discover` at the newest revision.
#[must_use]
pub fn write_discover(id: &Id) -> Bytes {
    write_request(
        id,
        "server/discover",
        &[],
        &own_meta(ProtocolVersion::NEWEST, &Value::Object(serde_json::Map::new())),
    )
}

/// What a client declares that carries questions to whoever called.
pub const ASKABLE: &[u8] =
    br#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{},"context":{}},"roots":{}}"#;

/// Writes `initialize` at the newest revision that has it, with these `ClientCapabilities`.
#[must_use]
pub fn write_initialize(id: &Id, capabilities: &Raw) -> Bytes {
    let params = [
        ("protocolVersion", Raw::from_text(ProtocolVersion::NEWEST_LEGACY.as_str())),
        ("capabilities", capabilities.clone()),
        ("clientInfo", client_info()),
    ];
    write_request(id, "initialize", &params, &[])
}

/// `notifications/initialized`.
#[must_use]
pub fn write_initialized() -> Bytes {
    Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
}

/// Whether this is an error that only modern servers give.
#[must_use]
pub fn is_modern_error(response: &Response) -> bool {
    let modern = [Code::HeaderMismatch, Code::UnsupportedVersion, Code::MissingCapability].map(code_of);
    response.error_code().is_some_and(|code| modern.contains(&code))
}

/// Reads the answer to `server/discover`. Spec: 2026-07-28, basic/transports, "Backward Compatibility".
#[must_use]
pub fn read_discover(response: &Response) -> Discovery {
    let Body::Error(error) = &response.body else {
        return read_discover_result(response);
    };
    if !is_modern_error(response) {
        return Discovery::Legacy;
    }
    if response.error_code() != Some(code_of(Code::UnsupportedVersion)) {
        return Discovery::ModernUnheard;
    }
    let data = error.raw(&response.text, "data");
    let supported = data.and_then(|data| data.object().raw(data.bytes(), "supported"));
    choose(&strings(supported.as_ref()), Hello::silent)
}

fn read_discover_result(response: &Response) -> Discovery {
    let versions = response.result("supportedVersions").filter(|raw| raw.bytes().starts_with(b"["));
    let Some(versions) = versions else {
        return Discovery::Legacy;
    };
    choose(&strings(Some(&versions)), |version| Hello {
        version,
        capabilities: response.result("capabilities").filter(Raw::is_object),
        server_info: result_meta(response, key::SERVER_INFO).filter(Raw::is_object),
        instructions: response.result("instructions").and_then(|raw| raw.string()),
    })
}

/// The newest modern revision of a list that we speak, else whether there is a legacy one.
fn choose(versions: &[String], hello: impl FnOnce(ProtocolVersion) -> Hello) -> Discovery {
    let mut known: Vec<_> = versions.iter().filter_map(|date| ProtocolVersion::known(date)).collect();
    known.sort_unstable();
    match known.last() {
        Some(version) if version.era() == Era::Modern => Discovery::Modern(hello(*version)),
        Some(_) => Discovery::Legacy,
        None => Discovery::NoCommonVersion(versions.iter().take(8).cloned().collect()),
    }
}

/// Reads the answer to `initialize`. Any revision with a handshake that we know is accepted.
///
/// # Errors
/// See [`NoHandshake`].
pub fn read_initialize(response: &Response) -> Result<Hello, NoHandshake> {
    if is_modern_error(response) {
        return Err(NoHandshake::Modern);
    }
    if let Body::Error(_) = response.body {
        let code = response.error_code().unwrap_or_default();
        return Err(NoHandshake::Refused(code, response.error_message().unwrap_or_default()));
    }
    let date = response.result("protocolVersion").and_then(|raw| raw.string()).unwrap_or_default();
    let version = ProtocolVersion::known(&date).filter(|version| version.era() == Era::Legacy);
    let version = version.ok_or(NoHandshake::UnknownVersion(date))?;
    Ok(Hello {
        version,
        capabilities: response.result("capabilities").filter(Raw::is_object),
        server_info: response.result("serverInfo").filter(Raw::is_object),
        instructions: response.result("instructions").and_then(|raw| raw.string()),
    })
}

fn result_meta(response: &Response, name: &str) -> Option<Raw> {
    match &response.body {
        Body::Result(view) => view.inner(&response.text, "_meta")?.raw(&response.text, name),
        Body::Error(_) => None,
    }
}

/// The strings of a JSON array; what is none is left out.
#[must_use]
pub fn strings(raw: Option<&Raw>) -> Vec<String> {
    let list: Vec<Value> = raw.and_then(|raw| serde_json::from_slice(raw.bytes()).ok()).unwrap_or_default();
    list.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::Message;
    use crate::wire::json::parse;

    fn response(body: &str) -> Response {
        match parse(Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,{body}}}"#))).unwrap() {
            Message::Response(response) => response,
            other @ (Message::Request(_) | Message::Notification(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_to_discover_tell_the_era() {
        for (body, expected) in [
            (r#""result":{"supportedVersions":["2026-07-28"],"capabilities":{}}"#, "Modern"),
            (r#""result":{"supportedVersions":["2025-11-25","2026-07-28","2027-01-01"]}"#, "Modern"),
            (r#""result":{"supportedVersions":["2025-11-25"]}"#, "Legacy"),
            (r#""result":{"supportedVersions":["2027-01-01"]}"#, "NoCommonVersion"),
            (r#""result":{"supportedVersions":[]}"#, "NoCommonVersion"),
            (r#""result":{}"#, "Legacy"),
            (r#""result":{"tools":[]}"#, "Legacy"),
            (
                r#""error":{"code":-32022,"message":"m","data":{"supported":["2026-07-28","2025-11-25"]}}"#,
                "Modern",
            ),
            (r#""error":{"code":-32022,"message":"m","data":{"supported":["2025-11-25"]}}"#, "Legacy"),
            (r#""error":{"code":-32022,"message":"m"}"#, "NoCommonVersion"),
            (r#""error":{"code":-32020,"message":"m"}"#, "ModernUnheard"),
            (r#""error":{"code":-32021,"message":"m"}"#, "ModernUnheard"),
            (r#""error":{"code":-32601,"message":"m"}"#, "Legacy"),
            (r#""error":{"code":-32602,"message":"m"}"#, "Legacy"),
            (r#""error":{"code":-32000,"message":"Server not initialized"}"#, "Legacy"),
            (r#""error":{"code":-32600,"message":"m"}"#, "Legacy"),
            (r#""error":{"code":0,"message":"m"}"#, "Legacy"),
        ] {
            let verdict = format!("{:?}", read_discover(&response(body)));
            assert!(verdict == expected || verdict.starts_with(&format!("{expected}(")), "{body}: {verdict}");
        }
    }

    #[test]
    fn a_discovery_says_who_answers() {
        let body = r#""result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"logging":null},"instructions":"i","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}"#;
        let Discovery::Modern(hello) = read_discover(&response(body)) else { panic!() };
        assert_eq!(hello.server_info.unwrap().text(), r#"{"name":"s"}"#);
        let hello = Hello { server_info: None, ..hello };
        assert!(hello.has("tools") && !hello.has("logging") && !hello.has("prompts"));
        assert_eq!(hello.instructions.as_deref(), Some("i"));
    }

    #[test]
    fn a_handshake_takes_any_known_legacy_revision() {
        for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
            let body = format!(r#""result":{{"protocolVersion":"{version}","capabilities":{{}}}}"#);
            assert_eq!(read_initialize(&response(&body)).unwrap().version.as_str(), version);
        }
        for (body, expected) in [
            (
                r#""result":{"protocolVersion":"2026-07-28"}"#,
                NoHandshake::UnknownVersion("2026-07-28".into()),
            ),
            (r#""result":{"protocolVersion":7}"#, NoHandshake::UnknownVersion(String::new())),
            (r#""error":{"code":-32022,"message":"m","data":{"supported":[]}}"#, NoHandshake::Modern),
            (r#""error":{"code":-32601,"message":"m"}"#, NoHandshake::Refused(-32601, "m".into())),
        ] {
            assert_eq!(read_initialize(&response(body)).unwrap_err(), expected, "{body}");
        }
    }

    #[test]
    fn what_we_say_first_is_a_message() {
        let discover = write_discover(&Id::from(3));
        let Message::Request(request) = parse(discover).unwrap() else { panic!() };
        assert_eq!(request.meta(key::PROTOCOL_VERSION).unwrap().text(), "\"2026-07-28\"");
        assert_eq!(request.meta(key::CLIENT_CAPABILITIES).unwrap().text(), "{}");
        let Message::Request(request) =
            parse(write_initialize(&Id::from(1), &Raw::trusted(Bytes::from_static(b"{}")))).unwrap()
        else {
            panic!()
        };
        assert_eq!(request.param_string("protocolVersion").unwrap(), "2025-11-25");
        assert!(matches!(parse(write_initialized()).unwrap(), Message::Notification(_)));
        let bare = write_request(&Id::from(1), "ping", &[], &[]);
        assert_eq!(bare, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    }
}
