//! Whatever a supervisor and its callers do: nobody waits for longer than it may, nobody is given a connection that
//! is not there, and no stampede hurries the supervisor more than once.

use std::collections::HashMap;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use proptest::prelude::*;
use tokio::time::{advance, sleep_until};

use super::*;

/// What may happen. Times are milliseconds.
#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(u64),
    /// The supervisor begins an attempt.
    Begin,
    /// It failed so often in a row; the next attempt is due after a time, and may be hurried after another.
    Fail(u32, u64, u64),
    /// A call wants a connection, and has so much time.
    Call(u64),
    /// The supervisor stops.
    Stop,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u64..3_000).prop_map(Step::Wait),
        4 => Just(Step::Begin),
        4 => (1_u32..5, 0_u64..60_000, 0_u64..2_000).prop_map(|(failures, due, spared)| Step::Fail(failures, due, spared)),
        8 => (0_u64..20_000).prop_map(Step::Call),
        1 => Just(Step::Stop),
    ]
}

fn outage(failures: u32, due: u64, spared: u64) -> Outage {
    let now = Instant::now();
    Outage {
        failure: Failure::unavailable("the test says so"),
        since: now,
        retry_at: now + Duration::from_millis(due),
        may_wake_at: now + Duration::from_millis(spared),
        failures,
    }
}

/// The calls that wait, by a number: until when at the most, and how each goes on.
type Waiting<'a> = HashMap<usize, (Instant, BoxFuture<'a, Result<Checkout, Failure>>)>;

/// Ends the calls that have ended; those that should have are a fault.
fn settle(waiting: &mut Waiting<'_>) -> Result<(), TestCaseError> {
    let mut ended = Vec::new();
    for (name, (end, call)) in waiting.iter_mut() {
        match call.as_mut().now_or_never() {
            Some(Err(failure)) => {
                prop_assert!(!failure.text.is_empty());
                ended.push(*name);
            }
            Some(Ok(_)) => return Err(TestCaseError::fail("there is no connection to be had")),
            None => prop_assert!(Instant::now() <= *end + Duration::from_millis(1), "it waits for too long"),
        }
    }
    ended.iter().for_each(|name| drop(waiting.remove(name)));
    Ok(())
}

async fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let desk = Desk::new(None, None);
    let mut waiting = Waiting::default();
    let (mut may_hurry_at, mut is_down, mut is_stopped) = (Instant::now(), false, false);
    for (name, step) in steps.into_iter().enumerate() {
        match step {
            Step::Wait(time) => advance(Duration::from_millis(time)).await,
            Step::Begin if !is_stopped => {
                desk.begin_attempt();
                is_down = false;
            }
            Step::Fail(failures, due, spared) if !is_stopped => {
                desk.report(outage(failures, due, spared));
                may_hurry_at = Instant::now() + Duration::from_millis(spared);
                is_down = true;
            }
            Step::Call(time) => {
                let deadline = Instant::now() + Duration::from_millis(time);
                let end = deadline.min(Instant::now() + PATIENCE);
                waiting.insert(name, (end, desk.checkout(deadline).boxed()));
            }
            Step::Stop => {
                desk.close();
                is_stopped = true;
            }
            Step::Begin | Step::Fail(..) => {}
        }
        settle(&mut waiting)?;
        if is_down && !is_stopped && desk.woken().now_or_never().is_some() {
            prop_assert!(Instant::now() >= may_hurry_at, "an attempt is hurried before it may be");
        }
        prop_assert!(!is_stopped || waiting.is_empty(), "who waits hears that it stops");
    }
    // Nothing more happens: all calls end by themselves.
    if let Some(last) = waiting.values().map(|(end, _)| *end).max() {
        sleep_until(last).await;
        advance(Duration::from_millis(2)).await;
        settle(&mut waiting)?;
    }
    prop_assert!(waiting.is_empty(), "no call is left waiting");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn calls_wait_no_longer_than_they_may_and_hurry_nobody_too_soon(steps in prop::collection::vec(step(), 0..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(run(steps))?;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stampede_hurries_the_supervisor_once() {
    let desk = Desk::new(None, None);
    desk.report(outage(1, 60_000, 0));
    let deadline = Instant::now() + Duration::from_secs(1);
    let calls = futures_util::future::join_all((0..100).map(|_| desk.checkout(deadline)));
    let attempt = async {
        desk.woken().await;
        desk.begin_attempt();
        assert!(desk.woken().now_or_never().is_none(), "one of them is enough");
        desk.report(outage(2, 60_000, 0));
    };
    let (ended, ()) = tokio::join!(calls, attempt);
    assert!(ended.iter().all(Result::is_err));
    assert!(desk.woken().now_or_never().is_none(), "wishes from before the failure are forgotten");
}
