//! What reading any value has in common: variables are filled in, findings are collected.
//!
//! Must not know: which keys there are, what values are for.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;

use super::expand::{self, ExpandError};
use super::source::Finding;
use super::tree::{Name, Node, ScalarKind, Span, Value};

/// What reading has in common: the variables, and what was found.
pub(crate) struct Reader<'a> {
    /// Relative paths count from here.
    pub(crate) folder: PathBuf,
    pub(crate) env: &'a dyn Fn(&str) -> Option<String>,
    pub(crate) findings: RefCell<Vec<Finding>>,
    /// The files that were read besides.
    pub(crate) files: RefCell<Vec<PathBuf>>,
}

/// A text, variables filled in.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) value: String,
    /// As it stands in the file; the only form that is shown.
    pub(crate) written: String,
    pub(crate) span: Span,
    /// Whether variables had a part in it.
    pub(crate) is_expanded: bool,
    /// What YAML takes it for, as it is written.
    pub(crate) kind: ScalarKind,
    /// Variables in it that are set and empty.
    pub(crate) empty: Vec<String>,
    /// The first name in it behind a `$` without braces.
    pub(crate) bare: Option<String>,
}

/// What is to be done where a secret text must not come out empty because a variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emptiness {
    /// It may be written that empty is meant.
    Optional,
    /// It is never right.
    Never,
}

/// More are not kept: nobody reads them.
const MAX_FINDINGS: usize = 1_000;

impl Reader<'_> {
    pub(crate) fn report(&self, finding: Finding) {
        let mut findings = self.findings.borrow_mut();
        if findings.len() < MAX_FINDINGS {
            findings.push(finding);
        }
    }

    /// The scalar as text; a finding and `None` if it is none. `what` names it in messages.
    pub(crate) fn text(&self, node: &Node, what: &str) -> Option<Text> {
        let scalar = match &node.value {
            Value::Scalar(scalar) => scalar,
            Value::Null | Value::List(_) | Value::Map(_) => {
                self.report_kind(node, what, "text");
                return None;
            }
        };
        match expand::expand(&scalar.text, self.env) {
            Ok(expanded) => Some(Text {
                value: expanded.text,
                written: scalar.text.clone(),
                span: node.span,
                is_expanded: expanded.is_changed,
                kind: scalar.kind,
                empty: expanded.empty,
                bare: expanded.bare,
            }),
            Err(errors) => {
                for error in errors {
                    self.report(expand_finding(&error, what).at(node.span));
                }
                None
            }
        }
    }

    /// As [`Self::text`], for what must not come out empty because a variable is.
    pub(crate) fn secret_text(&self, node: &Node, what: &str, emptiness: Emptiness) -> Option<Text> {
        let text = self.text(node, what)?;
        for name in &text.empty {
            let finding = Finding::error(format!("the variable `{name}`, in {what}, is set but empty"));
            self.report(finding.at(text.span).help(match emptiness {
                Emptiness::Optional => format!("set it, or write `${{{name}:-}}` if empty is meant"),
                Emptiness::Never => "set it: empty is no credential".to_owned(),
            }));
        }
        // The rest may be a secret, so a name is only repeated where it is known for one.
        let name = text.bare.as_deref().filter(|name| (self.env)(name).is_some());
        self.warn_of_bare(&text, what, text.bare.as_ref().map(|_| name.unwrap_or("NAME")));
        text.empty.is_empty().then_some(text)
    }

    /// Warns of a `$NAME` that is left as it is. `what` names the value.
    pub(crate) fn check_bare(&self, text: &Text, what: &str) {
        self.warn_of_bare(text, what, text.bare.as_deref());
    }

    fn warn_of_bare(&self, text: &Text, what: &str, name: Option<&str>) {
        let Some(name) = name else { return };
        let finding = Finding::warning(format!("`${name}`, in {what}, is not a variable here"));
        self.report(
            finding.at(text.span).help(format!("write `${{{name}}}`, or `$${name}` if that text is meant")),
        );
    }

    pub(crate) fn report_kind(&self, node: &Node, what: &str, wanted: &str) {
        let finding = match node.value {
            Value::Null => Finding::error(format!("{what} has no value: expected {wanted}"))
                .help("leave it out for the default; null is no value, and the text needs quotes"),
            Value::Scalar(_) | Value::List(_) | Value::Map(_) => {
                Finding::error(format!("{what} is {}: expected {wanted}", node.kind()))
            }
        };
        self.report(finding.at(node.span));
    }

    /// The items of a list; a finding and `None` if it is none.
    pub(crate) fn items<'n>(&self, node: &'n Node, what: &str, wanted: &str) -> Option<&'n [Node]> {
        if let Value::List(items) = &node.value {
            return Some(items);
        }
        self.report_kind(node, what, wanted);
        None
    }

    /// The entries of a mapping, each key once; findings for duplicates, and `None` if it is no mapping.
    pub(crate) fn entries<'n>(&self, node: &'n Node, what: &str, wanted: &str) -> Option<&'n [(Name, Node)]> {
        let Value::Map(entries) = &node.value else {
            self.report_kind(node, what, wanted);
            return None;
        };
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (name, _) in entries {
            if let Some(first) = seen.get(name.text.as_str()) {
                let finding = Finding::error(format!("duplicate key `{}`", name.text));
                self.report(finding.at(name.span).help(format!("it is also on line {first}")));
            } else {
                seen.insert(&name.text, name.span.line);
            }
        }
        Some(entries)
    }
}

fn expand_finding(error: &ExpandError, what: &str) -> Finding {
    match error {
        ExpandError::Unset(name) if EDITOR_NAMES.contains(&name.as_str()) => editor_finding(name, "", what),
        ExpandError::Editor(kind, name) => editor_finding(kind, name, what),
        ExpandError::Unset(name) => Finding::error(format!("the variable `{name}`, in {what}, is not set"))
            .help(format!("set it, or give a default: `${{{name}:-…}}`; `$$` is a dollar")),
        ExpandError::Unclosed => Finding::error(format!("{what} has `${{` without `}}`"))
            .help("variables are written `${NAME}`; `$$` is a dollar"),
        ExpandError::BadName(name) => Finding::error(format!(
            "{what} has `${{{name}…}}`, which names no variable"
        ))
        .help("variables are written `${NAME}` or `${NAME:-default}`, names with letters, digits and `_`"),
        ExpandError::Nested(name) => {
            Finding::error(format!("the default of `{name}`, in {what}, has a variable"))
                .help("a default is plain text")
        }
    }
}

/// Variables that editors have without anybody setting them.
const EDITOR_NAMES: [&str; 6] =
    ["workspaceFolder", "workspaceFolderBasename", "workspaceRoot", "userHome", "pathSeparator", "cwd"];

fn editor_finding(kind: &str, name: &str, what: &str) -> Finding {
    let shown = if name.is_empty() { kind.to_owned() } else { format!("{kind}:{name}") };
    let finding = Finding::error(format!("{what} has `${{{shown}}}`, which only an editor knows"));
    match kind {
        "input" => {
            let variable = variable_name(name);
            finding.help(format!(
                "nobody is asked here: write `${{{variable}}}`, and set the variable `{variable}`"
            ))
        }
        "userHome" => finding.help("write `${HOME}`"),
        "pathSeparator" => finding.help("write `/`"),
        "command" | "config" => finding.help("write the value itself, or `${NAME}` and set that variable"),
        _ => finding.help("there is no workspace here: write the path of the folder itself"),
    }
}

/// A variable for what an editor asks for: `gh-token` is `GH_TOKEN`.
pub(crate) fn variable_name(id: &str) -> String {
    let name: String = id
        .chars()
        .take(64)
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect();
    if expand::is_name(&name) { name } else { "NAME".to_owned() }
}
