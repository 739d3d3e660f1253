//! Reads messages, plans with adapters and compressed pieces of the fleet: valid ones, damaged ones and arbitrary bytes.
#![no_main]

use std::sync::{Arc, OnceLock};

use cascadia_fleet::frame::{KINDS, Kind};
use cascadia_fleet::fuzzing::{MESSAGE_BYTES, PlanExchange, fill_piece, rewrite};
use cascadia_fuzz::bounded;
use cascadia_kernels::Pool;
use cascadia_model::{
    Adapter, AdapterId, LoadOptions, LocalStage, ModelLimits, ModelSpec, PageClass, PageRun, SequenceStep, Stage,
    StepPlan,
};
use cascadia_weights::ModelFiles;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

/// Tokens of the longest sequence in the plans.
const CONTEXT: u32 = 1024;

/// A model of one layer.
const MODEL: &[u8] = include_bytes!("../corpus/model/00");
/// Adapters that plans may name.
const ADAPTERS: u8 = 5;

fuzz_target!(init: { stage(); }, |data: &[u8]| {
    let _ = bounded(|| {
        let mut input = Unstructured::new(data);
        match input.int_in_range(0..=3)? {
            0 => arbitrary_message(&mut input),
            1 => valid_message(&mut input),
            2 => plans(&mut input),
            _ => piece(&mut input),
        }
    });
});

/// What a field of a message may hold.
#[derive(Clone, Copy)]
enum Field {
    /// A length and so many bytes of text.
    Text,
    /// This number.
    Is(u32),
    /// One of the numbers below this.
    Below(u32),
    /// So many bytes.
    Bytes(usize),
    /// A count, and so many pairs of known formats.
    Formats,
}

use Field::{Below, Bytes, Formats, Is, Text};

/// The fields of each message, which must be accepted whatever they hold.
const LAYOUTS: &[(Kind, &[Field])] = &[
    (Kind::Hello, &[Text, Is(1), Bytes(32), Below(4)]),
    (Kind::PairRefused, &[Is(1), Below(3)]),
    (Kind::Hello, &[Text, Is(0), Is(0), Is(0), Is(0), Is(0), Is(0), Is(0), Is(0), Is(0), Below(4)]),
    (Kind::Welcome, &[Bytes(8), Bytes(12), Below(3), Below(2), Bytes(8), Below(2), Is(0)]),
    (Kind::Welcome, &[Bytes(8), Bytes(12), Below(3), Below(2), Bytes(8), Is(3), Formats]),
    (Kind::Ready, &[Text]),
    (Kind::Refused, &[Text]),
    (Kind::Join, &[Text, Bytes(32)]),
    (Kind::Joined, &[Text, Is(0)]),
    (Kind::Joined, &[Text, Is(1), Bytes(528)]),
    (Kind::Leaving, &[Text]),
    (Kind::Rows, &[Bytes(4)]),
    (Kind::Pong, &[Bytes(28)]),
    (Kind::Offer, &[Bytes(40), Bytes(8 + 96), Is(0)]),
    (Kind::Offer, &[Bytes(40), Bytes(8 + 96), Is(2), Bytes(64)]),
    (Kind::Succeed, &[Bytes(192)]),
    (Kind::Keys, &[Bytes(96), Is(0)]),
    (Kind::Keys, &[Bytes(96), Is(2), Bytes(2 * 528)]),
    (Kind::Beat, &[]),
    (Kind::Beat, &[Bytes(8)]),
    (Kind::Head, &[Bytes(80), Bytes(96)]),
    (Kind::Witness, &[Is(1), Bytes(176), Bytes(96)]),
    (Kind::Witness, &[Is(0), Text]),
    (Kind::Fetch, &[Below(3), Bytes(4), Below(64), Is(64), Bytes(4), Below(4 << 20)]),
    (Kind::Page, &[Below(3), Bytes(4), Below(64), Is(64), Below(900), Is(1000), Bytes(32), Bytes(100)]),
    (Kind::Page, &[Below(3), Bytes(4), Below(64), Is(64), Is(0), Is(0), Bytes(32)]),
];

fn arbitrary_message(input: &mut Unstructured<'_>) -> Result<()> {
    let kind = *input.choose(&KINDS)?;
    let bytes = input.bytes(input.len())?;
    check(kind, &bytes[..bytes.len().min(MESSAGE_BYTES as usize)]);
    Ok(())
}

/// One that both ends would write, and the same with some bytes changed.
fn valid_message(input: &mut Unstructured<'_>) -> Result<()> {
    let (kind, fields) = *input.choose(LAYOUTS)?;
    let mut bytes = Vec::new();
    for field in fields {
        match *field {
            Text => {
                let text = input.arbitrary::<&str>()?;
                let text: String = text.chars().filter(|letter| !letter.is_control()).take(100).collect();
                bytes.extend((text.len() as u32).to_le_bytes());
                bytes.extend(text.bytes());
            }
            Is(number) => bytes.extend(number.to_le_bytes()),
            Below(most) => bytes.extend((input.arbitrary::<u32>()? % most).to_le_bytes()),
            Bytes(count) => {
                let given = input.bytes(count.min(input.len()))?;
                bytes.extend(given.iter().copied().chain(std::iter::repeat(0)).take(count));
            }
            Formats => {
                let count = input.int_in_range(0..=9_u32)?;
                bytes.extend(count.to_le_bytes());
                bytes.extend(std::iter::repeat_n([0, 0], count as usize).flatten());
            }
        }
    }
    assert!(check(kind, &bytes), "a valid {kind:?} is refused: {bytes:?}");
    for _ in 0..input.int_in_range(1..=4)? {
        let index = input.choose_index(bytes.len())?;
        bytes[index] = input.arbitrary()?;
        check(kind, &bytes);
    }
    bytes.truncate(input.choose_index(bytes.len())?);
    check(kind, &bytes);
    Ok(())
}

/// Whether the message makes sense. If so, it is written as it was read, except that control characters in texts have
/// become spaces.
fn check(kind: Kind, bytes: &[u8]) -> bool {
    let Some(written) = rewrite(kind, bytes) else { return false };
    assert_eq!(rewrite(kind, &written).as_ref(), Some(&written), "{kind:?} changes when it is read twice");
    let same = |(came, went): (&u8, &u8)| came == went || *went == b' ';
    // Some control characters are two bytes.
    let is_same = written.len() == bytes.len() && bytes.iter().zip(&written).all(same);
    assert!(is_same || written.len() < bytes.len(), "{kind:?} {bytes:?} was written as {written:?}");
    true
}

/// Plans of several steps in a row on one connection, until one of them is damaged.
fn plans(input: &mut Unstructured<'_>) -> Result<()> {
    let sends_tokens = input.arbitrary()?;
    let mut exchange = PlanExchange::new(sends_tokens, CONTEXT);
    while !input.is_empty() {
        let (plan, ended) = (plan(input)?, input.arbitrary_iter()?.take(4).collect::<Result<Vec<u64>>>()?);
        let rows = plan.tokens.len() as u16;
        for mut frame in exchange.adapter_frames(&plan).expect("both ends remember a few adapters") {
            let is_changed = input.ratio(1, 8)?;
            if is_changed {
                let index = input.choose_index(frame.len())?;
                frame[index] = input.arbitrary()?;
                frame.truncate(input.int_in_range(0..=frame.len())?);
            }
            let is_taken = exchange.take_adapter(&frame, |bytes| stage().adapter(bytes));
            if is_changed {
                return Ok(());
            }
            assert!(is_taken, "an adapter that was sent is refused");
        }
        let Some(mut table) = exchange.write(&plan, &ended) else { return Ok(()) };
        assert!(table.len() as u32 <= exchange.most_bytes(rows.into()), "a plan is longer than is received");
        let changes = input.int_in_range(0..=3)?;
        for _ in 0..changes {
            let index = input.choose_index(table.len())?;
            table[index] = input.arbitrary()?;
        }
        let read = exchange.read(&table, rows);
        if let Some((read, _)) = &read {
            assert_eq!(read.tokens.len(), plan.tokens.len());
            let ends = read.steps.iter().map(|step| step.rows.end);
            let begins = read.steps.iter().map(|step| step.rows.start);
            assert!(std::iter::once(0).chain(ends).eq(begins.chain([rows.into()])), "rows have gaps: {read:?}");
        }
        if changes > 0 {
            return Ok(());
        }
        let (read, heard) = read.expect("what was written can be read");
        let adapter = |step: &SequenceStep| step.adapter.as_ref().map(|adapter| adapter.id());
        let parts = |step: &SequenceStep| (step.id, step.rows.clone(), step.start, step.runs.clone(), adapter(step));
        assert!(read.steps.iter().map(parts).eq(plan.steps.iter().map(parts)), "{plan:?} was read as {read:?}");
        assert!(heard == ended && (!sends_tokens || read.tokens == plan.tokens));
    }
    Ok(())
}

/// A plan of a few sequences, each of which is in it at most once.
fn plan(input: &mut Unstructured<'_>) -> Result<StepPlan> {
    let mut plan = StepPlan::default();
    for id in 0..6 {
        if input.ratio(1, 3)? {
            continue;
        }
        let first = plan.tokens.len() as u32;
        for _ in 0..input.int_in_range(1..=3)? {
            plan.tokens.push(input.arbitrary()?);
        }
        let (rows, start) = (first..plan.tokens.len() as u32, input.int_in_range(0..=CONTEXT)?);
        let mut runs = Vec::new();
        for class in PageClass::ALL {
            let pages: Vec<u32> = (0..input.int_in_range(0..=4)?).map(|_| input.arbitrary()).collect::<Result<_>>()?;
            if !pages.is_empty() {
                runs.push(PageRun { class, first: input.int_in_range(0..=3)?, pages });
            }
        }
        let adapter = input.ratio(1, 2)?.then(|| input.int_in_range(0..=ADAPTERS - 1)).transpose()?.map(adapter);
        plan.steps.push(SequenceStep { id, rows, start, runs, adapter, second_text: None });
    }
    Ok(plan)
}

/// An adapter that changes nothing: its id, its rank, and how many matrices it changes.
fn adapter(number: u8) -> Arc<Adapter> {
    let bytes = [&AdapterId([number; 32]).0[..], &1_u32.to_le_bytes(), &0_u32.to_le_bytes()].concat();
    stage().adapter(&bytes).expect("an adapter")
}

/// What adapters are read for.
fn stage() -> &'static LocalStage {
    static STAGE: OnceLock<LocalStage> = OnceLock::new();
    STAGE.get_or_init(|| {
        let files = Arc::new(ModelFiles::from_vec("base.gguf", MODEL.to_vec()).expect("a model"));
        let spec = ModelSpec::from_files(&files).expect("a model that is supported");
        let options = LoadOptions::new(ModelLimits::one_sequence(&spec, 64, 16), Arc::new(Pool::new(1)));
        LocalStage::new(&files, &spec, 0..1, &options).expect("its only layer")
    })
}

fn piece(input: &mut Unstructured<'_>) -> Result<()> {
    let mut piece = vec![0; input.int_in_range(0..=4096)?];
    fill_piece(input.bytes(input.len())?, &mut piece);
    Ok(())
}
