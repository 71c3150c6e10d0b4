//! Generated messages, stranger than anybody writes them: unknown members at every depth of a request and of its
//! result come out as they went in. The comparison is that of the cases by hand.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::{Differences, compare_request, compare_result};
use crate::support::client::{Client, with_meta};
use crate::support::gateway::Config;
use crate::support::json::{get, replaced};
use crate::support::matrix::{Cell, Era};
use crate::support::script::Script;

crate::matrix! { unknown_members_survive }

/// Messages for each pair and transport.
const CASES: u32 = 24;

/// A string as JSON has it: characters as they are, and escapes in every spelling.
fn text() -> impl Strategy<Value = String> {
    let plain =
        any::<char>().prop_filter("needs no escape", |one| !matches!(one, '"' | '\\' | '\0'..='\x1f'));
    let piece = prop_oneof![
        4 => plain.prop_map(String::from),
        1 => prop::sample::select(vec![r#"\""#, r"\\", r"\/", r"\b", r"\f", r"\n", r"\r", r"\t"]).prop_map(String::from),
        1 => (0_u32..0xd800).prop_map(|code| format!(r"\u{code:04x}")),
        1 => (0xe000_u32..0x1_0000).prop_map(|code| format!(r"\u{code:04X}")),
        1 => (0xd800_u32..0xdc00, 0xdc00_u32..0xe000).prop_map(|(high, low)| format!(r"\u{high:04x}\u{low:04X}")),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

/// A number that need not fit into anything.
fn number() -> impl Strategy<Value = String> {
    r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?"
}

fn space() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "", "", " ", "\t ", "  "])
}

/// Any value, as text. A name occurs once in an object, and names are in no order.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["true", "false", "null", "{}", "[ ]"]).prop_map(String::from),
        number(),
        text(),
    ];
    let tree = leaf.prop_recursive(6, 48, 6, |inner| {
        let array = (prop::collection::vec(inner.clone(), 0..6), space())
            .prop_map(|(items, space)| format!("[{space}{}{space}]", items.join(&format!("{space},"))));
        let object = (prop::collection::vec((text(), inner), 0..6), space()).prop_map(|(members, space)| {
            let count = members.len();
            let member = |(at, (name, value)): (usize, (String, String))| {
                format!("\"{}{}{space}:{space}{value}", count - at, &name[1..])
            };
            let members: Vec<String> = members.into_iter().enumerate().map(member).collect();
            format!("{{{space}{}{space}}}", members.join(","))
        });
        prop_oneof![array, object]
    });
    // Now and then far down, though not as far as is refused.
    (tree, prop_oneof![3 => Just(0), 1 => 1_usize..40]).prop_map(|(value, depth)| {
        let (open, close) = (r#"[{"k":"#.repeat(depth), "}]".repeat(depth));
        format!("{open}{value}{close}")
    })
}

fn unknown_members_survive(cell: Cell) {
    let script = Script::of(cell.server).tool("take", |turn| {
        let given = get(turn.arguments(), &["result"]).expect("what to give");
        turn.ok(&format!(r#"{{"x-own":{given},"content":[],"_meta":{{"example.com/x":{given}}}}}"#));
    });
    let upstream = script.over(cell.transport);
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::of(&gateway, cell.client);
    let settings = ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    let messages = (value(), value(), value(), value());
    let outcome = TestRunner::new(settings).run(&messages, |(result, argument, own, meta)| {
        let params = format!(
            r#"{{"x-own":{own},"name":"up__take","arguments":{{"z":{argument},"result":{result}}},"_meta":{{"example.com/x":{meta}}}}}"#
        );
        let params = if cell.client == Era::Modern { with_meta(&params) } else { params };
        let sent = format!(r#"{{"x-own":{own},"id":"own","method":"tools/call","params":{params},"jsonrpc":"2.0"}}"#);
        let came = client.message(&sent).send().message();
        let mut differences = Differences::default();
        match upstream.calls().pop() {
            Some(call) => compare_request(&mut differences, "request", cell, (&sent, &call.text)),
            None => differences.0.push(format!("never came, but {came}")),
        }
        let given = format!(r#"{{"x-own":{result},"content":[],"_meta":{{"example.com/x":{result}}}}}"#);
        let given = replaced(r#"{"jsonrpc":"2.0","id":"own","result":{}}"#, &["result"], &given);
        compare_result(&mut differences, "result", cell, (&given, &came));
        let found = std::mem::take(&mut differences.0);
        if found.is_empty() { Ok(()) } else { Err(TestCaseError::fail(found.join("\n"))) }
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
