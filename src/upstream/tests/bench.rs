//! A connector on a bench: what it is configured with, calls to make on it, and what they bring.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::super::{Connector, Parking, start};
use crate::config::{Config, Http, Process, Stdio, Transport, UpstreamConfig, for_test};
use crate::exchange::{Call, Cancel, Event, EventSink, Hop, Outcome, Principal};
use crate::gateway::{AdmittedCall, GatewayError, Health, Offer, Target, Upstream};
use crate::mcp::{Body, Message, Method, Raw, key};
use crate::telemetry::Metrics;
use crate::wire::json::parse;

/// Nothing on the bench takes longer, however slow the machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A deadline that no paused clock runs past.
const NEVER: Duration = Duration::from_secs(1 << 20);

pub(crate) struct Bench {
    pub(crate) connector: Arc<Connector>,
}

/// One call, and where its events arrive.
pub(crate) struct Made {
    pub(crate) call: AdmittedCall,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) cancel: Cancel,
}

/// A scripted server on stdio, following a plan.
pub(crate) fn scripted(plan: &Value) -> Stdio {
    let script = include_str!("server.py");
    shell("python3", &["-c", script, &plan.to_string()])
}

pub(crate) fn shell(command: &str, args: &[&str]) -> Stdio {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    Stdio { command: command.to_owned(), args, env: vec![], cwd: None, process: Process::default() }
}

impl Made {
    /// The same call with less time.
    pub(crate) fn within(self, time: Duration) -> Self {
        let Self { call, events, cancel } = self;
        Self { call: call.due_at(Instant::now() + time), events, cancel }
    }
}

impl Bench {
    pub(crate) fn scripted(plan: &Value) -> Self {
        Self::stdio(scripted(plan))
    }

    pub(crate) fn stdio(stdio: Stdio) -> Self {
        Self::with(Transport::Stdio(stdio), |_, _| {})
    }

    pub(crate) fn http(url: &str) -> Self {
        Self::with(http(url), |_, _| {})
    }

    pub(crate) fn with(
        transport: Transport,
        change: impl FnOnce(&mut UpstreamConfig, &mut crate::config::Limits),
    ) -> Self {
        let _earlier = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut config: Config = for_test::config(&["under_test"], &[]);
        let mut upstream = UpstreamConfig { transport, ..(*config.upstreams[0]).clone() };
        change(&mut upstream, &mut config.limits);
        config.upstreams = vec![Arc::new(upstream)];
        let metrics = Arc::new(Metrics::new(&config));
        let parking = Arc::new(Parking::new(&config, metrics));
        Self { connector: start(Arc::clone(&config.upstreams[0]), &config, (parking, None)) }
    }

    /// Waits for an offer of which `is_it` is true.
    pub(crate) async fn offer(&self, is_it: impl Fn(&Offer) -> bool) -> Arc<Offer> {
        let mut offers = self.connector.offer();
        let found = timeout(LONG, offers.wait_for(|offer| is_it(offer))).await;
        found.expect("the offer does not come").unwrap().clone()
    }

    pub(crate) async fn ready(&self) -> Arc<Offer> {
        self.offer(|offer| matches!(offer.health, Health::Ready)).await
    }

    /// Waits until it is down, and says why.
    pub(crate) async fn down(&self) -> Arc<str> {
        let offer = self.offer(|offer| matches!(offer.health, Health::Down { .. })).await;
        match &offer.health {
            Health::Down { reason, .. } => Arc::clone(reason),
            Health::Ready | Health::Idle | Health::Connecting => panic!(),
        }
    }

    pub(crate) async fn run(&self, call: AdmittedCall) -> Result<Outcome, GatewayError> {
        timeout(LONG, self.connector.call(call)).await.expect("the call does not end")
    }

    /// Calls a tool and gives the text of its first block.
    pub(crate) async fn text(&self, tool: &str, arguments: Value) -> Result<String, GatewayError> {
        let outcome = self.run(call(tool, arguments).call).await?;
        Ok(text_of(&outcome))
    }

    pub(crate) async fn stop(&self) {
        timeout(LONG, self.connector.stop()).await.expect("it does not stop");
    }
}

pub(crate) fn http(url: &str) -> Transport {
    Transport::Http(Http {
        url: url::Url::parse(url).unwrap(),
        headers: vec![],
        kind: None,
        oauth: None,
        way: crate::config::Way::default(),
    })
}

pub(crate) fn call(tool: &str, arguments: Value) -> Made {
    made(tool, &json!({"name": tool, "arguments": arguments}).to_string(), Hop::default())
}

/// A call with these `params`, whose native name is `native`.
pub(crate) fn made(native: &str, params: &str, hop: Hop) -> Made {
    let text = format!(r#"{{"jsonrpc":"2.0","id":"caller's own","method":"tools/call","params":{params}}}"#);
    let Message::Request(request) = parse(Bytes::from(text)).unwrap() else { panic!() };
    let (sink, events) = EventSink::new();
    let cancel = Cancel::default();
    let call = Call {
        method: Method::ToolsCall,
        request,
        hop,
        principal: Principal::new(0, "tester"),
        session: None,
        events: sink,
        cancel: cancel.clone(),
    };
    let target = Target { upstream: 0, native: native.into() };
    Made { call: AdmittedCall::for_test(call, target, Instant::now() + NEVER), events, cancel }
}

/// A call that wants progress under a token.
pub(crate) fn call_with_progress(tool: &str, arguments: Value, token: &str) -> Made {
    let params = format!(
        r#"{{"name":{},"arguments":{arguments},"_meta":{{"{}":{token}}}}}"#,
        Value::from(tool),
        key::PROGRESS_TOKEN
    );
    let token = Raw::trusted(Bytes::from(token.to_owned()));
    made(tool, &params, Hop { progress_token: Some(token), ..Hop::default() })
}

pub(crate) fn text_of(outcome: &Outcome) -> String {
    let response = &outcome.answer().response;
    assert!(matches!(response.body, Body::Result(_)), "{:?}", response.text);
    let value: Value = serde_json::from_slice(response.result("content").unwrap().bytes()).unwrap();
    value[0]["text"].as_str().unwrap().to_owned()
}
