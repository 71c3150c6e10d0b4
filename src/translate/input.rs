//! Questions of a server to its client during a call: in the model they end a call with `input_required`, and a
//! retry carries the answers; a legacy peer sends and answers them as requests of their own.
//!
//! Spec: 2026-07-28, basic/patterns/mrtr; 2025-11-25, client/elicitation (URL mode).
//!
//! Must not know: how a question reaches a peer, and for how long it waits.

use bytes::Bytes;

use crate::mcp::{Body, Draft, Id, Raw, Request, Response};

/// The member of a retry that holds the answers by their keys.
pub const INPUT_RESPONSES: &str = "inputResponses";
/// The member of a retry, and of the result before it, that holds the server's state.
pub const REQUEST_STATE: &str = "requestState";
/// The member of a result that holds the questions by their keys.
const INPUT_REQUESTS: &str = "inputRequests";
/// The error with which a server of 2025-11-25 says that an URL has to be opened first.
const URL_REQUIRED: i64 = -32042;

/// The methods by which a server asks its client something.
const ELICIT: &str = "elicitation/create";
const SAMPLE: &str = "sampling/createMessage";
const ROOTS: &str = "roots/list";

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The method of the request that it is.
    pub method: Box<str>,
    /// The parameters of that request, if it has any.
    pub params: Option<Raw>,
}

/// What a result asks for: the questions by their keys, and the state that a retry gives back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputRequired {
    /// The questions, in their order.
    pub questions: Vec<(Box<str>, Question)>,
    /// The state as it came.
    pub state: Option<Raw>,
}

/// Whether a request of a server is a question to its client.
#[must_use]
pub fn is_question(method: &str) -> bool {
    matches!(method, ELICIT | SAMPLE | ROOTS)
}

/// Whether a client with these capabilities can be asked anything.
#[must_use]
pub fn can_be_asked(capabilities: Option<&Raw>) -> bool {
    ["elicitation", "sampling", "roots"].iter().any(|name| member(capabilities, name).is_some())
}

impl Question {
    /// The question that a request of a legacy server is.
    #[must_use]
    pub fn of(request: &Request) -> Self {
        Self { method: request.method.clone(), params: request.params_raw() }
    }

    /// Whether a client with these capabilities can be asked this. An elicitation of no mode, or a capability
    /// without modes, is about forms.
    #[must_use]
    pub fn suits(&self, capabilities: Option<&Raw>) -> bool {
        match &*self.method {
            ELICIT => member(capabilities, "elicitation").is_some_and(|elicitation| {
                let modes = elicitation.object();
                let has = |mode: &str| modes.get(elicitation.bytes(), mode).is_some();
                if self.is_url() { has("url") } else { has("form") || !has("url") }
            }),
            SAMPLE => member(capabilities, "sampling").is_some_and(|sampling| {
                let wants_tools = self.param("tools").is_some() || self.param("toolChoice").is_some();
                !wants_tools || member(Some(&sampling), "tools").is_some()
            }),
            ROOTS => member(capabilities, "roots").is_some(),
            _ => false,
        }
    }

    /// The result that says to a server that its question was not answered, where its method has one.
    #[must_use]
    pub fn no_answer(&self) -> Option<Raw> {
        let cancelled = || Raw::trusted(Bytes::from_static(br#"{"action":"cancel"}"#));
        (&*self.method == ELICIT).then(cancelled)
    }

    /// The request that this is for a legacy client, under an id of ours. An elicitation of an URL gets the
    /// `elicitationId` that 2025-11-25 asks for, where it has none.
    #[must_use]
    pub fn write(&self, id: &Id) -> Bytes {
        let mut params = self.params.clone();
        if self.is_url() && self.param("elicitationId").is_none() {
            let named = Raw::from_text(&format!("waypost-{}", String::from_utf8_lossy(id.bytes())));
            params = params.map(|params| with(&params, &[("elicitationId", Some(named.bytes().clone()))]));
        }
        let members = [
            ("jsonrpc", Some(Bytes::from_static(b"\"2.0\""))),
            ("id", Some(id.bytes().clone())),
            ("method", Some(Raw::from_text(&self.method).bytes().clone())),
            ("params", params.map(|params| params.bytes().clone())),
        ];
        object(&members)
    }

    fn is_url(&self) -> bool {
        &*self.method == ELICIT && self.param("mode").and_then(|mode| mode.string()).as_deref() == Some("url")
    }

    fn param(&self, name: &str) -> Option<Raw> {
        member(self.params.as_ref(), name)
    }
}

impl InputRequired {
    /// What a result asks for; `None` where it is malformed: a question that is none, or neither questions
    /// nor a state.
    #[must_use]
    pub fn read(response: &Response) -> Option<Self> {
        let state = response.result(REQUEST_STATE);
        let asked = response.result(INPUT_REQUESTS);
        if state.is_none() && asked.is_none() {
            return None;
        }
        let read = |(key, question): (Box<str>, Raw)| {
            let method = member(Some(&question), "method")?.string()?;
            let params = member(Some(&question), "params").filter(Raw::is_object);
            is_question(&method).then(|| (key, Question { method: method.into(), params }))
        };
        let questions = asked.as_ref().map(members).unwrap_or_default().into_iter().map(read);
        Some(Self { questions: questions.collect::<Option<_>>()?, state })
    }

    /// The response, to nobody's request yet, that asks for this.
    #[must_use]
    pub fn write(&self) -> Bytes {
        let written: Vec<_> = self
            .questions
            .iter()
            .map(|(key, question)| {
                let members = [
                    ("method", Some(Raw::from_text(&question.method).bytes().clone())),
                    ("params", question.params.as_ref().map(|params| params.bytes().clone())),
                ];
                (&**key, Some(object(&members)))
            })
            .collect();
        let asked = (!written.is_empty()).then(|| object(&written));
        let result = object(&[
            ("resultType", Some(Bytes::from_static(b"\"input_required\""))),
            (INPUT_REQUESTS, asked),
            (REQUEST_STATE, self.state.as_ref().map(|state| state.bytes().clone())),
        ]);
        object(&[
            ("jsonrpc", Some(Bytes::from_static(b"\"2.0\""))),
            ("id", Some(Bytes::from_static(b"0"))),
            ("result", Some(result)),
        ])
    }
}

/// Writes the retry of a request: the same, with these answers and this state, and with none where there is
/// none.
#[must_use]
pub fn write_retry(request: &Request, id: &Id, answers: &[(Box<str>, Raw)], state: Option<&Raw>) -> Bytes {
    let answers: Vec<_> =
        answers.iter().map(|(key, answer)| (&**key, Some(answer.bytes().clone()))).collect();
    let given = (!answers.is_empty()).then(|| object(&answers));
    let state = state.map(|state| state.bytes().clone());
    request.draft(id, &[(INPUT_RESPONSES, given), (REQUEST_STATE, state)], &[]).finish()
}

/// The answers that a retry carries, by their keys.
#[must_use]
pub fn read_answers(request: &Request) -> Vec<(Box<str>, Raw)> {
    request.param(INPUT_RESPONSES).as_ref().map(members).unwrap_or_default()
}

/// The error of 2025-11-25 that asks for URLs to be opened, as what the model has for it; `None` for any other
/// response, or if the client cannot open them.
#[must_use]
pub fn urls_required(response: &Response, capabilities: Option<&Raw>) -> Option<InputRequired> {
    let Body::Error(error) = &response.body else { return None };
    if response.error_code() != Some(URL_REQUIRED) {
        return None;
    }
    let data = error.raw(&response.text, "data")?;
    let listed = member(Some(&data), "elicitations")?;
    let listed: Vec<&serde_json::value::RawValue> = serde_json::from_slice(listed.bytes()).ok()?;
    let read = |(index, params): (usize, &&serde_json::value::RawValue)| {
        let params = Raw::trusted(data.bytes().slice_ref(params.get().as_bytes()));
        let question = Question { method: ELICIT.into(), params: Some(params) };
        let key = question.param("elicitationId").and_then(|id| id.string());
        let key = key.unwrap_or_else(|| format!("url-{index}"));
        (question.is_url() && question.suits(capabilities)).then(|| (key.into(), question))
    };
    let questions: Vec<_> = listed.iter().enumerate().map(read).collect::<Option<_>>()?;
    (!questions.is_empty()).then_some(InputRequired { questions, state: None })
}

/// A member of an object that is there and not `null`.
fn member(object: Option<&Raw>, name: &str) -> Option<Raw> {
    let object = object?;
    object.object().raw(object.bytes(), name).filter(|raw| raw.bytes().as_ref() != b"null")
}

/// The members of an object.
fn members(object: &Raw) -> Vec<(Box<str>, Raw)> {
    let text = object.bytes();
    let view = object.object();
    let read = |member: &crate::mcp::Member| {
        (member.name(text).into(), Raw::trusted(text.slice(member.value.clone())))
    };
    view.members.iter().map(read).collect()
}

/// An object with some members changed.
fn with(object: &Raw, changes: &[(&str, Option<Bytes>)]) -> Raw {
    let mut draft = Draft::new(object.bytes().clone());
    draft.edit_object(&object.object(), changes);
    Raw::trusted(draft.finish())
}

/// An object of these members, in this order; those without a value are left out.
fn object(members: &[(&str, Option<Bytes>)]) -> Bytes {
    with(&Raw::trusted(Bytes::from_static(b"{}")), members).bytes().clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::Message;
    use crate::wire::json::parse;

    fn raw(text: &str) -> Raw {
        Raw::parse(Bytes::from(text.to_owned())).unwrap()
    }

    fn response(body: &str) -> Response {
        match parse(Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,{body}}}"#))).unwrap() {
            Message::Response(response) => response,
            other @ (Message::Request(_) | Message::Notification(_)) => panic!("{other:?}"),
        }
    }

    fn question(method: &str, params: &str) -> Question {
        Question { method: method.into(), params: Some(raw(params)) }
    }

    #[test]
    fn a_client_is_asked_what_it_declared_and_nothing_else() {
        let (form, url) = (question(ELICIT, "{}"), question(ELICIT, r#"{"mode":"url","url":"u"}"#));
        let (plain, tools) = (question(SAMPLE, "{}"), question(SAMPLE, r#"{"tools":[]}"#));
        let roots = Question { method: ROOTS.into(), params: None };
        for (capabilities, expected) in [
            ("{}", [false, false, false, false, false]),
            (r#"{"elicitation":{}}"#, [true, false, false, false, false]),
            (r#"{"elicitation":{"form":{}}}"#, [true, false, false, false, false]),
            (r#"{"elicitation":{"url":{}}}"#, [false, true, false, false, false]),
            (r#"{"elicitation":{"url":{},"form":{}}}"#, [true, true, false, false, false]),
            (r#"{"sampling":{}}"#, [false, false, true, false, false]),
            (r#"{"sampling":{"tools":{}},"roots":null}"#, [false, false, true, true, false]),
            (r#"{"roots":{"listChanged":true}}"#, [false, false, false, false, true]),
        ] {
            let capabilities = raw(capabilities);
            let suits = [&form, &url, &plain, &tools, &roots].map(|asked| asked.suits(Some(&capabilities)));
            assert_eq!(suits, expected, "{capabilities:?}");
            assert_eq!(can_be_asked(Some(&capabilities)), expected.contains(&true));
        }
        assert!(!form.suits(None) && !question("ping", "{}").suits(Some(&raw(r#"{"ping":{}}"#))));
    }

    #[test]
    fn what_is_asked_survives_both_ways() {
        let body = r#""result":{"resultType":"input_required","inputRequests":{"b":{"method":"roots/list"},"a\u0062":{"method":"elicitation/create","params":{"x":1.0,"message":"m"}}},"requestState":"s\u0061"}"#;
        let asked = InputRequired::read(&response(body)).unwrap();
        assert_eq!(asked.state, Some(raw(r#""s\u0061""#)));
        let keys: Vec<_> = asked.questions.iter().map(|(key, _)| &**key).collect();
        assert_eq!(keys, ["b", "ab"]);
        let Message::Response(again) = parse(asked.write()).unwrap() else { panic!() };
        assert_eq!(InputRequired::read(&again), Some(asked.clone()));
        assert_eq!(
            asked.questions[1].1.write(&Id::from(5)),
            r#"{"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":{"x":1.0,"message":"m"}}"#
        );
        for malformed in [
            r#""result":{"resultType":"input_required"}"#,
            r#""result":{"inputRequests":{"a":{"method":"tools/call"}}}"#,
            r#""result":{"inputRequests":{"a":7}}"#,
        ] {
            assert_eq!(InputRequired::read(&response(malformed)), None, "{malformed}");
        }
    }

    #[test]
    fn an_url_for_a_legacy_client_has_an_id() {
        let named = question(ELICIT, r#"{"mode":"url","url":"u","elicitationId":"e"}"#);
        assert!(String::from_utf8_lossy(&named.write(&Id::from(1))).contains(r#""elicitationId":"e"}"#));
        let nameless = question(ELICIT, r#"{"mode":"url","url":"u"}"#);
        let written = nameless.write(&Id::from(7));
        assert!(String::from_utf8_lossy(&written).contains(r#""elicitationId":"waypost-7"}"#), "{written:?}");
    }

    #[test]
    fn a_retry_is_the_request_with_answers_and_state() {
        let text = r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"t","requestState":"old","arguments":{"z":1.0}}}"#;
        let Message::Request(request) = parse(Bytes::from(text)).unwrap() else { panic!() };
        let answers = [("k".into(), raw(r#"{"action":"accept"}"#))];
        let state = raw(r#""n\u0065w""#);
        assert_eq!(
            write_retry(&request, &request.id, &answers, Some(&state)),
            r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"t","requestState":"n\u0065w","arguments":{"z":1.0},"inputResponses":{"k":{"action":"accept"}}}}"#
        );
        let bare = write_retry(&request, &request.id, &[], None);
        let Message::Request(bare) = parse(bare).unwrap() else { panic!() };
        assert!(bare.param(REQUEST_STATE).is_none() && read_answers(&bare).is_empty());
    }

    #[test]
    fn the_error_that_wants_urls_opened_asks_who_can_open_them() {
        let body = r#""error":{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","elicitationId":"e1","url":"u","message":"m"}]}}"#;
        let able = raw(r#"{"elicitation":{"url":{}}}"#);
        let asked = urls_required(&response(body), Some(&able)).unwrap();
        assert_eq!(&*asked.questions[0].0, "e1");
        assert_eq!(urls_required(&response(body), Some(&raw(r#"{"elicitation":{}}"#))), None);
        assert_eq!(urls_required(&response(&body.replace("-32042", "-32000")), Some(&able)), None);
    }
}
