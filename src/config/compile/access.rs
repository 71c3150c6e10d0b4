//! What upstreams, endpoints, roles and clients share: rules, and limits on calls.

use super::narrow;
use crate::config::effective::{self, Origin};
use crate::config::nearest::nearest;
use crate::config::reader::Text;
use crate::config::reference as keys;
use crate::config::section::{Section, quoted};
use crate::config::source::Finding;
use crate::config::tree::{Node, Span, Value};
use crate::config::{CallLimits, Filter, Pattern, Rate, Rules};
use crate::mcp::Hints;

/// A filter, and where each of its patterns stands.
#[derive(Debug, Default)]
struct PlacedFilter {
    filter: Filter,
    places: Vec<(Pattern, Span)>,
}

/// What the patterns of a filter can look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Names,
    NamesAndHints,
}

/// Reads a filter.
fn filter<'a>(owner: &mut Section<'a>, key: &'static keys::Key<keys::Nested>, over: Over) -> PlacedFilter {
    owner.within(key, |tools| {
        let mut places = Vec::new();
        let allow = match tools.find(keys::ALLOW.name) {
            Some(_) => Some(patterns(tools, (&keys::ALLOW, over), &mut places)),
            None => {
                tools.out.put_unset(keys::ALLOW.name);
                None
            }
        };
        let deny = patterns(tools, (&keys::DENY, over), &mut places);
        let narrow = if over == Over::NamesAndHints { narrow::narrow(tools) } else { Vec::new() };
        let filter = Filter { allow, deny, narrow };
        for (pattern, span) in &places {
            check_meaning(tools, &filter, pattern, *span);
        }
        PlacedFilter { filter, places }
    })
}

/// The keys of a layer of rules.
#[derive(Debug)]
pub(crate) struct RuleKeys {
    pub(crate) tools: &'static keys::Key<keys::Nested>,
    pub(crate) resources: &'static keys::Key<keys::Nested>,
    pub(crate) prompts: &'static keys::Key<keys::Nested>,
    pub(crate) extensions: &'static keys::Key<keys::Nested>,
}

/// Reads a layer of rules, and gives the patterns over names of tools and prompts with their places.
pub(crate) fn rules(owner: &mut Section<'_>, keys: &RuleKeys) -> (Rules, Vec<(Pattern, Span)>) {
    let tools = filter(owner, keys.tools, Over::NamesAndHints);
    let resources = filter(owner, keys.resources, Over::Names).filter;
    let prompts = filter(owner, keys.prompts, Over::Names);
    let extensions = rule(owner, keys.extensions);
    let mut places = tools.places;
    places.extend(prompts.places);
    let (tools, prompts) = (tools.filter, prompts.filter);
    (Rules { tools, resources, prompts, extensions, line: owner.at.line }, places)
}

/// Reads patterns over names.
pub(crate) fn names(section: &mut Section<'_>, key: &'static keys::Key<keys::Free>) -> Vec<Pattern> {
    patterns(section, (key, Over::Names), &mut Vec::new())
}

/// Reads `extensions`, which has no meaning of its own where it is not there.
fn rule<'a>(owner: &mut Section<'a>, key: &'static keys::Key<keys::Nested>) -> Option<Filter> {
    let is_there = owner.has(key.name);
    let filter = filter(owner, key, Over::Names).filter;
    is_there.then_some(filter)
}

fn patterns(
    tools: &mut Section<'_>,
    (key, over): (&'static keys::Key<keys::Free>, Over),
    places: &mut Vec<(Pattern, Span)>,
) -> Vec<Pattern> {
    let Some(node) = tools.find(key.name) else {
        tools.out.put(key.name, "[]".to_owned(), Origin::Default);
        return Vec::new();
    };
    let items = tools.reader.items(node, &quoted(key.name), "a list of texts").unwrap_or_default();
    let what = format!("an item of {}", quoted(key.name));
    let (mut patterns, mut shown) = (Vec::new(), Vec::new());
    for item in items {
        let read = match (&item.value, over) {
            (Value::Map(_), Over::NamesAndHints) => hinted(tools, key.name, item),
            (_, _) => tools.reader.text(item, &what).and_then(|text| {
                shown.push(effective::scalar(&text.written));
                pattern(tools, key.name, &text)
            }),
        };
        if let Some(pattern) = read {
            if matches!(item.value, Value::Map(_)) {
                shown.push(pattern.as_str().to_owned());
            }
            places.push((pattern.clone(), item.span));
            patterns.push(pattern);
        }
    }
    tools.out.put(key.name, format!("[{}]", shown.join(", ")), Origin::Line(node.span.line));
    patterns
}

/// Reads a pattern over annotations, and over a name where it has one: `{readOnlyHint: true}`.
fn hinted(tools: &Section<'_>, key: &str, node: &Node) -> Option<Pattern> {
    let what = format!("an item of {}", quoted(key));
    let entries = tools.reader.entries(node, &what, "a pattern, or a mapping of annotations")?;
    let (mut name, mut hints, mut is_whole) = (None, Hints::default(), true);
    for (member, value) in entries {
        if member.text == NAME {
            let text = tools.reader.text(value, "`name`");
            name = text.as_ref().and_then(|text| pattern(tools, key, text));
            is_whole &= name.is_some();
            continue;
        }
        let flag = tools
            .reader
            .text(value, &quoted(&member.text))
            .and_then(|text| text.value.to_ascii_lowercase().parse::<bool>().ok());
        match (flag, hints.with((&member.text, flag.unwrap_or_default()))) {
            (Some(_), Some(more)) => hints = more,
            (None, Some(_)) => {
                tools.reader.report_kind(value, &quoted(&member.text), "`true` or `false`");
                is_whole = false;
            }
            (_, None) => {
                let known = Hints::NAMES.into_iter().chain([NAME]);
                let finding = Finding::error(format!("tools have no annotation `{}`", member.text));
                let help = match nearest(known, &member.text) {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None => format!("there are {}, and `name` for a pattern", Hints::NAMES.join(", ")),
                };
                tools.report(finding.at(member.span).help(help));
                is_whole = false;
            }
        }
    }
    if hints.is_empty() && is_whole {
        let finding = Finding::error(format!("{what} asks for no annotation")).at(node.span);
        tools.report(finding.help("write `{readOnlyHint: true}`, or a name alone without braces"));
        return None;
    }
    let text = match &name {
        Some(name) => format!("{{name: {}, {hints}}}", effective::scalar(name.as_str())),
        None => format!("{{{hints}}}"),
    };
    let name = name.as_ref().map_or("*", Pattern::as_str);
    is_whole.then(|| Pattern::over_hints(name, hints, &text, node.span.line))
}

/// The member of a pattern over annotations that holds a pattern over names.
const NAME: &str = "name";

/// Longest pattern, in bytes.
const MAX_PATTERN: usize = 512;

fn pattern(tools: &Section<'_>, key: &str, text: &Text) -> Option<Pattern> {
    let value = text.value.as_str();
    let wrong = if value.is_empty() {
        format!("an empty pattern in {} matches nothing", quoted(key))
    } else if value.len() > MAX_PATTERN {
        format!("a pattern in {} is longer than {MAX_PATTERN} bytes", quoted(key))
    } else if value.trim() != value || value.chars().any(char::is_control) {
        format!(
            "the pattern `{}` begins or ends with a space, or holds control characters",
            text.written.escape_debug()
        )
    } else {
        return Some(Pattern::on_line(value, text.span.line));
    };
    let finding = Finding::error(wrong).at(text.span);
    tools.report(finding.help(match key {
        "allow" => "`*` matches everything, `allow: []` lets nothing through",
        _ => "a pattern is a name, in which `*` is any run of characters and `?` is one",
    }));
    None
}

/// Warns of patterns that do something else than they seem to.
fn check_meaning(tools: &Section<'_>, filter: &Filter, pattern: &Pattern, span: Span) {
    let text = pattern.name();
    if text.contains(['[', ']', '{', '}', '|', '\\']) || text.starts_with(['!', '^']) {
        let finding = Finding::warning(format!("`{text}` has no other wildcards than `*` and `?`")).at(span);
        tools.report(
            finding.help("every other character stands for itself; write one pattern per alternative"),
        );
    }
    let is_allowed = filter.allow.iter().flatten().any(|allowed| allowed == pattern);
    if is_allowed && filter.deny.contains(pattern) {
        let finding = Finding::warning(format!("`{pattern}` is both allowed and denied")).at(span);
        tools.report(finding.help("`deny` wins"));
    }
}

/// Reads `limits` of an upstream or a client.
pub(crate) fn call_limits(owner: &mut Section<'_>, key: &'static keys::Key<keys::Nested>) -> CallLimits {
    owner.within(key, |limits| CallLimits {
        concurrency: limits.small_count(&keys::CONCURRENCY),
        ..rate_limits(limits)
    })
}

/// Reads `rate` and `burst`.
pub(crate) fn rate_limits(limits: &mut Section<'_>) -> CallLimits {
    let rate = rate(limits);
    if limits.has_own(keys::BURST.name) && !limits.has(keys::RATE.name) {
        let finding = Finding::error("`burst` needs a `rate`").at(limits.place(keys::BURST.name));
        limits.report(finding.help("write `rate: 60/min` beside it, or take it out"));
    }
    let burst = match (limits.has(keys::BURST.name), rate) {
        (false, Some(rate)) => {
            limits.out.put(keys::BURST.name, rate.count.to_string(), Origin::Default);
            None
        }
        _ => limits.small_count(&keys::BURST),
    };
    CallLimits { rate, burst, concurrency: None }
}

fn rate(limits: &mut Section<'_>) -> Option<Rate> {
    let key = &keys::RATE;
    let Some(node) = limits.find(key.name) else {
        limits.out.put_unset(key.name);
        return None;
    };
    let text = limits.reader.text(node, &quoted(key.name))?;
    let Some(rate) = Rate::parse(text.value.trim()) else {
        let finding = Finding::error(format!("`{}` is not a rate", text.written)).at(node.span);
        limits.report(finding.help(format!("{} is written like {}", quoted(key.name), Rate::FORMS)));
        return None;
    };
    limits.out.put(key.name, rate.to_string(), Origin::Line(node.span.line));
    Some(rate)
}
