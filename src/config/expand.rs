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
    /// The first name that stands behind a `$` without braces, as a shell takes it.
    pub(crate) bare: Option<String>,
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
    /// Something that only an editor can fill in, like `${input:token}`: its kind and, if it has one, its name.
    Editor(&'static str, String),
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
            if out.bare.is_none() && !before.ends_with(|c: char| c.is_alphanumeric()) {
                out.bare = bare_name(after);
            }
            out.text.push('$');
            rest = after;
        }
    }
    out.text.push_str(rest);
    if errors.is_empty() { Ok(out) } else { Err(errors) }
}

/// The name that a shell would fill in here. Only capitals: passwords and digests have dollars, too.
fn bare_name(after: &str) -> Option<String> {
    let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(after.len());
    let name = after.get(..end).filter(|name| is_name(name) && name.len() > 1)?;
    (!name.bytes().any(|byte| byte.is_ascii_lowercase())).then(|| name.to_owned())
}

/// What stands before a colon where editors fill something in.
const EDITOR_KINDS: [&str; 4] = ["input", "command", "config", "workspaceFolder"];

/// Whether this is for an editor to fill in, and what.
fn editor_reference(inside: &str) -> Option<ExpandError> {
    let (kind, name) = inside.split_once(':')?;
    let kind = EDITOR_KINDS.into_iter().find(|known| *known == kind)?;
    let is_plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "_-. ".contains(c));
    // `${input:-x}` is the variable `input` and its default.
    (!name.starts_with('-'))
        .then(|| ExpandError::Editor(kind, if is_plain(name) { name.to_owned() } else { String::new() }))
}

fn fill(inside: &str, env: &dyn Fn(&str) -> Option<String>, out: &mut Expanded) -> Result<(), ExpandError> {
    if let Some(error) = editor_reference(inside) {
        return Err(error);
    }
    // As editors write it. `${env:-x}` is the variable `env` and its default.
    let inside = inside.strip_prefix("env:").filter(|name| !name.starts_with('-')).unwrap_or(inside);
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
            ("${env:A}", "one"),
            ("${env:C:-dflt}", "dflt"),
            ("${env:-dflt}", "dflt"),
            ("${input:-dflt}", "dflt"),
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
        assert_eq!(expand("${env:A-b}", &env).unwrap_err(), [ExpandError::BadName("A".into())]);
        assert_eq!(expand("${C:-${A}}", &env).unwrap_err(), [ExpandError::Nested("C".into())]);
    }

    #[test]
    fn what_only_an_editor_knows_is_told_apart() {
        for (text, kind, name) in [
            ("${input:gh-token}", "input", "gh-token"),
            ("${command:pick.a}", "command", "pick.a"),
            ("${workspaceFolder:a b}", "workspaceFolder", "a b"),
            ("${input:$x/}", "input", ""),
        ] {
            assert_eq!(expand(text, &env).unwrap_err(), [ExpandError::Editor(kind, name.into())], "{text}");
        }
    }

    #[test]
    fn a_name_without_braces_is_noticed() {
        for (text, wanted) in [
            ("$PATH:/x", Some("PATH")),
            ("Bearer $GH_TOKEN", Some("GH_TOKEN")),
            ("--token=$T1", Some("T1")),
            ("a$B ${A} $HOME/$USER", Some("HOME")),
            ("$$HOME", None),
            ("pa$WORD", None),
            ("$word", None),
            ("$Word", None),
            ("$2B$12", None),
            ("$A", None),
            ("$", None),
        ] {
            assert_eq!(expand(text, &env).unwrap().bare.as_deref(), wanted, "{text}");
        }
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
