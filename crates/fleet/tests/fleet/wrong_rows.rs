//! A machine that computes wrong rows is found by its standby: no token comes from its rows after that, and a third
//! machine shows which of the two it is.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cascadia_fleet::link::fair;
use cascadia_fleet::{AuditLog, Auditor, Clock, Digest, Identity, Members, ModelWorkers, RemoteStage, Verb};
use cascadia_model::{Hidden, Placement, Stage, StageError, StageTraits, StepPlan};

use crate::hash_model::{Chance, HashStage, model_workers, simulated, try_generate};
use crate::standbys::{admit_worker, hashes, look_after, oracle, plan, run, stages, step};

/// A machine that is a little off in some of its steps.
struct Off {
    inner: HashStage,
    steps: AtomicU32,
    wrong: Range<u32>,
}

impl Stage for Off {
    fn layers(&self) -> Range<u32> {
        self.inner.layers()
    }

    fn traits(&self) -> StageTraits {
        StageTraits::exact(Placement::Remote)
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        self.inner.run(plan, hidden)?;
        if self.wrong.contains(&self.steps.fetch_add(1, Ordering::Relaxed)) {
            hidden.values[0] += 0.5;
        }
        Ok(())
    }
}

/// Brings a machine for stage 0 that is wrong in these steps.
pub(crate) fn bring(model_workers: &ModelWorkers, node: &str, wrong: Range<u32>) {
    let off = move || Off { inner: hashes(0), steps: AtomicU32::new(0), wrong: wrong.clone() };
    admit_worker(model_workers, node, (0, off), [fair(), fair()]);
}

/// Brings two machines, of which one is wrong in these steps.
fn bring_two(model_workers: &ModelWorkers, off: &str, wrong: Range<u32>) {
    for node in ["one", "other"] {
        bring(model_workers, node, if node == off { wrong.clone() } else { 0..0 });
    }
}

/// Requests one after the other, as long as `more` wants another: no answer is wrong, and no request that fails was
/// computed for longer than it takes to notice. Gives how many failed.
fn ask(clock: &Clock, stages: &[RemoteStage], mut more: impl FnMut() -> bool) -> u32 {
    let (expected, _) = oracle();
    let mut failed = 0;
    for _ in 0..40 {
        if !more() {
            return failed;
        }
        match try_generate(&mut Chance(1), |plan, hidden| run(clock, stages, plan, hidden)) {
            Ok(tokens) => assert!(tokens == expected, "a wrong answer"),
            Err(error) => {
                assert!(error.to_string().contains("computed different rows"), "{error}");
                failed += 1;
            }
        }
    }
    panic!("it comes to no end: {:?}", stages[0].status());
}

/// A list of machines that belong to a fleet, and the log of what happens to them.
fn members(folder: &std::path::Path) -> (Arc<Members>, Arc<Auditor>, AuditLog) {
    let names = ["one", "other", "third", "last"];
    let member = |name: &str| format!(r#"{{"name":"{name}","key":"{}"}}"#, Digest::of(name.as_bytes()));
    let path = folder.join("members.json");
    let list = names.map(member).join(",");
    fs::write(&path, format!(r#"{{"members":[{list}],"invitations":[]}}"#)).expect("it can be written");
    let log = AuditLog::at(&folder.join("audit"));
    let identity = Identity::open_or_make(&folder.join("key")).expect("a key");
    let auditor = Arc::new(Auditor::new(log.clone(), identity));
    (Arc::new(Members::at(&path).audited(log.clone())), auditor, log)
}

#[test]
fn a_third_machine_shows_which_of_two_is_wrong() {
    simulated(|clock| {
        for (wrong, right) in [("one", "other"), ("other", "one")] {
            let folder = tempfile::tempdir().expect("a folder");
            let (members, auditor, log) = members(folder.path());
            let model_workers = model_workers().on_clock(clock).for_members(&members).audited(&auditor);
            bring_two(&model_workers, wrong, 20..u32::MAX);
            bring(&model_workers, "third", 0..0);
            let stages = stages(&model_workers);
            // Once two machines agree, no request fails any more.
            let failed = ask(clock, &stages, || stages[0].status().wrong.is_empty());
            assert_eq!((failed, stages[0].status().wrong), (1, vec![wrong.to_owned()]));
            assert_eq!(stages[0].status().node.as_deref(), Some("third"));
            let mut rounds = 0..2;
            assert_eq!(ask(clock, &stages, || rounds.next().is_some()), 0);
            assert_eq!(stages[0].status().doubted, [""; 0]);
            // Who was released for another comes back in its own time; who of both computes depends on how quick they are.
            let status = look_after(clock, &stages[0], |status| status.standby.is_some());
            let pair = BTreeSet::from([status.node.as_deref(), status.standby.as_deref()]);
            assert_eq!(pair, BTreeSet::from([Some("third"), Some(right)]));
            // It stays out until people say otherwise.
            let distrusted = || members.all().expect("a list").into_iter().find(|member| member.distrusted.is_some());
            assert_eq!(distrusted().map(|member| member.name).as_deref(), Some(wrong));
            assert!(!members.has(wrong) && members.has(right));
            assert_eq!(members.trust(wrong).ok(), Some(true));
            assert!(members.has(wrong) && distrusted().is_none());
            auditor.tick(|_| {}).expect("it can be written");
            let mut verbs = Vec::new();
            log.read(|record, _| verbs.push(record.entry.verb)).expect("it can be read");
            let count = |verb| verbs.iter().filter(|other| **other == verb).count();
            assert_eq!([Verb::RowsDiffer, Verb::Distrust, Verb::Trust].map(count), [2, 1, 1], "{verbs:?}");
        }
    });
}

#[test]
fn a_machine_that_is_wrong_from_the_first_step_is_noticed_at_once() {
    simulated(|clock| {
        let model_workers = model_workers().on_clock(clock);
        bring_two(&model_workers, "one", 0..u32::MAX);
        let stages = stages(&model_workers);
        let mut steps = 0;
        let error = try_generate(&mut Chance(1), |plan, hidden| {
            steps += 1;
            run(clock, &stages, plan, hidden)
        });
        assert!(matches!(error, Err(StageError::Wrong { .. })), "{error:?}");
        assert_eq!(steps, 2, "the first step is wrong, and the second tells");
    });
}

#[test]
fn two_machines_that_differ_compute_only_what_both_agree_on() {
    simulated(|clock| {
        // Wrong for good: nothing is answered any more, until a third machine comes.
        let model_workers = model_workers().on_clock(clock);
        bring_two(&model_workers, "one", 20..u32::MAX);
        let stages = stages(&model_workers);
        assert_eq!(ask(clock, &stages, || stages[0].status().doubted.is_empty()), 1);
        assert_eq!(stages[0].status().doubted, ["one", "other"]);
        for generation in 100..120 {
            let error = step(&stages[0], &plan(0, 0, generation)).expect_err("they differ");
            assert!(matches!(error, StageError::Lost { while_computing: false, .. }), "{error}");
            assert!(error.to_string().contains("computed different rows"), "{error}");
        }
        bring(&model_workers, "third", 0..0);
        assert_eq!(ask(clock, &stages, || stages[0].status().wrong.is_empty()), 0);
        let status = stages[0].status();
        assert_eq!((status.wrong, status.node.as_deref()), (vec!["one".to_owned()], Some("third")));
    });
}

#[test]
fn two_machines_that_differed_once_continue_together() {
    simulated(|clock| {
        let model_workers = model_workers().on_clock(clock);
        bring_two(&model_workers, "other", 20..21);
        let stages = stages(&model_workers);
        assert_eq!(ask(clock, &stages, || stages[0].status().doubted.is_empty()), 1);
        // Every answer is confirmed, and after enough of them both are believed again.
        assert_eq!(ask(clock, &stages, || !stages[0].status().doubted.is_empty()), 0);
        let status = stages[0].status();
        assert!(status.node.is_some() && status.standby.is_some() && status.wrong.is_empty());
    });
}
