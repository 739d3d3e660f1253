//! Shards are the same bytes every time, tell the whole architecture, and refuse to be cut where they cannot.

use cascadia_fleet::{FleetError, StageSplit};
use cascadia_model::ModelSpec;
use cascadia_weights::ModelFiles;

use crate::harness::{Workshop, fixture};

#[test]
fn the_same_model_gives_the_same_bytes() {
    let manifests = [0, 1].map(|_| Workshop::new("llama3", Some("int4")).export(&[0, 2]));
    assert_eq!(manifests[0], manifests[1]);
}

#[test]
fn every_shard_tells_the_architecture_of_the_whole() {
    for model in ["llama3", "gemma3n", "gemma4", "deepseek-v3", "gpt2", "gpt-oss", "glm4-moe"] {
        let workshop = Workshop::new(model, Some("int4"));
        let manifest = workshop.export(&[0, 1]);
        let whole = ModelFiles::open(&workshop.whole()).expect("it was written");
        let expected = ModelSpec::from_files(&whole).expect("a known architecture");
        for shard in std::iter::once(&manifest.token_io).chain(&manifest.stages) {
            let files = ModelFiles::open(&workshop.folder.path().join(&shard.file)).expect("it was written");
            assert_eq!(ModelSpec::from_files(&files).expect("a shard tells it"), expected, "{model} {}", shard.file);
        }
    }
}

#[test]
fn layers_stay_with_the_cache_they_read() {
    let spec = ModelSpec::from_files(&ModelFiles::open(&fixture("gemma4")).expect("it opens")).expect("it is known");
    let refused = |split: Result<StageSplit, FleetError>| split.expect_err("it cannot be cut so").to_string();
    let message = refused(StageSplit::at(&spec, &[0, 3]));
    assert!(message.contains("reads the cache") && message.ends_with("0, 1"), "{message}");
    assert!(refused(StageSplit::even(&spec, 3)).contains("at most 2 stages"));
    assert_eq!(StageSplit::even(&spec, 2).expect("there is one place").stages(), [0..1, 1..6]);
    assert!(refused(StageSplit::at(&spec, &[1])).contains("the first must be 0"));
    assert!(refused(StageSplit::at(&spec, &[0, 9])).contains("6 layers"));
    let plain = ModelSpec::from_files(&ModelFiles::open(&fixture("llama3")).expect("it opens")).expect("it is known");
    let layers = plain.layers.len() as u32;
    for count in 1..=layers {
        let split = StageSplit::even(&plain, count).expect("any number of stages");
        assert_eq!(split.stages().len(), count as usize);
        assert_eq!(split.stages().last().map(|last| last.end), Some(layers));
    }
}
