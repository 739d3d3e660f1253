//! Turns to prepare a request on a thread that may block: so many at a time, and tenants one after the other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cascadia_engine::service::Tenant;
use tokio::sync::oneshot::{Sender, channel};

/// Gives out turns. Requests that wait are taken in the order of their tenants, and of each tenant in their own order: who
/// sends many waits longer for them, and nobody else does.
pub(crate) struct Turns {
    state: Mutex<State>,
}

struct State {
    free: usize,
    /// Tenants that wait, the next one first; none without a request.
    waiting: VecDeque<(Tenant, VecDeque<Sender<Turn>>)>,
}

/// A turn; the next begins when it is dropped.
pub(crate) struct Turn {
    turns: Option<Arc<Turns>>,
}

impl Turns {
    /// So many at a time.
    pub(crate) fn new(count: usize) -> Arc<Turns> {
        Arc::new(Turns { state: Mutex::new(State { free: count.max(1), waiting: VecDeque::new() }) })
    }

    /// Waits for a turn. A request whose client has left is passed over.
    pub(crate) async fn wait(self: &Arc<Self>, tenant: Tenant) -> Turn {
        let turn = {
            let mut state = self.state();
            match state.free.checked_sub(1) {
                Some(free) => {
                    state.free = free;
                    return self.turn();
                }
                None => state.queue(tenant),
            }
        };
        // Nobody drops the other end before a turn was sent.
        turn.await.unwrap_or(Turn { turns: None })
    }

    fn turn(self: &Arc<Self>) -> Turn {
        Turn { turns: Some(Arc::clone(self)) }
    }

    /// Gives a turn that is over to the next that still waits.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state();
                let next = state.next();
                state.free += usize::from(next.is_none());
                next
            };
            match next.map(|waiting| waiting.send(self.turn())) {
                None | Some(Ok(())) => return,
                // It is the same turn, not another that is over.
                Some(Err(mut refused)) => refused.turns = None,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn queue(&mut self, tenant: Tenant) -> tokio::sync::oneshot::Receiver<Turn> {
        let (sender, receiver) = channel();
        match self.waiting.iter_mut().find(|(waiting, _)| *waiting == tenant) {
            Some((_, requests)) => requests.push_back(sender),
            None => self.waiting.push_back((tenant, VecDeque::from([sender]))),
        }
        receiver
    }

    fn next(&mut self) -> Option<Sender<Turn>> {
        let (tenant, mut requests) = self.waiting.pop_front()?;
        let next = requests.pop_front();
        if !requests.is_empty() {
            self.waiting.push_back((tenant, requests));
        }
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            turns.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Waiting = Pin<Box<dyn Future<Output = Turn>>>;

    /// A request of a tenant, and its turn if there is one at once.
    fn ask(turns: &Arc<Turns>, tenant: u64) -> (Waiting, Option<Turn>) {
        let turns = Arc::clone(turns);
        let mut waiting: Waiting = Box::pin(async move { turns.wait(Tenant(tenant)).await });
        let turn = poll(&mut waiting);
        (waiting, turn)
    }

    fn poll(waiting: &mut Waiting) -> Option<Turn> {
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    #[test]
    fn tenants_take_turns_and_those_who_left_are_passed_over() {
        let turns = Turns::new(1);
        let mut turn = ask(&turns, 1).1.expect("nobody waits");
        let mut waiting: Vec<(u64, Waiting)> =
            [1, 1, 1, 1, 2, 2, 3].into_iter().map(|tenant| (tenant, ask(&turns, tenant).0)).collect();
        // The second request of the second tenant goes away.
        drop(waiting.remove(5));
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(turn);
            let served = waiting.iter_mut().enumerate().find_map(|(at, (_, waiting))| Some((at, poll(waiting)?)));
            let (at, next) = served.expect("one of them has the turn");
            order.push(waiting.remove(at).0);
            turn = next;
        }
        assert_eq!(order, [1, 2, 3, 1, 1, 1]);
        drop(turn);
        assert_eq!(turns.state().free, 1);
    }

    #[test]
    fn a_turn_that_comes_too_late_is_not_lost() {
        let turns = Turns::new(1);
        let turn = ask(&turns, 1).1;
        let (late, _) = ask(&turns, 2);
        // It was given the turn and leaves before it knows.
        drop(turn);
        drop(late);
        assert_eq!(turns.state().free, 1);
    }
}
