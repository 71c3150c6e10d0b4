//! How many calls are in flight on one connection, and who is next: clients take turns, and each client's own
//! calls keep their order.
//!
//! Must not know: what a call is.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::failure::Failure;
use crate::config::Sharing;

/// When somebody who found no place to wait may try again, as far as one can say.
const RETRY: Duration = Duration::from_secs(1);

/// The seats of one connection: `max_concurrency` of them, and `max_waiting` who wait for one.
#[derive(Debug)]
pub(super) struct Seats {
    most: usize,
    longest: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    /// Who waits, by client. No queue is empty.
    queues: HashMap<usize, VecDeque<oneshot::Sender<Seat>>>,
    /// The clients that wait, the next one first.
    turns: VecDeque<usize>,
}

/// The right to one call in flight; the next one has it when this is dropped.
#[derive(Debug)]
pub(super) struct Seat(Option<Arc<Seats>>);

impl Seats {
    pub(super) fn new(sharing: Sharing) -> Arc<Self> {
        Arc::new(Self { most: sharing.concurrency, longest: sharing.waiting, state: Mutex::default() })
    }

    /// Takes a seat, or waits for one until `deadline`. Cancel safe: who waits no longer is passed over.
    ///
    /// # Errors
    /// If too many wait already, or none becomes free in time. Nothing was sent then.
    pub(super) async fn take(self: &Arc<Self>, client: usize, deadline: Instant) -> Result<Seat, Failure> {
        let waiting = {
            let mut state = self.lock();
            if state.taken < self.most {
                state.taken += 1;
                return Ok(Seat(Some(Arc::clone(self))));
            }
            if state.waiting() >= self.longest {
                state.forget_gone();
            }
            if state.waiting() >= self.longest {
                return Err(full());
            }
            let (seat, waiting) = oneshot::channel();
            state.wait(client, seat);
            waiting
        };
        match timeout_at(deadline, waiting).await {
            Ok(Ok(seat)) => Ok(seat),
            Ok(Err(_)) | Err(_) => Err(late()),
        }
    }

    /// Whether any is taken.
    pub(super) fn are_taken(&self) -> bool {
        self.lock().taken > 0
    }

    /// Gives a seat that became free to the next who waits.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.lock();
                let next = state.next();
                if next.is_none() {
                    state.taken = state.taken.saturating_sub(1);
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(Seat(Some(Arc::clone(self)))) {
                Ok(()) => return,
                // It waits no longer: the seat is still ours to give.
                Err(mut seat) => seat.0 = None,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn waiting(&self) -> usize {
        self.queues.values().map(VecDeque::len).sum()
    }

    fn wait(&mut self, client: usize, seat: oneshot::Sender<Seat>) {
        let queue = self.queues.entry(client).or_default();
        if queue.is_empty() {
            self.turns.push_back(client);
        }
        queue.push_back(seat);
    }

    fn next(&mut self) -> Option<oneshot::Sender<Seat>> {
        let client = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&client)?;
        let next = queue.pop_front();
        match queue.is_empty() {
            true => drop(self.queues.remove(&client)),
            false => self.turns.push_back(client),
        }
        next
    }

    fn forget_gone(&mut self) {
        self.queues.values_mut().for_each(|queue| queue.retain(|seat| !seat.is_closed()));
        self.queues.retain(|_, queue| !queue.is_empty());
        let queues = &self.queues;
        self.turns.retain(|client| queues.contains_key(client));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(seats) = self.0.take() {
            seats.pass_on();
        }
    }
}

fn full() -> Failure {
    let text = "too many calls wait for their turn with it already (`max_waiting`)";
    Failure::unavailable(text).retry_after(Some(RETRY))
}

fn late() -> Failure {
    let text = "as many calls are in flight to it as may be (`max_concurrency`), and none ended in time";
    Failure::unavailable(text).retry_after(Some(RETRY))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use proptest::prelude::*;

    use super::*;
    use crate::config::Isolation;

    fn seats(concurrency: usize, waiting: usize) -> Arc<Seats> {
        Seats::new(Sharing { isolation: Isolation::Shared, connections: 1, concurrency, waiting })
    }

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[tokio::test(start_paused = true)]
    async fn clients_take_turns_whoever_came_with_many() {
        let seats = seats(1, 10);
        let first = seats.take(0, far()).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let tasks = tokio_util::task::TaskTracker::new();
        for (client, name) in [(0, "a1"), (0, "a2"), (0, "a3"), (1, "b1"), (2, "c1"), (1, "b2")] {
            let (seats, order) = (Arc::clone(&seats), Arc::clone(&order));
            tasks.spawn(async move {
                let _seat = seats.take(client, far()).await.unwrap();
                order.lock().unwrap().push(name);
            });
            tokio::task::yield_now().await;
        }
        drop(first);
        tasks.close();
        tasks.wait().await;
        assert_eq!(*order.lock().unwrap(), ["a1", "b1", "c1", "a2", "b2", "a3"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_is_bounded_in_length_and_time_and_who_left_it_takes_no_place() {
        let seats = seats(1, 1);
        let taken = seats.take(0, far()).await.unwrap();
        let late = seats.take(0, Instant::now() + Duration::from_secs(5)).await.unwrap_err();
        assert!(late.text.contains("max_concurrency"), "{late:?}");
        let mut waiting = Box::pin(seats.take(0, far()));
        assert!((&mut waiting).now_or_never().is_none());
        let full = seats.take(1, far()).await.unwrap_err();
        assert!(full.text.contains("max_waiting"), "{full:?}");
        drop(waiting);
        let mut waiting = Box::pin(seats.take(1, far()));
        assert!((&mut waiting).now_or_never().is_none(), "it waits in the place of the one that left");
        drop(taken);
        drop(waiting.await.unwrap());
        assert!(seats.take(0, far()).now_or_never().unwrap().is_ok());
        assert!(seats.lock().queues.is_empty() && seats.lock().turns.is_empty());
    }

    proptest! {
        #[test]
        fn no_seat_is_lost_or_doubled(steps in prop::collection::vec((0_usize..3, 0_u8..4), 1..200)) {
            let seats = seats(2, 100);
            let mut taken = Vec::new();
            let mut waiting = Vec::new();
            for (client, step) in steps {
                match step {
                    0 | 1 => {
                        let mut next = Box::pin({
                            let seats = Arc::clone(&seats);
                            async move { seats.take(client, Instant::now() + Duration::from_secs(9)).await }
                        });
                        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                        let _entered = runtime.enter();
                        match (&mut next).now_or_never() {
                            Some(seat) => taken.push(seat.unwrap()),
                            None => waiting.push(next),
                        }
                    }
                    2 => drop(taken.pop()),
                    _ => drop(waiting.pop()),
                }
                prop_assert!(taken.len() <= 2);
            }
            drop(waiting);
            drop(taken);
            prop_assert_eq!(seats.lock().taken, 0);
        }
    }
}
