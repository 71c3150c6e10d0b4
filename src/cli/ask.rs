//! `waypost call`, `resources read` and `prompts get`: one request, and its answer for a person or a program.
//!
//! Must not know: where it goes.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::check::Report;
use super::content;
use super::offer::{UNKNOWN, UNREACHED};
use super::reach::{Reach, Reached, Waiting};
use crate::exchange::{Call, Cancel, EventKind, EventSink, Hop, Outcome};
use crate::gateway::{GatewayError, GatewayErrorKind};
use crate::mcp::{Body, Draft, Message, Method, ObjectView, Raw, key};
use crate::wire::json::parse;

/// What a tool is called with.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// Single arguments. What the tool wants as text is text; anything else is read as JSON.
    #[arg(value_name = "KEY=VALUE")]
    single: Vec<String>,
    /// All arguments as one JSON object, passed on as it is; `-` reads it from standard input.
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
}

/// How a command ends whose tool, or server, says that it failed.
const FAILED: u8 = 1;
/// How a command ends that is denied, as that of `waypost explain`.
const DENIED: u8 = 3;

/// Calls a tool.
///
/// # Errors
/// If nobody can be asked, or the arguments cannot be read.
pub(super) async fn call(
    file: &Path,
    name: &str,
    arguments: &Arguments,
    reach: &Reach,
) -> anyhow::Result<Report> {
    let whole = arguments.whole()?;
    reach
        .with(file, async |reached| {
            let tool = reached.gateway.listed_tool(&reached.principal, name);
            let schema: Value = tool.and_then(|tool| serde_json::from_slice(&tool).ok()).unwrap_or_default();
            let single = arguments.typed(schema.get("inputSchema").unwrap_or(&Value::Null))?;
            let given = merged(whole, &single);
            let params = [("name", Raw::from_text(name)), ("arguments", given)];
            ask(&reached, Method::ToolsCall, &params, reach, content::called).await
        })
        .await
}

/// Reads a resource.
///
/// # Errors
/// If nobody can be asked.
pub(super) async fn read(file: &Path, uri: &str, reach: &Reach) -> anyhow::Result<Report> {
    let params = [("uri", Raw::from_text(uri))];
    reach
        .with(file, async |reached| ask(&reached, Method::ResourcesRead, &params, reach, content::read).await)
        .await
}

/// Gets a prompt.
///
/// # Errors
/// If nobody can be asked, or the arguments cannot be read.
pub(super) async fn prompt(
    file: &Path,
    (name, arguments): (&str, &[String]),
    reach: &Reach,
) -> anyhow::Result<Report> {
    let mut given = Map::new();
    for argument in arguments {
        let (key, value) = split(argument)?;
        given.insert(key.to_owned(), value.into());
    }
    let params = [("name", Raw::from_text(name)), ("arguments", Raw::from_value(&given.into()))];
    reach
        .with(file, async |reached| {
            ask(&reached, Method::PromptsGet, &params, reach, content::prompted).await
        })
        .await
}

impl Arguments {
    /// What was given as one object.
    fn whole(&self) -> anyhow::Result<Raw> {
        let text = match self.args.as_deref() {
            None => "{}".to_owned(),
            Some("-") => {
                let mut text = String::new();
                std::io::stdin()
                    .take(MAX_ARGUMENTS)
                    .read_to_string(&mut text)
                    .context("cannot read the arguments")?;
                text
            }
            Some(text) => text.to_owned(),
        };
        let raw = Raw::parse(Bytes::from(text.trim().to_owned())).context("`--args` is no JSON")?;
        if !raw.is_object() {
            bail!("`--args` is no JSON object");
        }
        Ok(raw)
    }

    /// Single arguments, of the types that the tool wants.
    fn typed(&self, schema: &Value) -> anyhow::Result<Vec<(String, Value)>> {
        let of = |argument: &String| {
            let (key, text) = split(argument)?;
            let value = typed(text, schema.pointer(&format!("/properties/{}", escaped(key))));
            Ok((key.to_owned(), value.with_context(|| format!("the argument `{key}`"))?))
        };
        self.single.iter().map(of).collect()
    }
}

/// Bytes of arguments that are read from standard input.
const MAX_ARGUMENTS: u64 = 64 << 20;

fn split(argument: &str) -> anyhow::Result<(&str, &str)> {
    let split = argument.split_once('=').filter(|(key, _)| !key.is_empty());
    split.ok_or_else(|| anyhow!("`{argument}` is not written KEY=VALUE"))
}

/// A key as a part of a JSON pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// A text as the value that a property wants.
fn typed(text: &str, property: Option<&Value>) -> anyhow::Result<Value> {
    let parsed = || serde_json::from_str::<Value>(text);
    let kinds: Vec<&str> = match property.and_then(|property| property.get("type")) {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if kinds.is_empty() {
        return Ok(parsed().unwrap_or_else(|_| text.into()));
    }
    let fitting = parsed().ok().filter(|value| kinds.iter().any(|kind| fits(value, kind)));
    match (kinds.as_slice(), fitting) {
        (["string"], _) => Ok(text.into()),
        (_, Some(value)) => Ok(value),
        (kinds, None) if kinds.contains(&"string") => Ok(text.into()),
        (kinds, None) => bail!("has to be of type {}, and `{text}` is not", kinds.join(" or ")),
    }
}

fn fits(value: &Value, kind: &str) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "boolean",
        Value::Number(number) => kind == "number" || (kind == "integer" && !number.is_f64()),
        Value::String(_) => kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
    }
}

/// The object with single members put in; every other byte as it was.
fn merged(whole: Raw, single: &[(String, Value)]) -> Raw {
    let view = whole.object();
    let mut draft = Draft::new(whole.bytes().clone());
    let changes: Vec<(&str, Option<Bytes>)> =
        single.iter().map(|(key, value)| (key.as_str(), Some(Bytes::from(value.to_string())))).collect();
    draft.edit_object(&view, &changes);
    Raw::trusted(draft.finish())
}

/// Asks one thing, shows progress to somebody who waits, and writes the answer.
async fn ask(
    reached: &Reached<'_>,
    method: Method,
    params: &[(&str, Raw)],
    reach: &Reach,
    shown: fn(&Value) -> content::Shown,
) -> anyhow::Result<Report> {
    let (events, mut heard) = EventSink::new();
    let waiting = Waiting::begin(method.as_str());
    let call = request(reached, method, params, events)?;
    let mut calling = Box::pin(reached.gateway.call(call));
    let result = loop {
        tokio::select! {
            result = &mut calling => break result,
            Some(event) = heard.recv() => {
                if event.kind == EventKind::Progress {
                    waiting.show(&progress(&event.notification));
                }
            }
        }
    };
    drop(waiting);
    match result {
        Ok(outcome) => answer(&outcome, reach, shown),
        Err(error) => Ok(refused(&error, reached)),
    }
}

/// A call as a client of our own makes it: it answers no questions, and wants to hear of progress.
fn request(
    reached: &Reached<'_>,
    method: Method,
    params: &[(&str, Raw)],
    events: EventSink,
) -> anyhow::Result<Call> {
    let mut members: Vec<(&str, Option<Bytes>)> =
        vec![("_meta", Some(Bytes::from(json!({key::PROGRESS_TOKEN: 1}).to_string())))];
    members.extend(params.iter().map(|(name, value)| (*name, Some(value.bytes().clone()))));
    let object = |members: &[(&str, Option<Bytes>)]| {
        let mut draft = Draft::new(Bytes::from_static(b"{}"));
        draft.edit_object(&ObjectView::of(b"{}"), members);
        draft.finish()
    };
    let text = object(&[
        ("jsonrpc", Some(Bytes::from_static(b"\"2.0\""))),
        ("id", Some(Bytes::from_static(b"1"))),
        ("method", Some(Raw::from_text(method.as_str()).bytes().clone())),
        ("params", Some(object(&members))),
    ]);
    let Message::Request(request) = parse(text).map_err(|error| anyhow!("{error}"))? else {
        bail!("this is no request");
    };
    let hop = Hop {
        client_info: Some(Raw::from_value(&json!({"name": "waypost", "version": env!("CARGO_PKG_VERSION")}))),
        capabilities: Some(Raw::from_value(&json!({}))),
        progress_token: Some(Raw::from_value(&json!(1))),
        ..Hop::default()
    };
    Ok(Call {
        method,
        request,
        hop,
        principal: reached.principal.clone(),
        session: None,
        events,
        cancel: Cancel::default(),
    })
}

/// What a notification of progress says, in one line.
fn progress(notification: &crate::mcp::Notification) -> String {
    let number = |key: &str| notification.param(key).map(|raw| raw.text().to_owned());
    let share = match (number("progress"), number("total")) {
        (Some(progress), Some(total)) => format!("{progress} of {total}"),
        (Some(progress), None) => progress,
        (None, _) => String::new(),
    };
    match notification.param_string("message") {
        Some(message) => format!("{share} {message}"),
        None => share,
    }
}

/// An answer of the server.
fn answer(outcome: &Outcome, reach: &Reach, shown: fn(&Value) -> content::Shown) -> anyhow::Result<Report> {
    let response = &outcome.answer().response;
    let (Body::Result(view) | Body::Error(view)) = &response.body;
    let text = String::from_utf8_lossy(response.text.get(view.span.clone()).unwrap_or_default()).into_owned();
    let value: Value = serde_json::from_str(&text).context("the answer is no JSON")?;
    match outcome {
        Outcome::Complete(_) if reach.json => {
            let code = if content::is_failure(&value) { FAILED } else { 0 };
            Ok(Report { stdout: text + "\n", stderr: String::new(), code })
        }
        Outcome::Complete(_) => Ok(match shown(&value) {
            content::Shown::Good(page) => Report::of(page),
            content::Shown::Failed(page) => Report { stdout: String::new(), stderr: page, code: FAILED },
        }),
        Outcome::InputRequired(_) => {
            let stderr = "error: the server asks something back, which nobody can answer here\n".to_owned();
            Ok(Report { stdout: if reach.json { text + "\n" } else { String::new() }, stderr, code: FAILED })
        }
        Outcome::Error(_) => {
            let message = response.error_message().unwrap_or_default();
            let stderr = format!("error: {}\n", super::table::plain(&message));
            Ok(Report { stdout: if reach.json { text + "\n" } else { String::new() }, stderr, code: FAILED })
        }
    }
}

/// A "no" of our own.
fn refused(error: &GatewayError, reached: &Reached<'_>) -> Report {
    let upstream = error.upstream.as_ref().map(|upstream| format!("{upstream}: ")).unwrap_or_default();
    let code = match error.kind {
        GatewayErrorKind::Denied | GatewayErrorKind::MethodDenied => DENIED,
        GatewayErrorKind::Unknown if reached.is_alone() => UNREACHED,
        GatewayErrorKind::Unknown => UNKNOWN,
        GatewayErrorKind::Unavailable | GatewayErrorKind::UpstreamAuth | GatewayErrorKind::Timeout => {
            UNREACHED
        }
        GatewayErrorKind::MethodNotFound
        | GatewayErrorKind::InvalidParams
        | GatewayErrorKind::InvalidArguments
        | GatewayErrorKind::RateLimited
        | GatewayErrorKind::EdgeLimited
        | GatewayErrorKind::BadUpstream
        | GatewayErrorKind::Unanswered
        | GatewayErrorKind::Cancelled
        | GatewayErrorKind::Internal => FAILED,
    };
    let absent = if error.kind == GatewayErrorKind::Unknown { reached.absent() } else { String::new() };
    Report { stdout: String::new(), stderr: format!("{absent}error: {upstream}{}\n", error.text), code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_arguments_are_of_the_type_that_the_tool_wants() {
        let schema = json!({"properties": {
            "text": {"type": "string"}, "count": {"type": "integer"}, "ratio": {"type": "number"},
            "flag": {"type": "boolean"}, "list": {"type": "array"}, "either": {"type": ["string", "integer"]},
            "a/b": {"type": "integer"},
        }});
        let given = |text: &str| {
            let arguments = Arguments { single: vec![text.to_owned()], args: None };
            arguments.typed(&schema).map(|typed| typed[0].1.to_string()).map_err(|error| format!("{error:#}"))
        };
        for (text, wanted) in [
            ("text=12", r#""12""#),
            ("text=a=b", r#""a=b""#),
            ("text=", r#""""#),
            ("count=12", "12"),
            ("ratio=1", "1"),
            ("flag=true", "true"),
            ("list=[1,\"x\"]", r#"[1,"x"]"#),
            ("either=7", "7"),
            ("either=x", r#""x""#),
            ("other={\"a\":1}", r#"{"a":1}"#),
            ("other=plain words", r#""plain words""#),
            ("a/b=3", "3"),
        ] {
            assert_eq!(given(text).as_deref(), Ok(wanted), "{text}");
        }
        for (text, wanted) in [
            ("count=many", "the argument `count`: has to be of type integer, and `many` is not"),
            ("count=1.5", "the argument `count`: has to be of type integer, and `1.5` is not"),
            ("flag=yes", "the argument `flag`: has to be of type boolean, and `yes` is not"),
            ("nothing", "`nothing` is not written KEY=VALUE"),
        ] {
            assert_eq!(given(text), Err(wanted.to_owned()), "{text}");
        }
    }

    #[test]
    fn an_object_of_arguments_is_passed_on_as_it_is() {
        let arguments = |args: &str| Arguments { single: vec![], args: Some(args.to_owned()) };
        let whole = arguments(" {\"b\": 1.0, \"a\": 12345678901234567890123} ").whole().unwrap();
        assert_eq!(whole.text(), "{\"b\": 1.0, \"a\": 12345678901234567890123}");
        let both = merged(whole, &[("b".to_owned(), json!(2)), ("c".to_owned(), json!("x"))]);
        assert_eq!(both.text(), "{\"b\": 2, \"a\": 12345678901234567890123,\"c\":\"x\"}");
        for bad in ["[]", "{", "", "1"] {
            assert!(arguments(bad).whole().is_err(), "{bad}");
        }
    }
}
