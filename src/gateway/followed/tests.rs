//! Who follows what: counted exactly, told once, and never forgotten.

use bytes::Bytes;
use futures_util::FutureExt as _;
use proptest::prelude::*;

use super::*;
use crate::exchange::{Answer, ResultForm};
use crate::gateway::GatewayErrorKind;
use crate::mcp::Message;
use crate::wire::json;

fn kept() -> Consent {
    let text = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    let Ok(Message::Response(response)) = json::parse(text) else { panic!() };
    Ok(Outcome::Complete(Answer { response, form: ResultForm::Bare }))
}

fn refused() -> Consent {
    Err(GatewayError::new(GatewayErrorKind::Unavailable, "no"))
}

fn followed() -> Arc<Followed> {
    Arc::default()
}

fn enter(followed: &Arc<Followed>, uri: &str) -> Follow {
    followed.enter(&Arc::from(uri))
}

fn told(follow: &mut Follow) -> Vec<String> {
    std::iter::from_fn(|| follow.next()).map(|uri| uri.to_string()).collect()
}

fn all(followed: &Followed) -> Vec<String> {
    let mut all: Vec<_> = followed.wanted().all.iter().map(ToString::to_string).collect();
    all.sort_unstable();
    all
}

#[tokio::test(start_paused = true)]
async fn many_followers_are_one_wish_and_the_last_one_ends_it_after_a_moment() {
    let followed = followed();
    let (one, other) = (enter(&followed, "a://1"), enter(&followed, "a://1"));
    assert_eq!(followed.wanted().open.len(), 1);
    assert!(!followed.settle("a://1", kept()));
    assert!(followed.wanted().open.is_empty());
    drop(one);
    assert_eq!(followed.wanted().due, None);
    drop(other);
    assert_eq!(all(&followed), ["a://1"], "it lingers");
    let back = enter(&followed, "a://1");
    assert!(followed.wanted().open.is_empty(), "who comes back in time costs nothing");
    drop(back);
    let due = followed.wanted().due.expect("a time");
    tokio::time::sleep_until(due).await;
    assert!(all(&followed).is_empty());
}

#[tokio::test(start_paused = true)]
async fn updates_are_told_once_each_and_only_from_the_beginning_on() {
    let followed = followed();
    let mut early = enter(&followed, "a://1");
    followed.updated("a://1");
    let mut late = enter(&followed, "a://1");
    assert_eq!(told(&mut early), ["a://1"]);
    assert_eq!(told(&mut late), Vec::<String>::new());
    for _ in 0..1_000 {
        followed.updated("a://1");
        followed.updated("a://2");
    }
    assert_eq!(told(&mut early), ["a://1"]);
    assert_eq!(told(&mut late), ["a://1"]);
}

#[tokio::test(start_paused = true)]
async fn a_long_uri_is_told_as_itself_alone_and_costs_little() {
    let followed = followed();
    let long = "/".repeat(4 << 20);
    let (mut top, mut itself) = (enter(&followed, "/"), enter(&followed, &long));
    // The square of this length would take minutes.
    for _ in 0..10 {
        followed.updated(&long);
    }
    assert_eq!((told(&mut top).len(), told(&mut itself).len()), (0, 1));
    followed.updated(&"/".repeat(DEEP));
    assert_eq!(told(&mut top).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_below_a_resource_is_told_by_its_own_name_and_bounded() {
    let followed = followed();
    let (mut file, mut folder) = (enter(&followed, "file:///a"), enter(&followed, "file:///"));
    followed.updated("file:///a/b?x#y");
    followed.updated("file:///ab");
    assert_eq!(told(&mut file), ["file:///a/b?x#y"]);
    assert_eq!(told(&mut folder), ["file:///a/b?x#y", "file:///ab"]);
    for index in 0..10_000 {
        followed.updated(&format!("file:///a/{index}"));
    }
    let told = told(&mut file);
    assert!(told.len() <= BELOW + 2, "{}", told.len());
    assert_eq!(told.last().map(String::as_str), Some("file:///a"), "the rest is one update of the whole");
}

#[tokio::test(start_paused = true)]
async fn a_gap_is_one_update_once_the_upstream_tells_again() {
    let followed = followed();
    let mut follow = enter(&followed, "a://1");
    let mut fresh = enter(&followed, "a://2");
    assert!(!followed.settle("a://1", kept()));
    followed.unsettle();
    assert_eq!(followed.wanted().open.len(), 2);
    assert_eq!(told(&mut follow), Vec::<String>::new(), "not before it can be read");
    assert!(!followed.settle("a://1", kept()));
    assert!(!followed.settle("a://2", kept()));
    assert_eq!(told(&mut follow), ["a://1"]);
    assert_eq!(told(&mut fresh), Vec::<String>::new(), "nothing was promised before");
    followed.doubt();
    assert_eq!((told(&mut follow).len(), told(&mut fresh).len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_kept_for_a_while_and_asked_again_for_who_comes_or_stays() {
    let followed = followed();
    let follow = enter(&followed, "a://1");
    assert!(followed.verdict("a://1").now_or_never().is_none());
    assert!(!followed.settle("a://1", refused()), "nothing was promised");
    assert!(followed.verdict("a://1").await.is_err());
    assert!(followed.wanted().open.is_empty());
    tokio::time::sleep_until(followed.wanted().due.expect("a time")).await;
    assert_eq!(followed.wanted().open.len(), 1, "once more for who stays");
    assert!(!followed.settle("a://1", refused()));
    let other = enter(&followed, "a://1");
    assert_eq!(followed.wanted().open.len(), 1, "and at once for who comes");
    assert!(!followed.settle("a://1", kept()));
    followed.unsettle();
    assert!(followed.settle("a://1", refused()), "this was promised");
    drop((follow, other));
    assert!(all(&followed).is_empty());
}

proptest! {
    /// Whatever comes and goes, what is wanted is what somebody follows.
    #[test]
    fn what_is_wanted_is_what_is_followed(steps in prop::collection::vec((0_usize..4, 0_usize..6), 0..200)) {
        let followed = followed();
        let uris = ["a://1", "a://2", "a://1/x", "b://1"];
        let mut held: Vec<(usize, Follow)> = Vec::new();
        for (uri, act) in steps {
            match act {
                0 | 1 => held.push((uri, enter(&followed, uris[uri]))),
                2 => drop(held.iter().position(|(held, _)| *held == uri).map(|at| held.remove(at))),
                3 => followed.updated(uris[uri]),
                4 => drop(followed.settle(uris[uri], refused())),
                _ => followed.unsettle(),
            }
            let mut expected: Vec<_> = held.iter().map(|(uri, _)| uris[*uri].to_owned()).collect();
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(all(&followed), expected);
        }
    }
}
