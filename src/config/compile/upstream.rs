//! Upstreams.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::access::{self, RuleKeys};
use super::{process, resilience, transport};
use crate::config::effective::{self, Block, Origin};
use crate::config::reader::Text;
use crate::config::reference as keys;
use crate::config::section::{Section, quoted};
use crate::config::source::Finding;
use crate::config::tree::{Name, Node, Span};
use crate::config::{
    CallLimits, Isolation, Naming, Process, Resilience, Rules, Sharing, Transport, UpstreamConfig,
};
use crate::mcp::Era;

/// The upstreams of a file.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    /// Those that are to be connected to.
    pub(crate) enabled: Vec<Arc<UpstreamConfig>>,
    /// All that are named, disabled ones and those that could not be read too.
    all: Vec<Named>,
}

/// The name of an upstream, and what goes before its names.
#[derive(Debug)]
struct Named {
    name: String,
    prefix: String,
    span: Span,
    is_disabled: bool,
}

impl Upstreams {
    /// The names of all upstreams of the file.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|named| named.name.as_str())
    }

    /// What the exposed names of any upstream of the file begin with.
    pub(crate) fn prefixes(&self, naming: &Naming) -> Vec<String> {
        let is_kept = |prefix: &str| prefix.len() < naming.max_length;
        // A prefix that is too long gets shortened with the name, so nothing is known of how that begins.
        let prefixes = self.all.iter().map(|named| named.prefix.as_str());
        prefixes.map(|prefix| if is_kept(prefix) { prefix.to_owned() } else { String::new() }).collect()
    }
}

/// Reads all upstreams.
pub(crate) fn upstreams(top: &mut Section<'_>, naming: &Naming) -> Upstreams {
    let key = keys::UPSTREAMS.name;
    let spellings = std::iter::once(key).chain(keys::OTHER_SPELLINGS);
    let spelled: Vec<&str> = spellings.filter(|key| top.has(key)).collect();
    if spelled.is_empty() && !top.misspells(key) {
        let finding = Finding::error("there are no `upstreams`").at(top.at);
        top.report(finding.help("the least file is `upstreams: {}`"));
    }
    if let [first, others @ ..] = spelled.as_slice() {
        for other in others {
            let finding =
                Finding::error(format!("`{first}` and `{other}` are the same thing: only one can be there"));
            top.report(finding.at(top.place(other)).help("move everything under `upstreams`"));
        }
    }
    let defaults = defaults(top);
    let mut upstreams = Upstreams::default();
    let mut block = Block::default();
    for spelled in spelled {
        let Some(node) = top.find(spelled) else { continue };
        let entries = top.reader.entries(node, &quoted(spelled), "a mapping of names to upstreams");
        for (name, node) in entries.unwrap_or_default() {
            check_name(top, name);
            let what = format!("the upstream `{}`", name.text);
            let wanted = "a mapping with `command` or `url`";
            let Some(entries) = top.reader.entries(node, &what, wanted) else { continue };
            let section = Section::open(top.reader, &keys::UPSTREAM, entries, name.span);
            let mut section = section.with_fallback(defaults);
            upstream(&mut section, name, naming, &mut upstreams);
            block.put_block(&name.text, section.finish());
        }
    }
    top.out.put_block(key, block);
    check_prefixes(top, &upstreams);
    upstreams
}

/// Checks `defaults` by itself, so that its problems are found with no upstream too.
fn defaults<'a>(top: &mut Section<'a>) -> &'a [(Name, Node)] {
    let Some(node) = top.find(keys::DEFAULTS_KEY.name) else {
        return &[];
    };
    let Some(entries) = top.reader.entries(node, "`defaults`", "a mapping") else {
        return &[];
    };
    let at = top.place(keys::DEFAULTS_KEY.name);
    let mut section = Section::open(top.reader, &keys::DEFAULTS, entries, at);
    let _checked = behaviour(&mut section, None);
    entries
}

const RULES: RuleKeys = RuleKeys {
    tools: &keys::UPSTREAM_TOOLS,
    resources: &keys::UPSTREAM_RESOURCES,
    prompts: &keys::UPSTREAM_PROMPTS,
    extensions: &keys::UPSTREAM_EXTENSIONS,
};

/// What an upstream does, wherever it is.
struct Behaviour {
    era: Option<Era>,
    rules: Rules,
    timeout: Duration,
    connect_timeout: Duration,
    list_timeout: Duration,
    grace: Duration,
    refresh: Duration,
    process: Process,
    sharing: Sharing,
    resilience: Resilience,
    limits: CallLimits,
}

fn behaviour(section: &mut Section<'_>, transport: Option<&Transport>) -> Behaviour {
    let era = match section.choice(&keys::ERA) {
        "legacy" => Some(Era::Legacy),
        "modern" => Some(Era::Modern),
        _ => None,
    };
    Behaviour {
        era,
        rules: access::rules(section, &RULES).0,
        timeout: section.bounded(&keys::TIMEOUT).unwrap_or_default(),
        connect_timeout: section.bounded(&keys::CONNECT_TIMEOUT).unwrap_or_default(),
        list_timeout: section.bounded(&keys::LIST_TIMEOUT).unwrap_or_default(),
        grace: section.bounded(&keys::GRACE).unwrap_or_default(),
        refresh: refresh(section),
        process: match transport {
            Some(Transport::Http(_)) => Process::default(),
            Some(Transport::Stdio(_)) | None => process::process(section),
        },
        sharing: sharing(section, transport),
        resilience: resilience::resilience(section),
        limits: access::call_limits(section, &keys::UPSTREAM_LIMITS),
    }
}

fn refresh(section: &mut Section<'_>) -> Duration {
    let refresh = section.bounded(&keys::REFRESH).unwrap_or_default();
    if !refresh.is_zero() && refresh < MIN_REFRESH {
        let span = section.find(keys::REFRESH.name).map_or(section.at, |node| node.span);
        let finding = Finding::error("`refresh` is too often").at(span);
        section.report(finding.help("it may be `100ms` or more, or `0s` for never"));
    }
    refresh
}

/// Own connections of an upstream, where the file does not say how many: processes cost more than sessions.
const MAX_CHILDREN: u64 = 32;
const MAX_SESSIONS: u64 = 1_000;

/// How its connections are shared. What does not stand in the file follows from the transport, if there is one.
fn sharing(section: &mut Section<'_>, transport: Option<&Transport>) -> Sharing {
    let (isolation, word, most) = match transport {
        Some(Transport::Http(_)) => (Isolation::PerSession, "per_session", MAX_SESSIONS),
        Some(Transport::Stdio(_)) | None => (Isolation::Shared, "shared", MAX_CHILDREN),
    };
    let key = &keys::ISOLATION;
    let isolation = match section.has(key.name) || transport.is_none() {
        true => match section.choice(key) {
            "shared" => Isolation::Shared,
            "per_client" => Isolation::PerClient,
            "per_session" => Isolation::PerSession,
            _ => isolation,
        },
        false => {
            section.out.put(key.name, effective::scalar(word), Origin::Default);
            isolation
        }
    };
    let key = &keys::MAX_CONNECTIONS;
    let connections = match section.has(key.name) || transport.is_none() {
        true => section.count(key),
        false => {
            section.out.put(key.name, most.to_string(), Origin::Default);
            usize::try_from(most).ok()
        }
    };
    Sharing {
        isolation,
        connections: connections.unwrap_or_default(),
        concurrency: section.count(&keys::MAX_CONCURRENCY).unwrap_or_default(),
        waiting: section.count(&keys::MAX_WAITING).unwrap_or_default(),
    }
}

const MIN_REFRESH: Duration = Duration::from_millis(100);

fn upstream(section: &mut Section<'_>, name: &Name, naming: &Naming, upstreams: &mut Upstreams) {
    let mut transport = transport::transport(section);
    let is_disabled = section.flag(&keys::DISABLED).unwrap_or_default();
    let prefix = prefix(section, name, naming);
    let behaviour = behaviour(section, transport.as_ref());
    if let Some(Transport::Stdio(stdio)) = &mut transport {
        stdio.process = behaviour.process;
    }
    upstreams.all.push(Named {
        name: name.text.clone(),
        prefix: prefix.clone(),
        span: name.span,
        is_disabled,
    });
    let (Some(transport), false) = (transport, is_disabled) else {
        return;
    };
    upstreams.enabled.push(Arc::new(UpstreamConfig {
        name: name.text.as_str().into(),
        index: upstreams.enabled.len(),
        transport,
        era: behaviour.era,
        prefix,
        rules: behaviour.rules,
        timeout: behaviour.timeout,
        connect_timeout: behaviour.connect_timeout,
        list_timeout: behaviour.list_timeout,
        grace: behaviour.grace,
        refresh: behaviour.refresh,
        sharing: behaviour.sharing,
        resilience: behaviour.resilience,
        limits: behaviour.limits,
    }));
}

const MAX_NAME: usize = 64;

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.-".contains(c)
}

fn check_name(top: &Section<'_>, name: &Name) {
    let text = &name.text;
    if text.is_empty() || text.chars().count() > MAX_NAME || !text.chars().all(is_name_character) {
        let finding = Finding::error(format!("`{}` cannot be the name of an upstream", text.escape_debug()));
        top.report(
            finding.at(name.span).help("names have letters, digits, `_`, `-` and `.`, at most 64 of them"),
        );
    }
}

fn prefix(section: &mut Section<'_>, name: &Name, naming: &Naming) -> String {
    let key = &keys::PREFIX;
    if section.find(key.name).is_none() {
        section.out.put(key.name, effective::scalar(&name.text), Origin::Default);
        return format!("{}{}", name.text, naming.separator);
    }
    let Some(text) = section.text(key) else {
        return String::new();
    };
    checked_prefix(section, &text, naming).unwrap_or_else(|| format!("{}{}", name.text, naming.separator))
}

/// A prefix with its separator; a finding and `None` if it cannot be one.
pub(crate) fn checked_prefix(section: &Section<'_>, text: &Text, naming: &Naming) -> Option<String> {
    if text.value.chars().count() > MAX_NAME || !text.value.chars().all(is_name_character) {
        let finding =
            Finding::error(format!("`{}` cannot be a prefix", text.written.escape_debug())).at(text.span);
        section.report(
            finding.help("a prefix has letters, digits, `_`, `-` and `.`, at most 64 of them, or is empty"),
        );
        return None;
    }
    if text.value.is_empty() || text.value.ends_with(&naming.separator) {
        return Some(text.value.clone());
    }
    Some(format!("{}{}", text.value, naming.separator))
}

/// Warns of upstreams whose names may collide.
fn check_prefixes(top: &Section<'_>, upstreams: &Upstreams) {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for Named { name, prefix, span, .. } in upstreams.all.iter().filter(|named| !named.is_disabled) {
        let first = *seen.entry(prefix).or_insert(name);
        // Of two with one name, the name is reported.
        if first == name {
            continue;
        }
        let message = if prefix.is_empty() {
            format!("`{first}` and `{name}` both have no prefix")
        } else {
            format!("`{first}` and `{name}` have the same prefix `{prefix}`")
        };
        let help = format!("where both have a tool of one name, that of `{first}` is offered");
        top.report(Finding::warning(message).at(*span).help(help));
    }
}
