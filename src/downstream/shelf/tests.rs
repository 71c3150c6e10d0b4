//! What is kept, within which bounds, and who gets it.

use proptest::prelude::*;

use super::*;
use crate::config::for_test;

fn shelf(change: impl FnOnce(&mut Config)) -> Arc<Shelf> {
    let mut config = for_test::config(&[], &[]);
    change(&mut config);
    Arc::new(Shelf::new(&config, Arc::new(Metrics::for_test())))
}

fn append(writer: &mut Writer, number: u64, text: &str) -> Way {
    writer.append(number, Some(Bytes::copy_from_slice(text.as_bytes())))
}

/// All that is kept of a stream after an event, and how many events are missing.
fn rest(shelf: &Shelf, session: &str, stream: u64, after: u64) -> Option<(Vec<String>, u64)> {
    let resumed = shelf.resume(session, stream, after)?;
    let text = |frame: &Bytes| String::from_utf8(frame.to_vec()).unwrap();
    Some((resumed.intake.again.iter().map(text).collect(), resumed.missed))
}

#[tokio::test]
async fn whoever_comes_back_gets_what_came_after_and_what_comes() {
    let shelf = shelf(|_| {});
    let (mut writer, mut first) = shelf.open(&"s".into()).unwrap();
    for (number, text) in [(1, "a"), (2, "b"), (3, "c")] {
        let way = append(&mut writer, number, text);
        if number < 3 {
            assert!(way.send(text.into()).await);
            assert_eq!(first.next().await.unwrap(), text);
        }
    }
    let mut resumed = shelf.resume("s", writer.stream(), 1).unwrap();
    assert_eq!((first.next().await, resumed.missed), (None, 0), "the older connection reads no longer");
    writer.replaced().await;
    assert!(append(&mut writer, 4, "d").send("d".into()).await);
    drop(writer);
    for text in ["b", "c", "d"] {
        assert_eq!(resumed.intake.next().await.unwrap(), text);
    }
    assert_eq!(resumed.intake.next().await, None, "the stream has ended");
}

#[tokio::test]
async fn a_connection_that_is_gone_is_noticed() {
    let shelf = shelf(|_| {});
    let (mut writer, intake) = shelf.open(&"s".into()).unwrap();
    let way = writer.way();
    assert!(!way.is_gone());
    drop(intake);
    way.gone().await;
    assert!(way.is_gone() && !way.send("x".into()).await);
}

#[tokio::test]
async fn a_stream_is_its_sessions_own() {
    let shelf = shelf(|_| {});
    let (mut writer, _intake) = shelf.open(&"s".into()).unwrap();
    append(&mut writer, 1, "a");
    assert!(shelf.resume("t", writer.stream(), 0).is_none());
    assert!(shelf.resume("s", writer.stream() ^ 1, 0).is_none());
    assert!(shelf.resume("s", writer.stream(), 0).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_has_ended_is_there_until_its_events_are_too_old() {
    let shelf = shelf(|config| config.sessions.resume_window = Duration::from_secs(10));
    let (mut writer, _intake) = shelf.open(&"s".into()).unwrap();
    let stream = writer.stream();
    append(&mut writer, 1, "a");
    tokio::time::advance(Duration::from_secs(6)).await;
    append(&mut writer, 2, "b");
    tokio::time::advance(Duration::from_secs(6)).await;
    shelf.sweep();
    assert_eq!(rest(&shelf, "s", stream, 0), Some((vec!["b".to_owned()], 1)), "the first is missed");
    drop(writer);
    assert_eq!(rest(&shelf, "s", stream, 1), Some((vec!["b".to_owned()], 0)));
    tokio::time::advance(Duration::from_secs(6)).await;
    shelf.sweep();
    assert_eq!(rest(&shelf, "s", stream, 1), None);
    let stock = shelf.lock();
    assert!(stock.streams.is_empty() && stock.sessions.is_empty() && stock.bytes == 0);
}

#[tokio::test]
async fn a_session_at_its_limit_pushes_out_its_own_events_and_no_others() {
    let shelf = shelf(|config| config.limits.kept_events_per_session = 2);
    let (mut one, _one) = shelf.open(&"one".into()).unwrap();
    let (mut other, _other) = shelf.open(&"other".into()).unwrap();
    append(&mut other, 1, "x");
    for (number, text) in [(1, "a"), (2, "b"), (3, "c")] {
        append(&mut one, number, text);
    }
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert_eq!(rest(&shelf, "one", one.stream(), 0), Some((texts(&["b", "c"]), 1)));
    assert_eq!(rest(&shelf, "other", other.stream(), 0), Some((texts(&["x"]), 0)));
    assert!(shelf.metrics.render().contains("waypost_kept_events_dropped_total{limit=\"session\"} 1"));
    assert!(shelf.metrics.render().contains("waypost_kept_events 3"));
    shelf.forget("one");
    assert_eq!(rest(&shelf, "one", one.stream(), 2), Some((vec![], 1)));
    assert!(shelf.metrics.render().contains("waypost_kept_event_bytes 1"));
}

#[tokio::test]
async fn an_event_that_is_too_large_pushes_nothing_out() {
    let shelf = shelf(|config| config.limits.kept_bytes_per_session = 4);
    let (mut writer, _intake) = shelf.open(&"s".into()).unwrap();
    append(&mut writer, 1, "aaaa");
    assert!(writer.keeps(4) && !writer.keeps(5));
    append(&mut writer, 2, "bbbbb");
    assert_eq!(rest(&shelf, "s", writer.stream(), 0), Some((vec!["aaaa".to_owned()], 1)));
}

/// One thing that happens to a shelf.
#[derive(Clone, Copy, Debug)]
enum Step {
    Append { stream: usize, bytes: usize },
    End(usize),
    Sweep,
    Forget(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0_usize..4, 0_usize..12).prop_map(|(stream, bytes)| Step::Append { stream, bytes }),
        1 => (0_usize..4).prop_map(Step::End),
        1 => Just(Step::Sweep),
        1 => (0_usize..2).prop_map(Step::Forget),
    ]
}

fn check(stock: &Stock) {
    let sum =
        |events: &VecDeque<u64>| events.iter().map(|serial| stock.events[serial].frame.len()).sum::<usize>();
    assert!(stock.events.len() <= 6 && stock.bytes <= 30);
    assert_eq!(stock.bytes, stock.events.values().map(|kept| kept.frame.len()).sum::<usize>());
    assert_eq!(stock.events.len(), stock.sessions.values().map(|held| held.events.len()).sum::<usize>());
    assert_eq!(stock.events.len(), stock.streams.values().map(|stream| stream.events.len()).sum::<usize>());
    for held in stock.sessions.values() {
        assert!(held.bytes == sum(&held.events) && held.events.len() <= 4 && held.bytes <= 20);
        assert!(held.events.iter().is_sorted() && !held.events.is_empty());
    }
    for stream in stock.streams.values() {
        assert!(stream.way.is_some() || !stream.events.is_empty(), "nothing is left of what has ended");
    }
}

proptest! {
    #[test]
    fn the_bounds_hold_and_a_rest_has_no_holes(steps in prop::collection::vec(step(), 0..120)) {
        let shelf = shelf(|config| {
            let limits = &mut config.limits;
            (limits.kept_events, limits.kept_events_per_session) = (6, 4);
            (limits.kept_bytes, limits.kept_bytes_per_session) = (30, 20);
            config.sessions.resume_window = Duration::from_secs(3600);
        });
        let open = |at: usize| shelf.open(&["even", "odd"][at % 2].into()).unwrap().0;
        let mut writers: Vec<(Writer, u64)> = (0..4).map(|at| (open(at), 0)).collect();
        for step in steps {
            match step {
                Step::Append { stream, bytes } => {
                    let (writer, number) = &mut writers[stream];
                    *number += 1;
                    writer.append(*number, Some(Bytes::from(vec![b'0' + u8::try_from(*number % 10).unwrap(); bytes])));
                }
                Step::End(at) => writers[at] = (open(at), 0),
                Step::Sweep => shelf.sweep(),
                Step::Forget(at) => shelf.forget(["even", "odd"][at]),
            }
            check(&shelf.lock());
        }
        for (at, (writer, last)) in writers.iter().enumerate() {
            for after in 0..=*last {
                let (texts, missed) = rest(&shelf, ["even", "odd"][at % 2], writer.stream(), after).unwrap();
                prop_assert_eq!(texts.len() as u64 + missed, last - after);
            }
        }
    }
}
