//! What a demo server answers to a request, in either era.
//!
//! Must not know: sockets, streams. It names the HTTP status of a failure, because the spec ties it to the
//! error; that it goes over HTTP it does not know.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::tool::{Arguments, Output, Progress, Run, Tool};
use crate::mcp::{Code, Era, Id, ProtocolVersion, Raw, Request, code_of, key};

/// One demo server.
pub(super) struct Server {
    /// Its name.
    pub(super) name: &'static str,
    /// What it tells a model about itself.
    pub(super) instructions: &'static str,
    /// The eras that it speaks.
    pub(super) eras: &'static [Era],
    /// Its tools.
    pub(super) tools: &'static [&'static Tool],
}

/// The revisions with a handshake that are spoken; others are answered with the newest.
const LEGACY: [ProtocolVersion; 2] = [ProtocolVersion::V2025_06_18, ProtocolVersion::V2025_11_25];

/// How long lists may be taken for fresh, in milliseconds: they never change.
const TTL_MS: u32 = 3_600_000;

/// A refusal.
#[derive(Debug)]
pub(super) struct Failure {
    code: i64,
    text: String,
    data: Option<Value>,
    /// The HTTP status that the modern era puts on it.
    pub(super) status: u16,
}

impl Failure {
    /// A refusal that HTTP answers with 200.
    pub(super) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code: code_of(code), text: text.into(), data: None, status: 200 }
    }

    /// The same, with another status.
    pub(super) fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    fn with_data(self, data: Value) -> Self {
        Self { data: Some(data), ..self }
    }

    /// The message that says so. Without an id where the request could not be read.
    pub(super) fn message(&self, id: Option<&Id>) -> Bytes {
        let mut error = json!({"code": self.code, "message": self.text});
        if let (Some(object), Some(data)) = (error.as_object_mut(), &self.data) {
            object.insert("data".to_owned(), data.clone());
        }
        let id = id.map(|id| format!("\"id\":{},", id_text(id))).unwrap_or_default();
        Bytes::from(format!("{{\"jsonrpc\":\"2.0\",{id}\"error\":{error}}}"))
    }
}

fn id_text(id: &Id) -> &str {
    std::str::from_utf8(id.bytes()).unwrap_or("null")
}

/// What comes of a request at first.
pub(super) enum Step {
    /// The whole answer.
    Answer {
        /// The message.
        message: Bytes,
        /// The HTTP status that the modern era puts on it.
        status: u16,
    },
    /// A call that takes its time.
    Slow(SlowCall),
}

/// A call that takes its time.
pub(super) struct SlowCall {
    server: &'static Server,
    era: Era,
    id: Id,
    arguments: Arguments,
    token: Option<Raw>,
    run: fn(Arguments, Progress) -> BoxFuture<'static, Result<Output, String>>,
}

impl SlowCall {
    /// Whether the caller wants to know how far it is.
    pub(super) fn wants_progress(&self) -> bool {
        self.token.is_some()
    }

    /// The id of the request.
    pub(super) fn id(&self) -> &Id {
        &self.id
    }

    /// Runs it. Progress goes to `sink`, the answer is returned. Cancel safe: dropping the future ends it.
    pub(super) async fn finish(self, sink: tokio::sync::mpsc::Sender<Bytes>) -> Bytes {
        let outcome = (self.run)(self.arguments, Progress::new(self.token, sink)).await;
        result_message(&self.id, &self.server.tool_result(self.era, outcome))
    }
}

fn result_message(id: &Id, result: &str) -> Bytes {
    Bytes::from(format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}", id_text(id)))
}

impl Server {
    fn speaks(&self, era: Era) -> bool {
        self.eras.contains(&era)
    }

    /// The era in which a request is to be served. What a modern request must say about itself has been
    /// checked then.
    pub(super) fn era(&self, request: &Request) -> Result<Era, Failure> {
        let version = request.meta(key::PROTOCOL_VERSION);
        match version {
            Some(version) if self.speaks(Era::Modern) => {
                let version = version.string().unwrap_or_default();
                if version != ProtocolVersion::NEWEST.as_str() {
                    return Err(unsupported(&version));
                }
                match request.meta(key::CLIENT_CAPABILITIES).filter(Raw::is_object) {
                    Some(_) => Ok(Era::Modern),
                    None => Err(missing(key::CLIENT_CAPABILITIES)),
                }
            }
            Some(_) | None if self.speaks(Era::Legacy) => Ok(Era::Legacy),
            // What a client with a handshake shows to its user: which versions there are.
            Some(_) | None if &*request.method == "initialize" => {
                Err(unsupported(&request.param_string("protocolVersion").unwrap_or_default()))
            }
            Some(_) | None => Err(missing(key::PROTOCOL_VERSION)),
        }
    }

    /// Answers a request, or says how to. Never fails: a refusal is an answer.
    pub(super) fn begin(&'static self, request: &Request, era: Era) -> Step {
        let done =
            |result: String| Step::Answer { message: result_message(&request.id, &result), status: 200 };
        let step =
            match (&*request.method, era) {
                ("initialize", Era::Legacy) => Ok(done(self.initialize_result(request))),
                ("ping", Era::Legacy) => Ok(done("{}".to_owned())),
                ("server/discover", Era::Modern) => Ok(done(self.discover_result())),
                ("tools/list", _) => self.list_result(request, era).map(done),
                ("tools/call", _) => self.call(request, era),
                (method, _) => Err(Failure::new(Code::MethodNotFound, format!("Method not found: {method}"))
                    .with_status(404)),
            };
        step.unwrap_or_else(|failure| Step::Answer {
            message: failure.message(Some(&request.id)),
            status: failure.status,
        })
    }

    fn info(&self) -> Value {
        json!({"name": format!("waypost-demo-{}", self.name), "version": env!("CARGO_PKG_VERSION")})
    }

    fn initialize_result(&self, request: &Request) -> String {
        let asked = request.param_string("protocolVersion").unwrap_or_default();
        let known = ProtocolVersion::known(&asked).filter(|version| LEGACY.contains(version));
        json!({
            "protocolVersion": known.unwrap_or(ProtocolVersion::NEWEST_LEGACY).as_str(),
            "capabilities": {"tools": {}},
            "serverInfo": self.info(),
            "instructions": self.instructions,
        })
        .to_string()
    }

    fn discover_result(&self) -> String {
        json!({
            "resultType": "complete",
            "supportedVersions": [ProtocolVersion::NEWEST.as_str()],
            "capabilities": {"tools": {}},
            "instructions": self.instructions,
            "ttlMs": TTL_MS,
            "cacheScope": "public",
            "_meta": {key::SERVER_INFO: self.info()},
        })
        .to_string()
    }

    fn list_result(&self, request: &Request, era: Era) -> Result<String, Failure> {
        if request.param("cursor").is_some_and(|cursor| cursor.text() != "null") {
            return Err(Failure::new(Code::InvalidParams, "The list has one page; there is no cursor"));
        }
        let entries: Vec<&str> = self.tools.iter().map(|tool| tool.definition).collect();
        let hints = match era {
            Era::Legacy => String::new(),
            Era::Modern => format!(",\"ttlMs\":{TTL_MS},\"cacheScope\":\"public\"{}", self.tail()),
        };
        Ok(format!("{{\"tools\":[{}]{hints}}}", entries.join(",")))
    }

    /// What ends every result of the modern era.
    fn tail(&self) -> String {
        let info = self.info();
        format!(",\"resultType\":\"complete\",\"_meta\":{{\"{}\":{info}}}", key::SERVER_INFO)
    }

    fn call(&'static self, request: &Request, era: Era) -> Result<Step, Failure> {
        let invalid = |text: &str| Failure::new(Code::InvalidParams, text);
        let name = request.param_string("name").ok_or_else(|| invalid("`params.name` must be a string"))?;
        let tool = self.tools.iter().find(|tool| tool.name == name);
        let tool = tool.ok_or_else(|| invalid(&format!("Unknown tool: {name}")))?;
        let arguments = request.param("arguments");
        if arguments.as_ref().is_some_and(|arguments| !arguments.is_object()) {
            return Err(invalid("`params.arguments` must be an object"));
        }
        let arguments = Arguments::new(arguments);
        Ok(match tool.run {
            Run::Now(run) => Step::Answer {
                message: result_message(&request.id, &self.tool_result(era, run(&arguments))),
                status: 200,
            },
            Run::Slow(run) => {
                let token = request.meta(key::PROGRESS_TOKEN);
                // A token is a string or an integer, as an id is.
                let token = token.filter(|token| Id::from_text(token.bytes().clone()).is_some());
                Step::Slow(SlowCall { server: self, era, id: request.id.clone(), arguments, token, run })
            }
        })
    }

    fn tool_result(&self, era: Era, outcome: Result<Output, String>) -> String {
        let (output, error) = match outcome {
            Ok(output) => (output, ""),
            Err(text) => (Output::text(&text), ",\"isError\":true"),
        };
        let structured = output.structured.map(|value| format!(",\"structuredContent\":{value}"));
        let tail = match era {
            Era::Legacy => String::new(),
            Era::Modern => self.tail(),
        };
        let text = output.text.text();
        let structured = structured.unwrap_or_default();
        format!("{{\"content\":[{{\"type\":\"text\",\"text\":{text}}}]{structured}{error}{tail}}}")
    }
}

/// A request of the modern era that does not say what each must say.
pub(super) fn missing(key: &str) -> Failure {
    Failure::new(Code::InvalidParams, format!("`params._meta` lacks `{key}`")).with_status(400)
}

fn unsupported(asked: &str) -> Failure {
    Failure::new(Code::UnsupportedVersion, "Unsupported protocol version")
        .with_data(json!({"supported": [ProtocolVersion::NEWEST.as_str()], "requested": asked}))
        .with_status(400)
}
