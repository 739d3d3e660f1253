//! Requests with different adapters give the tokens of one process on every split, also when machines are lost.

use cascadia_engine::{AdapterLimits, Engine};
use cascadia_fleet::link::fair;
use cascadia_fleet::{Manifest, RemoteStage};

use crate::harness::{PATIENCE, Workshop, fixture};
use crate::same_tokens::cuts;
use crate::serving::{Adapters, adapted_tokens, cut_after, tokens, with_own_stages};

/// The tokens of jobs with one adapter, with a mixture, and with none.
fn adapted(engine: Engine) -> Vec<Vec<u32>> {
    selected(engine, [Some("all"), Some("all:0.5+embeddings:0.5"), None])
}

/// The tokens of jobs with magnitudes (DoRA), without them, and with no adapter.
fn scaled(engine: Engine) -> Vec<Vec<u32>> {
    selected(engine, [Some("dora"), Some("all"), None])
}

fn selected(engine: Engine, selections: [Option<&str>; 3]) -> Vec<Vec<u32>> {
    let store = engine.adapters(AdapterLimits::new(3));
    for name in ["all", "embeddings", "dora"] {
        store.insert(name, &fixture("adapters").join(format!("llama3-{name}"))).expect("it is for this model");
    }
    let adapters: Adapters = selections.map(|selection| selection.map(|name| store.select(name).expect("it is there")));
    adapted_tokens(engine, 0, &adapters).0
}

#[test]
fn every_split_gives_the_same_tokens() {
    let workshop = Workshop::new("llama3", Some("int4"));
    let expected = adapted(workshop.open_whole());
    let (plain, _) = tokens(workshop.open_whole(), 0);
    assert!(
        expected[0] != plain[0] && expected[1] != plain[1] && expected[2] == plain[2],
        "adapters change their jobs"
    );
    for cut in (1..=3).flat_map(|stages| cuts(3, stages)) {
        let manifest = workshop.export(&cut);
        assert!(adapted(workshop.fleet(&manifest).0) == expected, "split at {cut:?}");
    }
}

/// The model on workers of which the first two of every stage are lost after so many pieces.
fn with_losses(workshop: &Workshop, manifest: &Manifest, pieces: u32) -> Engine {
    workshop.open(manifest, |model_workers, stage, _| {
        [pieces, 2 * pieces, u32::MAX].map(cut_after).into_iter().for_each(|faults| {
            workshop.admit_worker(model_workers, stage, [fair(), faults]);
        });
        Box::new(RemoteStage::new(model_workers, stage, PATIENCE))
    })
}

/// Magnitudes need weights that the coordinator does not have.
#[test]
fn magnitudes_find_their_weights_wherever_these_are() {
    let workshop = Workshop::new("llama3", Some("int4"));
    let expected = scaled(workshop.open_whole());
    let others = adapted(workshop.open_whole());
    assert!(expected[0] != others[0], "magnitudes change their jobs");
    for cut in [&[0][..], &[0, 1], &[0, 1, 2]] {
        let manifest = workshop.export(cut);
        assert!(scaled(workshop.fleet(&manifest).0) == expected, "split at {cut:?}");
    }
    let manifest = workshop.export(&[0, 2]);
    for own in [&[0][..], &[1], &[0, 1]] {
        assert!(scaled(with_own_stages(&workshop, &manifest, own)) == expected, "{own:?} here, others are lost");
    }
}

#[test]
fn machines_that_are_lost_change_no_token() {
    let workshop = Workshop::new("llama3", Some("int4"));
    let expected = adapted(workshop.open_whole());
    let manifest = workshop.export(&[0, 2]);
    for pieces in [5, 17, 40, 63] {
        assert!(adapted(with_losses(&workshop, &manifest, pieces)) == expected, "lost after {pieces} pieces");
    }
}
