//! What an upstream is given up for.

use std::time::Duration;

use crate::config::effective::{Block, Origin};
use crate::config::reference as keys;
use crate::config::section::Section;
use crate::config::source::Finding;
use crate::config::units::Unit as _;
use crate::config::{Breaker, Health, Pattern, Resilience, Retry};

/// When a child process is asked whether it lives that says nothing of it.
const CHILD_INTERVAL: Duration = Duration::from_secs(30);

/// Reads how much an upstream is put up with.
pub(crate) fn resilience(section: &mut Section<'_>) -> Resilience {
    let is_child = section.has_own(keys::COMMAND.name);
    Resilience {
        max_timeout: section.bounded(&keys::MAX_TIMEOUT),
        timeouts: timeouts(section),
        stream_idle: section.bounded(&keys::STREAM_IDLE).filter(|time| !time.is_zero()),
        health: section.within(&keys::HEALTH_KEY, |health| {
            let interval = health.bounded(&keys::HEALTH_INTERVAL).or(is_child.then_some(CHILD_INTERVAL));
            Health {
                interval: interval.filter(|time| !time.is_zero()),
                timeout: health.bounded(&keys::HEALTH_TIMEOUT).unwrap_or_default(),
            }
        }),
        breaker: section.within(&keys::BREAKER_KEY, |breaker| Breaker {
            failures: breaker.small_count(&keys::BREAKER_FAILURES).unwrap_or_default(),
            open: breaker.bounded(&keys::BREAKER_OPEN).unwrap_or_default(),
        }),
        retry: match section.choice(&keys::RETRY) {
            "never" => Retry::Never,
            "always" => Retry::Always,
            _ => Retry::Hinted,
        },
    }
}

/// Longest name of a tool, or pattern of one, in bytes.
const MAX_PATTERN: usize = 512;

/// Reads the timeouts of single tools.
fn timeouts(section: &mut Section<'_>) -> Vec<(Pattern, Duration)> {
    let key = &keys::TIMEOUTS;
    let mut block = Block::default();
    let mut timeouts = Vec::new();
    for (name, node) in section.names(key, "a mapping of names of tools to durations") {
        let text = name.text.as_str();
        if text.is_empty() || text.len() > MAX_PATTERN || text.trim() != text {
            let finding = Finding::error(format!("`{}` is no name of a tool", text.escape_debug()));
            section.report(
                finding
                    .at(name.span)
                    .help("it is a name, in which `*` is any run of characters and `?` is one"),
            );
            continue;
        }
        let what = format!("`{}.{text}`", key.name);
        if let Some(timeout) = section.parse_bounded(node, &what, &key.form.0) {
            block.put(text, timeout.write(), Origin::Line(node.span.line));
            timeouts.push((Pattern::on_line(text, name.span.line), timeout));
        }
    }
    section.out.put_block(key.name, block);
    timeouts
}
