//! Where tools, resources and prompts are: behind a running gateway, or with the servers of the file itself.
//!
//! Both are the same to what comes after: a running gateway is looked at as the only upstream of a gateway in this
//! process, its names left as they are, so that there is one client for both.
//!
//! Must not know: what is asked for.

use std::path::Path;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use serde_json::json;
use url::Url;

use crate::config::{self, Config};
use crate::exchange::Principal;
use crate::gateway::{Gateway, Health};

/// The way to what is asked for.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Reach {
    /// Go through the running gateway (or any other MCP server) at this address, like `http://127.0.0.1:8080/mcp`.
    /// Without it, the upstreams of the configuration file are connected to for the occasion.
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
    /// With `--url`: the variable that holds the token.
    #[arg(long, value_name = "NAME", requires = "url")]
    token_env: Option<String>,
    /// Without `--url`: as which client of the configuration file. May be left out where callers without credentials are
    /// served, or there is only one client.
    #[arg(long, value_name = "NAME", conflicts_with = "url")]
    client: Option<String>,
    /// With `--url`: how long an answer may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    timeout: u32,
    /// Print JSON, as it came.
    #[arg(long)]
    pub(super) json: bool,
}

/// What was reached.
pub(super) struct Reached<'g> {
    pub(super) gateway: &'g Gateway,
    pub(super) principal: Principal,
}

impl Reach {
    /// Connects, does the work, and ends what was started.
    ///
    /// # Errors
    /// If the file is no good, or there is no such client; else those of `work`.
    pub(super) async fn with<T>(
        &self,
        file: &Path,
        work: impl AsyncFnOnce(Reached<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let config = match &self.url {
            Some(url) => self.elsewhere(url)?,
            None => super::load(file)?,
        };
        let principal = self.principal(&config)?;
        let waiting = Waiting::begin("connecting");
        let looking = crate::app::look(config, async |gateway: &Gateway| {
            drop(waiting);
            tokio::select! {
                done = work(Reached { gateway, principal }) => done,
                _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted")),
            }
        });
        Box::pin(looking).await
    }

    /// A configuration with the running gateway as its only upstream.
    fn elsewhere(&self, url: &Url) -> anyhow::Result<Config> {
        let mut url = url.clone();
        if url.path() == "/" {
            url.set_path("/mcp");
        }
        let mut upstream = json!({
            "url": url.as_str().replace('$', "$$"),
            "prefix": "",
            "timeout": format!("{}s", self.timeout),
        });
        if let (Some(name), Some(upstream)) = (&self.token_env, upstream.as_object_mut()) {
            if std::env::var_os(name).is_none_or(|token| token.is_empty()) {
                bail!("the variable {name} holds no token");
            }
            upstream.insert("headers".to_owned(), json!({"Authorization": format!("Bearer ${{{name}}}")}));
        }
        let text = json!({
            "upstreams": {UPSTREAM: upstream},
            "naming": {"charset": "any", "max_length": 1024},
            "admin": false,
        });
        let loaded = config::parse(&text.to_string(), "--url", &config::process_env);
        Ok(loaded.map_err(|problems| anyhow!("{problems}"))?.config)
    }

    fn principal(&self, config: &Config) -> anyhow::Result<Principal> {
        let clients = || config.clients.iter().enumerate();
        let found = match (&self.client, config.clients.as_slice()) {
            (Some(name), _) => clients().find(|(_, client)| *client.name == **name),
            (None, [_]) => clients().next(),
            (None, _) => clients().find(|(_, client)| client.is_anonymous),
        };
        let Some((place, client)) = found else {
            let names: Vec<&str> = config.clients.iter().map(|client| &*client.name).collect();
            bail!("say as whom: `--client` is one of {}", names.join(", "));
        };
        let endpoint = config.endpoint(None).unwrap_or_default();
        Ok(Principal::new(place, Arc::clone(&client.name)).at(endpoint))
    }
}

/// What the gateway at `--url` is called in this process.
const UPSTREAM: &str = "gateway";

impl Reached<'_> {
    /// What to know of servers that are not there, a line each.
    pub(super) fn absent(&self) -> String {
        let offers = self.gateway.offers();
        let absent = offers.iter().filter_map(|(name, offer)| match &offer.health {
            Health::Ready | Health::Idle => None,
            Health::Connecting => Some(format!("{name}: did not answer in time\n")),
            Health::Down { reason, .. } => Some(format!("{name}: {reason}\n")),
        });
        absent.collect()
    }

    /// Whether no server is there at all, though there should be.
    pub(super) fn is_alone(&self) -> bool {
        let offers = self.gateway.offers();
        !offers.is_empty() && !offers.iter().any(|(_, offer)| offer.health.takes_calls())
    }
}

/// A line on stderr for somebody who waits at a terminal; gone with this.
pub(super) struct Waiting {
    is_shown: bool,
}

impl Waiting {
    /// Shows a line, if somebody is there to see it.
    pub(super) fn begin(text: &str) -> Self {
        use std::io::IsTerminal as _;
        let waiting = Self { is_shown: std::io::stderr().is_terminal() };
        waiting.show(text);
        waiting
    }

    /// Shows another line in its place.
    #[expect(clippy::print_stderr, reason = "the command line talks to its user")]
    pub(super) fn show(&self, text: &str) {
        if self.is_shown {
            eprint!("\r\u{1b}[K{}…", super::table::line(text));
        }
    }
}

impl Drop for Waiting {
    #[expect(clippy::print_stderr, reason = "the command line talks to its user")]
    fn drop(&mut self) {
        if self.is_shown {
            eprint!("\r\u{1b}[K");
        }
    }
}

/// How wide the terminal is, where stdout is one.
pub(super) fn width() -> Option<usize> {
    use std::io::IsTerminal as _;
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    #[cfg(unix)]
    {
        let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
        Some(usize::from(size.ws_col)).filter(|width| *width > 0)
    }
    #[cfg(not(unix))]
    None
}
