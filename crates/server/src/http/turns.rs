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
    /// The most that one tenant may have.
    most_each: usize,
    /// Who has the turns that are not free.
    holders: Vec<Tenant>,
    /// Tenants that wait, the next one first; none without a request.
    waiting: VecDeque<(Tenant, VecDeque<Sender<Turn>>)>,
}

/// A turn; the next begins when it is dropped.
pub(crate) struct Turn {
    turns: Option<Arc<Turns>>,
    tenant: Tenant,
}

impl Turns {
    /// So many at a time, of which one tenant has at most `most_each`.
    pub(crate) fn new(count: usize, most_each: usize) -> Arc<Turns> {
        let (free, most_each) = (count.max(1), most_each.max(1));
        let state = State { free, most_each, holders: Vec::new(), waiting: VecDeque::new() };
        Arc::new(Turns { state: Mutex::new(state) })
    }

    /// Waits for a turn. A request whose client has left is passed over.
    pub(crate) async fn wait(self: &Arc<Self>, tenant: Tenant) -> Turn {
        let turn = {
            let mut state = self.state();
            match state.free > 0 && state.may_hold(tenant) {
                true => {
                    state.take(tenant);
                    return self.turn(tenant);
                }
                false => state.queue(tenant),
            }
        };
        // Nobody drops the other end before a turn was sent.
        turn.await.unwrap_or(Turn { turns: None, tenant })
    }

    fn turn(self: &Arc<Self>, tenant: Tenant) -> Turn {
        Turn { turns: Some(Arc::clone(self)), tenant }
    }

    /// Gives a turn that is over to the next that still waits and may have it.
    fn pass_on(self: &Arc<Self>, from: Tenant) {
        self.state().give_back(from);
        loop {
            let Some((tenant, next)) = self.state().next() else { return };
            match next.send(self.turn(tenant)) {
                Ok(()) => return,
                // It has left, and is not to pass its turn on once more.
                Err(mut refused) => {
                    refused.turns = None;
                    self.state().give_back(tenant);
                }
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

    /// Takes a turn for the first that may have one.
    fn next(&mut self) -> Option<(Tenant, Sender<Turn>)> {
        if self.free == 0 {
            return None;
        }
        let at = self.waiting.iter().position(|(tenant, _)| self.may_hold(*tenant))?;
        let (tenant, mut requests) = self.waiting.remove(at)?;
        let next = requests.pop_front()?;
        if !requests.is_empty() {
            self.waiting.push_back((tenant, requests));
        }
        self.take(tenant);
        Some((tenant, next))
    }

    fn may_hold(&self, tenant: Tenant) -> bool {
        self.holders.iter().filter(|holder| **holder == tenant).count() < self.most_each
    }

    fn take(&mut self, tenant: Tenant) {
        self.free -= 1;
        self.holders.push(tenant);
    }

    fn give_back(&mut self, tenant: Tenant) {
        self.free += 1;
        if let Some(at) = self.holders.iter().position(|holder| *holder == tenant) {
            self.holders.swap_remove(at);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            turns.pass_on(self.tenant);
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
        let turns = Turns::new(1, 1);
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
    fn one_tenant_never_has_all_turns() {
        let turns = Turns::new(2, 1);
        let first = ask(&turns, 1).1.expect("nobody waits");
        let (mut second, turn) = ask(&turns, 1);
        assert!(turn.is_none(), "the other one is for others");
        let other = ask(&turns, 2).1.expect("it is free");
        drop(other);
        assert!(poll(&mut second).is_none());
        drop(first);
        assert!(poll(&mut second).is_some());
        assert_eq!(turns.state().free, 2);
        assert!(turns.state().holders.is_empty());
    }

    #[test]
    fn a_turn_that_comes_too_late_is_not_lost() {
        let turns = Turns::new(1, 1);
        let turn = ask(&turns, 1).1;
        let (late, _) = ask(&turns, 2);
        // It was given the turn and leaves before it knows.
        drop(turn);
        drop(late);
        assert_eq!(turns.state().free, 1);
    }
}
