//! Mixed load with random faults, for seconds or for hours: every call gets its one answer, and in the end
//! nothing is left. `tests/soak` runs the long one.

mod client;
mod connection;
mod dice;
mod ledger;
mod mishap;
mod shared;
mod world;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::gateway::Gateway;
use crate::support::matrix::Transport;
use crate::support::{process, scaled};
use client::Actor;
use dice::Dice;
use world::World;

/// Clients at the same time.
const CLIENTS: usize = 8;
/// How many connections to a server over HTTP there may be more: some rest for the next request, and lists are
/// read again each second.
const RESTING: usize = 4;
/// By how much the memory may have grown: a part of what it was after the warm-up, and bytes on top, for what
/// the allocator keeps.
const GROWTH: (u64, u64) = (4, 24 << 20);

/// What the gateway holds.
#[derive(Clone, Debug)]
struct Footprint {
    processes: usize,
    descriptors: usize,
    resident: u64,
    /// Gauges of things that are there only while somebody uses them.
    held: Vec<(&'static str, f64)>,
}

/// The gauges that are 0 when nobody is there.
const GAUGES: [&str; 6] = [
    "waypost_calls_in_flight",
    "waypost_parked_calls",
    "waypost_sessions",
    "waypost_streams_open",
    "waypost_resource_subscriptions",
    "waypost_message_bytes",
];

impl Footprint {
    fn of(gateway: &Gateway) -> Self {
        let metrics = gateway.metrics();
        let entries = std::fs::read_dir(format!("/proc/{}/fd", gateway.pid()));
        Self {
            processes: process::descendants(gateway.pid()).len(),
            descriptors: entries.map(Iterator::count).unwrap_or_default(),
            resident: resident(gateway.pid()),
            held: GAUGES.map(|name| (name, metrics.sum(name, &[]))).into(),
        }
    }

    /// What is left of what clients held.
    fn left(&self) -> Vec<String> {
        let left = self.held.iter().filter(|(_, value)| *value > 0.5);
        left.map(|(name, value)| format!("{name} is {value}")).collect()
    }
}

/// How many descriptors of connections to servers do not count.
fn resting(world: &World) -> usize {
    RESTING * world.servers.iter().filter(|server| server.transport != Transport::Stdio).count()
}

/// Resident memory in bytes.
fn resident(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() * 1024
}

/// Puts the gateway under load for a time, and lets everything go again.
fn load(world: &World, seed: u64, time: Duration) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &is_over;
        let mishaps = scope.spawn(move || mishap::befall(world, Dice::new(seed, 0), over));
        let sharing = scope.spawn(move || shared::come_and_go(world, Dice::new(seed, 1_000), over));
        let clients: Vec<_> =
            (0..CLIENTS).map(|name| scope.spawn(move || Actor::new(world, seed, name).live(over))).collect();
        let end = Instant::now() + time;
        while Instant::now() < end
            && clients.iter().all(|client| !client.is_finished())
            && !mishaps.is_finished()
            && !sharing.is_finished()
        {
            std::thread::sleep(Duration::from_millis(50));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    mishap::relent(world);
}

/// Waits until the gateway holds nothing of its clients, and no more of other things than it may.
fn settle(world: &World, most: Option<&Footprint>) -> Footprint {
    let end = Instant::now() + scaled(60_000);
    loop {
        let now = Footprint::of(&world.gateway);
        let is_ready = world.gateway.admin("/readyz?upstreams=all").0 == 200;
        let fits = most.is_none_or(|most| {
            now.processes == most.processes && now.descriptors <= most.descriptors + resting(world)
        });
        if (is_ready && fits && now.left().is_empty()) || Instant::now() > end {
            return now;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The whole: warm-up, load, and the account.
fn soak(seed: u64, time: Duration) {
    let world = World::start();
    let fresh = settle(&world, None);
    load(&world, !seed, (time / 4).min(Duration::from_secs(60)));
    let before = settle(&world, Some(&fresh));
    let warm = world.ledger.requests();
    let started = Instant::now();
    load(&world, seed, time);
    let took = started.elapsed();
    let after = settle(&world, Some(&fresh));
    let ledger = &world.ledger;
    let rate = (ledger.requests() - warm) as f64 / took.as_secs_f64();
    println!("seed {seed}, {} s of load, {rate:.0} requests a second", took.as_secs());
    print!("{}", ledger.tables());
    for kind in [
        "answer lost",
        "answer doubled",
        "wrong answer",
        "run twice",
        "neighbour affected",
        "list blinks",
        "process left behind",
    ] {
        println!("{kind}: {}", ledger.breaches_of(kind));
    }
    for (when, state) in [("at the start", &fresh), ("after the warm-up", &before), ("at the end", &after)] {
        let mib = state.resident as f64 / f64::from(1 << 20);
        let (processes, descriptors) = (state.processes, state.descriptors);
        println!("{when}: {processes} processes, {descriptors} descriptors, {mib:.1} MiB");
    }
    assert_eq!(ledger.breaches(), Vec::<String>::new(), "promises that were broken");
    assert_eq!(after.left(), Vec::<String>::new(), "what clients held is free again");
    assert_eq!(after.processes, fresh.processes, "processes are back");
    assert!(after.descriptors <= fresh.descriptors + resting(&world), "descriptors are back");
    let most = before.resident + before.resident / GROWTH.0 + GROWTH.1;
    assert!(after.resident <= most, "memory: {} of {most}", after.resident);
    let log = world.gateway.log();
    let panics: Vec<_> = log.iter().filter(|line| line.contains("panicked at")).collect();
    assert!(panics.is_empty(), "{panics:?}");
}

/// A number in the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// For a few seconds, or as long as the environment says.
#[test]
fn a_soak_leaves_everything_as_it_was() {
    let seconds = number("WAYPOST_SOAK_SECONDS").unwrap_or(8);
    soak(number("WAYPOST_SOAK_SEED").unwrap_or(1), Duration::from_secs(seconds));
}
