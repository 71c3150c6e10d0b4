//! Clients and their tokens, and who is let in without one.

use std::collections::HashMap;
use std::sync::Arc;

use super::access::{self, RuleKeys};
use super::auth::Auth;
use super::role::Roles;
use super::secret;
use crate::config::effective::{self, Block, Origin};
use crate::config::nearest::nearest;
use crate::config::reference as keys;
use crate::config::section::{Section, quoted};
use crate::config::source::Finding;
use crate::config::tree::{Name, Span, Value};
use crate::config::{CallLimits, ClientConfig, Naming, Rules, Token};

/// The name of callers without credentials.
const NOBODY: &str = "anonymous";

/// The keys of the rules of clients and roles.
pub(crate) const RULES: RuleKeys = RuleKeys {
    tools: &keys::CLIENT_TOOLS,
    resources: &keys::CLIENT_RESOURCES,
    prompts: &keys::CLIENT_PROMPTS,
    extensions: &keys::CLIENT_EXTENSIONS,
};

/// Reads all clients; then come those that the callers of an issuer are, whose places `auth` learns, and last that
/// of callers without credentials, if they are let in.
pub(crate) fn clients(
    top: &mut Section<'_>,
    auth: &mut Auth,
    roles: &mut Roles,
    (prefixes, naming): (&[String], &Naming),
) -> Vec<ClientConfig> {
    let key = &keys::CLIENTS;
    let node = top.find(key.name);
    let entries =
        node.and_then(|node| top.reader.entries(node, &quoted(key.name), "a mapping of names to clients"));
    let mut clients = Vec::new();
    let mut nobody = None;
    let mut digests = HashMap::new();
    let mut block = Block::default();
    for (name, node) in entries.unwrap_or_default() {
        check_name(top, name, "a client");
        let what = format!("the client `{}`", name.text);
        let Some(entries) = top.reader.entries(node, &what, "a mapping with `tokens`") else { continue };
        let mut section = Section::open(top.reader, &keys::CLIENT, entries, name.span);
        let tokens = tokens(&mut section, name, &mut digests, auth);
        let (rules, places) = access::rules(&mut section, &RULES);
        for (pattern, span) in places {
            check_upstream(top, pattern.literal_start(), span, prefixes, naming);
        }
        let roles = roles.of_client(&mut section);
        let limits = access::call_limits(&mut section, &keys::CLIENT_LIMITS);
        let is_anonymous = name.text == NOBODY;
        let client = ClientConfig {
            name: name.text.as_str().into(),
            tokens,
            is_anonymous,
            is_group: false,
            roles,
            rules,
            limits,
        };
        if is_anonymous {
            nobody = Some((client, name.span))
        } else {
            clients.push(client)
        }
        block.put_block(&name.text, section.finish());
    }
    top.out.put_block(key.name, block);
    for issuer in &mut auth.jwt {
        issuer.group.0 = clients.len();
        clients.push(group(&issuer.group.1));
    }
    if auth.is_open {
        clients.push(nobody.map_or_else(anonymous, |(client, _)| client));
    } else if let Some((_, span)) = nobody {
        let finding =
            Finding::error("`clients.anonymous` has no effect: callers without credentials are not let in");
        top.report(finding.at(span).help("write `auth: {anonymous: true}`, or take it out"));
    }
    clients
}

/// The client that the callers of an issuer are.
fn group(name: &Arc<str>) -> ClientConfig {
    ClientConfig { name: Arc::clone(name), is_anonymous: false, is_group: true, ..anonymous() }
}

fn anonymous() -> ClientConfig {
    ClientConfig {
        name: NOBODY.into(),
        tokens: Vec::new(),
        is_anonymous: true,
        is_group: false,
        roles: Vec::new(),
        rules: Rules::default(),
        limits: CallLimits::default(),
    }
}

/// Whether there is any client with credentials. Clients that could not be read are clients all the same: what is
/// wrong elsewhere must not open the door.
pub(crate) fn has_clients(top: &Section<'_>) -> bool {
    match top.find(keys::CLIENTS.name).map(|node| &node.value) {
        None => top.misspells(keys::CLIENTS.name),
        Some(Value::Map(entries)) => entries.iter().any(|(name, _)| name.text != NOBODY),
        Some(Value::Null | Value::Scalar(_) | Value::List(_)) => true,
    }
}

/// Reports a name that cannot be that of `what`.
pub(crate) fn check_name(top: &Section<'_>, name: &Name, what: &str) {
    let text = &name.text;
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "_.-@".contains(c);
    if text.is_empty() || text.chars().count() > 64 || !text.chars().all(is_fit) {
        let finding = Finding::error(format!("`{}` cannot be the name of {what}", text.escape_debug()));
        top.report(
            finding
                .at(name.span)
                .help("names have letters, digits, `_`, `-`, `.` and `@`, at most 64 of them"),
        );
    }
}

/// Reports a pattern that names an upstream which is not there. `start` is what stands before its first wildcard.
pub(crate) fn check_upstream(
    top: &Section<'_>,
    start: &str,
    span: Span,
    prefixes: &[String],
    naming: &Naming,
) {
    let Some((named, _)) = start.split_once(&naming.separator) else {
        return;
    };
    let mapped = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '?' }).collect()
    };
    // Characters that are mapped may come out as anything.
    let may_match = |prefix: &String| {
        mapped(prefix).chars().zip(start.chars()).all(|(wanted, found)| wanted == '?' || wanted == found)
    };
    if named.is_empty() || prefixes.iter().any(may_match) {
        return;
    }
    let known = prefixes.iter().filter_map(|prefix| prefix.strip_suffix(&naming.separator));
    let finding = Finding::error(format!("no upstream is called `{named}`")).at(span);
    top.report(match nearest(known, named) {
        Some(nearest) => finding.help(format!("did you mean `{nearest}{}…`?", naming.separator)),
        None => finding
            .help("patterns of clients and roles are over exposed names, which begin with the upstream's"),
    });
}

/// A digest, and where it was seen first.
type Digests = HashMap<[u8; 32], (String, usize)>;

fn tokens(section: &mut Section<'_>, client: &Name, digests: &mut Digests, auth: &Auth) -> Vec<Token> {
    let key = keys::TOKENS.name;
    let node = section.find(key);
    if client.text == NOBODY {
        if node.is_some() {
            let finding = Finding::error("`anonymous` is the client without credentials: it has no tokens");
            section.report(finding.at(section.place(key)).help("give the client another name"));
        }
        return Vec::new();
    }
    let Some(node) = node else {
        if section.misspells(key) {
            return Vec::new();
        }
        if auth.names_clients() {
            section.out.put(key, "[]".to_owned(), Origin::Default);
            return Vec::new();
        }
        let finding = Finding::error(format!("the client `{}` has no `tokens`", client.text)).at(section.at);
        section.report(finding.help("add `tokens: [{env: NAME}]`, or `sha256:` and a digest"));
        return Vec::new();
    };
    let Some(items) = section.reader.items(node, &quoted(key), "a list of tokens") else {
        return Vec::new();
    };
    if items.is_empty() && !auth.names_clients() {
        let finding =
            Finding::error(format!("`tokens` is empty: the client `{}` could never call", client.text));
        section.report(finding.at(node.span).help("add `{env: NAME}`, or `sha256:` and a digest"));
    }
    section.out.put(key, effective::secrets(items.len()), Origin::Line(node.span.line));
    let mut tokens = Vec::new();
    for item in items {
        let Some(token) = secret::token(section.reader, item) else { continue };
        if let Some((other, line)) = digests.get(&token.digest) {
            let finding = Finding::error(format!("this token is also one of `{other}`, on line {line}"));
            section.report(finding.at(item.span).help("every client needs tokens of its own"));
            continue;
        }
        digests.insert(token.digest, (client.text.clone(), item.span.line));
        tokens.push(token);
    }
    tokens
}
