//! The pages that say who may use what, and why.
//!
//! Must not know: how it is decided.

use http::StatusCode;
use serde_json::{Value, json};

use super::Sights;
use crate::gateway::Question;

/// Answers `/api/explain?client=C&tool=T`, with `&endpoint=E` at another endpoint: one explanation.
pub(super) fn explain(sights: &dyn Sights, query: Option<&str>) -> (StatusCode, Value) {
    let asked = match Asked::parse(query) {
        Ok(Asked { client: None, .. }) => return refuse("`client` is missing"),
        Ok(asked) => asked,
        Err(text) => return refuse(text),
    };
    match sights.explain(asked.client.as_deref(), &asked.question) {
        Ok(explanations) => (
            StatusCode::OK,
            json!({"config_hash": sights.config().hash, "explanation": explanations.first()}),
        ),
        Err(missing) => (StatusCode::NOT_FOUND, json!({"error": missing.to_string()})),
    }
}

/// Answers `/api/who?tool=T`, with `&endpoint=E` at another endpoint: an explanation for each client.
pub(super) fn who(sights: &dyn Sights, query: Option<&str>) -> (StatusCode, Value) {
    let asked = match Asked::parse(query) {
        Ok(Asked { client: Some(_), .. }) => return refuse("`client` is a parameter of /api/explain"),
        Ok(asked) => asked,
        Err(text) => return refuse(text),
    };
    match sights.explain(None, &asked.question) {
        Ok(explanations) => {
            (StatusCode::OK, json!({"config_hash": sights.config().hash, "explanations": explanations}))
        }
        Err(missing) => (StatusCode::NOT_FOUND, json!({"error": missing.to_string()})),
    }
}

fn refuse(text: &str) -> (StatusCode, Value) {
    (StatusCode::BAD_REQUEST, json!({"error": text}))
}

/// What a query asks.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    client: Option<String>,
    question: Question,
}

impl Asked {
    fn parse(query: Option<&str>) -> Result<Self, &'static str> {
        let (mut client, mut endpoint, mut question) = (None, None, None::<Question>);
        for (key, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if key == "client" && client.is_none() {
                client = Some(value.into_owned());
                continue;
            }
            if key == "endpoint" && endpoint.is_none() {
                endpoint = Some(value.into_owned());
                continue;
            }
            let asked = Question::about(&key, value.into_owned())
                .ok_or("the parameters are `client`, `endpoint` and one of `tool`, `prompt`, `resource`, `extension`")?;
            if question.replace(asked).is_some() {
                return Err("one of `tool`, `prompt`, `resource`, `extension`, and once");
            }
        }
        let question = question.ok_or("one of `tool`, `prompt`, `resource`, `extension` is missing")?;
        Ok(Self { client, question: Question { endpoint, ..question } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Topic;

    #[test]
    fn a_query_names_one_thing_and_at_most_one_client() {
        let parsed = Asked::parse(Some("client=a%20b&tool=x%2By")).unwrap();
        let question = Question::about("tool", "x+y".into()).unwrap();
        assert_eq!(parsed, Asked { client: Some("a b".into()), question });
        let parsed = Asked::parse(Some("tool=x&endpoint=%2Fmcp%2Fa")).unwrap();
        assert_eq!(parsed.question.endpoint.as_deref(), Some("/mcp/a"));
        let resource = Question::about("resource", "file:///x".into()).unwrap();
        assert_eq!(Asked::parse(Some("resource=file:///x")).unwrap().question, resource);
        let extension = Asked::parse(Some("extension=com.example%2Fsearch")).unwrap().question;
        assert_eq!((extension.topic, &*extension.name), (Topic::Extension, "com.example/search"));
        for query in [
            None,
            Some("client=a"),
            Some("tool=a&prompt=b"),
            Some("tool=a&tool=a"),
            Some("tools=a"),
            Some("tool=a&endpoint=/a&endpoint=/b"),
        ] {
            assert!(Asked::parse(query).is_err(), "{query:?}");
        }
    }
}
