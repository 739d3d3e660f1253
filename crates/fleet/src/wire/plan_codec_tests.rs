//! Plans arrive as they were sent, cost little, and nonsense is refused.

use proptest::prelude::*;

use super::*;

fn step(id: u64, rows: std::ops::Range<u32>, start: u32, pages: &[u32], window: (u32, &[u32])) -> SequenceStep {
    let run = |class, first, pages: &[u32]| PageRun { class, first, pages: pages.to_vec() };
    let runs = [run(PageClass::Full, 0, pages), run(PageClass::Window, window.0, window.1)];
    let runs = runs.into_iter().filter(|run| !run.pages.is_empty()).collect();
    SequenceStep { id, rows, start, runs, adapter: None, second_text: None }
}

/// Sends plans one after the other; gives the bytes of each.
fn check(plans: &[Vec<SequenceStep>]) -> Vec<usize> {
    let (mut writer, mut reader) = (PlanEncoder::new(true, 0..1), PlanDecoder::new(true, 4096));
    let mut lengths = Vec::new();
    for steps in plans {
        let rows = steps.last().map_or(0, |step| step.rows.end);
        let plan = StepPlan { tokens: (0..rows).collect(), steps: steps.clone(), generation: 0 };
        let mut table = Vec::new();
        writer.write(&plan, &[], &mut table).expect("there are slots enough");
        assert!(table.len() as u32 <= reader.most_bytes(rows));
        let (read, ended) = reader.read(&table, rows as u16).expect("what was written can be read");
        assert_eq!(ended, [0; 0]);
        assert_eq!(read.tokens, plan.tokens);
        for (one, other) in read.steps.iter().zip(steps) {
            let parts = |step: &SequenceStep| (step.id, step.rows.clone(), step.start, step.runs.clone());
            assert_eq!(parts(one), parts(other));
        }
        assert_eq!(read.steps.len(), steps.len());
        lengths.push(table.len() - 4 * rows as usize);
    }
    lengths
}

#[test]
fn only_changes_are_sent() {
    let lengths = check(&[
        vec![step(7, 0..64, 0, &[900], (0, &[3])), step(8, 64..65, 0, &[901], (0, &[4]))],
        vec![step(7, 0..1, 64, &[900, 902], (0, &[3, 5]))],
        vec![step(8, 0..1, 1, &[901], (0, &[4])), step(7, 1..2, 65, &[900, 902], (1, &[5]))],
        vec![step(7, 0..1, 66, &[900, 902], (1, &[5]))],
        vec![step(7, 0..3, 60, &[900], (0, &[3, 5]))],
    ]);
    assert!(lengths[1] <= 14, "a new page in both: {lengths:?}");
    assert_eq!(lengths[3], 4, "a sequence that continues");
}

#[test]
fn a_sequence_twice_or_too_many_are_not_sent() {
    let mut writer = PlanEncoder::new(false, 0..1);
    let twice = vec![step(1, 0..1, 0, &[0], (0, &[])), step(1, 1..2, 1, &[0], (0, &[]))];
    assert!(
        writer.write(&StepPlan { tokens: vec![0; 2], steps: twice, generation: 0 }, &[], &mut Vec::new()).is_none()
    );
    let many = (0..SLOTS as u32 + 1).map(|at| step(u64::from(at), at..at + 1, 0, &[0], (0, &[]))).collect();
    assert!(
        PlanEncoder::new(false, 0..1)
            .write(&StepPlan { tokens: Vec::new(), steps: many, generation: 0 }, &[], &mut Vec::new())
            .is_none()
    );
}

#[test]
fn workers_hear_which_sequences_have_ended() {
    let (mut writer, mut reader) = (PlanEncoder::new(false, 0..1), PlanDecoder::new(false, 4096));
    let mut send = |id: u64, ended: &[u64]| {
        let plan = StepPlan { tokens: vec![0], steps: vec![step(id, 0..1, 0, &[0], (0, &[]))], generation: 0 };
        let mut table = Vec::new();
        writer.write(&plan, ended, &mut table).expect("there are slots enough");
        let (read, heard) = reader.read(&table, 1).expect("what was written can be read");
        assert_eq!((read.steps[0].id, heard), (id, ended.to_vec()));
        reader.sequences().collect::<Vec<u64>>()
    };
    assert_eq!(send(u64::MAX, &[]), [u64::MAX]);
    assert_eq!(send(7, &[]), [u64::MAX, 7]);
    // Slots of sequences that have ended are used again, and one that was never sent is told all the same.
    assert_eq!(send(8, &[u64::MAX, 99]), [8, 7]);
    assert_eq!(send(9, &[7, 8]).len(), 1);
    assert_eq!(send(7, &[]).len(), 2);
}

#[test]
fn slots_are_used_again() {
    let plans: Vec<_> =
        (0..3000).map(|at| vec![step(at % 1500, 0..1, at as u32, &[at as u32 % 50], (0, &[]))]).collect();
    check(&plans);
}

proptest! {
    #[test]
    fn nonsense_is_refused_without_a_panic(tables: Vec<Vec<u8>>, rows in 0u16..20) {
        let mut reader = PlanDecoder::new(true, 256);
        for table in tables {
            if let Ok((plan, _)) = reader.read(&table, rows) {
                assert_eq!(plan.tokens.len(), usize::from(rows));
            }
        }
    }
}
