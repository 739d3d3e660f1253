//! Settings that families share, under all the names they go by.

use crate::settings::Key;

/// Largest values that any real model comes near; more is a damaged file, not a large model.
pub(super) const MOST_LAYERS: u32 = 4096;
pub(super) const MOST_WIDTH: u32 = 1 << 20;
pub(super) const MOST_CONTEXT: u32 = 1 << 28;

macro_rules! keys {
    ($($name:ident = [$($json:literal),*] [$($gguf:literal),*];)*) => {
        $(pub(super) const $name: Key = Key { json: &[$($json),*], gguf: &[$($gguf),*] };)*
    };
}

keys! {
    LAYERS = ["num_hidden_layers", "n_layer", "n_layers"] ["block_count"];
    PADDING = ["pad_token_id"] ["padding_token_id"];
    WIDTH = ["hidden_size", "n_embd", "d_model", "n_embed"] ["embedding_length"];
    CONTEXT = ["max_position_embeddings", "n_positions", "max_seq_len", "seq_length"] ["context_length"];
    FEED_FORWARD = ["intermediate_size", "n_inner", "ffn_hidden_size"] ["feed_forward_length"];
    HEADS = ["num_attention_heads", "n_head", "n_heads"] ["attention.head_count"];
    KV_HEADS = ["num_key_value_heads"] ["attention.head_count_kv"];
    HEAD = ["head_dim"] ["attention.key_length"];
    VALUE_HEAD = ["v_head_dim"] ["attention.value_length"];
    EPSILON = ["rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"]
        ["attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"];
    WINDOW = ["sliding_window"] ["attention.sliding_window"];
    WINDOW_PATTERN = ["layer_types", "sliding_window_pattern"] ["attention.sliding_window_pattern"];
    SHARED_CACHES = ["num_kv_shared_layers"] ["attention.shared_kv_layers"];
    PER_LAYER_WIDTH = ["hidden_size_per_layer_input"] ["embedding_length_per_layer_input"];
    ACTIVATION = ["hidden_activation", "hidden_act", "activation_function", "activation"] ["hidden_act"];
    ATTENTION_SCALE = ["attention_multiplier"] ["attention.scale"];
    EMBEDDING_SCALE = ["embedding_multiplier"] ["embedding_scale"];
    RESIDUAL_SCALE = ["residual_multiplier"] ["residual_scale"];
    LOGIT_SCALE = ["logits_scaling"] ["logit_scale"];
    ATTENTION_SOFT_CAP = ["attn_logit_softcapping"] ["attn_logit_softcapping"];
    LOGIT_SOFT_CAP = ["final_logit_softcapping"] ["final_logit_softcapping"];
    CLAMP = ["clip_qkv"] ["attention.clamp_kqv"];
    ALIBI = ["alibi_bias_max"] ["attention.max_alibi_bias"];
    PARALLEL = ["use_parallel_residual"] ["use_parallel_residual"];
    ROPE_BASE = ["rope_theta", "rotary_emb_base"] ["rope.freq_base"];
    ROPE_LOCAL_BASE = ["rope_local_base_freq"] ["rope.freq_base_swa"];
    ROPE_PART = ["partial_rotary_factor", "rotary_pct"] ["rope.partial_rotary_factor"];
    ROPE_DIMENSIONS = ["rope_dim"] ["rope.dimension_count"];
    ROPE_LOCAL_DIMENSIONS = ["rope_dim_local"] ["rope.dimension_count_swa"];
    ROPE_SCALING = ["rope_scaling"] ["rope.scaling.type"];
    ROPE_WHOLE_PAIRS = ["truncate"] ["rope.scaling.yarn_truncate"];
    ROPE_FACTOR = ["factor"] ["rope.scaling.factor", "rope.scale_linear"];
    ROPE_ORIGINAL = ["original_max_position_embeddings"] ["rope.scaling.original_context_length"];
    ROPE_MAGNITUDE = ["attention_factor"] ["rope.scaling.attn_factor"];
    ROPE_DYNAMIC = ["factor"] ["rope.scaling.dynamic_factor"];
    ROPE_FAST = ["beta_fast"] ["rope.scaling.yarn_beta_fast"];
    ROPE_SLOW = ["beta_slow"] ["rope.scaling.yarn_beta_slow"];
    ROPE_LOG_MULTIPLIER = ["mscale_all_dim"] ["rope.scaling.yarn_log_multiplier"];
}
