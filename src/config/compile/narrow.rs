//! Schemas that arguments have to fit, as they stand in the file.

use serde_json::{Map, Number, Value as Json};

use crate::config::effective::{Block, Origin};
use crate::config::reader::Reader;
use crate::config::reference as keys;
use crate::config::section::{Section, quoted};
use crate::config::source::Finding;
use crate::config::tree::{Node, ScalarKind, Value};
use crate::config::{Narrow, Pattern};

/// Longest pattern, in bytes.
const MAX_PATTERN: usize = 256;

/// Reads `narrow` of a layer.
pub(crate) fn narrow(tools: &mut Section<'_>) -> Vec<Narrow> {
    let key = &keys::TOOLS_NARROW;
    let mut block = Block::default();
    let mut rules = Vec::new();
    for (name, node) in tools.names(key, "a mapping of names of tools to JSON Schemas") {
        let text = name.text.as_str();
        if text.is_empty() || text.len() > MAX_PATTERN || text.trim() != text {
            let finding = Finding::error(format!("`{}` is no name of a tool", text.escape_debug()));
            tools.report(finding.at(name.span));
            continue;
        }
        let what = format!("`narrow.{}`", quoted(text));
        let Value::Map(_) = node.value else {
            tools.reader.report_kind(node, &what, "a JSON Schema");
            continue;
        };
        let Some(schema) = json(tools.reader, node, &what) else { continue };
        block.put(text, schema.to_string(), Origin::Line(node.span.line));
        match Narrow::new(Pattern::on_line(text, name.span.line), schema) {
            Ok(rule) => rules.push(rule),
            Err(reason) => {
                let finding = Finding::error(format!("{what} is no JSON Schema: {reason}")).at(node.span);
                tools.report(finding.help("it must stand for itself: nothing is fetched"));
            }
        }
    }
    tools.out.put_block(key.name, block);
    rules
}

/// A value of the file as JSON, variables filled in.
fn json(reader: &Reader<'_>, node: &Node, what: &str) -> Option<Json> {
    match &node.value {
        Value::Null => Some(Json::Null),
        Value::Scalar(scalar) => {
            let text = reader.text(node, what)?;
            let plain = match (scalar.kind, text.is_expanded) {
                (ScalarKind::Flag, false) => {
                    serde_json::from_str::<bool>(&text.value.to_lowercase()).ok().map(Json::Bool)
                }
                (ScalarKind::Number, false) => {
                    serde_json::from_str::<Number>(&text.value).ok().map(Json::Number)
                }
                (ScalarKind::Text | ScalarKind::Flag | ScalarKind::Number, _) => None,
            };
            Some(plain.unwrap_or(Json::String(text.value)))
        }
        Value::List(items) => items.iter().map(|item| json(reader, item, what)).collect(),
        Value::Map(entries) => {
            let entries = reader.entries(node, what, "a mapping").map(|_| entries)?;
            let members =
                entries.iter().map(|(name, node)| Some((name.text.clone(), json(reader, node, what)?)));
            members.collect::<Option<Map<_, _>>>().map(Json::Object)
        }
    }
}
