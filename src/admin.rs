//! The admin listener: health, readiness, metrics, status, and a wish to read the configuration again.
//!
//! Must not know: what a call is. Nothing that it says holds a secret, an address of an upstream, or an
//! argument of a child.

mod accept;
mod explain;
mod host;
mod readiness;
mod reload;
mod status;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::gateway::{Explanation, Offer, Question, Unanswerable};
use crate::telemetry::{METRICS_CONTENT_TYPE, Metrics};
use crate::tls::Acceptor;

pub use readiness::{Phase, Readiness};
pub use reload::{Reload, Upstreams};

/// What the upstreams offer now, by their names, in the order of the configuration.
pub type Offers = Vec<(Arc<str>, Arc<Offer>)>;

/// The paths that are served.
const PATHS: [&str; 7] =
    ["/healthz", "/readyz", "/metrics", "/api/status", "/api/explain", "/api/who", RELOAD];
/// The one that is POSTed to.
const RELOAD: &str = "/api/reload";

/// What the admin listener sees of the gateway, and may wish. Nothing of it blocks.
pub trait Sights: Send + Sync + 'static {
    /// The configuration in force.
    fn config(&self) -> Arc<Config>;

    /// What the upstreams offer now.
    fn offers(&self) -> Offers;

    /// Explains for one client, or for all where none is named.
    ///
    /// # Errors
    /// If the question names a client or an endpoint that there is not.
    fn explain(&self, client: Option<&str>, question: &Question) -> Result<Vec<Explanation>, Unanswerable>;

    /// What came of reading the configuration last, if it was read again.
    fn last_reload(&self) -> Option<Reload>;

    /// Has the configuration read again; `None` if the gateway stops.
    fn reload(&self) -> BoxFuture<'_, Option<Reload>>;
}

/// Everything that the admin listener tells about.
pub struct AdminState {
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
    sights: Arc<dyn Sights>,
    started: Instant,
}

impl AdminState {
    /// Tells about a gateway.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>, readiness: Arc<Readiness>, sights: Arc<dyn Sights>) -> Self {
        Self { metrics, readiness, sights, started: Instant::now() }
    }
}

impl std::fmt::Debug for AdminState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminState").field("started", &self.started).finish_non_exhaustive()
    }
}

/// Serves until `shutdown`, then ends the requests that are under way, for at most two seconds.
///
/// Cancel safe: dropping the future closes every connection.
///
/// # Errors
/// If the listener has no address.
pub(crate) async fn serve(
    (listener, tls): (TcpListener, Option<Arc<Acceptor>>),
    state: Arc<AdminState>,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let names = host::Names::of(listener.local_addr()?);
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let state = Arc::clone(&state);
        async move {
            let (head, _body) = request.into_parts();
            Ok::<_, std::convert::Infallible>(answer(state, names, Request::from_parts(head, ())).await)
        }
    });
    accept::serve((listener, tls), service, shutdown).await;
    Ok(())
}

type Answer = Response<Full<Bytes>>;

/// Answers one request.
async fn answer(state: Arc<AdminState>, names: host::Names, request: Request<()>) -> Answer {
    let header = request.headers().get(HOST).and_then(|value| value.to_str().ok());
    let asked = header.or_else(|| request.uri().authority().map(http::uri::Authority::as_str));
    if !names.allow(asked) {
        return json_answer(StatusCode::FORBIDDEN, &json!({"error": "this Host is not served here"}));
    }
    if !request.headers().get_all(ORIGIN).iter().all(|origin| names.allow_origin(origin.to_str().ok())) {
        return json_answer(StatusCode::FORBIDDEN, &json!({"error": "this Origin is not served here"}));
    }
    let path = request.uri().path();
    let (is_served, served, verbs) = match path {
        RELOAD => (*request.method() == Method::POST, "POST", HeaderValue::from_static("POST")),
        _ => (
            matches!(*request.method(), Method::GET | Method::HEAD),
            "GET",
            HeaderValue::from_static("GET, HEAD"),
        ),
    };
    if PATHS.contains(&path) && !is_served {
        let error = json!({"error": format!("only {served} is served")});
        let mut answer = json_answer(StatusCode::METHOD_NOT_ALLOWED, &error);
        answer.headers_mut().insert(ALLOW, verbs);
        return answer;
    }
    match path {
        "/healthz" => text_answer("text/plain; charset=utf-8", "ok\n"),
        "/readyz" => ready_answer(&state, request.uri().query()),
        "/metrics" => metrics_answer(state).await,
        "/api/status" => json_answer(StatusCode::OK, &status::report(&state)),
        "/api/explain" => {
            let (status, page) = explain::explain(&*state.sights, request.uri().query());
            json_answer(status, &page)
        }
        "/api/who" => {
            let (status, page) = explain::who(&*state.sights, request.uri().query());
            json_answer(status, &page)
        }
        RELOAD => match state.sights.reload().await {
            Some(reload) => json_answer(reload.status(), &reload),
            None => {
                json_answer(StatusCode::SERVICE_UNAVAILABLE, &json!({"error": "the gateway is stopping"}))
            }
        },
        _ => json_answer(StatusCode::NOT_FOUND, &json!({"error": "no such page", "pages": PATHS})),
    }
}

fn ready_answer(state: &AdminState, query: Option<&str>) -> Answer {
    let Some(wish) = readiness::Wish::of(query) else {
        let text = "the query may be `upstreams=any` or `upstreams=all`";
        return json_answer(StatusCode::BAD_REQUEST, &json!({"error": text}));
    };
    let report = readiness::report(state.readiness.phase(), wish, &state.sights.offers());
    let status = if report.is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json_answer(status, &report.text)
}

async fn metrics_answer(state: Arc<AdminState>) -> Answer {
    // Reads files, and may format thousands of lines.
    match tokio::task::spawn_blocking(move || state.metrics.render()).await {
        Ok(text) => text_answer(METRICS_CONTENT_TYPE, text),
        Err(_) => json_answer(StatusCode::INTERNAL_SERVER_ERROR, &json!({"error": "metrics failed"})),
    }
}

fn text_answer(content_type: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

fn json_answer(status: StatusCode, value: &impl serde::Serialize) -> Answer {
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut answer = text_answer("application/json", text);
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::config::for_test;
    use crate::gateway::Health;

    fn state_with(offers: Offers) -> Arc<AdminState> {
        let readiness = Arc::new(Readiness::default());
        readiness.enter(Phase::Serving);
        Arc::new(AdminState::new(Arc::new(Metrics::for_test()), readiness, Arc::new(Known(offers))))
    }

    struct Known(Offers);

    impl Sights for Known {
        fn config(&self) -> Arc<Config> {
            let mut config = for_test::config(&["up", "gone"], &[]);
            config.hash = "0123456789abcdef".to_owned();
            Arc::new(config)
        }

        fn offers(&self) -> Offers {
            self.0.clone()
        }

        fn explain(&self, _: Option<&str>, _: &Question) -> Result<Vec<Explanation>, Unanswerable> {
            Ok(Vec::new())
        }

        fn last_reload(&self) -> Option<Reload> {
            Some(Reload::refused("file", "a key is wrong".to_owned()))
        }

        fn reload(&self) -> BoxFuture<'_, Option<Reload>> {
            let upstreams = Upstreams { started: vec!["up".into()], ..Upstreams::default() };
            let reload = Reload::applied("admin", upstreams, &["listen"]);
            Box::pin(std::future::ready(Some(reload)))
        }
    }

    #[tokio::test]
    async fn a_reload_is_a_post_and_says_what_came_of_it() {
        let state = state_with(offers());
        assert_eq!(get(&state, "/api/reload").await.0, StatusCode::METHOD_NOT_ALLOWED);
        let (status, text) = ask(&state, Method::POST, "/api/reload").await;
        let page: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(status, StatusCode::OK);
        assert_eq!((&page["outcome"], &page["upstreams"]["started"]), (&json!("applied"), &json!(["up"])));
        assert_eq!(page["restart_needed"], json!(["listen"]));
        let status: serde_json::Value = serde_json::from_str(&get(&state, "/api/status").await.1).unwrap();
        assert_eq!(status["last_reload"]["reason"], "a key is wrong");
    }

    fn offers() -> Offers {
        let ready = Offer {
            health: Health::Ready,
            protocol_version: Some("2025-11-25"),
            connects: 3,
            ..Offer::default()
        };
        let now = Instant::now();
        let health = Health::Down {
            reason: "it exited".into(),
            since: now.checked_sub(Duration::from_secs(5)).unwrap_or(now),
            retry_at: now + Duration::from_secs(60),
            failures: 2,
        };
        let gone = Offer { health, ..Offer::default() };
        vec![("up".into(), Arc::new(ready)), ("gone".into(), Arc::new(gone))]
    }

    async fn ask(state: &Arc<AdminState>, method: Method, uri: &str) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(uri).header(HOST, "localhost:9090").body(());
        let names = host::Names::of(([127, 0, 0, 1], 9090).into());
        let answer = answer(Arc::clone(state), names, request.unwrap()).await;
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn get(state: &Arc<AdminState>, uri: &str) -> (StatusCode, String) {
        ask(state, Method::GET, uri).await
    }

    #[tokio::test]
    async fn the_pages_answer_and_others_are_named() {
        let state = state_with(offers());
        assert_eq!(get(&state, "/healthz").await, (StatusCode::OK, "ok\n".to_owned()));
        let (status, text) = get(&state, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("# TYPE waypost_build_info gauge"), "{text}");
        let (status, text) = get(&state, "/nothing").await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert!(PATHS.iter().all(|path| text.contains(path)), "{text}");
        let (status, _) = ask(&state, Method::POST, "/metrics").await;
        assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    }

    #[tokio::test]
    async fn readiness_follows_the_phase_and_on_wish_the_upstreams() {
        let state = state_with(offers());
        for (uri, expected) in [
            ("/readyz", StatusCode::OK),
            ("/readyz?upstreams=any", StatusCode::OK),
            ("/readyz?upstreams=all", StatusCode::SERVICE_UNAVAILABLE),
            ("/readyz?upstreams=most", StatusCode::BAD_REQUEST),
        ] {
            assert_eq!(get(&state, uri).await.0, expected, "{uri}");
        }
        state.readiness.enter(Phase::Draining);
        let (status, text) = get(&state, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.contains("draining"), "{text}");
    }

    #[tokio::test]
    async fn agg_01_status_shows_who_is_down_and_why() {
        let state = state_with(offers());
        let (status, text) = get(&state, "/api/status").await;
        assert_eq!(status, StatusCode::OK);
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["config_hash"], "0123456789abcdef");
        assert_eq!(report["upstreams"][0]["state"], "ready");
        assert_eq!(report["upstreams"][0]["transport"], "http");
        assert_eq!(report["upstreams"][0]["protocol_version"], "2025-11-25");
        assert_eq!(report["upstreams"][0]["connects"], 3);
        assert_eq!(report["upstreams"][1]["state"], "down");
        assert_eq!(report["upstreams"][1]["reason"], "it exited");
        assert!(report["upstreams"][1]["state_seconds"].as_f64().unwrap() >= 0.0);
        assert!(report["upstreams"][1]["retry_in_seconds"].as_f64().unwrap() > 1.0);
    }

    #[tokio::test]
    async fn a_foreign_host_is_refused_over_a_socket_too_and_shutdown_ends_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let client = async {
            let mut texts = Vec::new();
            for host in ["evil.example", "localhost"] {
                let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
                let request = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
                socket.write_all(request.as_bytes()).await.unwrap();
                let mut text = String::new();
                socket.read_to_string(&mut text).await.unwrap();
                texts.push(text);
            }
            shutdown.cancel();
            texts
        };
        let (served, texts) =
            tokio::join!(serve((listener, None), state_with(offers()), shutdown.clone()), client);
        served.unwrap();
        assert!(texts[0].starts_with("HTTP/1.1 403"), "{}", texts[0]);
        assert!(texts[1].starts_with("HTTP/1.1 200") && texts[1].ends_with("ok\n"), "{}", texts[1]);
    }
}
