//! Arguments of tools that go into headers, too: `x-mcp-header` in their schemas.
//!
//! Spec: 2026-07-28, basic/transports/streamable-http, "Custom Headers from Tool Parameters".

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::headers::{PARAM_PREFIX, encode_value};
use crate::mcp::{Raw, Request};

/// The annotation.
const ANNOTATION: &str = "x-mcp-header";
/// Keywords whose values are data, and no schemas.
const DATA: [&str; 4] = ["default", "const", "enum", "examples"];
/// The greatest integer that every peer can read.
const SAFE: i64 = (1 << 53) - 1;

/// Which arguments of a tool go into which headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirror(Vec<(HeaderName, Vec<Box<str>>)>);

/// The mirrors of the tools that have one, by native name.
pub type Mirrors = HashMap<Arc<str>, Mirror>;

/// A tool says what no client may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnnotation {
    /// Its value is no name of a header.
    #[error("an x-mcp-header of it is no name of a header")]
    Name,
    /// Another one is the same.
    #[error("two x-mcp-headers of it are the same")]
    Twice,
    /// It is on a parameter that no header can carry.
    #[error("an x-mcp-header of it is on a parameter that is no string, integer or boolean")]
    Type,
    /// It is on something that is not one certain parameter.
    #[error("an x-mcp-header of it is on something that is not reached by properties alone")]
    Place,
}

impl Mirror {
    /// Reads the annotations of a tool.
    ///
    /// # Errors
    /// If one is not allowed: the tool must not be offered then.
    pub fn of(tool: &Bytes) -> Result<Self, BadAnnotation> {
        let mut mirror = Self::default();
        if memchr::memmem::find(tool, ANNOTATION.as_bytes()).is_none() {
            return Ok(mirror);
        }
        let tool: Value = serde_json::from_slice(tool).unwrap_or_default();
        if let Some(Value::Object(schema)) = tool.get("inputSchema") {
            mirror.walk(schema, Some(&mut Vec::new()))?;
        }
        Ok(mirror)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds what a request has for the headers.
    pub fn add_to(&self, headers: &mut HeaderMap, request: &Request) {
        for (name, text) in self.values(request) {
            if let Some(Ok(value)) = text.map(|text| HeaderValue::from_str(&encode_value(&text))) {
                headers.insert(name.clone(), value);
            }
        }
    }

    /// What each header has to say of a request, before it is encoded; `None` where it has to be absent.
    pub fn values(&self, request: &Request) -> impl Iterator<Item = (&HeaderName, Option<String>)> {
        let arguments = request.param("arguments");
        // Of doubles, readers take the last.
        let at = |value: Raw, step: &str| value.object().last(value.bytes(), step);
        self.0.iter().map(move |(name, path)| {
            let mut steps = path.iter().map(|step| &**step);
            let value = arguments.clone().and_then(|arguments| steps.try_fold(arguments, at));
            (name, value.and_then(|value| text_of(&value)))
        })
    }

    /// Looks at a schema and all below it. `path` is how its values are reached, if that is by properties
    /// alone.
    fn walk(
        &mut self,
        schema: &Map<String, Value>,
        mut path: Option<&mut Vec<Box<str>>>,
    ) -> Result<(), BadAnnotation> {
        if let Some(annotation) = schema.get(ANNOTATION) {
            let path = path.as_deref().filter(|path| !path.is_empty()).ok_or(BadAnnotation::Place)?;
            self.add(annotation, schema.get("type"), path.clone())?;
        }
        for (keyword, value) in schema {
            match (keyword.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    for (name, property) in properties {
                        let Value::Object(property) = property else { continue };
                        match path.as_deref_mut() {
                            None => self.walk(property, None)?,
                            Some(path) => {
                                path.push(name.as_str().into());
                                self.walk(property, Some(&mut *path))?;
                                path.pop();
                            }
                        }
                    }
                }
                (keyword, _) if DATA.contains(&keyword) => {}
                (_, value) => self.walk_elsewhere(value)?,
            }
        }
        Ok(())
    }

    fn walk_elsewhere(&mut self, value: &Value) -> Result<(), BadAnnotation> {
        match value {
            Value::Object(schema) => self.walk(schema, None),
            Value::Array(items) => items.iter().try_for_each(|item| self.walk_elsewhere(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn add(&mut self, name: &Value, kind: Option<&Value>, path: Vec<Box<str>>) -> Result<(), BadAnnotation> {
        let name = name.as_str().filter(|name| !name.is_empty()).ok_or(BadAnnotation::Name)?;
        let name = HeaderName::try_from(format!("{PARAM_PREFIX}{name}")).map_err(|_| BadAnnotation::Name)?;
        if self.0.iter().any(|(other, _)| *other == name) {
            return Err(BadAnnotation::Twice);
        }
        let is_primitive = |kind: &Value| matches!(kind.as_str(), Some("string" | "integer" | "boolean"));
        let fits = match kind {
            Some(Value::Array(kinds)) => {
                kinds.iter().any(is_primitive)
                    && kinds.iter().all(|kind| is_primitive(kind) || kind == "null")
            }
            Some(kind) => is_primitive(kind),
            None => false,
        };
        if !fits {
            return Err(BadAnnotation::Type);
        }
        self.0.push((name, path));
        Ok(())
    }
}

/// A primitive value as a header has it; `None` for `null` and for what no header can have.
fn text_of(value: &Raw) -> Option<String> {
    match value.text() {
        text @ ("true" | "false") => Some(text.to_owned()),
        text if text.starts_with('"') => value.string(),
        text => {
            let number: serde_json::Number = text.parse().ok()?;
            let integer = number.as_i64().filter(|integer| (-SAFE..=SAFE).contains(integer));
            integer.map(|integer| integer.to_string()).or_else(|| whole(number.as_f64()?))
        }
    }
}

/// A number like `42.0` or `1e2` in digits.
fn whole(number: f64) -> Option<String> {
    let fits = number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0;
    fits.then(|| format!("{number:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::Message;
    use crate::wire::json::parse;

    fn mirror(schema: &str) -> Result<Mirror, BadAnnotation> {
        Mirror::of(&Bytes::from(format!(r#"{{"name":"t","inputSchema":{schema}}}"#)))
    }

    #[test]
    fn annotations_that_no_client_may_follow_are_found() {
        for (schema, expected) in [
            (r#"{"properties":{"a":{"type":"string","x-mcp-header":""}}}"#, BadAnnotation::Name),
            (r#"{"properties":{"a":{"type":"string","x-mcp-header":7}}}"#, BadAnnotation::Name),
            (r#"{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}"#, BadAnnotation::Name),
            (r#"{"properties":{"a":{"type":"string","x-mcp-header":"a\r\nb"}}}"#, BadAnnotation::Name),
            (r#"{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}"#, BadAnnotation::Type),
            (r#"{"properties":{"a":{"type":"object","x-mcp-header":"A"}}}"#, BadAnnotation::Type),
            (r#"{"properties":{"a":{"x-mcp-header":"A"}}}"#, BadAnnotation::Type),
            (
                r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}"#,
                BadAnnotation::Twice,
            ),
            (r#"{"type":"string","x-mcp-header":"A"}"#, BadAnnotation::Place),
            (r#"{"properties":{"a":{"items":{"type":"string","x-mcp-header":"A"}}}}"#, BadAnnotation::Place),
            (
                r#"{"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}"#,
                BadAnnotation::Place,
            ),
            (r##"{"$defs":{"d":{"type":"string","x-mcp-header":"A"}}}"##, BadAnnotation::Place),
        ] {
            assert_eq!(mirror(schema), Err(expected), "{schema}");
        }
        for good in [
            r#"{"properties":{"x-mcp-header":{"type":"string"}}}"#,
            r#"{"properties":{"a":{"default":{"x-mcp-header":"A"}}}}"#,
            r#"{"properties":{"a":{"type":["string","null"],"x-mcp-header":"A"}}}"#,
            "true",
        ] {
            assert!(mirror(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn values_are_taken_from_their_exact_place() {
        let schema = r#"{"properties":{"region":{"type":"string","x-mcp-header":"Region"},"in":{"properties":{"n":{"type":"integer","x-mcp-header":"N"}}},"b":{"type":"boolean","x-mcp-header":"B"}}}"#;
        let mirror = mirror(schema).unwrap();
        for (arguments, expected) in [
            (r#"{"region":"us-west1","in":{"n":42},"b":false}"#, ["us-west1", "42", "false"]),
            (r#"{"region":" ü ","in":{"n":-7.0},"n":1}"#, ["=?base64?IMO8IA==?=", "-7", ""]),
            (r#"{"region":null,"in":{"n":9007199254740992},"b":"x\ny"}"#, ["", "", "=?base64?eAp5?="]),
            (r#"{"region":{},"in":[1],"b":1.5}"#, ["", "", ""]),
            (r#"{"in":{"n":1e2}}"#, ["", "100", ""]),
            (r#"{"region":"eu","b":true,"regi\u006fn":"us"}"#, ["us", "", "true"]),
        ] {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"arguments":{arguments}}}}}"#
            );
            let Message::Request(request) = parse(Bytes::from(text)).unwrap() else { panic!() };
            let mut headers = HeaderMap::new();
            mirror.add_to(&mut headers, &request);
            let found = ["mcp-param-region", "mcp-param-n", "mcp-param-b"]
                .map(|name| headers.get(name).map_or("", |value| value.to_str().unwrap()));
            assert_eq!(found, expected, "{arguments}");
        }
    }
}
