//! The reference as JSON Schema, for editors: `gateway.schema.json`.
//!
//! Whatever the check takes, the schema takes: where a value may hold a variable (`${NAME}`), any text that has one
//! passes. What only the check can see (that a variable is set, that a role exists) is left to it.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Fate, Foreign, ICON, OTHER_SPELLINGS, Shape, TOP, Table, UPSTREAM, UPSTREAMS};
use crate::config::Rate;
use crate::config::units::Unit as _;

/// Drafts after this one are not understood by every editor.
const DRAFT: &str = "http://json-schema.org/draft-07/schema#";

/// The JSON Schema of the configuration file, as text.
#[must_use]
pub fn schema() -> String {
    let mut top = table(&TOP);
    let mut definitions = Map::new();
    let mut open = below(&TOP);
    while let Some(next) = open.pop() {
        if definitions.insert(slug(next), table(next)).is_none() {
            open.extend(below(next));
        }
    }
    if let Some(top) = top.as_object_mut() {
        top.insert("$schema".to_owned(), DRAFT.into());
        top.insert("title".to_owned(), "The configuration file of Waypost".into());
        top.insert("definitions".to_owned(), definitions.into());
    }
    format!("{top:#}\n")
}

/// The mappings that stand in a mapping.
fn below(table: &'static Table) -> Vec<&'static Table> {
    let shapes = table.keys.iter().map(|key| key.form().shape());
    let mut found: Vec<&'static Table> = shapes
        .filter_map(|shape| match shape {
            Shape::Mapping(table) | Shape::Names(table) | Shape::List(table) => Some(table),
            Shape::Plain | Shape::Secret => None,
        })
        .collect();
    if table.keys.iter().any(|key| key.form().written() == LIST_OF_ICONS) {
        found.push(&ICON);
    }
    found
}

/// The name of a mapping among the definitions.
fn slug(table: &Table) -> String {
    let words = table.path.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("_")
}

fn table(table: &'static Table) -> Value {
    let mut properties = Map::new();
    for foreign in table.foreign {
        if let Some(schema) = foreign_key(foreign) {
            properties.insert(foreign.name.to_owned(), schema);
        }
    }
    for key in table.keys {
        let form = key.form();
        let mut about = key.about().to_owned();
        for (word, said) in [("Default", form.default()), ("Bounds", form.bounds())] {
            if !said.is_empty() {
                about.push_str(&format!("\n\n{word}: {said}"));
            }
        }
        let mut schema = form.schema();
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("description".to_owned(), about.into());
        }
        properties.insert(key.name().to_owned(), schema);
    }
    let mut schema = json!({"type": "object", "additionalProperties": false, "description": table.about});
    let one_of = alternatives(table, &mut properties);
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("properties".to_owned(), properties.into());
        if !one_of.is_empty() {
            let required = one_of.iter().map(|name| json!({"required": [name]}));
            schema.insert("oneOf".to_owned(), required.collect());
        }
    }
    schema
}

/// Keys of which exactly one must be there. Puts those among the properties that are other spellings.
fn alternatives(table: &'static Table, properties: &mut Map<String, Value>) -> Vec<&'static str> {
    if std::ptr::eq(table, &TOP) {
        let upstreams = properties.get(UPSTREAMS.name).cloned().unwrap_or_default();
        for name in OTHER_SPELLINGS {
            properties.insert(name.to_owned(), upstreams.clone());
        }
        return [UPSTREAMS.name].into_iter().chain(OTHER_SPELLINGS).collect();
    }
    if std::ptr::eq(table, &UPSTREAM) {
        return vec![super::COMMAND.name, super::URL.name];
    }
    Vec::new()
}

/// A key of other programs, if it may be there.
fn foreign_key(foreign: &Foreign) -> Option<Value> {
    let about = format!("A key of other programs, ignored: {}.", foreign.advice);
    match foreign.fate {
        Fate::Ignored => Some(json!({"deprecated": true, "description": about})),
        Fate::RefusedUnlessEmpty => {
            Some(json!({"deprecated": true, "description": about, "type": "array", "maxItems": 0}))
        }
        Fate::Refused => None,
    }
}

/// A form by what it is made of, else by the words in which the reference says how it is written.
pub(super) fn of_shape(shape: Shape, words: &str) -> Value {
    match shape {
        Shape::Mapping(table) => json!({"allOf": [reference(table)]}),
        Shape::Names(table) => json!({"type": "object", "additionalProperties": reference(table)}),
        Shape::List(table) => json!({"type": "array", "items": reference(table)}),
        Shape::Plain | Shape::Secret => written(words),
    }
}

fn reference(table: &Table) -> Value {
    json!({"$ref": format!("#/definitions/{}", slug(table))})
}

const LIST_OF_ICONS: &str = "list of icons";

/// What is written in these words of the reference.
fn written(words: &str) -> Value {
    let list = |items: Value| json!({"type": "array", "items": items});
    let words = words.split_once(", like").map_or(words, |(words, _)| words);
    if let Some((before, after)) = words.split_once(" or ").filter(|_| words != DIGESTS) {
        return json!({"anyOf": [written(before), written(after)]});
    }
    match words {
        "`false`" => json!({"const": false}),
        "address" => json!({"type": ["string", "integer"]}),
        "rate" => unit(&Rate::pattern()),
        "secret" => json!({"anyOf": [text(), source(&["env", "file"], &[])]}),
        "list of texts" | "list of names" | "list of hosts" | "list of origins" => list(text()),
        "list of patterns" => list(json!({"type": ["string", "number", "boolean"], "minLength": 1})),
        DIGESTS => json!({
            "type": "array",
            "minItems": 1,
            "items": {"anyOf": [{"type": "string", "pattern": r"^sha256:[0-9a-fA-F]{64}$|\$\{"}, source(&["env", "file", "digest"], &["expires"])]},
        }),
        LIST_OF_ICONS => list(reference(&ICON)),
        "mapping of names to texts" => json!({"type": "object", "additionalProperties": text()}),
        "mapping of patterns to durations" => {
            json!({"type": "object", "additionalProperties": unit(&Duration::pattern())})
        }
        "text" | "path" | "URL" | "URI" => text(),
        // Nothing is known of it, so nothing is refused.
        _ => json!({}),
    }
}

const DIGESTS: &str = "list of digests or sources";

/// Text is text: `no`, `123` and `1.0`, too.
fn text() -> Value {
    json!({"type": ["string", "number", "boolean"]})
}

/// Where a secret comes from, one of the `sources`, and what may be said of it besides.
fn source(sources: &[&str], more: &[&str]) -> Value {
    let properties: Map<String, Value> =
        sources.iter().chain(more).map(|key| ((*key).to_owned(), text())).collect();
    let one_of: Vec<Value> = sources.iter().map(|key| json!({"required": [key]})).collect();
    json!({"type": "object", "additionalProperties": false, "properties": properties, "oneOf": one_of})
}

/// A text that holds a variable: what comes of it is for the check to see.
fn variable() -> Value {
    json!({"type": "string", "pattern": r"\$\{"})
}

/// A number with a unit.
pub(super) fn unit(pattern: &str) -> Value {
    json!({"type": "string", "pattern": format!(r"{pattern}|\$\{{")})
}

/// A number. Some editors take one with `_` for a text.
pub(super) fn number(min: u64, max: u64) -> Value {
    let grouped = json!({"type": "string", "pattern": "^[0-9]+(_[0-9]+)+$"});
    json!({"anyOf": [{"type": "integer", "minimum": min, "maximum": max}, grouped, variable()]})
}

/// `true` or `false`.
pub(super) fn flag() -> Value {
    json!({"anyOf": [{"type": "boolean"}, variable()]})
}

/// One of a few words.
pub(super) fn choice(words: &[&str]) -> Value {
    json!({"anyOf": [{"enum": words}, variable()]})
}

/// Says what holds where the key is not there.
pub(super) fn put_default(schema: &mut Value, default: Value) {
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("default".to_owned(), default);
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use jsonschema::Validator;

    use super::super::TABLES;
    use super::*;
    use crate::config::cases::assert_kept;

    fn validator() -> Validator {
        let schema: Value = serde_json::from_str(&schema()).unwrap();
        jsonschema::draft7::meta::validate(&schema).unwrap();
        jsonschema::draft7::new(&schema).unwrap()
    }

    /// What is wrong with a text of YAML, if it is YAML.
    fn faults(validator: &Validator, yaml: &str) -> Option<Vec<String>> {
        let file: Value = serde_saphyr::from_str(yaml).ok()?;
        Some(
            validator.iter_errors(&file).map(|error| format!("{}: {error}", error.instance_path())).collect(),
        )
    }

    fn assert_good(validator: &Validator, name: &str, yaml: &str) {
        let found = faults(validator, yaml);
        assert_eq!(found.as_deref(), Some([].as_slice()), "{name}:\n{yaml}");
    }

    fn files(folder: &str) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|end| end == "yaml" || end == "json"));
        files.sort();
        assert!(!files.is_empty(), "{folder} is empty");
        files
    }

    #[test]
    fn the_schema_beside_the_default_configuration_is_this_one() {
        assert_kept(Path::new("gateway.schema.json"), &schema());
    }

    #[test]
    fn the_schema_takes_what_the_check_takes() {
        let validator = validator();
        for path in files("tests/data/config/good").iter().chain(&files("tests/data/config/warned")) {
            assert_good(&validator, &path.display().to_string(), &std::fs::read_to_string(path).unwrap());
        }
        for table in TABLES.iter().filter(|table| !table.example.is_empty()) {
            assert_good(&validator, table.path, table.example);
        }
    }

    #[test]
    fn the_schema_takes_what_is_shown_to_people() {
        let validator = validator();
        let readme = std::fs::read_to_string("README.md").unwrap();
        let blocks = readme.split("\n```yaml\n").skip(1).map(|rest| rest.split("\n```").next().unwrap());
        assert!(blocks.clone().count() >= 2, "the README shows no configuration");
        blocks.for_each(|block| assert_good(&validator, "README.md", block));
        let examples = std::fs::read_dir("examples").unwrap().map(|entry| entry.unwrap().path());
        let shown = examples.map(|folder| folder.join("gateway.yaml")).chain([PathBuf::from("gateway.yaml")]);
        for path in shown.filter(|path| path.is_file()) {
            let text = std::fs::read_to_string(&path).unwrap();
            assert_good(&validator, &path.display().to_string(), &text);
            // An editor finds it by the first line.
            let named =
                text.lines().next().unwrap().strip_prefix("# yaml-language-server: $schema=").unwrap();
            let schema = path.parent().unwrap().join(named);
            let root = std::fs::canonicalize("gateway.schema.json").unwrap();
            assert_eq!(std::fs::canonicalize(schema).unwrap(), root, "{}", path.display());
        }
    }

    /// Bad files of which only the check can see what is wrong.
    const BEYOND: &[&str] = &[
        "addresses.yaml",
        "anonymous_without_effect.yaml",
        "command_lines.yaml",
        "headers.yaml",
        "open_to_all.yaml",
        "same_address.yaml",
        "variables.yaml",
        "windows_line_ends.yaml",
    ];

    #[test]
    fn the_schema_refuses_what_the_check_refuses_where_it_can() {
        let validator = validator();
        let mut taken = Vec::new();
        for path in files("tests/data/config/bad") {
            let found = faults(&validator, &std::fs::read_to_string(&path).unwrap());
            if found.is_some_and(|found| found.is_empty()) {
                taken.push(path.file_name().unwrap().to_str().unwrap().to_owned());
            }
        }
        assert_eq!(taken, BEYOND);
    }

    #[test]
    fn every_form_of_the_reference_is_known_to_the_schema() {
        let mut slugs = std::collections::BTreeMap::new();
        for table in TABLES {
            let before = slugs.insert(slug(table), table.path);
            assert_eq!(before, None, "two mappings have one name among the definitions");
            for key in table.keys {
                let form = key.form();
                let is_known = form.schema().as_object().is_some_and(|schema| !schema.is_empty());
                assert!(is_known, "say in `written` what `{}` of `{}` is", form.written(), key.name());
            }
        }
    }

    #[test]
    fn numbers_without_units_and_misspelt_words_are_refused_at_their_place() {
        let validator = validator();
        for (yaml, place) in [
            ("upstreams: {a: {command: x, timeout: 30}}", "/upstreams/a/timeout"),
            ("upstreams: {a: {command: x, limits: {rate: 60/fortnight}}}", "/upstreams/a/limits/rate"),
            ("upstreams: {a: {command: x, era: modem}}", "/upstreams/a/era"),
            ("upstreams: {a: {comand: x}}", "/upstreams/a"),
            ("upstreams: {a: {command: x, url: http://h/}}", "/upstreams/a"),
            ("upstreams: {}\npage_size: 0", "/page_size"),
            ("upstreams: {}\nclients: {a: {tokens: [secret]}}", "/clients/a/tokens/0"),
            ("upstreams: {}\nlimits: {body: 1MiBi}", "/limits/body"),
            ("upstreams: {}\nmcpServers: {}", ""),
        ] {
            let found = faults(&validator, yaml).unwrap();
            assert!(found.iter().any(|fault| fault.starts_with(&format!("{place}: "))), "{yaml}: {found:?}");
        }
    }
}
