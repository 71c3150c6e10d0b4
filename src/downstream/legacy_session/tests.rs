//! Session ids and the table behind them.

use super::*;
use crate::config::{EndpointConfig, for_test};

const IDLE: Duration = Duration::from_secs(2);

fn table(key: Option<&str>, most: usize) -> SessionTable {
    let mut config = for_test::config(&[], &["alice"]);
    config.sessions.idle_timeout = IDLE;
    config.sessions.key = key.map(|key| key.to_owned().into());
    config.limits.sessions = most;
    SessionTable::new(&config, Arc::new(Metrics::new(&config))).unwrap()
}

fn who(name: &str) -> Principal {
    Principal::new(0, name)
}

fn raw(text: &str) -> Raw {
    Raw::parse(text.to_owned().into()).unwrap()
}

fn begin(table: &SessionTable, principal: &str) -> Arc<str> {
    let handshake = Handshake {
        client_info: Some(raw(r#"{"name":"c"}"#)),
        capabilities: Some(raw(r#"{"experimental":{"x":1e2}}"#)),
    };
    table.begin(&who(principal), ProtocolVersion::V2025_06_18, handshake, Seen::default()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn ses_01_only_live_ids_of_the_caller_are_found() {
    let table = table(None, 10);
    let id = begin(&table, "alice");
    assert_eq!(table.find(&id, &who("alice")).unwrap().version, ProtocolVersion::V2025_06_18);
    assert!(table.find(&id, &who("bob")).is_none(), "another principal's");
    assert!(table.find(&id, &who("alice").at(1)).is_none(), "at an endpoint that is not there");
    assert!(table.find("5f2b9d1c", &who("alice")).is_none(), "a made-up id");
    let session = table.find(&id, &who("alice")).unwrap();
    table.end(&session);
    drop(session);
    assert!(table.find(&id, &who("alice")).is_none(), "a deleted id");
}

#[tokio::test(start_paused = true)]
async fn a_restart_with_a_random_key_forgets_and_a_replica_with_the_key_does_not() {
    let id = begin(&table(None, 10), "alice");
    assert!(table(None, 10).find(&id, &who("alice")).is_none());
    let id = begin(&table(Some("k"), 10), "alice");
    let replica = table(Some("k"), 10);
    let session = replica.find(&id, &who("alice")).unwrap();
    assert_eq!(session.handshake.capabilities, Some(raw(r#"{"experimental":{"x":1e2}}"#)));
    assert_eq!(session.handshake.client_info, Some(raw(r#"{"name":"c"}"#)));
    assert!(replica.find(&id, &who("bob")).is_none());
}

#[tokio::test(start_paused = true)]
async fn lek_01_an_idle_session_is_collected_and_stays_unknown() {
    let table = table(Some("k"), 10);
    let id = begin(&table, "alice");
    tokio::time::advance(IDLE).await;
    assert!(table.find(&id, &who("alice")).is_some());
    tokio::time::advance(IDLE * 2).await;
    table.sweep();
    assert!(table.live.is_empty());
    assert!(table.find(&id, &who("alice")).is_none());
    let unswept = begin(&table, "alice");
    tokio::time::advance(IDLE * 2).await;
    assert!(table.find(&unswept, &who("alice")).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_session_in_use_is_not_idle() {
    let table = table(None, 10);
    let id = begin(&table, "alice");
    let in_use = table.find(&id, &who("alice")).unwrap();
    tokio::time::advance(IDLE * 10).await;
    table.sweep();
    assert!(table.find(&id, &who("alice")).is_some());
    drop(in_use);
    tokio::time::advance(IDLE).await;
    assert!(table.find(&id, &who("alice")).is_some());
}

#[tokio::test(start_paused = true)]
async fn the_table_is_bounded_and_the_one_that_made_room_comes_back() {
    let table = table(None, 2);
    let first = begin(&table, "alice");
    tokio::time::advance(Duration::from_millis(10)).await;
    let ids: Vec<_> = (0..5).map(|_| begin(&table, "alice")).collect();
    assert_eq!(table.live.len(), 2);
    assert!(table.find(&first, &who("alice")).is_some());
    assert!(ids.iter().all(|id| table.find(id, &who("alice")).is_some()));
    assert_eq!(table.live.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_busy_session_that_made_room_is_found_however_old_its_id_is() {
    let table = table(None, 2);
    let busy = begin(&table, "alice");
    for _ in 0..10 {
        tokio::time::advance(IDLE / 2).await;
        let _others = [begin(&table, "bob"), begin(&table, "bob"), begin(&table, "bob")];
        assert!(table.find(&busy, &who("alice")).is_some(), "it was used a moment ago");
    }
    tokio::time::advance(IDLE * 2).await;
    assert!(table.find(&busy, &who("alice")).is_none(), "and now it is idle");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_id_stays_unknown_however_many_are_deleted() {
    let table = table(Some("k"), 2);
    let ids: Vec<_> = (0..100)
        .map(|_| {
            let id = begin(&table, "alice");
            table.end(&table.find(&id, &who("alice")).unwrap());
            id
        })
        .collect();
    assert!(ids.iter().all(|id| table.find(id, &who("alice")).is_none()));
    tokio::time::advance(Duration::from_millis(1)).await;
    let later = begin(&table, "alice");
    assert!(table.find(&later, &who("alice")).is_some(), "who comes later is not taken for one of them");
}

#[test]
fn the_log_level_is_the_sessions_own() {
    let table = table(None, 10);
    let (one, two) = (begin(&table, "alice"), begin(&table, "alice"));
    table.find(&one, &who("alice")).unwrap().set_level(Level::Error);
    assert_eq!(table.find(&one, &who("alice")).unwrap().level(), Some(Level::Error));
    assert_eq!(table.find(&two, &who("alice")).unwrap().level(), None);
}

#[test]
fn an_id_fits_into_a_header_whatever_the_client_says_of_itself() {
    let table = table(None, 10);
    let long = "x".repeat(100_000);
    let handshake = Handshake {
        client_info: Some(raw(&format!(r#"{{"name":"{long}","version":"1","icons":["{long}"]}}"#))),
        capabilities: Some(raw(&format!(
            r#"{{"experimental":{{"{long}":1}},"{long}":{{}},"extensions":{{}}}}"#
        ))),
    };
    let id = table.begin(&who("alice"), ProtocolVersion::NEWEST_LEGACY, handshake, Seen::default()).unwrap();
    assert!(id.len() < 4096, "{}", id.len());
    let session = table.find(&id, &who("alice")).unwrap();
    assert_eq!(session.handshake.capabilities, Some(raw(r#"{"experimental":{},"extensions":{}}"#)));
}

#[tokio::test(start_paused = true)]
async fn a_session_belongs_to_the_endpoint_at_which_it_began() {
    let with_two = |paths: [&str; 2]| {
        let mut config = for_test::config(&[], &["alice"]);
        config.sessions.key = Some("k".to_owned().into());
        let endpoint =
            |path: &str| Arc::new(EndpointConfig { path: path.into(), ..EndpointConfig::default() });
        config.endpoints = paths.map(endpoint).into();
        SessionTable::new(&config, Arc::new(Metrics::new(&config))).unwrap()
    };
    let table = with_two(["/mcp", "/mcp/a"]);
    let handshake = Handshake { client_info: None, capabilities: None };
    let begun = who("alice").at(1);
    let id = table.begin(&begun, ProtocolVersion::V2025_06_18, handshake, Seen::default()).unwrap();
    assert!(table.find(&id, &begun).is_some());
    assert!(table.find(&id, &who("alice").at(0)).is_none());
    let replica = with_two(["/mcp/a", "/mcp"]);
    assert!(replica.find(&id, &who("alice").at(1)).is_none());
    assert!(replica.find(&id, &who("alice").at(0)).is_some(), "the path decides, not the place");
}
