//! What the kernel says about this process. Empty where there is no `/proc`.
//!
//! Must not know: the rest of the program.

use std::fs;

/// How many ticks a second has in `/proc/self/stat`: part of the kernel's interface, the same on every
/// architecture that we build for, whatever the kernel's own clock.
const TICKS_PER_SECOND: f64 = 100.0;

/// One look at the process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// User and system time.
    pub(super) cpu_seconds: Option<f64>,
    /// Resident memory.
    pub(super) resident_bytes: Option<u64>,
    /// Open file descriptors.
    pub(super) open_fds: Option<u64>,
}

/// Looks at the process. Reads a few small files; blocks for microseconds.
pub(super) fn usage() -> Usage {
    Usage {
        cpu_seconds: fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu_seconds(&stat)),
        resident_bytes: fs::read_to_string("/proc/self/status").ok().and_then(|status| resident(&status)),
        // The directory is open itself while it is counted.
        open_fds: fs::read_dir("/proc/self/fd").ok().map(|fds| (fds.count() as u64).saturating_sub(1)),
    }
}

/// The program's name is the second field, in brackets, and may hold spaces and brackets itself.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let stat = "12 (a) b) R 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 8 0 100 0 0";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("12 (a"), None);
    }

    #[test]
    fn memory_is_told_in_bytes() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t     12 kB\nVmData:\t1 kB\n"), Some(12_288));
        assert_eq!(resident("Name:\tx\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_tells_all_of_it() {
        let usage = usage();
        assert!(usage.cpu_seconds.is_some());
        assert!(usage.resident_bytes.unwrap() > 100_000);
        assert!(usage.open_fds.unwrap() >= 3);
    }
}
