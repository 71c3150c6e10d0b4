//! Processes as `/proc` shows them.

use std::fs;

use rustix::process::{Pid, Signal};

/// The living children of a process (zombies do not count).
pub fn children(pid: u32) -> Vec<u32> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|candidate| stat(*candidate).is_some_and(|(parent, state)| parent == pid && state != 'Z'))
        .collect()
}

/// The children of a process that have ended and wait to be reaped, by the names of their programs.
pub fn zombies(pid: u32) -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let ended =
        pids.filter(|child| stat(*child).is_some_and(|(parent, state)| parent == pid && state == 'Z'));
    ended.map(name).collect()
}

/// The name of the program of a process.
pub fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// All living descendants of a process.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut found = children(pid);
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(children(parent));
        next += 1;
    }
    found
}

/// Whether a process lives.
pub fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(_, state)| state != 'Z' && state != 'X')
}

/// Sends a signal to one process; one that is gone is no error.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _gone = rustix::process::kill_process(pid, signal);
    }
}

/// The parent and the state letter.
fn stat(pid: u32) -> Option<(u32, char)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}

/// The Python that runs the scripted children: the interpreter itself, not a shim of a version manager.
pub fn python() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    folders.sort_by_key(|folder| folder.ends_with("shims"));
    let candidates = folders.into_iter().map(|folder| folder.join("python3"));
    let found = candidates.into_iter().find(|program| program.is_file()).expect("python3 is on PATH");
    found.to_str().expect("a path in UTF-8").to_owned()
}
