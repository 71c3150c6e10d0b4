//! What the arguments of a tool have to fit besides its own schema.
//!
//! Must not know: whose rule it is.

use std::fmt;
use std::sync::Arc;

use jsonschema::Validator;
use serde_json::Value;

use super::Pattern;

/// Most violations that are told of one call.
const TOLD: usize = 8;
/// Longest text of one violation, in bytes.
const LONGEST: usize = 256;

/// A JSON Schema for the arguments of the tools that a pattern matches, and-ed into their own. Equal if pattern and
/// schema are.
#[derive(Clone)]
pub struct Narrow {
    /// The tools.
    pub pattern: Pattern,
    schema: Arc<Schema>,
}

struct Schema {
    value: Value,
    validator: Validator,
}

impl Narrow {
    /// A rule for the tools that `pattern` matches.
    ///
    /// # Errors
    /// Why this is no schema. One that refers to another document is none.
    pub(crate) fn new(pattern: Pattern, value: Value) -> Result<Self, String> {
        let validator = jsonschema::validator_for(&value).map_err(|error| error.to_string())?;
        Ok(Self { pattern, schema: Arc::new(Schema { value, validator }) })
    }

    /// The schema.
    #[must_use]
    pub fn schema(&self) -> &Value {
        &self.schema.value
    }

    /// What of these arguments does not fit, at most eight findings, each with its place; none if they do.
    #[must_use]
    pub fn violations(&self, arguments: &Value) -> Vec<String> {
        let mut told: Vec<String> = self.misspelt(arguments).collect();
        let errors = self.schema.validator.iter_errors(arguments).take(TOLD);
        told.extend(errors.map(|error| {
            let place = error.instance_path().to_string();
            let text = error.to_string();
            let text = text.get(..text.floor_char_boundary(LONGEST)).unwrap_or_default();
            if place.is_empty() { text.to_owned() } else { format!("{place}: {text}") }
        }));
        told.truncate(TOLD);
        told
    }

    /// Members that are named in another case than the schema names them: there are servers that read them all the
    /// same.
    fn misspelt<'a>(&'a self, arguments: &'a Value) -> impl Iterator<Item = String> + 'a {
        let known = self.schema.value.get("properties").and_then(Value::as_object);
        let given = arguments.as_object().into_iter().flat_map(|members| members.keys());
        given.filter_map(move |name| {
            let is_close = |other: &&String| other.eq_ignore_ascii_case(name) && *other != name;
            let meant = known?.keys().find(is_close)?;
            Some(format!("/{name}: write it {meant:?}"))
        })
    }
}

impl PartialEq for Narrow {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern && self.schema.value == other.schema.value
    }
}

impl Eq for Narrow {}

impl fmt::Debug for Narrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Narrow").field("pattern", &self.pattern).field("schema", &self.schema.value).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn violations_name_their_place_and_are_few() {
        let schema =
            json!({"properties": {"path": {"pattern": "^/srv/"}, "n": {"maximum": 5}}, "required": ["path"]});
        let narrow = Narrow::new(Pattern::on_line("x", 1), schema).unwrap();
        assert_eq!(narrow.violations(&json!({"path": "/srv/a", "n": 5})), Vec::<String>::new());
        let told = narrow.violations(&json!({"path": "/etc", "n": 6}));
        assert_eq!(told.len(), 2);
        assert!(told.iter().any(|text| text.starts_with("/path: ")), "{told:?}");
        assert!(narrow.violations(&json!({}))[0].contains("path"));
        assert!(
            narrow.violations(&json!({"path": "/srv/a", "PATH": "/etc"}))[0].contains("write it \"path\"")
        );
        assert!(Narrow::new(Pattern::on_line("x", 1), json!({"type": 7})).is_err());
        assert!(Narrow::new(Pattern::on_line("x", 1), json!({"$ref": "http://example.com/s"})).is_err());
    }
}
