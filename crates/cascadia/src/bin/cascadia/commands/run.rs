//! `cascadia run`.

use std::io::{self, IsTerminal, Read};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use cascadia_engine::service::Generation;
use cascadia_engine::{
    Engine, EngineError, FinishReason, Flow, Message, ModelText, Outcome, Request, Sampling, Session,
    SuggestedSampling, generate,
};
use serde_json::json;

use super::chat::Chat;
use crate::flags::{RunFlags, SamplingFlags};
use crate::machine::open_options;
use crate::output::{print, print_json, remark};
use crate::source::{find_or_stand_in, in_format};

/// Answers one prompt, or chats.
pub(crate) fn run(flags: &RunFlags) -> anyhow::Result<()> {
    let prompt = prompt(flags)?;
    let runner = Runner::open(flags)?;
    match prompt {
        Some(prompt) => answer_once(runner, flags, &prompt),
        None => Chat::new(runner, flags)?.talk(),
    }
}

/// A model with the settings of this run.
pub(crate) struct Runner {
    name: String,
    note: Option<&'static str>,
    session: Session,
    text: ModelText,
    sampling: Sampling,
    max_tokens: u32,
    draft_tokens: u32,
    stop: Vec<String>,
}

impl Runner {
    /// Opens the model that the flags name.
    pub(crate) fn open(flags: &RunFlags) -> anyhow::Result<Runner> {
        // Before the model is opened, which may take long.
        sampling(&flags.sampling, &SuggestedSampling::default()).check()?;
        let source = find_or_stand_in(flags.model.as_deref(), flags.network.network())?;
        let (name, note) = (source.name(), source.note());
        if let Some(note) = note.filter(|_| !flags.json) {
            remark(note);
        }
        let source = in_format(source, flags.kind.as_deref(), flags.machine.compute.threads.threads())?;
        let options = flags.adapter.apply(open_options(&flags.machine)?);
        let engine = Engine::from_files(source.files()?, &options)?;
        let text = engine.text()?;
        if engine.spec().head.is_none() {
            return Err(text.makes_no_text().into());
        }
        Ok(Runner {
            name,
            note,
            session: engine.into_session(),
            sampling: sampling(&flags.sampling, text.suggested()),
            text,
            max_tokens: flags.max_tokens,
            draft_tokens: flags.draft_tokens,
            stop: flags.stop.clone(),
        })
    }

    /// What the model is called.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How tokens are chosen.
    pub(crate) fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    pub(crate) fn sampling_mut(&mut self) -> &mut Sampling {
        &mut self.sampling
    }

    /// The most tokens of an answer.
    pub(crate) fn max_tokens(&self) -> u32 {
        self.max_tokens
    }

    pub(crate) fn set_max_tokens(&mut self, tokens: u32) {
        self.max_tokens = tokens;
    }

    /// The text side of the model.
    pub(crate) fn text(&self) -> &ModelText {
        &self.text
    }

    /// The most tokens of prompt and answer together.
    pub(crate) fn context(&self) -> u32 {
        self.session.context()
    }

    /// Whether an answer ended because prompt and answer fill the context.
    pub(crate) fn is_full(&self, outcome: &Outcome) -> bool {
        let tokens = outcome.stats.prompt_tokens + outcome.tokens.len();
        outcome.finish == FinishReason::Length && tokens > self.context() as usize
    }

    /// Generates an answer; each piece of text goes to `show`, which says whether to go on.
    pub(crate) fn answer(
        &mut self,
        prompt: Vec<u32>,
        mut show: impl FnMut(&str) -> io::Result<Flow>,
    ) -> anyhow::Result<Outcome> {
        let request = Request {
            prompt,
            generation: Generation {
                stop: self.stop.clone(),
                stop_tokens: self.text.special().stop.clone(),
                ..Generation::new(self.sampling.clone(), self.max_tokens)
            },
            draft_tokens: self.draft_tokens,
        };
        let mut shown = Ok(());
        let outcome =
            generate(self.text.tokenizer(), &mut self.session, &request, &mut |event| match show(event.text()) {
                Ok(flow) => flow,
                Err(error) => {
                    shown = Err(error);
                    Flow::Stop
                }
            })?;
        shown?;
        Ok(outcome)
    }
}

/// Prompt and decode speed in one line.
pub(crate) fn speed_line(outcome: &Outcome) -> String {
    let stats = &outcome.stats;
    let reused = match stats.reused_tokens {
        0 => String::new(),
        count => format!(" ({count} of them cached)"),
    };
    format!(
        "[prompt {} tokens{reused}, {:.1} tok/s; answer {} tokens, {:.1} tok/s]",
        stats.prompt_tokens,
        stats.prefill_rate(),
        outcome.tokens.len(),
        stats.decode_rate()
    )
}

fn answer_once(mut runner: Runner, flags: &RunFlags, prompt: &str) -> anyhow::Result<()> {
    let templated = !flags.raw && runner.text.template().is_some();
    if flags.system.is_some() && !templated {
        bail!("--system needs a chat template, and this model has none; put the text into the prompt instead");
    }
    let tokens = if templated {
        let mut messages = Vec::new();
        messages.extend(flags.system.clone().map(|content| Message { role: "system", content }));
        messages.push(Message { role: "user", content: prompt.to_owned() });
        runner.text.chat_prompt(&messages)?
    } else {
        runner.text.plain_prompt(prompt)?
    };
    let mut text = String::new();
    let outcome = runner.answer(tokens, |piece| {
        if flags.json {
            text.push_str(piece)
        } else {
            print(piece)?
        }
        Ok(Flow::Continue)
    })?;
    if flags.json {
        let object = json!({
            "model": runner.name,
            "note": runner.note,
            "text": text,
            "tokens": outcome.tokens.len(),
            "finish_reason": outcome.finish.name(),
            "prompt_tokens": outcome.stats.prompt_tokens,
            "prefill_tok_s": outcome.stats.prefill_rate(),
            "decode_tok_s": outcome.stats.decode_rate(),
            "seed": runner.sampling.seed,
        });
        return Ok(print_json(&object)?);
    }
    print("\n")?;
    if runner.is_full(&outcome) {
        remark(&format!("The context of {} tokens is full; --ctx gives it more room.", runner.context()));
    }
    remark(&format!("{} seed {}", speed_line(&outcome), runner.sampling.seed));
    Ok(())
}

/// The prompt, from the command line or from a standard input that is not a terminal; `None` asks for a chat.
fn prompt(flags: &RunFlags) -> anyhow::Result<Option<String>> {
    let given = flags.prompt.clone().or_else(|| (!flags.words.is_empty()).then(|| flags.words.join(" ")));
    let prompt = match given {
        Some(text) => text,
        None if io::stdin().is_terminal() => {
            if flags.json || flags.raw {
                let allowed = "given after MODEL, with -p or on standard input when --json or --raw is used";
                bail!(EngineError::Setting { name: "prompt", value: "missing".into(), allowed });
            }
            return Ok(None);
        }
        None => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).context("cannot read the prompt from standard input as UTF-8")?;
            text.trim_end_matches(['\r', '\n']).to_owned()
        }
    };
    if prompt.is_empty() {
        let allowed = "some text, given after MODEL, with -p or on standard input";
        bail!(EngineError::Setting { name: "prompt", value: "empty".into(), allowed });
    }
    Ok(Some(prompt))
}

/// The settings that the flags give, then those that the model's authors suggest, then the usual ones.
fn sampling(flags: &SamplingFlags, suggested: &SuggestedSampling) -> Sampling {
    let usual = Sampling { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, ..Sampling::default() };
    let given = SuggestedSampling {
        temperature: flags.temperature,
        top_k: flags.top_k,
        top_p: flags.top_p,
        min_p: flags.min_p,
        repetition_penalty: flags.repeat_penalty,
    };
    Sampling {
        presence_penalty: flags.presence_penalty,
        frequency_penalty: flags.frequency_penalty,
        seed: flags.seed.unwrap_or_else(seed_from_clock),
        ..given.over(suggested.over(usual))
    }
}

/// A seed that differs from run to run and is short enough to type again.
fn seed_from_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_nanos()) ^ (now.as_secs() & 0xffff_ffff)
}
