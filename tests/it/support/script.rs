//! What a scripted server does: its era, its tools, and everything that a test wants it to do otherwise.

use std::collections::HashMap;
use std::sync::Arc;

use super::json;
use super::matrix::{Era, Transport};
use super::turn::{Form, Turn};
use super::upstream::{Shared, Upstream};

type Handler = Arc<dyn Fn(&Turn) + Send + Sync>;
type Intercept = Arc<dyn Fn(&Turn) -> bool + Send + Sync>;

/// The behaviour of a scripted server.
#[derive(Clone)]
pub struct Script {
    pub era: Era,
    /// The revision that `initialize` answers with; `None` echoes the one asked for.
    pub version: Option<String>,
    pub form: Form,
    /// Entries of `tools/list`, as text.
    pub tools: Vec<String>,
    /// Entries of the other lists, as text, by method.
    pub lists: HashMap<&'static str, Vec<String>>,
    pub page: Option<usize>,
    /// More members of the result of `tools/list`, each with a comma behind.
    pub list_extra: String,
    pub capabilities: String,
    /// Whether the legacy server has sessions over HTTP.
    pub has_sessions: bool,
    /// Whether breaches of the protocol by the gateway fail the test.
    pub is_strict: bool,
    /// Whether it keeps what is over: messages, ended children.
    pub is_forgetful: bool,
    /// Flags of the stdio child: `serial`, `stay`, `deaf`, `ignore-term`.
    pub flags: Vec<String>,
    /// Whether it has a stream for what it says by itself: GET, or `subscriptions/listen`.
    pub has_streams: bool,
    /// Resources that it will not tell of.
    pub untold: Vec<String>,
    handlers: HashMap<String, Handler>,
    methods: HashMap<&'static str, Handler>,
    intercept: Option<Intercept>,
}

/// An entry of `tools/list` without anything special.
pub fn plain_entry(name: &str) -> String {
    let name = json::quoted(name);
    format!(r#"{{"name":{name},"description":"A tool of the tests.","inputSchema":{{"type":"object"}}}}"#)
}

impl Script {
    /// A server of this era without tools.
    pub fn of(era: Era) -> Self {
        let list_extra = match era {
            Era::Legacy => String::new(),
            Era::Modern => r#""resultType":"complete","ttlMs":3600000,"cacheScope":"public","#.to_owned(),
        };
        Self {
            era,
            version: None,
            form: Form::Json,
            tools: Vec::new(),
            lists: HashMap::new(),
            page: None,
            list_extra,
            capabilities: r#"{"tools":{}}"#.to_owned(),
            has_sessions: true,
            is_strict: true,
            is_forgetful: false,
            flags: Vec::new(),
            has_streams: false,
            untold: Vec::new(),
            handlers: HashMap::new(),
            methods: HashMap::new(),
            intercept: None,
        }
    }

    pub fn legacy() -> Self {
        Self::of(Era::Legacy)
    }

    pub fn modern() -> Self {
        Self::of(Era::Modern)
    }

    /// A server with the one tool `echo`, which returns its argument `text`.
    pub fn echo(era: Era) -> Self {
        Self::of(era).tool("echo", |turn| turn.text(&turn.argument("text").unwrap_or_default()))
    }

    /// Adds a tool with a plain entry.
    pub fn tool(self, name: &str, handler: impl Fn(&Turn) + Send + Sync + 'static) -> Self {
        let entry = plain_entry(name);
        self.listed(&entry).handled(name, handler)
    }

    /// Adds tools that echo under several names, each telling its own.
    pub fn tools<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        names.into_iter().fold(self, |script, name| {
            let own = name.to_owned();
            script.tool(name, move |turn| turn.text(&own))
        })
    }

    /// Adds an entry to the list, as text.
    pub fn listed(mut self, entry: &str) -> Self {
        self.tools.push(entry.to_owned());
        self
    }

    /// Declares a capability, if it is not declared yet.
    pub fn declaring(mut self, capability: &str) -> Self {
        if !self.capabilities.contains(&format!("\"{capability}\"")) {
            let rest = self.capabilities.strip_prefix('{').expect("an object");
            self.capabilities = format!(r#"{{"{capability}":{{}},{rest}"#);
        }
        self
    }

    /// Adds an entry to one of the lists besides that of the tools, and declares it.
    pub fn entry(self, method: &'static str, entry: &str) -> Self {
        let capability = method.split('/').next().expect("a capability");
        let mut script = self.declaring(capability);
        script.lists.entry(method).or_default().push(entry.to_owned());
        script
    }

    /// Adds a prompt, which answers with its name.
    pub fn prompt(self, name: &str) -> Self {
        let entry = format!(r#"{{"name":{},"description":"A prompt."}}"#, json::quoted(name));
        self.entry("prompts/list", &entry).on("prompts/get", |turn| {
            let text = json::quoted(&turn.name());
            turn.ok(&format!(
                r#"{{"messages":[{{"role":"user","content":{{"type":"text","text":{text}}}}}]}}"#
            ));
        })
    }

    /// Adds resources. Each is read as `own`, a colon, and its URI; so is what a template may have made.
    pub fn resources<'a>(self, own: &str, uris: impl IntoIterator<Item = &'a str>) -> Self {
        let entry = |uri| format!(r#"{{"uri":{},"name":"a resource"}}"#, json::quoted(uri));
        let script = uris.into_iter().fold(self, |script, uri| script.entry("resources/list", &entry(uri)));
        let own = own.to_owned();
        script.declaring("resources").on("resources/read", move |turn| {
            let uri = turn.uri();
            let (text, uri) = (json::quoted(&format!("{own}: {uri}")), json::quoted(&uri));
            turn.ok(&format!(r#"{{"contents":[{{"uri":{uri},"text":{text}}}]}}"#));
        })
    }

    /// Adds a template.
    pub fn template(self, template: &str) -> Self {
        let template = json::quoted(template);
        self.entry(
            "resources/templates/list",
            &format!(r#"{{"uriTemplate":{template},"name":"a template"}}"#),
        )
    }

    /// Answers requests with this method.
    pub fn on(mut self, method: &'static str, handler: impl Fn(&Turn) + Send + Sync + 'static) -> Self {
        self.methods.insert(method, Arc::new(handler));
        self
    }

    /// Answers calls of `name`, listed or not.
    pub fn handled(mut self, name: &str, handler: impl Fn(&Turn) + Send + Sync + 'static) -> Self {
        self.handlers.insert(name.to_owned(), Arc::new(handler));
        self
    }

    /// Sees everything first; `true` says that it is dealt with.
    pub fn first(mut self, intercept: impl Fn(&Turn) -> bool + Send + Sync + 'static) -> Self {
        self.intercept = Some(Arc::new(intercept));
        self
    }

    pub fn paged(self, page: usize) -> Self {
        Self { page: Some(page), ..self }
    }

    pub fn form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    pub fn version(self, version: &str) -> Self {
        Self { version: Some(version.to_owned()), ..self }
    }

    pub fn sessionless(self) -> Self {
        Self { has_sessions: false, ..self }
    }

    /// Tells of changes of its lists, and has a stream for that.
    pub fn telling(self) -> Self {
        let told =
            ["tools", "prompts", "resources"].map(|list| format!(r#""{list}":{{"listChanged":true}}"#));
        let capabilities = format!("{{{}}}", told.join(","));
        Self { has_streams: true, capabilities, ..self }
    }

    /// Tells of updates of its resources besides, but for those that `untold` names.
    pub fn telling_of_resources<'a>(self, untold: impl IntoIterator<Item = &'a str>) -> Self {
        let untold = untold.into_iter().map(str::to_owned).collect();
        let script = Self { untold, ..self.telling() };
        let capabilities =
            script.capabilities.replace(r#""resources":{"#, r#""resources":{"subscribe":true,"#);
        Self { capabilities, ..script }
    }

    fn tells_of_resources(&self) -> bool {
        self.capabilities.contains(r#""subscribe":true"#)
    }

    /// Breaches by the gateway are what this test provokes.
    pub fn lenient(self) -> Self {
        Self { is_strict: false, ..self }
    }

    /// Keeps nothing of what is over, so that it can serve for hours.
    pub fn forgetful(self) -> Self {
        Self { is_forgetful: true, is_strict: false, ..self }
    }

    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    pub fn over(self, transport: Transport) -> Upstream {
        Upstream::start(self, transport)
    }

    pub fn stdio(self) -> Upstream {
        self.over(Transport::Stdio)
    }

    pub fn http(self) -> Upstream {
        self.over(Transport::Http)
    }

    /// Answers one message.
    pub(super) fn serve(&self, turn: &Turn, shared: &Shared) {
        if self.intercept.as_ref().is_some_and(|intercept| intercept(turn)) {
            return;
        }
        if turn.head.is_some() && !self.admits(turn, shared) {
            return;
        }
        match (&*turn.method(), self.era) {
            // An answer to a question of ours.
            ("", _) => {
                if turn.head.is_some() {
                    turn.respond("202 Accepted", "", "");
                }
            }
            ("initialize", Era::Legacy) => self.initialize(turn, shared),
            ("initialize", Era::Modern) => turn.error_with(
                "400 Bad Request",
                r#"{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"]}}"#,
            ),
            ("server/discover", Era::Modern) => turn.ok(&format!(
                r#"{{"supportedVersions":["2026-07-28"],"capabilities":{},"_meta":{{"io.modelcontextprotocol/serverInfo":{{"name":"scripted","version":"1"}}}},"ttlMs":3600000,"cacheScope":"public"}}"#,
                self.capabilities
            )),
            ("subscriptions/listen", Era::Modern) if self.has_streams => shared.subscribe(turn),
            ("ping", Era::Legacy) => turn.result("{}"),
            ("resources/subscribe" | "resources/unsubscribe", Era::Legacy) if self.tells_of_resources() => {
                shared.note_subscription(turn);
            }
            ("tools/list", _) => self.list(turn, "tools", &shared.tools()),
            ("prompts/list", _) => self.list_more(turn, "prompts", shared),
            ("resources/list", _) => self.list_more(turn, "resources", shared),
            ("resources/templates/list", _) => self.list_more(turn, "resourceTemplates", shared),
            (method, _) if self.methods.contains_key(method) => {
                if let Some(handler) = self.methods.get(method) {
                    handler(turn);
                }
            }
            ("tools/call", _) => self.call(turn),
            (method, _) if method.starts_with("notifications/") => {
                if turn.head.is_some() {
                    turn.respond("202 Accepted", "", "");
                }
            }
            (method, Era::Legacy) => turn.error(-32601, &format!("Method not found: {method}")),
            (method, Era::Modern) => {
                let error = format!(r#"{{"code":-32601,"message":"Method not found: {method}"}}"#);
                turn.error_with("404 Not Found", &error);
            }
        }
    }

    /// The transport's own rules: sessions of the legacy era, no GET of either.
    fn admits(&self, turn: &Turn, shared: &Shared) -> bool {
        let method = turn.head.as_ref().map_or("", |head| head.start.split(' ').next().unwrap_or_default());
        let session = turn.header("mcp-session-id").map(str::to_owned);
        let is_known = session.as_ref().is_some_and(|session| shared.sessions().contains(session));
        let needs_session = self.era == Era::Legacy && self.has_sessions && turn.method() != "initialize";
        match method {
            "POST" if needs_session && session.is_none() => {
                turn.respond("400 Bad Request", "application/json", r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: Missing session ID"}}"#);
                false
            }
            "POST" if needs_session && !is_known => {
                turn.respond("404 Not Found", "application/json", r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}"#);
                false
            }
            "POST" => true,
            "GET" if self.era == Era::Legacy && self.has_streams && (is_known || !self.has_sessions) => {
                shared.open_stream(turn);
                false
            }
            "DELETE" if is_known => {
                shared.sessions().remove(&session.unwrap_or_default());
                turn.respond("200 OK", "", "");
                false
            }
            _ => {
                turn.with_header("Allow", "POST");
                turn.respond("405 Method Not Allowed", "", "");
                false
            }
        }
    }

    fn initialize(&self, turn: &Turn, shared: &Shared) {
        let asked = json::string(&turn.text, &["params", "protocolVersion"]).unwrap_or_default();
        shared.forget_subscriptions();
        let is_modern = asked.as_str() >= "2026";
        let answered = if is_modern { "2025-11-25".to_owned() } else { asked };
        let version = self.version.clone().unwrap_or(answered);
        if turn.head.is_some() && self.has_sessions {
            turn.with_header("Mcp-Session-Id", &shared.open_session());
        }
        turn.result(&format!(
            r#"{{"protocolVersion":"{version}","capabilities":{},"serverInfo":{{"name":"scripted","version":"1"}}}}"#,
            self.capabilities
        ));
    }

    fn list_more(&self, turn: &Turn, key: &str, shared: &Shared) {
        let entries = shared.list(&turn.method());
        self.list(turn, key, &entries);
    }

    fn list(&self, turn: &Turn, key: &str, tools: &[String]) {
        let from: usize = match json::string(&turn.text, &["params", "cursor"]) {
            Some(cursor) => match cursor.strip_prefix("from ").and_then(|at| at.parse().ok()) {
                Some(from) => from,
                None => return turn.error(-32602, "Invalid cursor"),
            },
            None => 0,
        };
        let to = (from + self.page.unwrap_or(usize::MAX - from)).min(tools.len());
        let next = if to < tools.len() { format!(r#","nextCursor":"from {to}""#) } else { String::new() };
        let entries = tools[from.min(to)..to].join(",");
        turn.result(&format!(r#"{{{}"{key}":[{entries}]{next}}}"#, self.list_extra));
    }

    fn call(&self, turn: &Turn) {
        match self.handlers.get(&turn.name()) {
            Some(handler) => handler(turn),
            None => turn.error(-32602, &format!("Unknown tool: {}", turn.name())),
        }
    }
}
