//! Sealed texts that peers keep for us: readable by every replica that has the key, by nobody else, and
//! unchanged.
//!
//! Must not know: what is in them.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::ExposeSecret as _;

use crate::config::Sessions;

/// The form of a token; a new form gets a new number.
const FORM: u8 = 1;
const KEY_ID_LEN: usize = 4;
const ISSUED_LEN: usize = 8;
const HEAD_LEN: usize = 1 + KEY_ID_LEN + ISSUED_LEN;
const TAG_LEN: usize = 16;
/// Longest token that is looked at, in bytes.
const MAX_TOKEN: usize = 8 * 1024;

/// A key could not be set up: the random source or the cipher failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key for sealed texts cannot be set up")]
pub(crate) struct SealError;

/// What sealed texts are for. One of another purpose does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Ids of sessions.
    Session,
    /// States of requests that wait for answers.
    RequestState,
    /// Ids of tasks.
    Task,
    /// Ids of events.
    Event,
}

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Self::Session => "session key",
            Self::RequestState => "request state key",
            Self::Task => "task key",
            Self::Event => "event key",
        }
    }
}

/// Seals and opens tokens.
pub(crate) struct Sealer {
    key: LessSafeKey,
    key_id: [u8; KEY_ID_LEN],
    /// Makes the nonces of names.
    nonce_key: [u8; 32],
}

/// What was in a token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// When it was sealed, in milliseconds since 1970.
    pub(crate) issued_ms: u64,
    /// What was sealed.
    pub(crate) content: Vec<u8>,
}

impl Sealer {
    /// For one purpose, with the configured key, or a random one that dies with the process.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub(crate) fn new(config: &Sessions, purpose: Purpose) -> Result<Self, SealError> {
        let secret = match &config.key {
            Some(key) => derive(purpose.name(), key.expose_secret().as_bytes()),
            None => {
                let mut random = [0_u8; 32];
                rand::fill(&mut random).map_err(|_| SealError)?;
                random
            }
        };
        let key = UnboundKey::new(&AES_256_GCM_SIV, &secret).map_err(|_| SealError)?;
        let mut key_id = [0_u8; KEY_ID_LEN];
        key_id.iter_mut().zip(derive("session key id", &secret)).for_each(|(to, from)| *to = from);
        Ok(Self { key: LessSafeKey::new(key), key_id, nonce_key: derive("nonces of names", &secret) })
    }

    /// A token of visible ASCII that only [`Sealer::open`] with the same key can read.
    pub(crate) fn seal(&self, issued_ms: u64, content: &[u8]) -> Result<String, SealError> {
        let mut nonce = [0_u8; NONCE_LEN];
        rand::fill(&mut nonce).map_err(|_| SealError)?;
        self.seal_with(nonce, issued_ms, content)
    }

    /// A token like that of [`Sealer::seal`], and the same one whenever the content is: for names, which peers
    /// compare. The cipher is one that bears nonces which repeat; here they do so with their content alone.
    pub(crate) fn seal_name(&self, content: &[u8]) -> Result<String, SealError> {
        let mut nonce = [0_u8; NONCE_LEN];
        let made = digest(&SHA256, &[&self.nonce_key, content].concat());
        nonce.iter_mut().zip(made.as_ref()).for_each(|(to, from)| *to = *from);
        self.seal_with(nonce, 0, content)
    }

    fn seal_with(&self, nonce: [u8; NONCE_LEN], issued_ms: u64, content: &[u8]) -> Result<String, SealError> {
        let mut token = Vec::with_capacity(HEAD_LEN + NONCE_LEN + content.len() + TAG_LEN);
        token.push(FORM);
        token.extend_from_slice(&self.key_id);
        token.extend_from_slice(&issued_ms.to_be_bytes());
        let mut sealed = content.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        let head = Aad::from(token.as_slice());
        self.key.seal_in_place_append_tag(unique, head, &mut sealed).map_err(|_| SealError)?;
        token.extend_from_slice(&nonce);
        token.extend_from_slice(&sealed);
        Ok(URL_SAFE_NO_PAD.encode(token))
    }

    /// What a token says; `None` for everything that was not sealed with this key, bit for bit.
    pub(crate) fn open(&self, token: &str) -> Option<Opened> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        let token = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (head, rest) = token.split_at_checked(HEAD_LEN)?;
        let (form, rest_of_head) = head.split_first()?;
        let (key_id, issued) = rest_of_head.split_at_checked(KEY_ID_LEN)?;
        if *form != FORM || key_id != self.key_id {
            return None;
        }
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let content = self.key.open_in_place(nonce, Aad::from(head), &mut sealed).ok()?.len();
        sealed.truncate(content);
        Some(Opened { issued_ms: u64::from_be_bytes(issued.try_into().ok()?), content: sealed })
    }
}

/// Thirty-two bytes that belong to one purpose of a secret.
fn derive(purpose: &str, secret: &[u8]) -> [u8; 32] {
    let text = [b"waypost ", purpose.as_bytes(), b"\0", secret].concat();
    let mut derived = [0_u8; 32];
    derived.iter_mut().zip(digest(&SHA256, &text).as_ref()).for_each(|(to, from)| *to = *from);
    derived
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn sealer(key: Option<&str>) -> Sealer {
        let idle_timeout = Duration::from_secs(1);
        let key = key.map(|key| key.to_owned().into());
        let (keep_alive, resume_window) = (idle_timeout, idle_timeout);
        let config = Sessions { idle_timeout, keep_alive, resume_window, key };
        Sealer::new(&config, Purpose::Session).unwrap()
    }

    #[test]
    fn a_token_opens_with_its_key_only() {
        let (one, same, other, random) =
            (sealer(Some("k1")), sealer(Some("k1")), sealer(Some("k2")), sealer(None));
        let token = one.seal(17, b"content").unwrap();
        assert!(token.bytes().all(|byte| (0x21..=0x7e).contains(&byte)));
        assert_eq!(same.open(&token), Some(Opened { issued_ms: 17, content: b"content".to_vec() }));
        assert_eq!(other.open(&token), None);
        assert_eq!(random.open(&token), None);
        assert_ne!(one.seal(17, b"content").unwrap(), token, "nonces are random");
        for bad in ["", "x", "AQ", "not base64!", &"A".repeat(MAX_TOKEN + 4), &format!("{token}=")] {
            assert_eq!(one.open(bad), None, "{bad:.20}");
        }
    }

    #[test]
    fn a_name_is_the_same_for_the_same_content_and_no_other() {
        let (one, same, other) = (sealer(Some("k1")), sealer(Some("k1")), sealer(Some("k2")));
        let name = one.seal_name(b"content").unwrap();
        assert_eq!(name, same.seal_name(b"content").unwrap());
        assert_eq!(one.open(&name).unwrap().content, b"content");
        let others = [one.seal_name(b"Content").unwrap(), other.seal_name(b"content").unwrap()];
        let nonce_of = |token: &str| URL_SAFE_NO_PAD.decode(token).unwrap()[HEAD_LEN..][..NONCE_LEN].to_vec();
        assert!(others.iter().all(|other| nonce_of(other) != nonce_of(&name)));
        assert_eq!(other.open(&name), None);
    }

    proptest! {
        #[test]
        fn every_flipped_bit_is_refused(content in proptest::collection::vec(any::<u8>(), 0..64), at in any::<prop::sample::Index>()) {
            let sealer = sealer(Some("k"));
            let mut token = URL_SAFE_NO_PAD.decode(sealer.seal(u64::MAX, &content).unwrap()).unwrap();
            let bit = at.index(token.len() * 8);
            token[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(sealer.open(&URL_SAFE_NO_PAD.encode(&token)), None);
        }

        #[test]
        fn what_is_cut_or_grown_is_refused(content in proptest::collection::vec(any::<u8>(), 0..64), at in any::<prop::sample::Index>(), more in "[A-Za-z0-9_=-]{1,8}") {
            let sealer = sealer(Some("k"));
            let token = sealer.seal(17, &content).unwrap();
            let (begin, end) = token.split_at(at.index(token.len()));
            prop_assert_eq!(sealer.open(begin), None);
            prop_assert_eq!(sealer.open(&format!("{token}{more}")), None);
            prop_assert_eq!(sealer.open(&format!("{begin}{more}{end}")), None);
        }

        #[test]
        fn halves_of_two_tokens_are_none(one in any::<[u8; 16]>(), two in any::<[u8; 16]>(), at in any::<prop::sample::Index>()) {
            let sealer = sealer(Some("k"));
            let (first, second) = (sealer.seal(17, &one).unwrap(), sealer.seal(17, &two).unwrap());
            let at = at.index(first.len());
            let mixed = format!("{}{}", first.split_at(at).0, second.split_at(at).1);
            // They may be alike up to the place where they are cut, or from there on.
            let is_whole = mixed == first || mixed == second;
            prop_assert!(is_whole || sealer.open(&mixed).is_none());
        }

        #[test]
        fn a_token_of_another_purpose_is_refused(content in proptest::collection::vec(any::<u8>(), 0..64)) {
            let idle_timeout = Duration::from_secs(1);
            let config = Sessions { idle_timeout, keep_alive: idle_timeout, resume_window: idle_timeout, key: Some("k".to_owned().into()) };
            let purposes = [Purpose::Session, Purpose::RequestState, Purpose::Task];
            for (made, read) in purposes.iter().flat_map(|made| purposes.iter().map(move |read| (made, read))) {
                let token = Sealer::new(&config, *made).unwrap().seal(17, &content).unwrap();
                let opened = Sealer::new(&config, *read).unwrap().open(&token);
                prop_assert_eq!(opened.is_some(), made == read);
            }
        }

        #[test]
        fn no_text_opens_by_chance(text in ".{0,200}") {
            prop_assert_eq!(sealer(Some("k")).open(&text), None);
        }
    }
}
