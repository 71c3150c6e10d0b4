//! A small process beside us that ends what is left of our children when we are killed and cannot do it
//! ourselves: also of children that ignore the end of their input, and of what they have started.
//!
//! It holds the reading end of a pipe on which we name each process group that lives (`+PID`), and each that is
//! gone (`-PID`). The pipe ends with us, however we end.
//!
//! Must not know: whose children they are.

use std::collections::{BTreeSet, HashSet};
use std::io::Write as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::time::{Instant, sleep};

use super::{KILL_GRACE, POLL, TERM_GRACE, orphans};

/// The command of Waypost that is the guard.
pub(crate) const COMMAND: &str = "__guard";

/// The guard of this process; it guards nothing before [`arm`].
static GUARD: OnceLock<Mutex<Guard>> = OnceLock::new();

/// Our end of it.
#[derive(Debug, Default)]
struct Guard {
    process: Option<(Child, ChildStdin)>,
    groups: BTreeSet<i32>,
}

/// From now on the children of this process do not outlive it. For a program whose own executable knows
/// [`COMMAND`]; the guard is started with the first child.
pub(crate) fn arm() {
    let _armed = GUARD.set(Mutex::default());
}

/// Ends the guard; it finds nothing left to do if all children are gone.
pub(crate) fn dismiss() {
    let process = with(|guard| guard.process.take()).flatten();
    if let Some((mut child, input)) = process {
        drop(input);
        let _status = child.wait();
    }
}

/// A group lives.
pub(super) fn enter(leader: Pid) {
    let pid = leader.as_raw_pid();
    with(|guard| {
        guard.groups.insert(pid);
        guard.tell(&format!("+{pid}\n"));
    });
}

/// A group is gone.
pub(super) fn leave(leader: Pid) {
    let pid = leader.as_raw_pid();
    with(|guard| {
        if guard.groups.remove(&pid) {
            guard.tell(&format!("-{pid}\n"));
        }
    });
}

fn with<T>(act: impl FnOnce(&mut Guard) -> T) -> Option<T> {
    let guard = GUARD.get()?;
    Some(act(&mut guard.lock().unwrap_or_else(PoisonError::into_inner)))
}

impl Guard {
    /// Tells the guard; one that is not there, or no more, is started and told everything.
    fn tell(&mut self, line: &str) {
        if let Some((_, input)) = &mut self.process
            && input.write_all(line.as_bytes()).is_ok()
        {
            return;
        }
        if let Some((mut child, _)) = self.process.take() {
            let _status = child.wait();
        }
        if let Err(error) = self.start() {
            tracing::warn!(
                target: "waypost::upstream",
                event = "guard_missing",
                reason = %error,
                "children that ignore the end of their input would outlive Waypost if it were killed"
            );
        }
    }

    fn start(&mut self) -> std::io::Result<()> {
        let mut command = command()?;
        let mut child = orphans::own(|| command.spawn(), |child| Some(child.id()))?;
        let Some(mut input) = child.stdin.take() else { return Ok(()) };
        let all: String = self.groups.iter().map(|pid| format!("+{pid}\n")).collect();
        input.write_all(all.as_bytes())?;
        self.process = Some((child, input));
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "made here like the children that it guards")]
fn command() -> std::io::Result<Command> {
    use std::os::unix::process::CommandExt as _;
    // Also where the file was replaced by a newer one meanwhile.
    let this = std::path::Path::new("/proc/self/exe");
    let program = if this.exists() { this.to_owned() } else { std::env::current_exe()? };
    let mut command = Command::new(program);
    // A group of its own: a signal to ours is not for it.
    command.arg0("waypost").arg(COMMAND).env_clear().process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// What the guard does: waits for the end of `input`, and ends every group that was named and not taken back,
/// by SIGTERM, and by SIGKILL what is still there a while later.
pub(crate) async fn stand(input: impl AsyncRead + Unpin) {
    let mut groups = HashSet::new();
    let mut lines = BufReader::new(input).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let (verb, pid) = line.split_at_checked(1).unwrap_or_default();
        let Some(pid) = pid.parse().ok().filter(|pid| *pid > 1).and_then(Pid::from_raw) else { continue };
        match verb {
            "+" => groups.insert(pid),
            "-" => groups.remove(&pid),
            _ => false,
        };
    }
    for (signal, grace) in [(Signal::TERM, TERM_GRACE), (Signal::KILL, KILL_GRACE)] {
        groups.retain(|group| kill_process_group(*group, signal).is_ok());
        let end = Instant::now() + grace;
        while !groups.is_empty() && Instant::now() < end {
            sleep(POLL).await;
            groups.retain(|group| test_kill_process_group(*group).is_ok());
        }
    }
}
