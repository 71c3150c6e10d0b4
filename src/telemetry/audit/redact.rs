//! Arguments without what nobody should read.
//!
//! Must not know: what they are for.

use serde_json::Value;

use crate::config::Pattern;

/// What stands in the place of a value.
const HIDDEN: &str = "***";
/// How deep it is looked; what is deeper is left out.
const DEEPEST: usize = 32;

/// The arguments, without the values of members whose names match one of `names` in any case, and without what is
/// longer than `longest` bytes in one text.
pub(super) fn redacted(text: &str, names: &[Pattern], longest: usize) -> Value {
    match serde_json::from_str(text) {
        Ok(value) => clean(value, names, longest, 0),
        Err(_) => HIDDEN.into(),
    }
}

fn clean(value: Value, names: &[Pattern], longest: usize, depth: usize) -> Value {
    if depth > DEEPEST {
        return HIDDEN.into();
    }
    match value {
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, value)| {
                let lower = name.to_lowercase();
                let is_secret = names.iter().any(|pattern| pattern.matches(lower.as_str()));
                let shown = if is_secret { HIDDEN.into() } else { clean(value, names, longest, depth + 1) };
                (name, shown)
            });
            Value::Object(members.collect())
        }
        Value::Array(items) => items.into_iter().map(|item| clean(item, names, longest, depth + 1)).collect(),
        Value::String(text) if text.len() > longest => {
            let end = text.floor_char_boundary(longest);
            format!("{}…", text.get(..end).unwrap_or_default()).into()
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_hidden_at_any_depth_and_in_any_case() {
        let names = ["*token*", "password"].map(|text| Pattern::on_line(text, 0));
        let text = r#"{"path":"/x","Access_TOKEN":"t","deep":[{"password":{"a":1}}],"long":"ääää","n":1.50}"#;
        let shown = redacted(text, &names, 5);
        let wanted = json!({"path": "/x", "Access_TOKEN": "***", "deep": [{"password": "***"}], "long": "ää…", "n": 1.5});
        assert_eq!(shown, wanted);
        assert_eq!(redacted("no JSON", &names, 5), json!("***"));
    }
}
