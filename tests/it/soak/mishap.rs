//! What goes wrong by itself: children that are killed or stopped, servers that go, restart, make noise, change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use super::dice::Dice;
use super::world::{Server, World};
use crate::support::matrix::Transport;
use crate::support::process;
use crate::support::script::plain_entry;

/// Something that goes wrong with one server.
type Mishap = fn(&World, &Server, &mut Dice);

/// What can be done to a child.
const TO_CHILDREN: [(usize, Mishap); 6] =
    [(4, kill), (2, terminate), (2, stop), (2, pause), (3, noise), (1, fork)];
/// What can be done to a server over HTTP.
const TO_SERVERS: [(usize, Mishap); 3] = [(3, drop_connections), (2, go_down), (3, restart)];
/// What any server may do.
const TO_ANY: [(usize, Mishap); 4] = [(2, change), (4, update), (2, reload), (1, break_the_file)];

/// Makes things go wrong until `is_over`, one after the other.
pub fn befall(world: &World, mut dice: Dice, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(dice.time(50, 400));
        let server = dice.one_of(&world.servers);
        let mishap = match (dice.once_in(3), server.transport) {
            (true, _) => dice.weighted(&TO_ANY),
            (false, Transport::Stdio) => dice.weighted(&TO_CHILDREN),
            (false, Transport::Http | Transport::Sse) => dice.weighted(&TO_SERVERS),
        };
        mishap(world, server, &mut dice);
    }
}

/// The child of a server that lives now, if one does.
fn child(world: &World, server: &Server) -> Option<u32> {
    let pid = server.up.processes().last()?.pid();
    process::descendants(world.gateway.pid()).contains(&pid).then_some(pid)
}

fn signal(world: &World, server: &Server, signal: Signal, kind: &str) {
    if let Some(pid) = child(world, server) {
        process::signal(pid, signal);
        world.ledger.fault(kind);
    }
}

fn kill(world: &World, server: &Server, _: &mut Dice) {
    signal(world, server, Signal::KILL, "child: SIGKILL");
}

fn terminate(world: &World, server: &Server, _: &mut Dice) {
    signal(world, server, Signal::TERM, "child: SIGTERM");
}

/// For good: it is found out and killed.
fn stop(world: &World, server: &Server, _: &mut Dice) {
    signal(world, server, Signal::STOP, "child: SIGSTOP");
}

fn pause(world: &World, server: &Server, dice: &mut Dice) {
    let Some(pid) = child(world, server) else { return };
    process::signal(pid, Signal::STOP);
    world.ledger.fault("child: SIGSTOP, then SIGCONT");
    std::thread::sleep(dice.time(50, 700));
    process::signal(pid, Signal::CONT);
}

fn noise(world: &World, server: &Server, dice: &mut Dice) {
    let long = [b"x".repeat(200_000).as_slice(), b"\n"].concat();
    let lines: [&[u8]; 5] = [
        b"\n\n",
        b"starting up\n",
        b"\xff\xfe\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":99999,\"result\":{}}\n",
        &long,
    ];
    let line = *dice.one_of(&lines);
    let is_error = dice.once_in(2);
    if let Some(process) = server.up.processes().last() {
        if is_error {
            process.complain(line);
        } else {
            process.write(line);
        }
        world.ledger.fault("child: noise");
    }
}

/// A grandchild that outlives its parent.
fn fork(world: &World, server: &Server, _: &mut Dice) {
    if let Some(process) = server.up.processes().last() {
        process.fork(3_600);
        process.exit(1);
        world.ledger.fault("child: exits, its own child stays");
    }
}

fn drop_connections(world: &World, server: &Server, _: &mut Dice) {
    server.up.drop_connections();
    world.ledger.fault("server: drops its connections");
}

fn go_down(world: &World, server: &Server, dice: &mut Dice) {
    server.up.go_down();
    world.ledger.fault("server: is away for a while");
    std::thread::sleep(dice.time(100, 1_000));
    server.up.come_back();
}

fn restart(world: &World, server: &Server, dice: &mut Dice) {
    server.up.forget_sessions();
    if dice.once_in(2) {
        server.up.drop_connections();
    }
    world.ledger.fault("server: forgets its sessions");
}

fn change(world: &World, server: &Server, dice: &mut Dice) {
    if server.transport == Transport::Stdio && server.up.processes().is_empty() {
        return;
    }
    let own = ["echo", "slow", "large", "ask"].map(plain_entry);
    let mut tools: Vec<String> = own.into();
    tools.push(
        r#"{"name":"peek","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}"#.to_owned(),
    );
    tools.extend((0..dice.below(3)).map(|number| plain_entry(&format!("more{number}"))));
    server.up.change_tools(tools);
    world.ledger.fault("list changed");
}

fn update(_world: &World, server: &Server, dice: &mut Dice) {
    if server.transport == Transport::Stdio && server.up.processes().is_empty() {
        return;
    }
    let which = dice.one_of(&["a", "b"]);
    server.up.update(&format!("{}://{which}", server.name));
}

/// The configuration changes: another server in the place of this one, or something that no server minds.
fn reload(world: &World, server: &Server, dice: &mut Dice) {
    let number = dice.below(1_000_000) as u64;
    let (text, kind) = match dice.once_in(2) {
        true => (world.with_another(server, number), "reload: a server is another one"),
        false => (world.with_other_words(number), "reload: something else"),
    };
    let status = world.reload(&text);
    assert_eq!(status, 200, "{kind}");
    world.ledger.fault(kind);
}

/// The configuration is wrong for a moment.
fn break_the_file(world: &World, server: &Server, dice: &mut Dice) {
    let whole = world.with_another(server, dice.below(1_000_000) as u64);
    let half: String = whole.chars().take(whole.len() / 2).collect();
    assert_eq!(world.reload(&half), 422);
    world.ledger.fault("reload: half a file");
}

/// Lets everything run again that was held.
pub fn relent(world: &World) {
    for server in &world.servers {
        server.up.come_back();
        if let Some(pid) = child(world, server) {
            process::signal(pid, Signal::CONT);
        }
    }
    std::thread::sleep(Duration::from_millis(200));
}
