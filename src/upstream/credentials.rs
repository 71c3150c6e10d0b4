//! Access tokens of our own for a server: fetched with client credentials, kept, and fetched anew before they end.
//! RFC 6749, 4.4.
//!
//! One request at a time fetches; the others wait for it. Neither secrets nor tokens get into a failure.

use std::time::Duration;

use http::HeaderValue;
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::failure::Failure;
use crate::config::ClientCredentials;
use crate::outbound::{Bounds, FetchError, post_form};

/// The answer with a token.
const ANSWER: Bounds = Bounds { bytes: 64 << 10, within: Duration::from_secs(10) };
/// How long a token is taken for good that does not say.
const UNSAID: Duration = Duration::from_secs(300);
/// The longest time that a token is taken for good.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// How long before its end a token is replaced, at the most; short-lived ones have a fifth of their time.
const EARLY: Duration = Duration::from_secs(60);
/// How long a failure is told to others, before it is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Where tokens for one server come from.
pub(super) struct TokenSource {
    config: ClientCredentials,
    state: Mutex<State>,
}

#[derive(Default)]
enum State {
    /// Nothing is known.
    #[default]
    Empty,
    /// Good until then.
    Good(HeaderValue, Instant),
    /// Could not be fetched, and is not tried until then.
    Failed(Failure, Instant),
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    token_type: Option<String>,
    expires_in: Option<u64>,
}

impl TokenSource {
    pub(super) fn new(config: ClientCredentials) -> Self {
        Self { config, state: Mutex::default() }
    }

    /// The value of `Authorization`. Takes at most ten seconds for each that waits.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// If there is no token to be had.
    pub(super) async fn header(&self) -> Result<HeaderValue, Failure> {
        let mut state = self.state.lock().await;
        let now = Instant::now();
        match &*state {
            State::Good(header, until) if now < *until => return Ok(header.clone()),
            State::Failed(failure, until) if now < *until => return Err(failure.clone()),
            State::Empty | State::Good(..) | State::Failed(..) => {}
        }
        match self.fetch().await {
            Ok((header, lives)) => {
                let early = EARLY.min(lives / 5);
                *state = State::Good(header.clone(), now + lives.saturating_sub(early));
                Ok(header)
            }
            Err(failure) => {
                *state = State::Failed(failure.clone(), Instant::now() + AGAIN);
                Err(failure)
            }
        }
    }

    /// Has a token fetched anew that the server would not take, unless that has been done already.
    pub(super) async fn reject(&self, header: &HeaderValue) {
        let mut state = self.state.lock().await;
        if matches!(&*state, State::Good(known, _) if known == header) {
            *state = State::Empty;
        }
    }

    async fn fetch(&self) -> Result<(HeaderValue, Duration), Failure> {
        let refused = || Failure::auth("there is no access token to be had for it");
        let config = &self.config;
        let mut form = vec![("grant_type", "client_credentials")];
        form.extend((!config.scope.is_empty()).then_some(("scope", config.scope.as_str())));
        form.extend(config.resource.as_deref().map(|resource| ("resource", resource)));
        form.extend(config.audience.as_deref().map(|audience| ("audience", audience)));
        let client = (config.client_id.as_str(), &config.client_secret);
        let sent = post_form((&config.token_url, &config.way), &form, client, ANSWER).await;
        let body = sent.map_err(|error| match &error {
            FetchError::Status(400..=499) => refused().because(error.reason()),
            FetchError::Status(_)
            | FetchError::Unusable(_)
            | FetchError::Unsent(_)
            | FetchError::TooLarge(_)
            | FetchError::Broken(_)
            | FetchError::Late => {
                Failure::unavailable("its authorization server cannot be reached").because(error.reason())
            }
        })?;
        // What does not parse may hold a token: the error does not say what it read.
        let granted: Granted = serde_json::from_slice(&body)
            .map_err(|_| refused().because("the answer of the authorization server is none"))?;
        let is_bearer = granted.token_type.is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
        let header = HeaderValue::try_from(format!("Bearer {}", granted.access_token)).ok();
        let mut header = header
            .filter(|_| is_bearer && !granted.access_token.is_empty())
            .ok_or_else(|| refused().because("the authorization server gave no bearer token"))?;
        header.set_sensitive(true);
        let lives = granted.expires_in.map_or(UNSAID, Duration::from_secs).min(LONGEST);
        Ok((header, lives))
    }
}

impl std::fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenSource").field("client_id", &self.config.client_id).finish_non_exhaustive()
    }
}
