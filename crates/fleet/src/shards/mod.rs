//! Exported models: manifest, shards, the store that holds them on a worker, and pushing them there.

pub(crate) mod digest;
pub(crate) mod manifest;
pub(crate) mod own_stage;
pub(crate) mod push;
pub(crate) mod push_job;
pub(crate) mod scrub;
pub(crate) mod shard;
mod signed_manifest;
pub(crate) mod store;

pub use digest::Digest;
pub use manifest::{MANIFEST_FILE, MANIFEST_VERSION, Manifest, Numerics, Shard, TOKEN_IO_FILE, stage_file};
pub use own_stage::{HERE, OwnStage, recheck_exported};
pub use push::SignedShard;
pub use push_job::{PushJob, receive_workers, remote_targets};
pub use shard::{ShardOptions, open_shard};
pub use signed_manifest::{KnownTargets, SignedManifest};
pub use store::Store;
