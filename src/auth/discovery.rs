//! Where the keys of an issuer are, and what they are: RFC 8414, OpenID Connect Discovery, RFC 7517.
//!
//! Whatever is fetched is bounded, and no redirect is followed.

use std::time::Duration;

use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::keys::{Key, KeySet};
use crate::config::{JwtAlgorithm, JwtIssuer};
use crate::outbound::{Bounds, fetch};

/// One document.
const DOCUMENT: Bounds = Bounds { bytes: 256 << 10, within: Duration::from_secs(5) };
/// Keys of one issuer that are looked at.
const KEYS: usize = 100;

/// The members of the metadata of an authorization server that matter here.
#[derive(Debug, Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: String,
}

#[derive(Debug, Deserialize)]
struct Jwks {
    keys: Vec<Value>,
}

/// Reads the keys that an issuer publishes.
///
/// # Errors
/// Why not, for the log.
pub(super) async fn read(issuer: &JwtIssuer) -> Result<KeySet, String> {
    let url = match &issuer.jwks_url {
        Some(url) => url.clone(),
        None => discover(&issuer.issuer).await?,
    };
    let document = fetch(&url, DOCUMENT).await.map_err(|error| format!("its keys: {}", error.reason()))?;
    let jwks: Jwks =
        serde_json::from_slice(&document).map_err(|error| format!("its keys are no JWKS: {error}"))?;
    let keys: KeySet = jwks.keys.into_iter().take(KEYS).filter_map(key).collect();
    if keys.is_empty() {
        return Err("it publishes no key that can be used".to_owned());
    }
    Ok(keys)
}

async fn discover(issuer: &str) -> Result<Url, String> {
    let own = Url::parse(issuer).map_err(|error| format!("the issuer is no URL: {error}"))?;
    let mut last = "its metadata is nowhere".to_owned();
    for url in places(&own) {
        let document = match fetch(&url, DOCUMENT).await {
            Ok(document) => document,
            Err(error) => {
                last = format!("its metadata: {}", error.reason());
                continue;
            }
        };
        match serde_json::from_slice::<Metadata>(&document) {
            Ok(metadata) if metadata.issuer == issuer => return keys_url(&own, &metadata.jwks_uri),
            Ok(_) => last = "its metadata is that of another issuer".to_owned(),
            Err(error) => last = format!("its metadata is none: {error}"),
        }
    }
    Err(last)
}

/// Where the metadata of an issuer may be, in the order in which it is looked for there.
fn places(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let mut paths = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        paths.push(format!("{path}/.well-known/openid-configuration"));
    }
    let at = |path: String| {
        let mut url = issuer.clone();
        url.set_path(&path);
        url.set_query(None);
        url
    };
    paths.into_iter().map(at).collect()
}

/// Keys of an issuer behind TLS come over TLS, too.
fn keys_url(issuer: &Url, text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("its `jwks_uri` is no URL: {error}"))?;
    let is_as_safe = url.scheme() == "https" || (url.scheme() == "http" && issuer.scheme() == "http");
    is_as_safe.then_some(url).ok_or_else(|| "its `jwks_uri` is not https".to_owned())
}

/// A key that tokens can be checked with; `None` for any other.
fn key(value: Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    if !matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature)) {
        return None;
    }
    let fit = fit(&jwk.algorithm)?;
    let algorithms = match jwk.common.key_algorithm {
        None => fit,
        Some(only) => fit.into_iter().filter(|algorithm| says(only, *algorithm)).collect(),
    };
    if algorithms.is_empty() {
        return None;
    }
    Some(Key { id: jwk.common.key_id.clone(), algorithms, decoding: DecodingKey::from_jwk(&jwk).ok()? })
}

/// What a key can check by its kind. A shared secret has no place among public keys.
fn fit(key: &AlgorithmParameters) -> Option<Vec<JwtAlgorithm>> {
    let on_curve = |curve: &EllipticCurve| {
        let fit = [
            (EllipticCurve::P256, JwtAlgorithm::Es256),
            (EllipticCurve::P384, JwtAlgorithm::Es384),
            (EllipticCurve::Ed25519, JwtAlgorithm::EdDsa),
        ];
        fit.into_iter().find(|(known, _)| known == curve).map(|(_, algorithm)| algorithm)
    };
    if let AlgorithmParameters::RSA(_) = key {
        return Some(vec![
            JwtAlgorithm::Rs256,
            JwtAlgorithm::Rs384,
            JwtAlgorithm::Rs512,
            JwtAlgorithm::Ps256,
            JwtAlgorithm::Ps384,
            JwtAlgorithm::Ps512,
        ]);
    }
    if let AlgorithmParameters::EllipticCurve(key) = key {
        return on_curve(&key.curve).map(|algorithm| vec![algorithm]);
    }
    if let AlgorithmParameters::OctetKeyPair(key) = key {
        return on_curve(&key.curve).map(|algorithm| vec![algorithm]);
    }
    None
}

fn says(key: KeyAlgorithm, algorithm: JwtAlgorithm) -> bool {
    key.to_string().eq_ignore_ascii_case(algorithm.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_metadata_is_looked_for_as_clients_do() {
        let of = |issuer: &str| -> Vec<String> {
            places(&Url::parse(issuer).unwrap()).into_iter().map(String::from).collect()
        };
        let root = ["oauth-authorization-server", "openid-configuration"];
        let root = root.map(|name| format!("https://as.example/.well-known/{name}"));
        assert_eq!(of("https://as.example"), root);
        assert_eq!(of("https://as.example/"), root);
        let tenant = [
            "https://as.example/.well-known/oauth-authorization-server/t/1",
            "https://as.example/.well-known/openid-configuration/t/1",
            "https://as.example/t/1/.well-known/openid-configuration",
        ];
        assert_eq!(of("https://as.example/t/1"), tenant);
        assert_eq!(of("https://as.example/t/1/"), tenant);
    }

    #[test]
    fn keys_do_not_come_over_a_worse_way_than_the_metadata() {
        let own = |text: &str| Url::parse(text).unwrap();
        assert!(keys_url(&own("https://a.example"), "https://keys.example/jwks").is_ok());
        assert!(keys_url(&own("http://127.0.0.1"), "http://127.0.0.1/jwks").is_ok());
        for bad in ["http://a.example/jwks", "file:///etc/passwd", "jwks", ""] {
            assert!(keys_url(&own("https://a.example"), bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_public_keys_for_signatures_are_keys() {
        let p256 = json!({"kty": "EC", "crv": "P-256", "kid": "e",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"});
        let with = |more: Value| {
            let mut key = p256.clone();
            key.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            key
        };
        let found = key(p256.clone()).unwrap();
        assert_eq!(
            (found.id.as_deref(), found.algorithms.as_slice()),
            (Some("e"), &[JwtAlgorithm::Es256][..])
        );
        assert!(key(with(json!({"use": "sig", "alg": "ES256"}))).is_some());
        for bad in [
            with(json!({"use": "enc"})),
            with(json!({"alg": "ES384"})),
            with(json!({"alg": "RS256"})),
            with(json!({"crv": "P-521"})),
            json!({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}),
            json!({"kty": "RSA", "n": "!", "e": "AQAB"}),
            json!({"kty": "??"}),
            json!(null),
        ] {
            assert!(key(bad.clone()).is_none(), "{bad}");
        }
    }
}
