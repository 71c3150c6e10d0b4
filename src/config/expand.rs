//! `${NAME}`, `${NAME:-default}` and `$$` in one value, after parsing: what a variable holds is never YAML.
//!
//! Must not know: keys, files. It never puts a variable's value into an error.

/// A value with its variables filled in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expanded {
    pub(crate) text: String,
    /// Whether anything was filled in or escaped.
    pub(crate) is_changed: bool,
    /// Variables that are set and empty, and have no default.
    pub(crate) empty: Vec<String>,
}

/// Why a value cannot be filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExpandError {
    /// The variable is not set, and there is no default.
    Unset(String),
    /// `${` without `}`.
    Unclosed,
    /// What stands between the braces is no name of a variable.
    BadName(String),
    /// A default that holds another variable.
    Nested(String),
}

/// Fills the variables in. All errors of the value at once.
pub(crate) fn expand(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Expanded, Vec<ExpandError>> {
    let mut out = Expanded::default();
    let mut errors = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.text.push_str(before);
        if let Some(tail) = after.strip_prefix('$') {
            out.text.push('$');
            out.is_changed = true;
            rest = tail;
        } else if let Some(tail) = after.strip_prefix('{') {
            let Some((inside, tail)) = tail.split_once('}') else {
                errors.push(ExpandError::Unclosed);
                return Err(errors);
            };
            out.is_changed = true;
            fill(inside, env, &mut out).unwrap_or_else(|error| errors.push(error));
            rest = tail;
        } else {
            out.text.push('$');
            rest = after;
        }
    }
    out.text.push_str(rest);
    if errors.is_empty() { Ok(out) } else { Err(errors) }
}

fn fill(inside: &str, env: &dyn Fn(&str) -> Option<String>, out: &mut Expanded) -> Result<(), ExpandError> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    if !is_name(name) {
        // What stands here may be a value in the wrong place, so only what looks like a name is repeated.
        let shown = name.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        return Err(ExpandError::BadName(shown));
    }
    if default.is_some_and(|default| default.contains("${")) {
        return Err(ExpandError::Nested(name.to_owned()));
    }
    match (env(name), default) {
        (Some(value), _) if !value.is_empty() => out.text.push_str(&value),
        (_, Some(default)) => out.text.push_str(default),
        (Some(_), None) => out.empty.push(name.to_owned()),
        (None, None) => return Err(ExpandError::Unset(name.to_owned())),
    }
    Ok(())
}

/// Whether this may be the name of a variable.
pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "A" => Some("one".into()),
            "B" => Some("two: [${A}]\n".into()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    fn text(of: &str) -> String {
        expand(of, &env).unwrap().text
    }

    #[test]
    fn variables_are_filled_in_once() {
        for (given, wanted) in [
            ("plain", "plain"),
            ("${A}", "one"),
            ("x${A}${A}y", "xoneoney"),
            ("${B}", "two: [${A}]\n"),
            ("${C:-dflt}", "dflt"),
            ("${EMPTY:-dflt}", "dflt"),
            ("${C:-}", ""),
            ("${A:-dflt}", "one"),
            ("${C:-a:-b}", "a:-b"),
            ("$${NOT}", "${NOT}"),
            ("$$$$", "$$"),
            ("pa$word", "pa$word"),
            ("$", "$"),
            ("$A", "$A"),
            ("€$é", "€$é"),
        ] {
            assert_eq!(text(given), wanted, "{given}");
        }
    }

    #[test]
    fn unset_variables_are_named_all_at_once() {
        let errors = expand("${NOPE} ${A} ${NADA}", &env).unwrap_err();
        assert_eq!(errors, [ExpandError::Unset("NOPE".into()), ExpandError::Unset("NADA".into())]);
    }

    #[test]
    fn set_but_empty_is_told_apart() {
        assert_eq!(expand("x${EMPTY}", &env).unwrap().empty, ["EMPTY"]);
        assert!(expand("x${EMPTY:-}", &env).unwrap().empty.is_empty());
    }

    #[test]
    fn malformed_references_are_errors() {
        assert_eq!(expand("${A", &env).unwrap_err(), [ExpandError::Unclosed]);
        assert_eq!(expand("${}", &env).unwrap_err(), [ExpandError::BadName(String::new())]);
        assert_eq!(expand("${1A}", &env).unwrap_err(), [ExpandError::BadName("1A".into())]);
        assert_eq!(expand("${A-b}", &env).unwrap_err(), [ExpandError::BadName("A".into())]);
        assert_eq!(expand("${C:-${A}}", &env).unwrap_err(), [ExpandError::Nested("C".into())]);
    }

    proptest! {
        #[test]
        fn text_without_a_dollar_stays(given in "[^$]*") {
            let expanded = expand(&given, &env).unwrap();
            prop_assert_eq!(expanded, Expanded { text: given, ..Expanded::default() });
        }

        #[test]
        fn doubled_dollars_stand_for_any_text(wanted in "[${}A-C:-]*") {
            prop_assert_eq!(text(&wanted.replace('$', "$$")), wanted);
        }
    }
}
