//! The upstream of the load bench: a Streamable HTTP server with one tool, `echo`, as fast as a small hyper
//! server is. Speaks both eras, so that the same process stands behind every pair.
//!
//! Usage: `load_upstream PORT`.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::expect_used,
    missing_docs,
    reason = "a bench program: it may fall over"
)]

use std::convert::Infallible;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: String,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    arguments: Option<Arguments<'a>>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
}

fn answer(body: &[u8]) -> Option<String> {
    let message: Message<'_> = serde_json::from_slice(body).ok()?;
    let id = message.id?.get();
    let meta = message.params.as_ref().and_then(|params| params.meta);
    let is_modern = meta.is_some_and(|meta| meta.get().contains("io.modelcontextprotocol/protocolVersion"));
    let tag = if is_modern { r#""resultType":"complete","# } else { "" };
    let hints = if is_modern { r#","ttlMs":60000,"cacheScope":"public""# } else { "" };
    let result = match message.method.as_str() {
        "server/discover" => format!(
            r#"{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{{"tools":{{}}}}{hints}}}"#
        ),
        "initialize" => r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"load","version":"1"}}"#.to_owned(),
        "tools/list" => format!(
            r#"{{{tag}"tools":[{{"name":"echo","description":"Returns its text","inputSchema":{{"type":"object","properties":{{"text":{{"type":"string"}}}}}}}}]{hints}}}"#
        ),
        "tools/call" => {
            let text = message.params?.arguments?.text?.get();
            format!(r#"{{{tag}"content":[{{"type":"text","text":{text}}}]}}"#)
        }
        "ping" => "{}".to_owned(),
        _ => return Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"Method not found"}}}}"#)),
    };
    Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
}

async fn serve(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_post = request.method() == Method::POST;
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut response = Response::new(Full::default());
    match answer(&body) {
        _ if !is_post => *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED,
        Some(text) => {
            response.headers_mut().insert("content-type", "application/json".parse().unwrap());
            *response.body_mut() = Full::from(text);
        }
        None => *response.status_mut() = StatusCode::ACCEPTED,
    }
    Ok(response)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let port = std::env::args().nth(1).expect("usage: load_upstream PORT");
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await.unwrap();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        tokio::spawn(
            hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service_fn(serve)),
        );
    }
}
