//! The GGUF file that a folder is exported to gives the same logits as the folder, whatever form its tensors take there.

mod harness;

use std::path::Path;

use cascadia_model::ModelSpec;
use cascadia_weights::ModelFiles;

use harness::check_against;
use harness::export::{export, write_gguf};

#[test]
fn exported_models_give_the_reference() {
    let ropes = ["llama3", "llama-yarn", "llama-yarn-exact", "llama-dynamic", "qwen2-yarn"];
    let long_ropes = ["phi3-short", "phi3-long", "phi4-long"];
    let experts = ["mixtral", "mixtral-ties", "qwen2-moe", "qwen3-moe", "qwen3-moe-fused", "gpt-oss"];
    let more_experts = ["olmoe", "granite-moe", "glm4-moe"];
    let latent = ["deepseek-v2-lite", "deepseek-v2", "deepseek-v3", "deepseek-v3-blocks"];
    let heads = ["gemma3n", "gemma4", "gemma4-keys", "gemma4-moe"];
    let fixtures = ropes.into_iter().chain(long_ropes).chain(experts).chain(more_experts).chain(latent).chain(heads);
    let scratch = tempfile::tempdir().expect("a temporary folder");
    for fixture in fixtures {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
        let path = scratch.path().join(format!("{fixture}.gguf"));
        let exported = export(&folder);
        write_gguf(&path, &exported);
        let context = exported.spec.context;
        let exported = ModelFiles::open(&path).expect("the exported file opens");
        let spec = ModelSpec::from_files(&exported).expect("the exported file has settings");
        assert_eq!(spec.context, context, "{fixture}");
        check_against(&folder, &path);
    }
}
