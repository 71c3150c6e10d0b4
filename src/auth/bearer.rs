//! Bearer tokens: those of the file are compared by their digests in constant time, others go to the issuers.
//!
//! A token is looked for in the `Authorization` header and nowhere else: what stands in a query string ends
//! in logs and histories.

use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, digest};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use subtle::{ConditionallySelectable, ConstantTimeEq};

use super::jwt::Issuers;
use super::{AuthError, Rejection};
use crate::config::{Config, Token};
use crate::exchange::Principal;
use crate::telemetry::Metrics;

/// Tells callers apart by the tokens of one configuration.
#[derive(Debug)]
pub struct Authenticator {
    /// Tokens, and the places of their clients.
    tokens: Vec<(Token, usize)>,
    names: Vec<Arc<str>>,
    anonymous: Option<usize>,
    issuers: Issuers,
}

impl Authenticator {
    /// Takes the clients of a configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let places = config.clients.iter().zip(0_usize..);
        Self {
            tokens: places
                .flat_map(|(client, place)| client.tokens.iter().map(move |token| (*token, place)))
                .collect(),
            issuers: Issuers::new(config),
            names: config.clients.iter().map(|client| Arc::clone(&client.name)).collect(),
            anonymous: config.clients.iter().position(|client| client.is_anonymous),
        }
    }

    /// Keeps the keys of the issuers up to date; ends at once if there are none, and else never.
    pub async fn keep(&self, metrics: &Metrics) {
        self.issuers.keep(metrics).await;
    }

    /// Says who sent a request with these headers. Wrong credentials never make an anonymous caller.
    ///
    /// Waits where the keys of an issuer are being read, at most 25 s. Cancel safe.
    ///
    /// # Errors
    /// See [`AuthError`].
    pub async fn authenticate(&self, headers: &HeaderMap) -> Result<Principal, AuthError> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            return self.anonymous.and_then(|place| self.principal(place)).ok_or(AuthError::Missing);
        };
        if values.next().is_some() {
            return Err(AuthError::Malformed);
        }
        let token = bearer(value.as_bytes()).ok_or(AuthError::Malformed)?;
        match self.find(token) {
            Some((token, _)) if token.expires.is_some_and(|end| end <= SystemTime::now()) => {
                Err(AuthError::Invalid(Rejection::Expired))
            }
            Some((_, place)) => self.principal(*place).ok_or(AuthError::Invalid(Rejection::Unknown)),
            None if self.issuers.is_empty() => Err(AuthError::Invalid(Rejection::Unknown)),
            None => {
                let token = std::str::from_utf8(token).map_err(|_| AuthError::Malformed)?;
                self.issuers.judge(token).await
            }
        }
    }

    /// Compares with every digest, so that the time says neither which nor how many were alike.
    fn find(&self, token: &[u8]) -> Option<&(Token, usize)> {
        let asked = digest(&SHA256, token);
        let mut found = u32::MAX;
        for ((token, _), place) in self.tokens.iter().zip(0_u32..) {
            found.conditional_assign(&place, token.digest.as_slice().ct_eq(asked.as_ref()));
        }
        usize::try_from(found).ok().filter(|_| found != u32::MAX).and_then(|place| self.tokens.get(place))
    }

    fn principal(&self, place: usize) -> Option<Principal> {
        let name = self.names.get(place)?;
        Some(Principal::new(place, Arc::clone(name)))
    }

    /// Whether this principal is one of many that are one client.
    #[must_use]
    pub fn is_member(&self, principal: &Principal) -> bool {
        self.names.get(principal.client).is_some_and(|name| *name != principal.name)
    }

    /// Whether this principal is the client that callers without credentials are.
    #[must_use]
    pub fn is_anonymous(&self, principal: &Principal) -> bool {
        self.anonymous == Some(principal.client)
    }
}

/// The token of `Bearer <token>`: the scheme in any case, one space, and visible characters only.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
    let is_token = !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
    (scheme.eq_ignore_ascii_case(b"Bearer ") && is_token).then_some(token)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::config::for_test;

    fn config() -> Config {
        let mut config = for_test::config(&[], &["alice", "ci", "anonymous"]);
        let of = |token: &str| Token {
            digest: digest(&SHA256, token.as_bytes()).as_ref().try_into().unwrap(),
            expires: None,
        };
        config.clients[0].tokens = vec![of("Tok-1"), of("Tok-2")];
        config.clients[1].tokens = vec![of("Tok-3")];
        config.clients[2].is_anonymous = true;
        config
    }

    /// What is there without waiting.
    fn now<T>(future: impl Future<Output = T>) -> T {
        futures_util::FutureExt::now_or_never(future).unwrap()
    }

    fn closed() -> Authenticator {
        let mut config = config();
        config.clients.pop();
        Authenticator::new(&config)
    }

    fn ask(authenticator: &Authenticator, values: &[&str]) -> Result<String, AuthError> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        now(authenticator.authenticate(&headers)).map(|principal| principal.name.to_string())
    }

    #[test]
    fn aut_08_one_reading_of_the_header() {
        let closed = closed();
        for (values, expected) in [
            (vec!["Bearer Tok-1"], Ok("alice")),
            (vec!["bearer Tok-1"], Ok("alice")),
            (vec!["BEARER Tok-2"], Ok("alice")),
            (vec!["Bearer Tok-3"], Ok("ci")),
            (vec!["Bearer  Tok-1"], Err(AuthError::Malformed)),
            (vec!["Bearer\tTok-1"], Err(AuthError::Malformed)),
            (vec!["Bearer Tok-1 "], Err(AuthError::Malformed)),
            (vec!["Bearer Tok-1 x"], Err(AuthError::Malformed)),
            (vec!["Bearer Tok-1", "Bearer Tok-1"], Err(AuthError::Malformed)),
            (vec!["Bearer Tok-1", "Bearer x"], Err(AuthError::Malformed)),
            (vec!["Bearer tok-1"], Err(AuthError::Invalid(Rejection::Unknown))),
            (vec!["Bearer Tok-1x"], Err(AuthError::Invalid(Rejection::Unknown))),
            (vec!["Bearer Tok-"], Err(AuthError::Invalid(Rejection::Unknown))),
            (vec!["Tok-1"], Err(AuthError::Malformed)),
            (vec!["Basic x"], Err(AuthError::Malformed)),
            (vec!["Bearer"], Err(AuthError::Malformed)),
            (vec!["Bearer "], Err(AuthError::Malformed)),
            (vec![""], Err(AuthError::Malformed)),
            (vec![], Err(AuthError::Missing)),
        ] {
            assert_eq!(ask(&closed, &values), expected.map(str::to_owned), "{values:?}");
        }
    }

    #[test]
    fn only_the_absence_of_credentials_is_anonymous() {
        let open = Authenticator::new(&config());
        assert_eq!(ask(&open, &[]), Ok("anonymous".to_owned()));
        assert_eq!(ask(&open, &["Bearer Tok-3"]), Ok("ci".to_owned()));
        assert_eq!(ask(&open, &["Bearer wrong"]), Err(AuthError::Invalid(Rejection::Unknown)));
        assert_eq!(ask(&open, &["Basic x"]), Err(AuthError::Malformed));
        let anonymous = now(open.authenticate(&HeaderMap::new())).unwrap();
        assert!(open.is_anonymous(&anonymous));
    }

    #[test]
    fn a_token_is_good_until_it_expires() {
        let mut config = config();
        let in_an_hour = std::time::Duration::from_secs(3600);
        config.clients[0].tokens[0].expires = Some(SystemTime::now() - in_an_hour);
        config.clients[0].tokens[1].expires = Some(SystemTime::now() + in_an_hour);
        let authenticator = Authenticator::new(&config);
        assert_eq!(ask(&authenticator, &["Bearer Tok-1"]), Err(AuthError::Invalid(Rejection::Expired)));
        assert_eq!(ask(&authenticator, &["Bearer Tok-2"]), Ok("alice".to_owned()));
    }
}
