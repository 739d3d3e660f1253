//! Compiles output formats for one vocabulary.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::{Matcher, ParserFactory};
use toktrie::{InferenceCapabilities, TokEnv};

use super::cache::Cache;
use super::compiled::Compiled;
use super::constraint::{Constraint, first_line};
use super::source::Source;
use super::token_trie::TokenTrie;
use super::work::{FormatWork, WorkCounters};
use super::{MAX_CACHED_FORMATS, OutputFormat, measure};
use crate::os::lower_thread_priority;
use crate::{TextError, Tokenizer};

/// What all remembered formats may take together, unless a caller says otherwise.
const CACHE_BYTES: usize = 32 << 20;
/// What one compiled format may take: every answer that runs has a copy.
const COMPILED_BYTES: usize = CACHE_BYTES / 4;
/// Bytes of a compiled grammar for one byte of source, at most and beside the tables that are counted exactly.
const GROWTH: usize = 32;
/// Address space for the recursion of a compilation; only what it touches becomes memory.
const STACK_BYTES: usize = 64 << 20;

/// Makes [`Constraint`]s for the answers of one model. Shared between threads, it builds its tables once.
pub struct GrammarCompiler {
    factory: ParserFactory,
    cache: Mutex<Cache<Compiled>>,
    /// Bytes of all compiled formats that the cache or answers hold.
    held: Arc<AtomicUsize>,
    /// Held while compiling: one compilation at a time bounds the memory and the cores that formats can take.
    turn: Mutex<()>,
    work: Arc<WorkCounters>,
}

impl GrammarCompiler {
    /// Builds the trie of all tokens. `end_tokens` are those that end an answer.
    pub fn new(tokenizer: &Tokenizer, end_tokens: &[u32]) -> Result<GrammarCompiler, TextError> {
        let work = Arc::new(WorkCounters::default());
        let build = || {
            let environment: TokEnv = Arc::new(TokenTrie::new(tokenizer, end_tokens, Arc::clone(&work)));
            let abilities = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
            ParserFactory::new(&environment, abilities, &SlicedBiasComputer::general_slices())
        };
        let built = catch_unwind(AssertUnwindSafe(build));
        let failure = |reason: &str| TextError::Unsupported {
            field: "vocabulary for structured output",
            found: first_line(reason),
            supported: "up to 4 million bytes in all tokens",
        };
        let mut factory =
            built.map_err(|_| failure("one that is too large"))?.map_err(|error| failure(&error.to_string()))?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(GrammarCompiler {
            factory,
            cache: Mutex::new(Cache::new(MAX_CACHED_FORMATS, CACHE_BYTES)),
            held: Arc::default(),
            turn: Mutex::new(()),
            work,
        })
    }

    /// The same, with so many bytes for formats that are remembered.
    pub fn with_cache_bytes(self, bytes: usize) -> GrammarCompiler {
        GrammarCompiler { cache: Mutex::new(Cache::new(MAX_CACHED_FORMATS, bytes)), ..self }
    }

    /// The constraint for a new answer, which has not begun.
    pub fn compile(&self, format: &OutputFormat) -> Result<Constraint, TextError> {
        let source = Source::new(format)?;
        let cached = self.lock().get(&source.key);
        let compiled = match cached {
            Some(compiled) => compiled,
            None => self.build(source, format.name())?,
        };
        Ok(Constraint::new(compiled, Arc::clone(&self.work), format.name()))
    }

    /// How many compiled formats are remembered.
    pub fn cached(&self) -> usize {
        self.lock().len()
    }

    /// Bytes of all compiled formats that are remembered, or that answers wait with.
    pub fn held_bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// How much work the formats and their constraints have been.
    pub fn work(&self) -> FormatWork {
        self.work.read()
    }

    fn build(&self, source: Source, format: &'static str) -> Result<Arc<Compiled>, TextError> {
        let failure = |reason: &str| TextError::OutputFormat { format, reason: describe(reason) };
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let (matcher, tables) = on_deep_stack(|| self.first_mask(source.grammar)).map_err(|reason| failure(&reason))?;
        let bytes = source.key.len() * GROWTH + tables;
        measure::within("the output format, compiled,", bytes, COMPILED_BYTES, "bytes")?;
        let compiled = Arc::new(Compiled::new(matcher, bytes, &self.held));
        self.lock().insert(source.key, Arc::clone(&compiled), bytes);
        Ok(compiled)
    }

    /// A matcher at its first step, with the size of its tables. Computing the first mask shows what the limits on each
    /// step refuse, while there is still someone to tell.
    fn first_mask(&self, grammar: TopLevelGrammar) -> Result<(Matcher, usize), String> {
        let mut parser = self.factory.create_parser(grammar).map_err(|error| format!("{error:#}"))?;
        parser.start_without_prompt();
        if !parser.stopped() {
            parser.compute_mask().map_err(|error| parser.augment_err(error))?;
        }
        let tables = parser.parser.lexer_stats().num_bytes;
        Ok((Matcher::new(Ok(parser)), tables))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Cache<Compiled>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for GrammarCompiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrammarCompiler").field("cached", &self.cached()).finish_non_exhaustive()
    }
}

/// Runs a compilation with room for its recursion, which goes as deep as a list in the source is long.
fn on_deep_stack<T: Send>(compile: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("grammar".into()).stack_size(STACK_BYTES);
        let compile = || {
            // It may take many steps' time, and every step waits for the slowest of its threads.
            lower_thread_priority();
            compile()
        };
        let thread =
            thread.spawn_scoped(scope, compile).map_err(|error| format!("no thread to compile it: {error}"))?;
        thread.join().unwrap_or_else(|_| Err("panic: the compiler gave up".into()))
    })
}

/// What compiling and each step may use up, counted and not timed: the same format is refused on every machine.
fn limits() -> ParserLimits {
    ParserLimits {
        max_items_in_row: 2_000,
        initial_lexer_fuel: 500_000,
        step_lexer_fuel: 200_000,
        step_max_items: 10_000,
        max_lexer_states: 20_000,
        max_grammar_size: 40_000,
        precompute_large_lexemes: false,
        verbose_errors: false,
    }
}

/// The library's message with its picture of the place, but not the dump of its state.
fn describe(reason: &str) -> String {
    let shown = reason.split("<backtrace>").next().unwrap_or_default();
    let shown = shown.split("<non-verbose/>").next().unwrap_or_default().trim();
    match shown.strip_prefix("panic: ") {
        None if shown == "NoExtensionBias" => "no text can ever satisfy it".to_owned(),
        Some(panic) => format!("it cannot be compiled ({})", first_line(panic)),
        None => shown.chars().take(1_000).collect(),
    }
}
