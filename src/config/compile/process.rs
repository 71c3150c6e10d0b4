//! How a child process is kept.

use std::time::Duration;

use crate::config::effective::{self, Origin};
use crate::config::reference as keys;
use crate::config::section::Section;
use crate::config::source::Finding;
use crate::config::{Process, ProcessBounds, Start};

/// When a process is ended that calls start, where the file does not say.
const IDLE_STOP: Duration = Duration::from_secs(600);
/// What of a key is shown that was not written.
const IDLE_STOP_SHOWN: &str = "10m";
const SHORTEST_IDLE_STOP: Duration = Duration::from_millis(100);

/// Reads how the process of an upstream is kept.
pub(crate) fn process(upstream: &mut Section<'_>) -> Process {
    upstream.within(&keys::PROCESS_KEY, |section| {
        let start = match section.choice(&keys::START) {
            "lazy" => Start::Lazy,
            _ => Start::Eager,
        };
        let idle_stop = idle_stop(section, start);
        let memory = section.bounded(&keys::MAX_MEMORY).map(|bytes| bytes.0);
        let cpu_time = section.bounded(&keys::MAX_CPU_TIME);
        let bounds = ProcessBounds { memory, cpu_time };
        if bounds.is_any() && !cfg!(target_os = "linux") {
            let finding = Finding::error("what a process takes can be bounded on Linux only");
            section.report(finding.at(section.at).help("take `max_memory` and `max_cpu_time` out"));
        }
        Process { start, idle_stop, bounds }
    })
}

fn idle_stop(section: &mut Section<'_>, start: Start) -> Option<Duration> {
    let key = &keys::IDLE_STOP;
    if !section.has(key.name) && start == Start::Lazy {
        section.out.put(key.name, effective::scalar(IDLE_STOP_SHOWN), Origin::Default);
        return Some(IDLE_STOP);
    }
    let span = section.find(key.name).map(|node| node.span);
    let idle = section.bounded(key).filter(|idle| !idle.is_zero())?;
    if idle < SHORTEST_IDLE_STOP {
        let finding = Finding::error("`idle_stop` is too short").at(span.unwrap_or(section.at));
        section.report(finding.help("it may be `100ms` or more, or `0s` for never"));
    }
    Some(idle)
}
