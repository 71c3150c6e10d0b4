//! What large messages may take of the memory altogether, while they are read, under way and written.
//!
//! Must not know: whose messages they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Messages up to this size are not counted: their number is bounded by other limits.
const SMALL: usize = 64 * 1024;

/// Bytes of large messages that may be held at the same time. Clones share one count.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Account>);

#[derive(Debug)]
struct Account {
    most: usize,
    held: AtomicUsize,
}

/// There is no room for as many bytes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many bytes of large messages are under way")]
pub struct Exhausted;

/// The part of a budget that one message holds; given back when this is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    bytes: usize,
    /// How many bytes all messages may hold for it to grow.
    most: usize,
}

/// A message that holds its part of a budget for as long as any of its bytes is referred to.
struct Kept {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Budget {
    /// A budget of `most` bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Account { most, held: AtomicUsize::new(0) }))
    }

    /// How many bytes are held now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    /// Counts a message that is there already, whether or not it fits: one that replaces another that did.
    #[must_use]
    pub fn hold(&self, bytes: Bytes) -> Bytes {
        if bytes.len() <= SMALL {
            return bytes;
        }
        self.0.held.fetch_add(bytes.len(), Ordering::Relaxed);
        let share = Share { budget: self.clone(), bytes: bytes.len(), most: self.0.most };
        Bytes::from_owner(Kept { bytes, _share: share })
    }

    /// A share for one message that begins.
    #[must_use]
    pub fn share(&self) -> Share {
        Share { budget: self.clone(), bytes: 0, most: self.0.most }
    }

    /// A share for one message that nothing has been done for yet: it finds room in the first half only, so that
    /// answers to what was done already find room in the other.
    #[must_use]
    pub fn share_of_arrival(&self) -> Share {
        Share { budget: self.clone(), bytes: 0, most: self.0.most / 2 }
    }
}

impl Share {
    /// A share of the same budget, for another message.
    #[must_use]
    pub fn another(&self) -> Self {
        self.budget.share()
    }

    /// The message has so many bytes by now.
    ///
    /// # Errors
    /// [`Exhausted`] if there is no room for them; the share stays as it was.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let wanted = if bytes > SMALL { bytes } else { 0 };
        let Account { held, .. } = &*self.budget.0;
        if wanted > self.bytes {
            let more = wanted - self.bytes;
            let fits = |held: usize| held.checked_add(more).filter(|sum| *sum <= self.most);
            held.try_update(Ordering::Relaxed, Ordering::Relaxed, fits).map_err(|_| Exhausted)?;
        } else {
            held.fetch_sub(self.bytes - wanted, Ordering::Relaxed);
        }
        self.bytes = wanted;
        Ok(())
    }

    /// Ties the share to the bytes of the message, and begins anew with nothing. Small messages stay as they
    /// are.
    pub fn keep(&mut self, bytes: Bytes) -> Bytes {
        if self.bytes == 0 {
            return bytes;
        }
        let share =
            Self { budget: self.budget.clone(), bytes: std::mem::take(&mut self.bytes), most: self.most };
        Bytes::from_owner(Kept { bytes, _share: share })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.0.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_holds_its_share_until_its_last_byte_is_let_go() {
        let budget = Budget::new(SMALL * 3);
        let mut share = budget.share();
        share.resize(SMALL * 2).unwrap();
        assert_eq!(share.resize(SMALL * 4), Err(Exhausted));
        let message = share.keep(Bytes::from(vec![0; SMALL * 2]));
        drop(share);
        let part = message.slice(..5);
        drop(message);
        assert_eq!(budget.held(), SMALL * 2);
        assert_eq!(budget.share().resize(SMALL * 2), Err(Exhausted), "others have to wait");
        drop(part);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn what_arrives_leaves_room_for_answers() {
        let budget = Budget::new(SMALL * 8);
        let mut arriving: Vec<Share> = (0..2).map(|_| budget.share_of_arrival()).collect();
        arriving.iter_mut().for_each(|share| share.resize(SMALL * 2).unwrap());
        assert_eq!(budget.share_of_arrival().resize(SMALL * 2), Err(Exhausted));
        let mut answer = budget.share();
        answer.resize(SMALL * 4).unwrap();
        assert_eq!(budget.share().resize(SMALL * 2), Err(Exhausted), "no more than all of it");
    }

    #[test]
    fn small_messages_are_not_counted() {
        let budget = Budget::new(0);
        let mut share = budget.share();
        share.resize(SMALL).unwrap();
        let text = Bytes::from_static(b"small");
        assert_eq!(share.keep(text.clone()).as_ptr(), text.as_ptr());
        assert_eq!(share.resize(SMALL + 1), Err(Exhausted));
    }

    proptest! {
        #[test]
        fn the_sum_is_what_is_held_and_never_too_much(steps in prop::collection::vec((0_usize..4, 0_usize..6), 0..60)) {
            let budget = Budget::new(SMALL * 8);
            let mut shares: Vec<Share> = (0..4).map(|_| budget.share()).collect();
            for (at, times) in steps {
                let _full = shares[at].resize(times * SMALL);
                prop_assert_eq!(budget.held(), shares.iter().map(|share| share.bytes).sum::<usize>());
                prop_assert!(budget.held() <= SMALL * 8);
            }
            drop(shares);
            prop_assert_eq!(budget.held(), 0);
        }
    }
}
