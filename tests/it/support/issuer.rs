//! An authorization server under the test's control: its metadata, its keys, and tokens that it signs.
//!
//! Signs by itself, without the crate that the gateway checks with.

use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::http::{Body, Head};

/// A key that signs tokens.
pub enum Key {
    Rs256(RsaKeyPair),
    Es256(EcdsaKeyPair),
}

impl Key {
    pub fn rs256() -> Self {
        Self::Rs256(RsaKeyPair::generate(KeySize::Rsa2048).expect("a key"))
    }

    pub fn es256() -> Self {
        Self::Es256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key"))
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Rs256(_) => "RS256",
            Self::Es256(_) => "ES256",
        }
    }

    /// As it is published. RFC 7517.
    pub fn jwk(&self, id: &str) -> Value {
        match self {
            Self::Rs256(pair) => {
                let (n, e) = integers(pair.public_key().as_ref());
                json!({"kty": "RSA", "use": "sig", "alg": "RS256", "kid": id, "n": b64(n), "e": b64(e)})
            }
            Self::Es256(pair) => {
                let point = pair.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "kid": id, "x": b64(&point[1..33]), "y": b64(&point[33..])})
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Rs256(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature)
                    .expect("a signature");
                signature
            }
            Self::Es256(pair) => {
                pair.sign(&SystemRandom::new(), message).expect("a signature").as_ref().to_vec()
            }
        }
    }

    /// A token with these claims, signed under the name `id`.
    pub fn token(&self, id: Option<&str>, claims: &Value) -> String {
        let mut header = json!({"alg": self.algorithm(), "typ": "at+jwt"});
        if let Some(id) = id {
            header["kid"] = id.into();
        }
        let message = message(&header, claims);
        let signature = b64(&self.sign(message.as_bytes()));
        format!("{message}.{signature}")
    }
}

/// A token that is not signed, and one that is signed with a text that everybody knows.
pub fn unsigned(claims: &Value) -> String {
    format!("{}.", message(&json!({"alg": "none"}), claims))
}

pub fn signed_with_text(text: &[u8], id: &str, claims: &Value) -> String {
    let message = message(&json!({"alg": "HS256", "kid": id}), claims);
    let key = hmac::Key::new(hmac::HMAC_SHA256, text);
    let signature = b64(hmac::sign(&key, message.as_bytes()).as_ref());
    format!("{message}.{signature}")
}

fn message(header: &Value, claims: &Value) -> String {
    format!("{}.{}", b64(header.to_string().as_bytes()), b64(claims.to_string().as_bytes()))
}

fn b64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The two integers of an `RSAPublicKey` in DER, without leading zeros.
fn integers(der: &[u8]) -> (&[u8], &[u8]) {
    fn take(der: &[u8]) -> (&[u8], &[u8]) {
        let long = usize::from(der[1] & 0x7f);
        let (length, head) = match der[1] < 0x80 {
            true => (usize::from(der[1]), 2),
            false => (der[2..2 + long].iter().fold(0, |all, byte| all << 8 | usize::from(*byte)), 2 + long),
        };
        der[head..].split_at(length)
    }
    let (sequence, _) = take(der);
    let (n, rest) = take(sequence);
    let (e, _) = take(rest);
    (n.strip_prefix(&[0]).unwrap_or(n), e)
}

/// A running authorization server.
pub struct Issuer {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    documents: HashMap<String, Value>,
    is_down: bool,
    requests: Vec<Seen>,
}

/// A request that it got.
#[derive(Clone, Debug)]
pub struct Seen {
    pub head: Head,
    pub body: String,
}

impl Issuer {
    /// Listens, and publishes these keys.
    pub fn start(keys: &[Value]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || drop(serve(stream, &state)));
            }
        });
        let issuer = Self { address, state };
        let base = issuer.url();
        let metadata = json!({"issuer": base, "jwks_uri": format!("{base}/jwks")});
        issuer.publish("/.well-known/oauth-authorization-server", metadata);
        issuer.rotate(keys);
        issuer
    }

    /// What its tokens say in `iss`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Publishes other keys.
    pub fn rotate(&self, keys: &[Value]) {
        self.publish("/jwks", json!({"keys": keys}));
    }

    /// Serves a document.
    pub fn publish(&self, path: &str, document: Value) {
        self.lock().documents.insert(path.to_owned(), document);
    }

    /// Answers nothing but that it cannot.
    pub fn go_down(&self) {
        self.lock().is_down = true;
    }

    /// Answers again.
    pub fn come_back(&self) {
        self.lock().is_down = false;
    }

    /// Requests for a path so far.
    pub fn seen(&self, path: &str) -> Vec<Seen> {
        self.lock().requests.iter().filter(|seen| seen.head.second() == path).cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Good claims for the audience `gw`, with others on top of them.
    pub fn claims(&self, more: Value) -> Value {
        let now = now();
        let mut claims = json!({
            "iss": self.url(), "aud": "gw", "sub": "u1", "iat": now, "nbf": now, "exp": now + 3600,
        });
        let members = claims.as_object_mut().expect("an object");
        for (name, value) in more.as_object().expect("an object") {
            match value {
                Value::Null => drop(members.remove(name)),
                value => drop(members.insert(name.clone(), value.clone())),
            }
        }
        claims
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs()
}

/// SHA-256 in hexadecimal digits.
pub fn sha256(text: &str) -> String {
    digest::digest(&digest::SHA256, text.as_bytes())
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn serve(stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    while let Some(head) = Head::read(&mut reader)? {
        let body = match head.start.starts_with("POST") {
            true => Body::new(head.framing()).whole(&mut reader)?,
            false => Vec::new(),
        };
        let body = String::from_utf8_lossy(&body).into_owned();
        let path = head.second().to_owned();
        let (status, document) = {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.requests.push(Seen { head, body });
            match (state.is_down, state.documents.get(&path)) {
                (true, _) => ("503 Service Unavailable", json!({})),
                (false, Some(document)) => ("200 OK", document.clone()),
                (false, None) => ("404 Not Found", json!({})),
            }
        };
        let document = document.to_string();
        let length = document.len();
        write!(
            writer,
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{document}"
        )?;
    }
    Ok(())
}
