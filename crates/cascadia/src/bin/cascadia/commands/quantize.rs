//! `cascadia quantize`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use cascadia::ModelSource;
use cascadia_engine::{Engine, OpenOptions, Session, Source};
use cascadia_eval::{Reference, perplexity};
use cascadia_kernels::Pool;
use cascadia_model::ActivationStats;
use cascadia_quantize::{
    Depth, Importance, Keep, Measured, MixSearch, PackJob, QuantizeError, QuantizeJob, QuantizeSummary, Recipe, pack,
    quantize as convert,
};
use cascadia_weights::{ModelFiles, ScratchFile};
use serde_json::json;

use crate::flags::QuantizeFlags;
use crate::output::{print, print_json};
use crate::overwrite::check_is_not_input;
use crate::progress::Progress;
use crate::scored_text::{ScoredText, WindowLimits};
use crate::source::find;

/// Writes a model as GGUF in another format.
pub(crate) fn quantize(flags: &QuantizeFlags) -> anyhow::Result<()> {
    let command = Command { flags, pool: flags.threads.pool(), source: find(&flags.model)? };
    let keep = flags.keep.iter().map(|text| Ok(text.parse::<Keep>()?)).collect::<anyhow::Result<Vec<Keep>>>()?;
    let named = flags.kind.as_deref().map(str::parse::<Recipe>).transpose()?;
    let target = flags.target_loss.as_deref().map(percent).transpose()?;
    let files = command.source.files()?;
    check_is_not_input(&flags.out, &files)?;
    flags.output.check(flags.out.exists().then_some(&flags.out))?;
    let importance = command.importance()?;
    let (recipe, found) = match (named, target) {
        (Some(recipe), _) => (Some(recipe.keeping(keep)), None),
        (None, Some(target)) => {
            let (recipe, found) = command.search(&files, importance.as_ref(), target)?;
            (Some(recipe), Some(found))
        }
        (None, None) => (None, None),
    };
    let name = match (&found, &recipe) {
        (Some(_), _) => Some("searched".to_owned()),
        (None, recipe) => recipe.as_ref().map(Recipe::to_string),
    };
    let importance = importance.as_ref();
    let rows = |out: &Path, recipe| write_rows(&files, importance, (out, recipe), &command.pool);
    let summary = match recipe {
        Some(recipe) if flags.packed => {
            // Packing re-arranges a finished file, so the quantised rows are written beside it first.
            let unpacked = ScratchFile::beside(&flags.out)?;
            let bytes_before = rows(unpacked.path(), recipe)?.bytes_before;
            let summary = write_packed(&ModelFiles::open(unpacked.path())?, &flags.out, &command.pool)?;
            QuantizeSummary { bytes_before, ..summary }
        }
        Some(recipe) => rows(&flags.out, recipe)?,
        None => write_packed(&files, &flags.out, &command.pool)?,
    };
    Ok(report(flags, name.as_deref(), &summary, found.as_ref())?)
}

fn write_rows(
    files: &ModelFiles,
    importance: Option<&Importance>,
    (out, recipe): (&Path, Recipe),
    pool: &Pool,
) -> anyhow::Result<QuantizeSummary> {
    let bar = Progress::new("quantising");
    Ok(convert(&QuantizeJob { files, out, recipe, importance, pool }, |step| bar.show(step))?)
}

fn write_packed(files: &ModelFiles, out: &Path, pool: &Pool) -> anyhow::Result<QuantizeSummary> {
    let bar = Progress::new("packing");
    Ok(pack(&PackJob { files, out, pool }, |step| bar.show(step))?)
}

/// What every part of the command needs.
struct Command<'a> {
    flags: &'a QuantizeFlags,
    pool: Arc<Pool>,
    source: ModelSource,
}

/// What a search found, to be reported.
struct Found {
    measured: Measured,
    perplexity_growth: f64,
    top1_loss: f64,
    formats: String,
}

/// Windows that show how much a group of matrices matters.
const PROBE_WINDOWS: usize = 2;

impl Command<'_> {
    /// The importances that the flags ask for.
    fn importance(&self) -> anyhow::Result<Option<Importance>> {
        if let Some(path) = &self.flags.imatrix {
            return Ok(Some(Importance::read(path)?));
        }
        let Some(path) = &self.flags.calibrate else { return Ok(None) };
        let stats = ActivationStats::default();
        let (mut session, text) = self.open(path, Some(stats.clone()))?;
        let bar = Progress::new("calibrating");
        perplexity(&mut session, &text.tokens, text.cut, |done, total| bar.set(done as u64, total as u64))
            .with_context(|| format!("cannot calibrate on {}", path.display()))?;
        Ok(Some(Importance::measured(&stats, path)?))
    }

    /// The source model and a text for it.
    fn open(&self, text: &Path, stats: Option<ActivationStats>) -> anyhow::Result<(Session, ScoredText)> {
        let limits = WindowLimits { windows: self.flags.windows, window: self.flags.window };
        let files = self.source.files()?;
        let text = ScoredText::read(text, &files, limits)?;
        Ok((Engine::from_files(files, &self.options(stats))?.into_session(), text))
    }

    fn options(&self, stats: Option<ActivationStats>) -> OpenOptions {
        let context = Some(self.flags.window);
        OpenOptions { context, stats, ..OpenOptions::new(Arc::clone(&self.pool)) }
    }

    /// Searches the smallest mix within a target. The loss is the largest of three: how much perplexity grows, how much
    /// top-1 accuracy falls, and the divergence, which hardly depends on the luck of a short text.
    fn search(
        &self,
        files: &ModelFiles,
        importance: Option<&Importance>,
        target: f64,
    ) -> anyhow::Result<(Recipe, Found)> {
        let Some(path) = self.flags.on.as_ref().or(self.flags.calibrate.as_ref()) else {
            return Err(QuantizeError::Setting {
                name: "the text for --target-loss",
                value: "missing".into(),
                allowed: "given with --calibrate or --on",
            }
            .into());
        };
        let (mut session, text) = self.open(path, None)?;
        let bar = Progress::new("source model");
        let reference = Reference::record(&mut session, &text.tokens, text.cut, |done, total| {
            bar.set(done as u64, total as u64);
        })
        .with_context(|| format!("cannot measure on {}", path.display()))?;
        drop(session);
        let search = MixSearch { files, out: &self.flags.out, importance, target, pool: &self.pool };
        let mut last = (0.0, 0.0);
        let mut best = last;
        let measure = |candidate: &Path, depth: Depth| {
            let mut session = Engine::open(Source::Path(candidate), &self.options(None))?.into_session();
            let windows = if depth == Depth::Probe { PROBE_WINDOWS } else { text.cut.windows };
            let result = reference.compare(&mut session, windows, |_, _| {})?;
            last = (result.perplexity_growth(), result.top1_loss());
            let loss = last.0.max(last.1).max(result.divergence);
            if depth == Depth::Full && loss <= target {
                best = last;
            }
            Ok::<_, anyhow::Error>(Measured { divergence: result.divergence, loss })
        };
        bar.label("searching");
        let found = search.run(measure, |progress| bar.set(progress.done as u64, progress.total as u64))?;
        let formats = found.formats.iter().map(|(dtype, count)| format!("{count} {dtype}"));
        let formats = formats.collect::<Vec<_>>().join(", ");
        let (perplexity_growth, top1_loss) = best;
        Ok((found.recipe, Found { measured: found.measured, perplexity_growth, top1_loss, formats }))
    }
}

/// A share from a number of percent, with or without the sign.
fn percent(text: &str) -> Result<f64, QuantizeError> {
    let number = text.trim().trim_end_matches('%').trim().parse::<f64>().ok();
    let share = number.map(|number| number / 100.0).filter(|share| *share > 0.0 && *share < 1.0);
    share.ok_or_else(|| QuantizeError::Setting {
        name: "--target-loss",
        value: text.to_owned(),
        allowed: "a percentage above 0 and below 100, for example 0.3%",
    })
}

fn report(
    flags: &QuantizeFlags,
    name: Option<&str>,
    summary: &QuantizeSummary,
    found: Option<&Found>,
) -> io::Result<()> {
    if flags.json {
        let mut object = json!({
            "out": flags.out,
            "type": name,
            "packed": flags.packed,
            "tensors": summary.tensors,
            "parameters": summary.parameters,
            "bytes_before": summary.bytes_before,
            "bytes_after": summary.bytes_after,
        });
        if let Some(found) = found {
            object["perplexity_growth"] = json!(found.perplexity_growth);
            object["top1_loss"] = json!(found.top1_loss);
            object["divergence"] = json!(found.measured.divergence);
            object["formats"] = json!(found.formats);
        }
        return print_json(&object);
    }
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    print(&format!(
        "{}: {} tensors, {:.1} MB → {:.1} MB, {:.2} bits per weight\n",
        flags.out.display(),
        summary.tensors,
        megabytes(summary.bytes_before),
        megabytes(summary.bytes_after),
        summary.bytes_after as f64 * 8.0 / summary.parameters.max(1) as f64
    ))?;
    let Some(found) = found else { return Ok(()) };
    print(&format!(
        "{}: perplexity {:+.3} %, top-1 {:+.3} %, divergence {:.6} nats\n",
        found.formats,
        100.0 * found.perplexity_growth,
        -100.0 * found.top1_loss,
        found.measured.divergence
    ))
}
