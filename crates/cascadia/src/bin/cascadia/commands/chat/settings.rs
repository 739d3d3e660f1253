//! The settings of answers that can be changed while a chat goes on.

use std::fmt::Write;

use cascadia_engine::Sampling;

use crate::commands::run::Runner;

/// A setting: its name, how it is shown, and how it is changed; changing fails where the value is no number.
type Setting = (&'static str, fn(&Runner) -> String, fn(&mut Runner, &str) -> Option<()>);

pub(super) const SETTINGS: &[Setting] = &[
    ("temperature", |r| r.sampling().temperature.to_string(), |r, value| change(r, value, |s| &mut s.temperature)),
    ("top_k", |r| r.sampling().top_k.to_string(), |r, value| change(r, value, |s| &mut s.top_k)),
    ("top_p", |r| r.sampling().top_p.to_string(), |r, value| change(r, value, |s| &mut s.top_p)),
    ("min_p", |r| r.sampling().min_p.to_string(), |r, value| change(r, value, |s| &mut s.min_p)),
    (
        "repetition_penalty",
        |r| r.sampling().repetition_penalty.to_string(),
        |r, value| change(r, value, |s| &mut s.repetition_penalty),
    ),
    (
        "presence_penalty",
        |r| r.sampling().presence_penalty.to_string(),
        |r, value| change(r, value, |s| &mut s.presence_penalty),
    ),
    (
        "frequency_penalty",
        |r| r.sampling().frequency_penalty.to_string(),
        |r, value| change(r, value, |s| &mut s.frequency_penalty),
    ),
    ("seed", |r| r.sampling().seed.to_string(), |r, value| change(r, value, |s| &mut s.seed)),
    (
        "max_tokens",
        |r| r.max_tokens().to_string(),
        |r, value| {
            r.set_max_tokens(value.parse().ok()?);
            Some(())
        },
    ),
];

fn change<T: std::str::FromStr>(runner: &mut Runner, value: &str, field: fn(&mut Sampling) -> &mut T) -> Option<()> {
    *field(runner.sampling_mut()) = value.parse().ok()?;
    Some(())
}

/// All settings, a line each.
pub(super) fn all(runner: &Runner) -> String {
    let mut text = String::new();
    for (name, show, _) in SETTINGS {
        let _ = writeln!(text, "{name:<20} {}", show(runner));
    }
    text.trim_end().to_owned()
}

/// Changes a setting; says what is wrong where that is not possible, and changes nothing.
pub(super) fn set(runner: &mut Runner, name: &str, value: &str) -> Result<(), String> {
    let Some((_, _, change)) = SETTINGS.iter().find(|(known, ..)| *known == name) else {
        let names: Vec<&str> = SETTINGS.iter().map(|(name, ..)| *name).collect();
        return Err(format!("There is no setting {name}; there are {}.", names.join(", ")));
    };
    let before = runner.sampling().clone();
    change(runner, value).ok_or_else(|| format!("{name} is a number; `{value}` is none."))?;
    runner.sampling().check().map_err(|error| {
        let problem = format!("{error}.");
        *runner.sampling_mut() = before;
        problem
    })
}
