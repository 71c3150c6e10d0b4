//! Texts of other programs → texts of ours: what they fill in, as variables.
//!
//! Must not know: which key the text belongs to.

use crate::config::expand::is_name;
use crate::config::reader::variable_name;

/// A text as it is written here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Translated {
    pub(super) text: String,
    /// Variables that must be set for it.
    pub(super) variables: Vec<String>,
    /// What was changed in a way that somebody should know of.
    pub(super) remarks: Vec<String>,
}

/// Folders that an editor knows, and the variable that takes their place.
const FOLDERS: [(&str, &str); 5] = [
    ("workspaceFolder", "WORKSPACE_FOLDER"),
    ("workspaceRoot", "WORKSPACE_FOLDER"),
    ("workspaceFolderBasename", "WORKSPACE_FOLDER_BASENAME"),
    ("fileWorkspaceFolder", "WORKSPACE_FOLDER"),
    ("cwd", "WORKSPACE_FOLDER"),
];

/// Translates a text: `${env:X}`, `${input:x}`, `${workspaceFolder}`, and dollars that mean themselves.
pub(super) fn translate(text: &str) -> Translated {
    let mut out = Translated::default();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.text.push_str(before);
        if let Some(tail) = after.strip_prefix('$') {
            out.text.push_str("$$$$");
            rest = tail;
            continue;
        }
        let Some(inside) = after.strip_prefix('{') else {
            rest = out.take_shell_name(text, before, after);
            continue;
        };
        let Some((inside, tail)) = inside.split_once('}') else {
            out.text.push_str("$$");
            rest = after;
            continue;
        };
        rest = out.take_reference(inside, tail);
    }
    out.text.push_str(rest);
    out
}

impl Translated {
    /// `$NAME`, where that is all there is besides a scheme: some programs fill that in. Gives what comes after.
    fn take_shell_name<'t>(&mut self, whole: &str, before: &str, after: &'t str) -> &'t str {
        let is_all = before.is_empty() || SCHEMES.contains(&before);
        let is_capital = !after.bytes().any(|byte| byte.is_ascii_lowercase());
        if is_all
            && whole.len() == before.len() + 1 + after.len()
            && is_name(after)
            && is_capital
            && after.len() > 1
        {
            self.refer(after);
            self.remarks.push(format!("`${after}` is taken for a variable, and written `${{{after}}}`"));
            return "";
        }
        self.text.push('$');
        after
    }

    /// What stands between braces. Gives what comes after.
    fn take_reference<'t>(&mut self, inside: &str, tail: &'t str) -> &'t str {
        let plain = inside.strip_prefix("env:").filter(|name| !name.starts_with('-')).unwrap_or(inside);
        let (name, default) = match plain.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (plain, None),
        };
        if let Some(rest) = default.and_then(|default| nested(default, tail)).filter(|_| is_name(name)) {
            self.refer(name);
            self.remarks.push(format!("the default of `{name}` holds another variable, and is left out"));
            return rest;
        }
        if let Some((_, variable)) =
            FOLDERS.iter().find(|(folder, _)| *folder == name || inside.starts_with(&format!("{folder}:")))
        {
            self.refer(variable);
            self.remarks
                .push(format!("`${{{inside}}}` is known to an editor only: set `{variable}` to that folder"));
            return tail;
        }
        match (name, inside.split_once(':')) {
            ("userHome", _) => self.text.push_str("${HOME}"),
            ("pathSeparator" | "/", _) => self.text.push('/'),
            (_, Some((kind @ ("input" | "command" | "config"), id))) if !id.starts_with('-') => {
                let variable = variable_name(id);
                self.refer(&variable);
                self.remarks
                    .push(format!("`${{{kind}:{id}}}` is filled in by an editor only: set `{variable}`"));
            }
            _ if is_name(name) => match default {
                Some(default) => self.text.push_str(&format!("${{{name}:-{default}}}")),
                None => self.refer(name),
            },
            _ => self.text.push_str(&format!("$${{{inside}}}")),
        }
        tail
    }

    fn refer(&mut self, name: &str) {
        self.text.push_str(&format!("${{{name}}}"));
        if name != "HOME" && !self.variables.iter().any(|known| known == name) {
            self.variables.push(name.to_owned());
        }
    }
}

/// What may stand before a credential.
pub(super) const SCHEMES: [&str; 4] = ["Bearer ", "Basic ", "Token ", "token "];

/// What comes after a default that holds a variable itself, if this is one.
fn nested<'t>(default: &str, tail: &'t str) -> Option<&'t str> {
    default.contains("${").then(|| tail.strip_prefix('}').unwrap_or(tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_of_other_programs_are_variables_of_ours() {
        for (text, wanted, variables) in [
            ("plain", "plain", vec![]),
            ("${A}", "${A}", vec!["A"]),
            ("x ${env:A} y ${A}", "x ${A} y ${A}", vec!["A"]),
            ("${A:-b c}", "${A:-b c}", vec![]),
            ("${env:A:-b}", "${A:-b}", vec![]),
            ("${input:gh-token}", "${GH_TOKEN}", vec!["GH_TOKEN"]),
            ("${workspaceFolder}/x", "${WORKSPACE_FOLDER}/x", vec!["WORKSPACE_FOLDER"]),
            ("${workspaceFolder:api}/x", "${WORKSPACE_FOLDER}/x", vec!["WORKSPACE_FOLDER"]),
            ("${userHome}${/}x${pathSeparator}", "${HOME}/x/", vec![]),
            ("${command:pick.one}", "${PICK_ONE}", vec!["PICK_ONE"]),
            ("${A:-${B}}/c", "${A}/c", vec!["A"]),
            ("pa$$word", "pa$$$$word", vec![]),
            ("pa$word", "pa$word", vec![]),
            ("$100", "$100", vec![]),
            ("$TOKEN", "${TOKEN}", vec!["TOKEN"]),
            ("Bearer $TOKEN", "Bearer ${TOKEN}", vec!["TOKEN"]),
            ("x $TOKEN", "x $TOKEN", vec![]),
            ("${not a name}", "$${not a name}", vec![]),
            ("${open", "$${open", vec![]),
        ] {
            let found = translate(text);
            assert_eq!(
                (found.text.as_str(), found.variables),
                (wanted, variables.into_iter().map(str::to_owned).collect()),
                "{text}"
            );
        }
    }
}
