//! Child processes: a process group of their own, a clean environment, stderr read to its end, and an end
//! that leaves nothing behind.
//!
//! The only place where processes are made. Must not know: messages.

mod census;
pub(crate) mod guard;
pub(crate) mod orphans;

use std::io::ErrorKind;
use std::process::{ExitStatus, Stdio as Wiring};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, waitpgid};
use secrecy::ExposeSecret;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{self, ProcessBounds};
use crate::telemetry::{Metrics, UpstreamStderr};
use crate::upstream::failure::Failure;

use census::Taken;

/// The longest line of stderr that is kept whole.
const STDERR_LINE: usize = 8 * 1024;
/// How long a group may take to end after SIGTERM before it gets SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// How long the kernel may take to end a group after SIGKILL before nobody waits any more.
const KILL_GRACE: Duration = Duration::from_secs(2);
/// How long stderr is read after the group is gone: a process that left the group may hold it open.
const STDERR_GRACE: Duration = Duration::from_millis(200);
/// How long an explanation is waited for once a child seems to end.
const SETTLE: Duration = Duration::from_millis(200);
/// How often a group that is to end is looked at.
const POLL: Duration = Duration::from_millis(10);

/// What a child sees of our environment, besides `LC_*`.
const PASSED_ON: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "TERM",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// A child that runs. Dropping it ends its whole process group, in the background.
#[derive(Debug)]
pub(super) struct Child {
    leader: Pid,
    end: CancellationToken,
    /// It is to be killed at once.
    kill: CancellationToken,
    life: watch::Receiver<Life>,
    last_words: Arc<LastWords>,
}

/// The pipes of a child.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
}

/// Whose child it is, and who keeps its tasks.
#[derive(Debug)]
pub(in crate::upstream) struct Family<'a> {
    pub(in crate::upstream) upstream: &'a Arc<str>,
    pub(in crate::upstream) metrics: &'a Arc<Metrics>,
    pub(in crate::upstream) tasks: &'a TaskTracker,
}

/// How far a child is in its life.
#[derive(Clone, Copy, Debug)]
enum Life {
    Runs,
    /// It has exited; others of its group may still run.
    Exited(ExitStatus),
    /// It and its group are gone. The status is absent where it could not be learned.
    Gone(Option<ExitStatus>),
}

/// Whether a child is to end, and how.
#[derive(Debug)]
struct Asked {
    end: CancellationToken,
    kill: CancellationToken,
}

/// What a child took too much of.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Excess {
    /// The key of the bound.
    pub(super) bound: &'static str,
    pub(super) taken: String,
    pub(super) most: String,
}

impl Excess {
    fn of(taken: &Taken, bounds: ProcessBounds) -> Option<Self> {
        if let Some(most) = bounds.memory.filter(|most| taken.memory > *most) {
            let (taken, most) = (mebibytes(taken.memory), mebibytes(most));
            return Some(Self { bound: "max_memory", taken, most });
        }
        let most = bounds.cpu_time.filter(|most| taken.cpu_time > *most)?;
        let (taken, most) = (format!("{:.1?}", taken.cpu_time), format!("{most:?}"));
        Some(Self { bound: "max_cpu_time", taken, most })
    }

    /// Why the connection ended.
    pub(super) fn failure(&self) -> Failure {
        let what = if self.bound == "max_memory" { "memory" } else { "processor time" };
        let text = format!(
            "its process took more {what} than it may ({}, `{}`) and was killed",
            self.most, self.bound
        );
        Failure::unavailable(text).of_connection().because(format_args!("it had taken {}", self.taken))
    }
}

fn mebibytes(bytes: u64) -> String {
    let (whole, tenths) = (bytes >> 20, ((bytes & 0xf_ffff) * 10) >> 20);
    if tenths == 0 { format!("{whole} MiB") } else { format!("{whole}.{tenths} MiB") }
}

/// The last line on stderr, and whether there will be no more.
#[derive(Debug, Default)]
struct LastWords {
    line: Mutex<String>,
    said: CancellationToken,
}

/// Starts a child.
///
/// # Errors
/// If the system refuses: no such command, no right to run it, no such working directory.
pub(super) fn spawn(config: &config::Stdio, family: &Family<'_>) -> Result<(Child, Pipes), Failure> {
    let started = orphans::own(|| command(config).spawn(), tokio::process::Child::id);
    let mut process = started.map_err(|error| refused(config, &error))?;
    let lost = || Failure::unavailable("the process could not be started");
    let pid = process.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).ok_or_else(lost)?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (process.stdin.take(), process.stdout.take(), process.stderr.take())
    else {
        return Err(lost());
    };
    guard::enter(pid);
    let last_words = Arc::new(LastWords::default());
    let end = CancellationToken::new();
    let (alive, life) = watch::channel(Life::Runs);
    let reader = Reader {
        upstream: Arc::clone(family.upstream),
        metrics: Arc::clone(family.metrics),
        last_words: Arc::clone(&last_words),
    };
    let group = Group { leader: pid, is_gone: false };
    let kill = CancellationToken::new();
    let asked = Asked { end: end.clone(), kill: kill.clone() };
    family.tasks.spawn(async move { reap(process, group, asked, &alive).await });
    let child = Child { leader: pid, end, kill, life, last_words };
    let gone = child.gone();
    family.tasks.spawn(async move {
        tokio::select! {
            () = reader.read(stderr) => {}
            () = async { gone.await; sleep(STDERR_GRACE).await } => {}
        }
    });
    Ok((child, Pipes { stdin, stdout }))
}

#[expect(clippy::disallowed_methods, reason = "the one place where children are made")]
fn command(config: &config::Stdio) -> Command {
    let mut command = Command::new(&config.command);
    command.args(&config.args).env_clear();
    let is_passed = |name: &str| PASSED_ON.contains(&name) || name.starts_with("LC_");
    command.envs(std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed)));
    command.envs(config.env.iter().map(|(name, value)| (name, value.expose_secret())));
    if let Some(folder) = &config.cwd {
        command.current_dir(folder);
    }
    command.stdin(Wiring::piped()).stdout(Wiring::piped()).stderr(Wiring::piped());
    command.process_group(0).kill_on_drop(true);
    command
}

/// Why a child could not be started. A missing working directory looks like a missing command to the system.
fn refused(config: &config::Stdio, error: &std::io::Error) -> Failure {
    let is_folder_missing = config.cwd.as_ref().is_some_and(|folder| !folder.is_dir());
    let kind = error.kind();
    let text = match () {
        () if kind == ErrorKind::NotFound && is_folder_missing => "its working directory does not exist",
        () if kind == ErrorKind::NotFound => "the command was not found",
        () if kind == ErrorKind::PermissionDenied => "the command may not be executed",
        () => "the process could not be started",
    };
    Failure::unavailable(text).because(format_args!("{}: {error}", config.command))
}

impl Child {
    /// Ends the whole group: SIGTERM, and SIGKILL for what is still there a while later. Does not wait.
    pub(super) fn terminate(&self) {
        self.end.cancel();
    }

    /// Ends the whole group by SIGKILL. Does not wait.
    pub(super) fn kill(&self) {
        self.kill.cancel();
        self.end.cancel();
    }

    /// Waits until the child takes more than it may, with all that it has started. Does not end where there is no
    /// bound. Cancel safe.
    pub(super) async fn exceed(&self, bounds: ProcessBounds) -> Excess {
        loop {
            sleep(census::PERIOD).await;
            let leader = self.leader;
            let Ok(taken) = spawn_blocking(move || census::look_at(leader)).await else { continue };
            if let Some(excess) = Excess::of(&taken, bounds) {
                return excess;
            }
        }
    }

    /// Waits until the child itself has exited; others of its group may still run.
    pub(super) async fn exited(&self) {
        drop(self.life.clone().wait_for(|life| !matches!(life, Life::Runs)).await);
    }

    /// Whether the child itself has exited.
    pub(super) fn has_exited(&self) -> bool {
        !matches!(*self.life.borrow(), Life::Runs | Life::Gone(None))
    }

    /// Waits until the child and its group are gone.
    pub(super) fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut life = self.life.clone();
        async move { drop(life.wait_for(|life| matches!(life, Life::Gone(_))).await) }
    }

    /// Waits until the child has exited and said its last word on stderr, but not for long.
    pub(super) async fn settled(&self) {
        let settled = async {
            self.exited().await;
            self.last_words.said.cancelled().await;
        };
        drop(timeout(SETTLE, settled).await);
    }

    /// Why the connection to it ended, as far as that is known by now.
    pub(super) fn failure(&self) -> Failure {
        let status = match *self.life.borrow() {
            Life::Exited(status) | Life::Gone(Some(status)) => Some(status),
            Life::Runs | Life::Gone(None) => None,
        };
        let failure = Failure::unavailable(end_text(status)).of_connection();
        let line = self.last_words.line.lock().unwrap_or_else(PoisonError::into_inner);
        match line.is_empty() {
            true => failure,
            false => failure.because(format_args!("last line on stderr: {line}")),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

fn end_text(status: Option<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt;
    let Some(status) = status else {
        return "the process closed its output".to_owned();
    };
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("the process exited with code {code}"),
        (None, Some(signal)) => format!("the process was ended by signal {signal}"),
        (None, None) => "the process ended".to_owned(),
    }
}

/// A process group. What is left of it when this is dropped gets SIGKILL. Only SIGKILL to ourselves comes
/// before that: then the guard ends it.
#[derive(Debug)]
struct Group {
    leader: Pid,
    is_gone: bool,
}

impl Group {
    fn signal(&self, signal: Signal) {
        // Failing means that nobody is there any more.
        let _nobody = kill_process_group(self.leader, signal);
    }

    /// Looks whether anybody is left. Where we are the first process of a container, those whose parents
    /// are gone become our children: reap them.
    fn look(&mut self) {
        while let Ok(Some(_)) = waitpgid(self.leader, WaitOptions::NOHANG) {}
        self.is_gone = test_kill_process_group(self.leader).is_err();
    }

    /// Waits until nobody is left, but no longer than `limit`.
    async fn wait(&mut self, limit: Duration) {
        let end = Instant::now() + limit;
        self.look();
        while !self.is_gone && Instant::now() < end {
            sleep(POLL).await;
            self.look();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_gone {
            self.signal(Signal::KILL);
        }
    }
}

/// Waits for the end of a child, or brings it about, and takes its group along.
async fn reap(
    mut process: tokio::process::Child,
    mut group: Group,
    asked: Asked,
    life: &watch::Sender<Life>,
) {
    let mut status = tokio::select! {
        status = process.wait() => status.ok(),
        () = asked.end.cancelled() => None,
    };
    for (signal, limit) in [(Signal::TERM, TERM_GRACE), (Signal::KILL, KILL_GRACE)] {
        if signal == Signal::TERM && asked.kill.is_cancelled() {
            continue;
        }
        if let Some(status) = status {
            life.send_replace(Life::Exited(status));
        }
        group.signal(signal);
        if status.is_none() {
            status = timeout(limit, process.wait()).await.ok().and_then(Result::ok);
        }
        // Until it is reaped, the child itself counts as alive.
        if status.is_some() {
            group.wait(limit).await;
        }
        if group.is_gone {
            guard::leave(group.leader);
            break;
        }
    }
    if status.is_some() {
        orphans::disown(group.leader);
    }
    life.send_replace(Life::Gone(status));
}

/// Reads stderr.
struct Reader {
    upstream: Arc<str>,
    metrics: Arc<Metrics>,
    last_words: Arc<LastWords>,
}

impl Reader {
    /// Reads to the end, line by line; what is longer than a line may be is cut off.
    async fn read(&self, mut stderr: ChildStderr) {
        let mut chunk = vec![0_u8; 16 * 1024];
        let mut line = ClippedLine::default();
        while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
            line.take(chunk.get(..count).unwrap_or_default(), &mut |text| self.say(text));
        }
        self.say(&line.kept);
        self.last_words.said.cancel();
    }

    fn say(&self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end();
        if !text.is_empty() {
            UpstreamStderr { upstream: &self.upstream, line: text }.emit(&self.metrics);
            let mut last = self.last_words.line.lock().unwrap_or_else(PoisonError::into_inner);
            text.clone_into(&mut last);
        }
    }
}

/// A line that is being read, as far as it is kept.
#[derive(Debug, Default)]
struct ClippedLine {
    kept: Vec<u8>,
}

impl ClippedLine {
    fn take(&mut self, chunk: &[u8], say: &mut impl FnMut(&[u8])) {
        let mut rest = chunk;
        while let Some(at) = memchr::memchr(b'\n', rest) {
            let (line, tail) = rest.split_at(at);
            self.keep(line);
            say(&self.kept);
            self.kept.clear();
            rest = tail.get(1..).unwrap_or_default();
        }
        self.keep(rest);
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = STDERR_LINE.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(piece.get(..piece.len().min(room)).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_any_length_is_clipped_and_the_next_one_is_whole() {
        let mut said = Vec::new();
        let mut line = ClippedLine::default();
        for _ in 0..100 {
            line.take(&[b'x'; 1000], &mut |text: &[u8]| said.push(text.to_vec()));
        }
        line.take(b"end\nnext\n", &mut |text: &[u8]| said.push(text.to_vec()));
        assert_eq!(said.len(), 2);
        assert_eq!(said[0].len(), STDERR_LINE);
        assert_eq!(said[1], b"next");
    }
}
