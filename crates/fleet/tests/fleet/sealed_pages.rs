//! Quantised caches on a fleet: the tokens of one process, however the model is split, whatever is lost and whoever checks.

use std::time::Duration;

use cascadia_fleet::RemoteStage;
use cascadia_fleet::link::fair;
use cascadia_model::{CacheFormat, KvFormat, KvFormats, KvPolicy};

use crate::harness::{PATIENCE, Workshop, continuation, prompt};
use crate::hash_model::simulated;
use crate::recheck::open_rechecked;
use crate::same_tokens::cuts;
use crate::serving::{cut_after, long_tokens, with_own_stages};

/// With a tail as short as that of `workshops`, the last of these tokens read two sealed pages.
const PROMPT: u32 = 140;
const ANSWER: usize = 40;

/// A quantised model with keys of more bits than values, with the same everywhere, and with other formats in every layer.
fn workshops(model: &str) -> [Workshop; 3] {
    let both = KvFormat::both;
    let keys_apart = KvFormat { keys: CacheFormat::Int8, values: CacheFormat::Int4 };
    let formats = [
        KvFormats::Uniform(keys_apart),
        KvFormats::Uniform(both(CacheFormat::Int4)),
        KvFormats::PerLayer(vec![keys_apart, both(CacheFormat::F16), both(CacheFormat::Int3)]),
    ];
    formats.map(|formats| workshop(model, KvPolicy { formats, tail: 32, from: 0 }))
}

fn workshop(model: &str, kv: KvPolicy) -> Workshop {
    Workshop { kv, ..Workshop::new(model, Some("int4")) }
}

fn exact(model: &str) -> Workshop {
    workshop(model, KvPolicy::new(KvFormats::Exact))
}

#[test]
fn every_split_reads_the_same_sealed_pages() {
    let prompt = prompt(PROMPT);
    // The second has layers with windows, and their own class of pages beside that of the tail.
    for (model, layers) in [("llama3", 3), ("gemma3", 4)] {
        let unsealed = continuation(&mut exact(model).open_whole().into_session(), &prompt, ANSWER);
        for workshop in workshops(model) {
            let policy = workshop.kv.clone();
            let expected = continuation(&mut workshop.open_whole().into_session(), &prompt, ANSWER);
            assert!(expected != unsealed, "{model} {policy:?}: no sealed page was read");
            for cut in (1..=layers).flat_map(|stages| cuts(layers as u32, stages)) {
                let (fleet, _) = workshop.fleet(&workshop.export(&cut));
                let found = continuation(&mut fleet.into_session(), &prompt, ANSWER);
                assert!(found == expected, "{model} {policy:?} split at {cut:?}");
            }
        }
    }
}

#[test]
fn machines_that_are_lost_change_no_token() {
    let (unsealed, _) = long_tokens(exact("gemma3").open_whole(), 0);
    for workshop in workshops("gemma3") {
        let policy = workshop.kv.clone();
        let (expected, _) = long_tokens(workshop.open_whole(), 0);
        assert!(expected != unsealed, "{policy:?}: no sealed page was read");
        let manifest = workshop.export(&[0, 2]);
        // While prompts are computed, when the first pages are sealed, and while answers read them.
        for (pieces, draft_rows) in [(5, 0), (11, 8), (30, 0), (60, 8)] {
            let engine = workshop.open(&manifest, |model_workers, stage, _| {
                [pieces, 2 * pieces, u32::MAX].map(cut_after).into_iter().for_each(|faults| {
                    workshop.admit_worker(model_workers, stage, [fair(), faults]);
                });
                Box::new(RemoteStage::new(model_workers, stage, PATIENCE))
            });
            assert!(long_tokens(engine, draft_rows).0 == expected, "{policy:?}: lost after {pieces} pieces");
        }
        assert!(long_tokens(with_own_stages(&workshop, &manifest, &[0]), 0).0 == expected, "{policy:?}: one is here");
    }
}

#[test]
fn what_is_computed_again_reads_the_same_sealed_pages() {
    for workshop in workshops("gemma3") {
        simulated(|clock| {
            let policy = workshop.kv.clone();
            let expected = continuation(&mut workshop.open_whole().into_session(), &prompt(PROMPT), ANSWER);
            let (engine, stages) = open_rechecked(&workshop, clock, &[0, 1]);
            let mut session = engine.into_session();
            for _ in 0..3 {
                assert!(continuation(&mut session, &prompt(PROMPT), ANSWER) == expected, "{policy:?}");
            }
            clock.sleep(Duration::from_secs(1));
            for stage in stages.iter() {
                let status = stage.status();
                assert!(status.wrong.is_empty() && status.is_checked, "{policy:?}: {status:?}");
                assert!(status.rechecked >= u64::from(PROMPT) + ANSWER as u64 - 1, "{policy:?}: {status:?}");
            }
        });
    }
}
