//! The model of a measurement: found, described and ready to be opened with several caches.

use std::time::SystemTime;

use cascadia::ModelSource;
use cascadia_engine::{Engine, OpenOptions, Session};
use cascadia_eval::report::{Metric, Report, Run};
use cascadia_model::{KvPolicy, ModelSpec};
use cascadia_weights::ModelFiles;

use crate::flags::{MeasuredModelFlags, ReportFlags};
use crate::overwrite::check_is_not_input;
use crate::source::find_or_embedded;

/// A model that is measured.
pub(super) struct MeasuredModel {
    source: ModelSource,
    /// What it is.
    pub(super) spec: ModelSpec,
    options: OpenOptions,
    run: Run,
}

/// What a report says before its numbers.
pub(super) struct Heading<'a> {
    /// The name of the command.
    pub(super) measurement: &'a str,
    /// What people call it.
    pub(super) title: &'a str,
    /// How the numbers came about.
    pub(super) notes: Vec<String>,
}

impl MeasuredModel {
    /// Finds the model; an error if one of the files of its report cannot be written.
    pub(super) fn find(flags: &MeasuredModelFlags, report: &ReportFlags) -> anyhow::Result<MeasuredModel> {
        report.check()?;
        let source = find_or_embedded(flags.model.as_deref())?;
        let files = source.files()?;
        report.files().try_for_each(|path| check_is_not_input(path, &files))?;
        let spec = ModelSpec::from_files(&files)?;
        let options = OpenOptions { activations: flags.activations.into(), ..flags.compute.open_options() };
        let run = Run::new(SystemTime::now(), command(), source.name(), options.pool.threads());
        Ok(MeasuredModel { source, spec, options, run })
    }

    /// Opens its files.
    pub(super) fn files(&self) -> anyhow::Result<ModelFiles> {
        Ok(self.source.files()?)
    }

    /// How to open it for sequences of so many tokens with this cache.
    pub(super) fn options(&self, kv: KvPolicy, context: usize) -> anyhow::Result<OpenOptions> {
        Ok(OpenOptions { kv, context: Some(u32::try_from(context)?), ..self.options.clone() })
    }

    /// An empty sequence.
    pub(super) fn session(&self, options: &OpenOptions) -> anyhow::Result<Session> {
        Ok(Engine::from_files(self.files()?, options)?.into_session())
    }

    /// The report of what was measured.
    pub(super) fn report(self, heading: Heading<'_>, metrics: Vec<Metric>) -> Report {
        let Heading { measurement, title, notes } = heading;
        Report { measurement: measurement.to_owned(), title: title.to_owned(), run: self.run, notes, metrics }
    }
}

/// The command of this process, as it would be typed.
fn command() -> String {
    let arguments = std::env::args_os().skip(1).map(|argument| quoted(&argument.to_string_lossy()));
    std::iter::once("cascadia".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// An argument that a shell reads as it is.
fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./,:=%+@".contains(c);
    match !argument.is_empty() && argument.chars().all(is_plain) {
        true => argument.to_owned(),
        false => format!("'{}'", argument.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_where_a_shell_needs_it() {
        for (argument, expected) in [("a-b_1.gguf", "a-b_1.gguf"), ("", "''"), ("a b", "'a b'"), ("it's", "'it'\\''s'")]
        {
            assert_eq!(quoted(argument), expected);
        }
    }
}
