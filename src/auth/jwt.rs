//! Access tokens that an issuer has signed: RFC 7519, RFC 9068.
//!
//! Which issuer, which algorithms and which audience is decided by the configuration. What a token says of itself
//! only chooses among them.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::keys::{KeyStore, NoKey};
use super::{AuthError, Rejection, discovery};
use crate::config::{Config, JwtAlgorithm, JwtIssuer};
use crate::exchange::Principal;
use crate::telemetry::Metrics;

/// Longest token, in bytes.
const LONGEST: usize = 16 << 10;
/// Longest name of a caller, in bytes.
const LONGEST_NAME: usize = 256;
/// Most keys that are tried where a token does not name one.
const TRIED: usize = 8;
/// Where a token says whose it is, the first that is there.
const SUBJECTS: [&str; 3] = ["sub", "client_id", "azp"];

type Claims = Map<String, Value>;

/// All issuers of a configuration.
#[derive(Debug)]
pub(super) struct Issuers {
    issuers: Vec<Issuer>,
    /// Clients of the file that a claim can name, and their places.
    clients: HashMap<Arc<str>, usize>,
    roles: HashMap<Arc<str>, usize>,
}

#[derive(Debug)]
struct Issuer {
    config: Arc<JwtIssuer>,
    /// What is asked of a token that is signed in each of the ways that are allowed.
    validations: Vec<(JwtAlgorithm, Validation)>,
    keys: Arc<KeyStore>,
}

/// What a token says before anybody has checked it.
#[derive(Debug, PartialEq, Eq)]
struct Unchecked {
    algorithm: String,
    key: Option<String>,
    issuer: String,
}

impl Issuers {
    pub(super) fn new(config: &Config) -> Self {
        let named = config.clients.iter().enumerate();
        let named = named.filter(|(_, client)| !client.is_anonymous && !client.is_group);
        let roles = config.roles.iter().enumerate();
        Self {
            issuers: config.jwt.iter().map(Issuer::new).collect(),
            clients: named.map(|(place, client)| (Arc::clone(&client.name), place)).collect(),
            roles: roles.map(|(place, role)| (Arc::clone(&role.name), place)).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.issuers.is_empty()
    }

    /// Keeps the keys of all issuers up to date, for ever.
    pub(super) async fn keep(&self, metrics: &Metrics) {
        let kept = self.issuers.iter().map(|issuer| issuer.keys.keep(metrics));
        futures_util::future::join_all(kept).await;
    }

    /// Says whose a token is. Cancel safe.
    ///
    /// # Errors
    /// See [`AuthError`].
    pub(super) async fn judge(&self, token: &str) -> Result<Principal, AuthError> {
        let unchecked = Unchecked::of(token).map_err(AuthError::Invalid)?;
        let mut issuers = self.issuers.iter();
        let issuer = issuers.find(|issuer| issuer.config.issuer == unchecked.issuer);
        let issuer = issuer.ok_or(AuthError::Invalid(Rejection::Issuer))?;
        let claims = issuer.check(token, &unchecked).await?;
        self.admit(&issuer.config, &claims)
    }

    /// Who the bearer of a good token is.
    fn admit(&self, issuer: &JwtIssuer, claims: &Claims) -> Result<Principal, AuthError> {
        let granted: Vec<&str> = ["scope", "scp"].iter().flat_map(|claim| texts(claims, claim)).collect();
        if !issuer.scopes.iter().all(|scope| granted.contains(&scope.as_str())) {
            return Err(AuthError::Scopes(issuer.scopes.clone()));
        }
        let roles = issuer.roles_claim.iter().flat_map(|claim| texts(claims, claim));
        let mut roles: Vec<usize> = roles.filter_map(|name| self.roles.get(name).copied()).collect();
        roles.sort_unstable();
        roles.dedup();
        let named = issuer.client_claim.as_ref().and_then(|claim| find(claims, claim)?.as_str());
        if let Some((name, place)) = named.and_then(|name| self.clients.get_key_value(name)) {
            return Ok(Principal { client: *place, name: Arc::clone(name), roles: roles.into() });
        }
        let is_choosy = issuer.client_claim.is_some() || issuer.roles_claim.is_some();
        if is_choosy && roles.is_empty() {
            return Err(AuthError::Stranger);
        }
        let subject = SUBJECTS.iter().find_map(|claim| claims.get(*claim)?.as_str());
        let is_fit = |name: &&str| {
            !name.is_empty() && name.len() <= LONGEST_NAME && !name.chars().any(char::is_control)
        };
        let subject = subject.filter(is_fit).ok_or(AuthError::Invalid(Rejection::Subject))?;
        let (place, group) = &issuer.group;
        Ok(Principal { client: *place, name: format!("{group}#{subject}").into(), roles: roles.into() })
    }
}

impl Issuer {
    fn new(config: &Arc<JwtIssuer>) -> Self {
        let validations =
            config.algorithms.iter().map(|algorithm| (*algorithm, validation(config, *algorithm)));
        let read = Arc::clone(config);
        let reading = move || {
            let issuer = Arc::clone(&read);
            Box::pin(async move { discovery::read(&issuer).await })
                as futures_util::future::BoxFuture<'static, _>
        };
        let keys = Arc::new(KeyStore::new(Arc::clone(config), Box::new(reading)));
        Self { config: Arc::clone(config), validations: validations.collect(), keys }
    }

    /// The claims of a token, if they can be believed.
    async fn check(&self, token: &str, unchecked: &Unchecked) -> Result<Claims, AuthError> {
        let mut allowed = self.validations.iter();
        let allowed = allowed.find(|(allowed, _)| allowed.as_str() == unchecked.algorithm);
        let (algorithm, validation) = allowed.ok_or(AuthError::Invalid(Rejection::Algorithm))?;
        let found = self.keys.find(unchecked.key.as_deref(), *algorithm).await;
        let (keys, fit) = found.map_err(|error| match error {
            NoKey::Unknown => AuthError::Invalid(Rejection::Key),
            NoKey::Unread => AuthError::Unavailable,
        })?;
        let mut rejection = Rejection::Key;
        for key in fit.iter().take(TRIED).filter_map(|place| keys.get(*place)) {
            match jsonwebtoken::decode::<Claims>(token, &key.decoding, validation) {
                Ok(decoded) => return Ok(decoded.claims),
                Err(error) => rejection = rejection_of(error.kind()),
            }
            if rejection != Rejection::Signature {
                break;
            }
        }
        Err(AuthError::Invalid(rejection))
    }
}

fn validation(config: &JwtIssuer, algorithm: JwtAlgorithm) -> Validation {
    let mut validation = Validation::new(of(algorithm));
    validation.set_required_spec_claims(&["exp", "iss", "aud"]);
    validation.set_issuer(&[&config.issuer]);
    validation.set_audience(&config.audiences);
    validation.leeway = config.clock_skew.as_secs();
    validation.validate_nbf = true;
    validation
}

impl Unchecked {
    fn of(token: &str) -> Result<Self, Rejection> {
        #[derive(Deserialize)]
        struct Header {
            alg: String,
            kid: Option<String>,
            crit: Option<serde::de::IgnoredAny>,
        }
        #[derive(Deserialize)]
        struct Payload {
            iss: Option<String>,
        }
        let mut parts = token.split('.');
        let (Some(header), Some(payload), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Rejection::Unknown);
        };
        if token.len() > LONGEST {
            return Err(Rejection::Unreadable);
        }
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| Rejection::Unreadable);
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| Rejection::Unreadable)?;
        let payload: Payload =
            serde_json::from_slice(&decode(payload)?).map_err(|_| Rejection::Unreadable)?;
        // What must be understood is not. RFC 7515, 4.1.11.
        if header.crit.is_some() {
            return Err(Rejection::Unreadable);
        }
        Ok(Self { algorithm: header.alg, key: header.kid, issuer: payload.iss.ok_or(Rejection::Claims)? })
    }
}

/// A claim: by its name, or by the names on the way to it.
fn find<'a>(claims: &'a Claims, path: &str) -> Option<&'a Value> {
    if let Some(found) = claims.get(path) {
        return Some(found);
    }
    let (first, rest) = path.split_once('.')?;
    find(claims.get(first)?.as_object()?, rest)
}

/// The texts of a claim: a list of them, or one with spaces between.
fn texts<'a>(claims: &'a Claims, path: &str) -> Vec<&'a str> {
    match find(claims, path) {
        Some(Value::String(text)) => text.split(' ').filter(|word| !word.is_empty()).collect(),
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        Some(_) | None => Vec::new(),
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the list is the crate's, and grows")]
fn rejection_of(error: &ErrorKind) -> Rejection {
    match error {
        ErrorKind::InvalidSignature => Rejection::Signature,
        ErrorKind::ExpiredSignature => Rejection::Expired,
        ErrorKind::ImmatureSignature => Rejection::NotYetValid,
        ErrorKind::InvalidAudience => Rejection::Audience,
        ErrorKind::InvalidIssuer => Rejection::Issuer,
        ErrorKind::InvalidAlgorithm => Rejection::Algorithm,
        ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_) => Rejection::Claims,
        _ => Rejection::Unreadable,
    }
}

fn of(algorithm: JwtAlgorithm) -> Algorithm {
    match algorithm {
        JwtAlgorithm::Rs256 => Algorithm::RS256,
        JwtAlgorithm::Rs384 => Algorithm::RS384,
        JwtAlgorithm::Rs512 => Algorithm::RS512,
        JwtAlgorithm::Ps256 => Algorithm::PS256,
        JwtAlgorithm::Ps384 => Algorithm::PS384,
        JwtAlgorithm::Ps512 => Algorithm::PS512,
        JwtAlgorithm::Es256 => Algorithm::ES256,
        JwtAlgorithm::Es384 => Algorithm::ES384,
        JwtAlgorithm::EdDsa => Algorithm::EdDSA,
    }
}

#[cfg(test)]
mod tests;
