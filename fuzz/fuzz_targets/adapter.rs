//! Opens arbitrary bytes as an adapter for a small model: GGUF, the two files of PEFT, and what a worker is sent.
#![no_main]

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use cascadia_fuzz::{bounded, folder, with_file};
use cascadia_kernels::Pool;
use cascadia_model::{
    Adapter, AdapterFiles, AdapterPart, AdapterPrecision, LoadOptions, LocalStage, ModelLimits, ModelSpec, Stage,
};
use cascadia_weights::ModelFiles;
use libfuzzer_sys::fuzz_target;

/// A model of one layer.
const MODEL: &[u8] = include_bytes!("../corpus/model/00");

struct Base {
    files: Arc<ModelFiles>,
    spec: ModelSpec,
    stage: LocalStage,
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    base();
    match kind % 3 {
        0 => with_file("adapter.gguf", bytes, load),
        1 => peft(bytes),
        _ => drop(bounded(|| base().stage.adapter(bytes).map(|adapter| black_box(adapter.part(&(0..1)))))),
    }
});

/// A line of settings, a line of header, then data, with a length that fits.
fn peft(bytes: &[u8]) {
    let mut lines = bytes.splitn(3, |byte| *byte == b'\n').chain([&[][..]; 2]);
    let [settings, header, data] = [(); 3].map(|()| lines.next().unwrap_or_default());
    fs::write(folder().join("adapter_config.json"), settings).expect("the file can be written");
    let weights = [&(header.len() as u64).to_le_bytes()[..], header, data].concat();
    with_file("adapter_model.safetensors", &weights, |path| load(path.parent().expect("a folder")));
}

/// What is accepted reaches a worker as it is.
fn load(path: &Path) {
    let Base { files: base, spec, stage } = base();
    let Ok(files) = AdapterFiles::open(path) else { return };
    black_box(files.summary());
    let parts = [AdapterPart { files: &files, weight: 1.0 }];
    let Ok(adapter) = Adapter::load(&parts, base, spec, AdapterPrecision::LikeBase) else { return };
    let part = adapter.part(&(0..1));
    let read = stage.adapter(&part).expect("what was written for this stage");
    assert_eq!((read.part(&(0..1)), read.id()), (part, adapter.id()));
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| {
        let files = Arc::new(ModelFiles::from_vec("base.gguf", MODEL.to_vec()).expect("a model"));
        let spec = ModelSpec::from_files(&files).expect("a model that is supported");
        let options = LoadOptions::new(ModelLimits::one_sequence(&spec, 64, 16), Arc::new(Pool::new(1)));
        let stage = LocalStage::new(&files, &spec, 0..1, &options).expect("its only layer");
        Base { files, spec, stage }
    })
}
