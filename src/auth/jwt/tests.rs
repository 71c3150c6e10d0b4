//! What becomes of a token before and after its signature is checked.

use serde_json::json;

use super::*;

fn issuers(entry: &str) -> (Config, Issuers) {
    let file = format!(
        "upstreams: {{}}\nroles: {{r: {{}}, s: {{}}}}\nclients:\n  alice: {{tokens: ['${{T}}'], roles: [s]}}\nauth: {{jwt: [\
         {{issuer: 'https://as.example', audience: x{entry}}}]}}\n"
    );
    let env = |_: &str| Some("0123456789abcdef".to_owned());
    let config = crate::config::parse(&file, "x", &env).unwrap_or_else(|p| panic!("{p}")).config;
    let issuers = Issuers::new(&config);
    (config, issuers)
}

fn admitted(entry: &str, claims: Value) -> Result<(String, Vec<usize>), AuthError> {
    let (config, issuers) = issuers(entry);
    let claims = claims.as_object().unwrap().clone();
    let principal = issuers.admit(&config.jwt[0], &claims)?;
    Ok((principal.name.to_string(), principal.roles.to_vec()))
}

#[test]
fn a_caller_is_who_its_claims_say() {
    let member = |name: &str| format!("jwt:as.example#{name}");
    let by_client = ", client_claim: email";
    let by_role = ", roles_claim: groups";
    let by_both = ", client_claim: email, roles_claim: realm.roles";
    for (entry, claims, wanted) in [
        ("", json!({"sub": "u1"}), Ok((member("u1"), vec![]))),
        ("", json!({"sub": "alice"}), Ok((member("alice"), vec![]))),
        ("", json!({"client_id": "svc", "azp": "no"}), Ok((member("svc"), vec![]))),
        ("", json!({}), Err(AuthError::Invalid(Rejection::Subject))),
        ("", json!({"sub": ""}), Err(AuthError::Invalid(Rejection::Subject))),
        ("", json!({"sub": "a\nb"}), Err(AuthError::Invalid(Rejection::Subject))),
        ("", json!({"sub": "x".repeat(257)}), Err(AuthError::Invalid(Rejection::Subject))),
        (by_client, json!({"sub": "u1", "email": "alice"}), Ok(("alice".to_owned(), vec![]))),
        (by_client, json!({"sub": "u1", "email": "Alice"}), Err(AuthError::Stranger)),
        (by_client, json!({"sub": "alice"}), Err(AuthError::Stranger)),
        (by_client, json!({"sub": "u1", "email": "anonymous"}), Err(AuthError::Stranger)),
        (by_client, json!({"sub": "u1", "email": member("")}), Err(AuthError::Stranger)),
        (by_client, json!({"sub": "u1", "email": "jwt:as.example"}), Err(AuthError::Stranger)),
        (by_role, json!({"sub": "u1", "groups": ["s", "x", "r", "s"]}), Ok((member("u1"), vec![0, 1]))),
        (by_role, json!({"sub": "u1", "groups": "x r"}), Ok((member("u1"), vec![0]))),
        (by_role, json!({"sub": "u1", "groups": ["x"]}), Err(AuthError::Stranger)),
        (by_role, json!({"sub": "u1", "groups": {"r": true}}), Err(AuthError::Stranger)),
        (by_role, json!({"sub": "u1"}), Err(AuthError::Stranger)),
        (by_both, json!({"email": "alice", "realm": {"roles": ["r"]}}), Ok(("alice".to_owned(), vec![0]))),
        (
            by_both,
            json!({"sub": "b", "realm.roles": ["s"], "realm": {"roles": ["r"]}}),
            Ok((member("b"), vec![1])),
        ),
        (", scopes: [a, b]", json!({"sub": "u", "scope": "b a c"}), Ok((member("u"), vec![]))),
        (", scopes: [a, b]", json!({"sub": "u", "scp": ["a", "b"]}), Ok((member("u"), vec![]))),
        (
            ", scopes: [a, b]",
            json!({"sub": "u", "scope": "a"}),
            Err(AuthError::Scopes(vec!["a".to_owned(), "b".to_owned()])),
        ),
    ] {
        assert_eq!(admitted(entry, claims.clone()), wanted, "{entry} {claims}");
    }
}

#[test]
fn what_is_no_token_is_told_apart_without_a_key() {
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let token = |header: Value, payload: Value| format!("{}.{}.x", part(header), part(payload));
    let payload = || json!({"iss": "i"});
    let of = |token: &str| Unchecked::of(token).map(|unchecked| unchecked.algorithm);
    assert_eq!(of(&token(json!({"alg": "none"}), payload())), Ok("none".to_owned()));
    for (text, wanted) in [
        ("opaque".to_owned(), Rejection::Unknown),
        ("a.b".to_owned(), Rejection::Unknown),
        ("a.b.c.d.e".to_owned(), Rejection::Unknown),
        ("a.b.c".to_owned(), Rejection::Unreadable),
        (token(json!({"kid": "x"}), payload()), Rejection::Unreadable),
        (token(json!({"alg": "ES256", "crit": ["b64"]}), payload()), Rejection::Unreadable),
        (token(json!({"alg": "ES256"}), json!({"sub": "x"})), Rejection::Claims),
        (token(json!({"alg": "ES256"}), json!([])), Rejection::Unreadable),
        (token(json!({"alg": "ES256", "x": "y".repeat(LONGEST)}), payload()), Rejection::Unreadable),
    ] {
        assert_eq!(of(&text), Err(wanted), "{text}");
    }
}

#[tokio::test]
async fn the_configuration_chooses_issuer_and_algorithm() {
    let (_, issuers) = issuers("");
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let token =
        |alg: &str, iss: &str| format!("{}.{}.x", part(json!({"alg": alg})), part(json!({"iss": iss})));
    let ask = async |alg: &str, iss: &str| issuers.judge(&token(alg, iss)).await.map(drop);
    let invalid = |rejection| Err(AuthError::Invalid(rejection));
    assert_eq!(ask("RS256", "https://evil.example").await, invalid(Rejection::Issuer));
    assert_eq!(ask("RS256", "https://as.example/").await, invalid(Rejection::Issuer));
    for alg in ["none", "HS256", "rs256", "RS1", "ES512", ""] {
        assert_eq!(ask(alg, "https://as.example").await, invalid(Rejection::Algorithm), "{alg}");
    }
}
