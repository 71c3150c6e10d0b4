//! What opens a breaker, what closes it, and that a tool and its upstream do not pay for each other.

use proptest::prelude::*;

use super::circuit::PROBE_WAIT;
use super::*;

const OPEN: Duration = Duration::from_secs(10);

fn breaker(failures: u32) -> Breaker {
    Breaker::new(Settings { failures, open: OPEN })
}

fn tool(name: &str) -> Option<Arc<str>> {
    Some(name.into())
}

fn end(breaker: &Breaker, name: Option<&str>, verdict: Verdict, now: Instant) -> Turns {
    breaker.admit(name.and_then(tool), now).unwrap().tell(Some(verdict), now)
}

fn fail(breaker: &Breaker, now: Instant) -> Option<Turn> {
    end(breaker, None, Verdict::Lost, now).upstream
}

fn refusal(breaker: &Breaker, name: Option<&str>, now: Instant) -> Option<Spared> {
    breaker.admit(name.and_then(tool), now).err()
}

#[test]
fn failures_in_a_row_open_it_and_one_answer_closes_it() {
    let (breaker, now) = (breaker(3), Instant::now());
    assert_eq!([fail(&breaker, now), fail(&breaker, now)], [None, None]);
    end(&breaker, None, Verdict::Answered, now);
    assert_eq!([fail(&breaker, now), fail(&breaker, now)], [None, None], "counted anew");
    assert_eq!(fail(&breaker, now), Some(Turn::Opened));
    assert_eq!(refusal(&breaker, None, now), Some(Spared::Upstream(OPEN)));
    let later = now + OPEN;
    let probe = breaker.admit(None, later).unwrap();
    assert_eq!(refusal(&breaker, None, later), Some(Spared::Upstream(PROBE_WAIT)), "one at a time");
    assert_eq!(probe.tell(Some(Verdict::Answered), later).upstream, Some(Turn::Closed));
    assert_eq!(refusal(&breaker, None, later), None);
}

#[test]
fn a_probe_that_fails_opens_it_again_and_one_whose_caller_goes_decides_nothing() {
    let (breaker, now) = (breaker(1), Instant::now());
    assert_eq!(fail(&breaker, now), Some(Turn::Opened));
    assert_eq!(fail(&breaker, now + OPEN), Some(Turn::Opened));
    assert!(breaker.admit(None, now + OPEN).is_err());
    drop(breaker.admit(None, now + OPEN * 2).unwrap());
    let next = Instant::now().max(now + OPEN * 2);
    assert!(breaker.admit(None, next).is_ok(), "the next call is the probe");
}

#[test]
fn without_a_number_of_failures_it_never_opens() {
    let (breaker, now) = (breaker(0), Instant::now());
    assert!((0..1_000).all(|_| fail(&breaker, now).is_none()));
    assert!((0..1_000).all(|_| end(&breaker, Some("a"), Verdict::Late, now).tool.is_none()));
}

#[test]
fn a_tool_that_never_ends_in_time_is_spared_alone() {
    let (breaker, now) = (breaker(3), Instant::now());
    let turns: Vec<_> = (0..3).map(|_| end(&breaker, Some("slow"), Verdict::Late, now)).collect();
    assert_eq!((turns[1], turns[2].tool, turns[2].upstream), (Turns::default(), Some(Turn::Opened), None));
    assert_eq!(turns[2].open_tools, 1);
    assert_eq!(refusal(&breaker, Some("slow"), now), Some(Spared::Tool(OPEN)));
    assert_eq!(end(&breaker, Some("quick"), Verdict::Answered, now).upstream, None);
    for round in 1..20 {
        let turns = end(&breaker, Some("slow"), Verdict::Late, now + OPEN * round);
        assert_eq!((turns.tool, turns.upstream), (Some(Turn::Opened), None), "tried again, and again");
    }
    assert_eq!(refusal(&breaker, None, now + OPEN * 20), None);
    let turns = end(&breaker, Some("slow"), Verdict::Answered, now + OPEN * 20);
    assert_eq!((turns.tool, turns.open_tools), (Some(Turn::Closed), 0));
    assert!(breaker.circuits().tools.is_empty(), "nothing is remembered of it");
}

#[test]
fn silence_of_several_tools_is_that_of_their_upstream() {
    let (breaker, now) = (breaker(4), Instant::now());
    for name in ["a", "b", "a"] {
        assert_eq!(end(&breaker, Some(name), Verdict::Late, now).upstream, None);
    }
    let turns = end(&breaker, Some("b"), Verdict::Late, now);
    assert_eq!((turns.upstream, turns.tool), (Some(Turn::Opened), None));
    assert_eq!(refusal(&breaker, Some("c"), now), Some(Spared::Upstream(OPEN)));
    let turns = end(&breaker, Some("a"), Verdict::Answered, now + OPEN);
    assert_eq!((turns.upstream, turns.tool), (Some(Turn::Closed), None));
    assert_eq!(refusal(&breaker, Some("b"), now + OPEN), None, "its tools were not the trouble");
}

#[test]
fn lost_connections_are_the_trouble_of_no_tool() {
    let (breaker, now) = (breaker(3), Instant::now());
    for round in 0..3 {
        let turns = end(&breaker, Some("a"), Verdict::Lost, now);
        assert_eq!((turns.tool, turns.upstream.is_some()), (None, round == 2));
    }
    assert!(breaker.circuits().tools.is_empty());
}

#[test]
fn more_tools_than_are_remembered_are_the_trouble_of_their_upstream() {
    let (breaker, now) = (breaker(2_000), Instant::now());
    for name in 0..MOST_TOOLS + 10 {
        end(&breaker, Some(&name.to_string()), Verdict::Late, now);
    }
    assert_eq!(breaker.circuits().tools.len(), MOST_TOOLS);
    end(&breaker, None, Verdict::Answered, now);
    let turns: Vec<_> = (0..2_000).map(|_| end(&breaker, Some("one more"), Verdict::Late, now)).collect();
    assert_eq!(turns[1_999].upstream, Some(Turn::Opened));
}

/// What may happen: time passes, a call of one of three tools or of none is tried, the oldest or the youngest call
/// ends.
#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(u64),
    Call(Option<&'static str>),
    End(bool, Option<Verdict>),
}

fn step(verdicts: &'static [Option<Verdict>]) -> impl Strategy<Value = Step> {
    let named = prop::sample::select(vec![None, Some("a"), Some("b"), Some("c")]);
    prop_oneof![
        (0_u64..15).prop_map(Step::Wait),
        named.prop_map(Step::Call),
        (any::<bool>(), prop::sample::select(verdicts))
            .prop_map(|(oldest, verdict)| Step::End(oldest, verdict)),
    ]
}

const ALL: &[Option<Verdict>] = &[None, Some(Verdict::Answered), Some(Verdict::Late), Some(Verdict::Lost)];

proptest! {
    #[test]
    fn whatever_happens_it_lets_one_probe_through_and_never_sticks(steps in prop::collection::vec(step(ALL), 0..200)) {
        let breaker = breaker(3);
        let mut now = Instant::now() + Duration::from_secs(3_600);
        let mut passes: Vec<Pass<'_>> = Vec::new();
        let (mut is_open, mut open_tools) = (false, std::collections::HashSet::new());
        for step in steps {
            match step {
                Step::Wait(seconds) => now += Duration::from_secs(seconds),
                Step::Call(name) => match breaker.admit(name.and_then(tool), now) {
                    Ok(pass) => {
                        let (whole, own) = pass.roles;
                        prop_assert_eq!(whole == Role::Probe, is_open, "only a probe passes an open breaker");
                        prop_assert_eq!(own == Role::Probe, name.is_some_and(|name| open_tools.contains(name)));
                        let is_alone = passes.iter().all(|other| {
                            (whole == Role::Plain || other.roles.0 == Role::Plain)
                                && (own == Role::Plain || other.roles.1 == Role::Plain || other.tool != pass.tool)
                        });
                        prop_assert!(is_alone, "one probe at a time");
                        passes.push(pass);
                    }
                    Err(Spared::Upstream(wait)) => prop_assert!(is_open && wait <= OPEN.max(PROBE_WAIT)),
                    Err(Spared::Tool(wait)) => {
                        prop_assert!(name.is_some_and(|name| open_tools.contains(name)));
                        prop_assert!(wait <= OPEN.max(PROBE_WAIT));
                    }
                },
                Step::End(oldest, verdict) if !passes.is_empty() => {
                    let at = if oldest { 0 } else { passes.len() - 1 };
                    let pass = passes.remove(at);
                    let name = pass.tool.clone();
                    let turns = pass.tell(verdict, now);
                    is_open = turns.upstream.map_or(is_open, |turn| turn == Turn::Opened);
                    match (turns.tool, name) {
                        (Some(Turn::Opened), Some(name)) => drop(open_tools.insert(name.to_string())),
                        (Some(Turn::Closed), Some(name)) => drop(open_tools.remove(&*name)),
                        (None, _) | (_, None) => {}
                    }
                    prop_assert_eq!(turns.open_tools, open_tools.len());
                }
                Step::End(..) => {}
            }
        }
        // However it stands: once all calls have ended, and time has passed, one answer of each closes it.
        while let Some(pass) = passes.pop() {
            pass.tell(None, now);
        }
        now += OPEN;
        for name in ["a", "b", "c"] {
            end(&breaker, Some(name), Verdict::Answered, now);
        }
        prop_assert!(breaker.circuits().whole.is_fresh() && breaker.circuits().tools.is_empty());
    }

    #[test]
    fn one_tool_alone_never_takes_its_upstream_down(
        steps in prop::collection::vec(step(&[Some(Verdict::Late), None]), 0..200),
    ) {
        let breaker = breaker(3);
        let mut now = Instant::now();
        let mut passes = Vec::new();
        for step in steps {
            match step {
                Step::Wait(seconds) => now += Duration::from_secs(seconds),
                Step::Call(_) => passes.extend(breaker.admit(tool("a"), now)),
                Step::End(oldest, verdict) if !passes.is_empty() => {
                    let at = if oldest { 0 } else { passes.len() - 1 };
                    let pass: Pass<'_> = passes.remove(at);
                    prop_assert_eq!(pass.tell(verdict, now).upstream, None);
                }
                Step::End(..) => {}
            }
            prop_assert!(breaker.admit(tool("b"), now).is_ok());
        }
    }
}
