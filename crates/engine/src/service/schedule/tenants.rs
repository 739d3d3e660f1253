//! Fair queueing between tenants by virtual time.
//!
//! A tenant's virtual time is what it was served, divided by its weight; the one with the least is next. A tenant that comes
//! back after a pause starts at the time of those that stayed, so that nobody saves up credit by being away. Who has taken
//! more than its share of the machine's time lately comes after everybody who has not.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, VecDeque};

use super::recent_use::RecentUse;
use crate::service::{JobId, Priority, Tenant};

/// The accounts of all tenants that have something to do.
#[derive(Debug, Default)]
pub struct Tenants {
    accounts: BTreeMap<Tenant, Account>,
    weights: BTreeMap<Tenant, u32>,
    /// The least virtual time of those who have something to do; never goes back.
    clock: f64,
    /// Waiting this long makes a job as urgent as those of the next priority.
    patience_seconds: f64,
}

/// What one tenant has waiting and was given.
#[derive(Debug, Default)]
struct Account {
    /// One queue per priority.
    waiting: [VecDeque<Waiting>; 3],
    /// When a job of each priority last started.
    started: [f64; 3],
    running: u32,
    time: f64,
    rows: u64,
    /// Plans until one of its jobs may start again.
    rest: u32,
    recent: RecentUse,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: JobId,
    since: f64,
}

/// A tenant's share in what the service does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantShare {
    /// The tenant.
    pub tenant: Tenant,
    /// Its jobs that wait.
    pub waiting: u64,
    /// Its jobs that are being computed.
    pub running: u64,
    /// Tokens computed for it since it last had nothing to do.
    pub rows: u64,
}

/// What a tenant was served.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// More than its share of the time lately.
    too_much: bool,
    /// Its virtual time.
    time: f64,
}

/// When a running job of one tenant makes way for a waiting job of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yielding {
    /// At once: its tenant runs more than its share.
    Now,
    /// When it has had a turn: the other tenant runs nothing at all.
    AfterTurn,
    /// Not at all.
    Never,
}

/// Which end of its queue a job joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is new.
    Back,
    /// It was running and was preempted.
    Front,
}

impl Tenants {
    /// No accounts. Tenants without a weight have 1.
    pub fn new(weights: BTreeMap<Tenant, u32>, patience_seconds: f64) -> Tenants {
        Tenants { weights, patience_seconds: patience_seconds.max(1e-3), ..Tenants::default() }
    }

    /// A job waits from now on.
    pub fn wait(&mut self, (tenant, priority): (Tenant, Priority), id: JobId, (place, now): (Place, f64)) {
        let clock = self.clock;
        let account = self.accounts.entry(tenant).or_default();
        if account.is_idle() {
            account.time = account.time.max(clock);
        }
        let queue = &mut account.waiting[priority as usize];
        let waiting = Waiting { id, since: now };
        match place {
            Place::Back => queue.push_back(waiting),
            Place::Front => queue.push_front(waiting),
        }
    }

    /// The job that starts next: the most urgent, and of those one of the tenant that was served least. Patience is a
    /// tenant's: it ends for the first of a queue from which nothing has started for long, so that who has sent a
    /// thousand jobs does not overtake others with them once they are old. Tenants that rest have no turn, unless nobody
    /// runs anything.
    pub fn next(&self, now: f64) -> Option<JobId> {
        let nothing_runs = self.accounts.values().all(|account| account.running == 0);
        let urgency = |priority: usize, since: f64| {
            let aged = ((now - since).max(0.0) / self.patience_seconds) as usize;
            priority.saturating_add(aged).min(Priority::High as usize)
        };
        let may_start = |account: &&Account| nothing_runs || account.rest == 0;
        let heads = self.accounts.values().filter(may_start).flat_map(|account| {
            let queues = account.waiting.iter().enumerate();
            queues.filter_map(|(priority, queue)| {
                let head = queue.front()?;
                let since = head.since.max(account.started[priority]);
                Some((account.served(), priority, Waiting { since, ..*head }))
            })
        });
        heads
            .max_by(|(one_time, one_priority, one), (other_time, other_priority, other)| {
                let urgent = urgency(*one_priority, one.since).cmp(&urgency(*other_priority, other.since));
                urgent.then(other_time.compare(one_time)).then(Reverse(one.id).cmp(&Reverse(other.id)))
            })
            .map(|(_, _, head)| head.id)
    }

    /// A waiting job runs from now on.
    pub fn start(&mut self, (tenant, priority): (Tenant, Priority), id: JobId, now: f64) {
        self.remove(tenant, id);
        if let Some(account) = self.accounts.get_mut(&tenant) {
            account.running += 1;
            account.started[priority as usize] = now;
        }
    }

    /// A running job has ended, so there is room for another of its tenant.
    pub fn end(&mut self, tenant: Tenant) {
        self.stop(tenant);
        self.rest(tenant, 0);
    }

    /// A running job is put back.
    pub fn stop(&mut self, tenant: Tenant) {
        if let Some(account) = self.accounts.get_mut(&tenant) {
            account.running -= 1;
        }
    }

    /// Nothing of this tenant starts for so many plans.
    pub fn rest(&mut self, tenant: Tenant, plans: u32) {
        if let Some(account) = self.accounts.get_mut(&tenant) {
            account.rest = plans;
        }
    }

    /// When a running job of `holder` makes way for a waiting one of `waiting`, which was served less. Shares are even
    /// after one that yields at once.
    pub fn yielding(&self, holder: Tenant, waiting: Tenant) -> Yielding {
        if holder == waiting || self.served(holder).compare(&self.served(waiting)).is_le() {
            return Yielding::Never;
        }
        let (held, own) = (self.running_per_weight(holder), self.running_per_weight(waiting));
        if held - 1.0 / self.weight(holder) >= own + 1.0 / self.weight(waiting) {
            return Yielding::Now;
        }
        if own == 0.0 { Yielding::AfterTurn } else { Yielding::Never }
    }

    /// Running jobs of a tenant for each unit of its weight.
    pub fn running_per_weight(&self, tenant: Tenant) -> f64 {
        self.accounts.get(&tenant).map_or(0.0, |account| f64::from(account.running) / self.weight(tenant))
    }

    /// The weight of a tenant.
    pub fn weight(&self, tenant: Tenant) -> f64 {
        f64::from(self.weights.get(&tenant).copied().unwrap_or(1).max(1))
    }

    /// A job waits no longer.
    pub fn remove(&mut self, tenant: Tenant, id: JobId) {
        if let Some(account) = self.accounts.get_mut(&tenant) {
            account.waiting.iter_mut().for_each(|queue| queue.retain(|waiting| waiting.id != id));
        }
    }

    /// A tenant was served this many rows.
    pub fn charge(&mut self, tenant: Tenant, rows: u64) {
        let weight = self.weight(tenant);
        if let Some(account) = self.accounts.get_mut(&tenant) {
            account.time += rows as f64 / weight;
            account.rows += rows;
        }
    }

    /// A step took so many seconds for a tenant.
    pub fn took(&mut self, tenant: Tenant, seconds: f64) {
        if let Some(account) = self.accounts.get_mut(&tenant) {
            account.recent.add(seconds);
        }
    }

    /// Whether a tenant has taken more than its share of the time lately, among those who have something to do or had so a
    /// moment ago.
    pub fn took_too_much(&self, tenant: Tenant) -> bool {
        self.accounts.get(&tenant).is_some_and(|account| account.recent.exceeds())
    }

    /// Before a plan: judges who took too much, moves the clock on, and forgets tenants that would come back no different.
    pub fn tidy(&mut self, now: f64) {
        let active = self.accounts.iter().filter(|(_, account)| !account.is_idle() || !account.recent.is_over());
        let total: f64 = active.map(|(tenant, _)| self.weight(*tenant)).sum();
        let fair: Vec<f64> = self.accounts.keys().map(|tenant| self.weight(*tenant) / total.max(1.0)).collect();
        self.accounts.values_mut().zip(fair).for_each(|(account, fair)| account.recent.judge(fair, now));
        self.accounts.values_mut().for_each(|account| account.rest = account.rest.saturating_sub(1));
        let active = self.accounts.values().filter(|account| !account.is_idle());
        if let Some(least) = active.map(|account| account.time).min_by(f64::total_cmp) {
            self.clock = self.clock.max(least);
        }
        let clock = self.clock;
        self.accounts.retain(|_, account| !account.is_idle() || account.time > clock || !account.recent.is_over());
    }

    /// What a tenant was served, to be compared with others.
    pub fn served(&self, tenant: Tenant) -> Served {
        self.accounts.get(&tenant).map_or(Served { too_much: false, time: self.clock }, Account::served)
    }

    /// What every tenant has and was given.
    pub fn shares(&self) -> Vec<TenantShare> {
        let share = |(tenant, account): (&Tenant, &Account)| TenantShare {
            tenant: *tenant,
            waiting: account.waiting.iter().map(VecDeque::len).sum::<usize>() as u64,
            running: u64::from(account.running),
            rows: account.rows,
        };
        self.accounts.iter().map(share).collect()
    }
}

impl Served {
    /// Who was served more.
    pub fn compare(&self, other: &Served) -> Ordering {
        self.too_much.cmp(&other.too_much).then(self.time.total_cmp(&other.time))
    }
}

impl Account {
    fn served(&self) -> Served {
        Served { too_much: self.recent.exceeds(), time: self.time }
    }

    fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.iter().all(VecDeque::is_empty)
    }
}
