//! Turns model files plus a `ModelSpec` into layers and runs them: forward pass, KV memory, stages.
#![forbid(unsafe_code)]

mod altup;
mod altup_ends;
mod arch;
mod arrange;
mod assemble;
mod cache_pages;
mod cache_precision;
mod catalog;
mod compute;
mod decoder;
mod embedding;
mod energy;
mod error;
mod expert_spec;
mod experts;
mod export;
mod feed_forward;
mod kv_pool;
mod latent;
mod laurel;
mod limits;
mod load;
mod mixer;
mod names;
mod norm;
mod per_layer;
mod plan;
mod profile;
mod projection;
mod read_ahead;
mod residency;
mod rope;
mod router;
mod settings;
mod sides;
mod spec;
mod stage;
mod token_io;
mod workspace;

pub use cache_pages::{CacheDemand, CachePages};
pub use cache_precision::CachePrecision;
pub use compute::Compute;
pub use energy::{ColumnEnergy, EnergyMeter, MatrixId};
pub use error::{ModelError, StageError};
pub use export::{ExportedTensor, GgufExport, gguf_export};
pub use limits::ModelLimits;
pub use load::{LoadOptions, LoadedModel, load};
pub use plan::{PAGE_TOKENS, PageId, SequenceStep, StepPlan, WindowPages};
pub use profile::{Kind, Place, Profile, TraceEvent, Work};
pub use rope::{DynamicScaling, LongScaling, RopeScaling, RopeSpec, RopeStyle, WavelengthScaling, YarnScaling};
pub use spec::{
    AlibiSpec, AltUpSpec, AttentionSpec, Branch, BranchOrder, CacheSource, DenseSpec, EmbeddingSpec, ExpertGroups,
    ExpertsSpec, FeedForwardSpec, Gate, GateBounds, GroupRank, HeadNorm, HeadSpec, LatentSpec, LaurelSpec, LayerSpec,
    MixerSpec, ModelSpec, NormKind, NormSpec, PerLayerSpec, RouterScores, RouterSpec, SharedExpertSpec, SidesSpec,
    ValueSource,
};
pub use stage::{Hidden, LocalStage, Stage};
pub use token_io::TokenIo;
