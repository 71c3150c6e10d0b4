//! Bearer tokens, compared by their digests in constant time.
//!
//! A token is looked for in the `Authorization` header and nowhere else: what stands in a query string ends
//! in logs and histories.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use subtle::{ConditionallySelectable, ConstantTimeEq};

use crate::config::Config;
use crate::exchange::Principal;

/// Why a request has no principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// There are no credentials, and anonymous callers are not served.
    #[error("credentials are required: send `Authorization: Bearer <token>`")]
    Missing,
    /// There are credentials, but no single bearer token.
    #[error("the Authorization header must be `Bearer <token>`, once, with one space")]
    Malformed,
    /// There is a token, and nobody has it.
    #[error("the token is not valid")]
    InvalidToken,
}

impl AuthError {
    /// The value of `WWW-Authenticate` that goes with it.
    #[must_use]
    pub fn challenge(self) -> &'static str {
        match self {
            Self::Missing | Self::Malformed => "Bearer",
            Self::InvalidToken => "Bearer error=\"invalid_token\"",
        }
    }
}

/// Tells callers apart by the tokens of one configuration.
#[derive(Debug)]
pub struct Authenticator {
    /// Digest of a token, and the place of its client.
    tokens: Vec<([u8; 32], u32)>,
    names: Vec<Arc<str>>,
    anonymous: Option<usize>,
}

impl Authenticator {
    /// Takes the clients of a configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let places = config.clients.iter().zip(0_u32..);
        Self {
            tokens: places
                .flat_map(|(client, place)| client.tokens.iter().map(move |token| (*token, place)))
                .collect(),
            names: config.clients.iter().map(|client| Arc::clone(&client.name)).collect(),
            anonymous: config.clients.iter().position(|client| client.is_anonymous),
        }
    }

    /// Says who sent a request with these headers. Wrong credentials never make an anonymous caller.
    ///
    /// # Errors
    /// See [`AuthError`]; all of them are HTTP 401.
    pub fn authenticate(&self, headers: &HeaderMap) -> Result<Principal, AuthError> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            return self.anonymous.and_then(|place| self.principal(place)).ok_or(AuthError::Missing);
        };
        if values.next().is_some() {
            return Err(AuthError::Malformed);
        }
        let token = bearer(value.as_bytes()).ok_or(AuthError::Malformed)?;
        self.find(token).and_then(|place| self.principal(place)).ok_or(AuthError::InvalidToken)
    }

    /// Compares with every digest, so that the time says neither which nor how many were alike.
    fn find(&self, token: &[u8]) -> Option<usize> {
        let asked = digest(&SHA256, token);
        let mut found = u32::MAX;
        for (digest, place) in &self.tokens {
            found.conditional_assign(place, digest.as_slice().ct_eq(asked.as_ref()));
        }
        usize::try_from(found).ok().filter(|_| found != u32::MAX)
    }

    fn principal(&self, place: usize) -> Option<Principal> {
        let name = self.names.get(place)?;
        Some(Principal { client: place, name: Arc::clone(name), endpoint: 0 })
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
        let of = |token: &str| <[u8; 32]>::try_from(digest(&SHA256, token.as_bytes()).as_ref()).unwrap();
        config.clients[0].tokens = vec![of("Tok-1"), of("Tok-2")];
        config.clients[1].tokens = vec![of("Tok-3")];
        config.clients[2].is_anonymous = true;
        config
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
        authenticator.authenticate(&headers).map(|principal| principal.name.to_string())
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
            (vec!["Bearer tok-1"], Err(AuthError::InvalidToken)),
            (vec!["Bearer Tok-1x"], Err(AuthError::InvalidToken)),
            (vec!["Bearer Tok-"], Err(AuthError::InvalidToken)),
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
        assert_eq!(ask(&open, &["Bearer wrong"]), Err(AuthError::InvalidToken));
        assert_eq!(ask(&open, &["Basic x"]), Err(AuthError::Malformed));
        let anonymous = open.authenticate(&HeaderMap::new()).unwrap();
        assert!(open.is_anonymous(&anonymous));
    }

    #[test]
    fn the_challenge_blames_the_token_only_where_there_is_one() {
        assert_eq!(AuthError::Missing.challenge(), "Bearer");
        assert_eq!(AuthError::InvalidToken.challenge(), "Bearer error=\"invalid_token\"");
    }
}
