//! Turns model files plus a `ModelSpec` into layers and runs them: forward pass, KV memory, stages.
#![forbid(unsafe_code)]

mod activation_stats;
mod adapter;
mod altup;
mod altup_ends;
mod arch;
mod arrange;
mod assemble;
mod catalog;
mod classifier;
mod compute;
mod decoder;
mod dense_and_experts;
mod embedding;
mod error;
mod expert_spec;
mod experts;
mod export;
mod feed_forward;
mod kv;
mod latent;
mod laurel;
mod limits;
mod load;
mod mixer;
mod names;
mod norm;
mod page_bytes;
mod per_layer;
mod plan;
mod profile;
mod projection;
mod read_ahead;
mod residency;
mod rope;
mod router;
mod settings;
mod spec;
mod stage;
mod step;
mod streamed_experts;
mod token_io;
mod tuning;
mod workspace;

pub use activation_stats::{ActivationStats, ColumnStats, MatrixId};
pub use adapter::{
    Adapter, AdapterFiles, AdapterId, AdapterPart, AdapterPrecision, AdapterSummary, AdapterTargets, SyntheticAdapter,
};
pub use compute::Compute;
pub use error::{ModelError, StageError};
pub use export::{ExportedTensor, GgufExport, gguf_export};
pub use kv::{
    CacheDemand, CacheFormat, CachePages, KvFormat, KvFormats, KvLayout, KvPolicy, PageClass, PerClass, Span,
};
pub use limits::ModelLimits;
pub use load::{LoadOptions, LoadedModel, load, load_stage};
pub use page_bytes::{PageBytes, PageRows};
pub use plan::{PAGE_TOKENS, PageId, PageRun, ReservedPages, SequenceStep, StepPlan};
pub use profile::{Kind, Place, Profile, TraceEvent, Work};
pub use rope::{DynamicScaling, LongScaling, RopeScaling, RopeSpec, RopeStyle, WavelengthScaling, YarnScaling};
pub use spec::{
    AlibiSpec, AltUpSpec, AttentionSpec, Branch, BranchOrder, CacheSource, ClassifierActivation, ClassifierDense,
    ClassifierSpec, DenseAndExpertsSpec, DenseSpec, EmbeddingSpec, ExpertGroups, ExpertsSpec, FeedForwardSpec, Gate,
    GateBounds, GroupRank, HeadNorm, HeadSpec, LatentSpec, LaurelSpec, LayerSpec, MixerSpec, ModelSpec, NormKind,
    NormSpec, PerLayerSpec, PooledRows, PoolingSpec, PositionsSpec, RouterScores, RouterSpec, SharedExpertSpec,
    ValueSource,
};
pub use stage::{Hidden, LocalStage, NumericsClass, Placement, Stage, StageCache, StageTraits};
pub use token_io::TokenIo;
pub use tuning::remembered_readings;
