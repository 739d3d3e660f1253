//! Models that are quantised when they are opened: once, and to the bytes that a conversion writes.

use std::fs;
use std::path::{Path, PathBuf};

use cascadia_kernels::Pool;
use cascadia_quantize::{QuantizeError, QuantizeJob, QuantizedCache, quantize};
use cascadia_weights::ModelFiles;

/// One of the repository's tiny models.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// The file for a model, and whether it was written now.
fn open(cache: &QuantizedCache, model: &Path, kind: &str) -> Result<(PathBuf, bool), QuantizeError> {
    let mut written = false;
    let files = ModelFiles::open(model)?;
    let found = cache.find_or_write(&files, &kind.parse()?, &Pool::new(2), |_| written = true)?;
    Ok((found, written))
}

fn copy_of(model: &str, folder: &Path) -> PathBuf {
    let copy = folder.join(model);
    fs::create_dir_all(&copy).unwrap();
    for entry in fs::read_dir(path(model)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    copy
}

#[test]
fn a_model_is_quantised_once_to_the_bytes_of_a_conversion() {
    let folder = tempfile::tempdir().unwrap();
    let cache = QuantizedCache::new(folder.path().join("not/yet/there"));
    for model in ["llama3", "llama3-gguf/model.gguf"] {
        for kind in ["q4_0", "q4_k_m", "int4"] {
            let (found, written) = open(&cache, &path(model), kind).unwrap();
            assert!(written, "{model} {kind}");
            let out = folder.path().join("offline.gguf");
            let files = ModelFiles::open(&path(model)).unwrap();
            let job = QuantizeJob {
                files: &files,
                out: &out,
                recipe: kind.parse().unwrap(),
                importance: None,
                pool: &Pool::new(1),
            };
            quantize(&job, |_| {}).unwrap();
            assert!(fs::read(&found).unwrap() == fs::read(&out).unwrap(), "{model} {kind}");
            assert_eq!(open(&cache, &path(model), kind).unwrap(), (found, false), "{model} {kind}");
        }
    }
}

#[test]
fn a_model_that_changed_is_quantised_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = QuantizedCache::new(folder.path().join("cache"));
    let model = copy_of("llama3", folder.path());
    let (first, _) = open(&cache, &model, "q8_0").unwrap();
    assert_eq!(open(&cache, &model, "q8_0").unwrap(), (first.clone(), false));
    let config = model.join("config.json");
    fs::write(&config, format!("{}\n", fs::read_to_string(&config).unwrap())).unwrap();
    let (second, written) = open(&cache, &model, "q8_0").unwrap();
    assert!(written && second != first);
    assert_eq!(second.file_name().unwrap(), "llama3-q8_0.gguf");
}

#[test]
fn the_oldest_are_deleted_beyond_the_limit_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("somebody's")).unwrap();
    fs::write(folder.path().join("somebody's/file"), vec![0; 1 << 20]).unwrap();
    let model = path("llama3");
    let (old, _) = open(&QuantizedCache::new(folder.path()), &model, "q8_0").unwrap();
    let tight = QuantizedCache::new(folder.path()).with_limit(1);
    let (new, written) = open(&tight, &model, "q4_0").unwrap();
    assert!(written && new.is_file() && !old.exists());
    assert!(folder.path().join("somebody's/file").is_file());
    let (again, written) = open(&QuantizedCache::new(folder.path()), &model, "q8_0").unwrap();
    assert!(written && again == old && new.is_file());
}

#[test]
fn a_folder_that_cannot_be_written_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("cache");
    fs::write(&taken, "a file in the folder's place").unwrap();
    let error = open(&QuantizedCache::new(&taken), &path("llama3"), "q8_0").unwrap_err();
    assert!(matches!(error, QuantizeError::Cache { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("cache") && text.contains("make room"), "{text}");
    assert!(matches!(open(&QuantizedCache::new(&taken), &path("llama3"), "q4_kk"), Err(QuantizeError::Setting { .. })));
}
