//! The rules of admission, without locks or waiting: which run may start next.
//!
//! Each class has a reserved share of the slots. Jobs never use the share of synchronous runs; synchronous runs use the
//! share of jobs only while no job waits. Between owners, the one with the fewest runs goes first.

use std::collections::{BTreeMap, HashMap};

/// The owner of a run: the name of its key, if keys are needed.
pub(crate) type Owner = Option<String>;

/// The kind of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// A synchronous run: `/execute`.
    Execute,
    /// One of the runs of a batch, which are synchronous too.
    Batch,
    /// A job.
    Job,
}

/// The two classes with a share each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Sync,
    Jobs,
}

impl RunKind {
    fn class(self) -> Class {
        if self == Self::Job { Class::Jobs } else { Class::Sync }
    }
}

/// The runs of an owner.
#[derive(Debug, Default)]
struct OwnerRuns {
    held: [usize; 3],
    /// The class that was admitted last.
    last: Option<Class>,
}

impl OwnerRuns {
    fn all(&self) -> usize {
        self.held.iter().sum()
    }

    fn sync(&self) -> usize {
        self.held[RunKind::Execute as usize] + self.held[RunKind::Batch as usize]
    }
}

/// A synchronous run that waits for a slot.
#[derive(Debug)]
struct Waiter {
    owner: Owner,
    kind: RunKind,
}

/// Current and waiting runs, and the shares of classes and owners.
#[derive(Debug)]
pub(super) struct Ledger {
    capacity: usize,
    /// The number of slots reserved for each of the two classes.
    reserved: usize,
    /// The most concurrent runs of some owners, over all kinds.
    caps: HashMap<Owner, usize>,
    accounts: HashMap<Owner, OwnerRuns>,
    /// Synchronous runs that wait, by ticket: in the order in which they came.
    waiters: BTreeMap<u64, Waiter>,
    next_ticket: u64,
    /// The owners of waiting jobs, the one to serve first at the front.
    jobs: Vec<Owner>,
    /// The class that was admitted last.
    last: Class,
}

impl Ledger {
    /// Reserves `percent` of the capacity for each class: at least one slot if there are two, at most half.
    pub(super) fn new(capacity: usize, percent: usize, caps: HashMap<Owner, usize>) -> Self {
        let least = usize::from(capacity >= 2 && percent > 0);
        let reserved = (capacity * percent / 100).clamp(least, capacity / 2);
        Self {
            capacity,
            reserved,
            caps,
            accounts: HashMap::new(),
            waiters: BTreeMap::new(),
            next_ticket: 0,
            jobs: vec![],
            last: Class::Jobs,
        }
    }

    /// Changes how many runs some owners may have.
    pub(super) fn set_caps(&mut self, caps: HashMap<Owner, usize>) {
        self.caps = caps;
    }

    /// The number of runs that have a slot.
    pub(super) fn held(&self) -> usize {
        self.accounts.values().map(OwnerRuns::all).sum()
    }

    fn held_by(&self, class: Class) -> usize {
        let of = |account: &OwnerRuns| match class {
            Class::Sync => account.sync(),
            Class::Jobs => account.held[RunKind::Job as usize],
        };
        self.accounts.values().map(of).sum()
    }

    fn free(&self) -> usize {
        self.capacity.saturating_sub(self.held())
    }

    /// The most slots that a class may hold now.
    fn limit(&self, class: Class) -> usize {
        if class == Class::Sync && !self.a_job_waits() { self.capacity } else { self.capacity - self.reserved }
    }

    fn may_grow(&self, class: Class) -> bool {
        self.free() > 0 && self.held_by(class) < self.limit(class)
    }

    /// How many more runs an owner may have.
    fn room(&self, owner: &Owner) -> usize {
        let held = self.accounts.get(owner).map_or(0, OwnerRuns::all);
        self.caps.get(owner).map_or(usize::MAX, |cap| cap.saturating_sub(held))
    }

    /// Whether the owner's cap, and nothing else, keeps it from another run.
    pub(super) fn is_capped(&self, owner: &Owner) -> bool {
        self.room(owner) == 0
    }

    fn last_of(&self, owner: &Owner) -> Option<Class> {
        self.accounts.get(owner).and_then(|account| account.last)
    }

    /// Whether a job is kept waiting by nothing but slots.
    fn a_job_waits(&self) -> bool {
        self.jobs.iter().any(|owner| self.room(owner) > 0)
    }

    /// Whether an owner may start a job. Its last slot goes to each class in turn if both want it.
    pub(super) fn job_may_start(&self, owner: &Owner) -> bool {
        let contested = || {
            self.room(owner) == 1
                && self.last_of(owner) == Some(Class::Jobs)
                && self.waiters.values().any(|waiter| waiter.owner == *owner)
        };
        self.room(owner) > 0 && !contested()
    }

    fn sync_may_start(&self, owner: &Owner) -> bool {
        let contested = || {
            self.room(owner) == 1
                && self.last_of(owner) == Some(Class::Sync)
                && self.jobs.contains(owner)
                && self.may_grow(Class::Jobs)
        };
        self.room(owner) > 0 && !contested()
    }

    /// Puts a synchronous run in line and returns its ticket.
    pub(super) fn enter(&mut self, owner: Owner, kind: RunKind) -> u64 {
        self.next_ticket += 1;
        self.waiters.insert(self.next_ticket, Waiter { owner, kind });
        self.next_ticket
    }

    /// Takes a run out of the line.
    pub(super) fn leave(&mut self, ticket: u64) {
        self.waiters.remove(&ticket);
    }

    /// Whether a run that got no slot is owed the next one: it would not exceed the fair share of its owner, or its owner
    /// has jobs or batches in its way. The others would wait behind themselves, and are refused.
    pub(super) fn is_owed(&self, ticket: u64) -> bool {
        let Some(waiter) = self.waiters.get(&ticket) else { return false };
        let owner = &waiter.owner;
        let in_line = self.waiters.values().filter(|other| other.owner == *owner && other.kind == waiter.kind).count();
        let none = OwnerRuns::default();
        let account = self.accounts.get(owner).unwrap_or(&none);
        let holds_sync = |owner: &Owner| self.accounts.get(owner).is_some_and(|account| account.sync() > 0);
        let mut owners: Vec<&Owner> = self.accounts.keys().filter(|owner| holds_sync(owner)).collect();
        owners.extend(self.waiters.values().map(|waiter| &waiter.owner));
        owners.sort_unstable();
        owners.dedup();
        let cap = self.caps.get(owner).copied().unwrap_or(usize::MAX);
        let share = (self.limit(Class::Sync) / owners.len().max(1)).clamp(1, cap);
        let others = account.all() - account.held[waiter.kind as usize];
        // In the way of itself, an owner gets half of its share for this kind.
        let fair = if others > 0 { (share / 2).max(1) } else { share };
        account.held[waiter.kind as usize] + in_line <= fair
    }

    /// Gives free slots to synchronous runs that wait, and returns their tickets.
    pub(super) fn settle(&mut self) -> Vec<(u64, Owner, RunKind)> {
        let mut admitted = vec![];
        while self.may_grow(Class::Sync) && !self.job_goes_first() {
            let fits = self.waiters.iter().filter(|(_, waiter)| self.sync_may_start(&waiter.owner));
            let held = |waiter: &Waiter| {
                let account = self.accounts.get(&waiter.owner);
                account.map_or((0, 0), |account| (account.sync(), account.held[waiter.kind as usize]))
            };
            let Some(ticket) = fits.min_by_key(|(ticket, waiter)| (held(waiter), **ticket)).map(|(ticket, _)| *ticket)
            else {
                break;
            };
            let Some(Waiter { owner, kind }) = self.waiters.remove(&ticket) else { break };
            self.admit(owner.clone(), kind);
            admitted.push((ticket, owner, kind));
        }
        admitted
    }

    /// Whether the only slot that both classes could have is for a job: the class below its share goes first, else each in
    /// turn.
    fn job_goes_first(&self) -> bool {
        let (sync, jobs) = (self.held_by(Class::Sync), self.held_by(Class::Jobs));
        let kept = self.reserved.saturating_sub(jobs).max(1);
        if !self.may_grow(Class::Jobs) || !self.jobs.iter().any(|owner| self.job_may_start(owner)) || self.free() > kept
        {
            return false;
        }
        match (sync < self.reserved, jobs < self.reserved) {
            (true, false) => false,
            (false, true) => true,
            _ => self.last == Class::Sync,
        }
    }

    /// Notes which owners have waiting jobs, in the order in which to serve them, and admits a job of one of them.
    pub(super) fn offer_jobs(&mut self, owners: Vec<Owner>) -> Option<Owner> {
        self.jobs = owners;
        if !self.may_grow(Class::Jobs) {
            return None;
        }
        let owner = self.jobs.iter().find(|owner| self.job_may_start(owner)).cloned()?;
        self.admit(owner.clone(), RunKind::Job);
        Some(owner)
    }

    /// Whether no job of any owner could be admitted now.
    pub(super) fn is_full_for_jobs(&self) -> bool {
        !self.may_grow(Class::Jobs)
    }

    fn admit(&mut self, owner: Owner, kind: RunKind) {
        let class = kind.class();
        let account = self.accounts.entry(owner).or_default();
        account.held[kind as usize] += 1;
        account.last = Some(class);
        self.last = class;
    }

    /// Frees the slot of a run.
    pub(super) fn release(&mut self, owner: &Owner, kind: RunKind) {
        if let Some(account) = self.accounts.get_mut(owner) {
            account.held[kind as usize] = account.held[kind as usize].saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "an owner is optional")]
    fn owner(name: &str) -> Owner {
        Some(name.to_owned())
    }

    fn ledger(capacity: usize) -> Ledger {
        Ledger::new(capacity, 25, HashMap::new())
    }

    /// Asks for a synchronous run as `/execute` does: at once, or not at all.
    fn execute(ledger: &mut Ledger, owner: &Owner) -> bool {
        let ticket = ledger.enter(owner.clone(), RunKind::Execute);
        let admitted = ledger.settle().iter().any(|(admitted, ..)| *admitted == ticket);
        ledger.leave(ticket);
        admitted
    }

    #[test]
    fn shares_are_a_quarter_and_at_least_one_slot() {
        let reserved = |capacity, percent| Ledger::new(capacity, percent, HashMap::new()).reserved;
        assert_eq!([1, 2, 3, 4, 8, 100].map(|capacity| reserved(capacity, 25)), [0, 1, 1, 1, 2, 25]);
        assert_eq!((reserved(8, 0), reserved(8, 50), reserved(9, 50), reserved(2, 1)), (0, 4, 4, 1));
    }

    #[test]
    fn jobs_never_take_the_synchronous_share() {
        for capacity in 2..20 {
            let mut ledger = ledger(capacity);
            let backlog = || vec![owner("a")];
            while ledger.offer_jobs(backlog()).is_some() {}
            assert_eq!(ledger.held(), capacity - ledger.reserved);
            for _ in 0..ledger.reserved {
                assert!(execute(&mut ledger, &owner("b")), "capacity {capacity}");
            }
            assert!(!execute(&mut ledger, &owner("b")));
        }
    }

    #[test]
    fn synchronous_runs_use_all_slots_until_a_job_waits() {
        let mut ledger = ledger(4);
        for _ in 0..4 {
            assert!(execute(&mut ledger, &None));
        }
        assert_eq!(ledger.offer_jobs(vec![None]), None);
        ledger.release(&None, RunKind::Execute);
        assert!(!execute(&mut ledger, &None), "the share of jobs is for the job that waits");
        assert_eq!(ledger.offer_jobs(vec![None]), Some(None));
        ledger.release(&None, RunKind::Job);
        ledger.offer_jobs(vec![]);
        assert!(execute(&mut ledger, &None), "without jobs it is free for all");
    }

    #[test]
    fn one_slot_goes_to_each_class_in_turn() {
        let mut ledger = ledger(1);
        let mut order = String::new();
        let mut running = None;
        let mut tickets = VecDeque::from([ledger.enter(None, RunKind::Batch)]);
        for _ in 0..8 {
            if let Some(kind) = running.take() {
                ledger.release(&None, kind);
            }
            if let Some((ticket, ..)) = ledger.settle().first() {
                assert_eq!(tickets.pop_front(), Some(*ticket));
                tickets.push_back(ledger.enter(None, RunKind::Batch));
                running = Some(RunKind::Batch);
                order.push('s');
            }
            if ledger.offer_jobs(vec![None]).is_some() {
                assert!(running.is_none());
                running = Some(RunKind::Job);
                order.push('j');
            }
        }
        assert_eq!(order, "sjsjsjsj");
    }

    #[test]
    fn a_run_waits_only_for_slots_that_it_is_owed() {
        let mut ledger = ledger(4);
        for _ in 0..4 {
            assert!(execute(&mut ledger, &owner("a")));
        }
        let more = ledger.enter(owner("a"), RunKind::Execute);
        assert!(!ledger.is_owed(more), "a has them all");
        ledger.leave(more);
        let other: Vec<u64> = (0..3).map(|_| ledger.enter(owner("b"), RunKind::Execute)).collect();
        ledger.leave(other[2]);
        assert!(ledger.is_owed(other[1]), "half of four");
        let third = ledger.enter(owner("b"), RunKind::Execute);
        assert!(!ledger.is_owed(third), "more than half");
        ledger.leave(third);
        let again = ledger.enter(owner("a"), RunKind::Batch);
        for expected in [other[0], other[1], again] {
            ledger.release(&owner("a"), RunKind::Execute);
            assert_eq!(ledger.settle().iter().map(|(ticket, ..)| *ticket).collect::<Vec<_>>(), [expected]);
        }
    }

    #[test]
    fn a_batch_does_not_starve_other_runs_of_its_owner() {
        let mut ledger = ledger(2);
        let batch: Vec<u64> = (0..3).map(|_| ledger.enter(None, RunKind::Batch)).collect();
        assert_eq!(ledger.settle().len(), 2);
        let run = ledger.enter(None, RunKind::Execute);
        assert!(ledger.is_owed(run) && ledger.settle().is_empty());
        ledger.release(&None, RunKind::Batch);
        assert_eq!(ledger.settle()[0].0, run, "not {}", batch[2]);
    }

    #[test]
    fn a_cap_binds_all_kinds_together() {
        let caps = HashMap::from([(owner("a"), 2)]);
        let mut ledger = Ledger::new(8, 25, caps);
        assert_eq!(ledger.offer_jobs(vec![owner("a"), owner("b")]), Some(owner("a")));
        assert!(execute(&mut ledger, &owner("a")));
        assert!(!execute(&mut ledger, &owner("a")) && ledger.is_capped(&owner("a")));
        assert_eq!(ledger.offer_jobs(vec![owner("a"), owner("b")]), Some(owner("b")), "other owners are served");
        assert!(ledger.offer_jobs(vec![owner("a")]).is_none() && !ledger.a_job_waits());
    }

    #[test]
    fn the_last_slot_of_a_key_goes_to_each_class_in_turn() {
        let mut ledger = Ledger::new(8, 25, HashMap::from([(owner("a"), 1)]));
        let mut order = String::new();
        let (mut running, mut ticket) = (None, ledger.enter(owner("a"), RunKind::Execute));
        for _ in 0..6 {
            if let Some(kind) = running.take() {
                ledger.release(&owner("a"), kind);
            }
            if !ledger.settle().is_empty() {
                ticket = ledger.enter(owner("a"), RunKind::Execute);
                assert!(ledger.is_capped(&owner("a")));
                running = Some(RunKind::Execute);
                order.push('s');
            }
            if ledger.offer_jobs(vec![owner("a")]).is_some() {
                assert!(ledger.is_owed(ticket), "its own job is in the way");
                running = Some(RunKind::Job);
                order.push('j');
            }
        }
        assert_eq!(order, "sjsjsj");
    }

    /// Something that happens to a ledger.
    #[derive(Debug, Clone)]
    enum Op {
        Enter(u8, bool),
        Leave(usize),
        Jobs(Vec<u8>),
        Release(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0..4_u8, any::<bool>()).prop_map(|(owner, batch)| Op::Enter(owner, batch)),
            any::<usize>().prop_map(Op::Leave),
            prop::collection::vec(0..4_u8, 0..4).prop_map(Op::Jobs),
            any::<usize>().prop_map(Op::Release),
        ]
    }

    proptest! {
        #[test]
        fn no_sequence_of_events_breaks_the_rules(
            capacity in 1..9_usize,
            percent in 0..=50_usize,
            cap in 1..4_usize,
            ops in prop::collection::vec(op(), 1..120),
        ) {
            let name = |number: u8| owner(&number.to_string());
            let mut ledger = Ledger::new(capacity, percent, HashMap::from([(name(0), cap)]));
            let mut running: Vec<(Owner, RunKind)> = vec![];
            for op in ops {
                match op {
                    Op::Enter(owner, batch) => {
                        ledger.enter(name(owner), if batch { RunKind::Batch } else { RunKind::Execute });
                    }
                    Op::Leave(which) => {
                        let ticket = ledger.waiters.keys().nth(which % ledger.waiters.len().max(1)).copied();
                        ledger.leave(ticket.unwrap_or_default());
                    }
                    Op::Jobs(owners) => {
                        let owners = owners.into_iter().map(name).collect();
                        running.extend(ledger.offer_jobs(owners).map(|owner| (owner, RunKind::Job)));
                    }
                    Op::Release(_) if running.is_empty() => {}
                    Op::Release(which) => {
                        let (owner, kind) = running.swap_remove(which % running.len());
                        ledger.release(&owner, kind);
                    }
                }
                let sync_before = ledger.held_by(Class::Sync);
                let admitted = ledger.settle();
                running.extend(admitted.iter().map(|(_, owner, kind)| (owner.clone(), *kind)));
                let (sync, jobs) = (ledger.held_by(Class::Sync), ledger.held_by(Class::Jobs));
                prop_assert_eq!(ledger.held(), running.len());
                prop_assert!(running.len() <= capacity && jobs <= capacity - ledger.reserved);
                prop_assert!(running.iter().filter(|(owner, _)| *owner == name(0)).count() <= cap);
                if ledger.a_job_waits() && sync > sync_before {
                    prop_assert!(sync <= capacity - ledger.reserved, "the share of jobs was taken");
                }
                // A slot stays free only if it is kept for a job, or if none of those who wait may have it.
                let wants = ledger.waiters.values().any(|waiter| ledger.sync_may_start(&waiter.owner));
                if wants && running.len() < capacity {
                    prop_assert!(ledger.a_job_waits() && (ledger.job_goes_first() || !ledger.may_grow(Class::Sync)));
                }
            }
        }

        #[test]
        fn owners_with_a_backlog_get_equal_shares(capacity in 4..33_usize, owners in 2..5_u8) {
            let mut ledger = Ledger::new(capacity, 0, HashMap::new());
            let name = |number: u8| owner(&number.to_string());
            // The first owner came first and has everything.
            for _ in 0..capacity {
                prop_assert!(execute(&mut ledger, &name(0)));
            }
            for number in 1..owners {
                for _ in 0..capacity {
                    ledger.enter(name(number), RunKind::Batch);
                }
            }
            for _ in 0..capacity - capacity / usize::from(owners) {
                ledger.release(&name(0), RunKind::Execute);
                for _ in 0..capacity {
                    ledger.enter(name(0), RunKind::Execute);
                }
                ledger.settle();
            }
            let held: Vec<usize> = (0..owners).map(|number| ledger.accounts[&name(number)].sync()).collect();
            let (least, most) = (held.iter().min().copied(), held.iter().max().copied());
            prop_assert!(most <= least.map(|least| least + 1), "{:?}", held);
        }
    }
}
