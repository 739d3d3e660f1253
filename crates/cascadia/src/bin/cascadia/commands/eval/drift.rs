//! `cascadia eval drift`.

use cascadia_eval::{Drift, DriftPlan, full_precision};

use super::measured_model::{Heading, MeasuredModel};
use crate::flags::DriftFlags;
use crate::progress::Progress;
use crate::scored_text::TextReader;

/// Compares every format with the full-precision cache.
pub(super) fn drift(flags: &DriftFlags) -> anyhow::Result<()> {
    let model = MeasuredModel::find(&flags.model, &flags.report)?;
    let reader = TextReader::new(&model.files()?)?;
    let text = flags.text.as_deref().map(|path| reader.tokens(path)).transpose()?;
    let contexts = flags.contexts.iter().map(|&context| context as usize).collect();
    let (windows, timed) = (flags.windows as usize, flags.speed as usize);
    let plan = DriftPlan { contexts, windows, timed, bos: reader.bos, seed: flags.seed };
    let plan = plan.within(model.spec.context as usize);
    let context = plan.context();
    let bar = Progress::new("f32");
    let progress = |done: usize, total: usize| bar.set(done as u64, total as u64);
    let mut session = model.session(&model.options(full_precision(), context)?)?;
    let mut drift = Drift::new(plan, &mut session, text.as_deref(), progress)?;
    drop(session);
    for policy in &flags.kv {
        bar.label(policy.name());
        let kv = policy.policy()?;
        let mut session = model.session(&model.options(kv.clone(), context)?)?;
        drift.add((policy.name(), &kv), &mut session, progress)?;
    }
    drop(bar);
    let mut notes = vec![
        "Every cache beside one in f32, on the same tokens.".to_owned(),
        "Long copy: random tokens and their repetition fill the context. Retrieval: random keys with values fill it, and \
         the first ones are asked for at its end."
            .to_owned(),
    ];
    if let Some(path) = &flags.text {
        notes.push(format!("Text: {}, at most {} windows of {context} tokens.", path.display(), flags.windows));
    }
    let heading = Heading { measurement: "drift", title: "Drift of the KV cache", notes };
    flags.report.deliver(&model.report(heading, drift.into_metrics()))
}
