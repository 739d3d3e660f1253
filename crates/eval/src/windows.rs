//! Cuts a text into windows and feeds them to a session.

use cascadia_engine::{EngineError, Session};

use crate::EvalError;

/// How a text is cut and how much of it is scored.
#[derive(Clone, Copy, Debug)]
pub struct TextWindows {
    /// The most windows to score.
    pub windows: usize,
    /// Tokens of one window, all of them scored.
    pub window: usize,
    /// The token put before each window; it is not scored.
    pub bos: u32,
}

/// One window: what is fed, and the token that should follow each.
pub(crate) struct Window<'a> {
    pub(crate) input: Vec<u32>,
    pub(crate) targets: &'a [u32],
}

impl TextWindows {
    /// The windows of a text; only whole ones count.
    pub(crate) fn cut(self, tokens: &[u32]) -> Result<Vec<Window<'_>>, EvalError> {
        for (name, value) in [("window", self.window), ("windows", self.windows)] {
            if value == 0 {
                return Err(EvalError::Option { name, value, allowed: "at least 1" });
            }
        }
        let window =
            |targets| Window { input: std::iter::once(self.bos).chain(before_last(targets)).collect(), targets };
        let windows: Vec<_> = tokens.chunks_exact(self.window).take(self.windows).map(window).collect();
        if windows.is_empty() {
            return Err(EvalError::TextTooShort { tokens: tokens.len(), window: self.window });
        }
        Ok(windows)
    }
}

fn before_last(targets: &[u32]) -> impl Iterator<Item = u32> + '_ {
    targets.iter().copied().take(targets.len() - 1)
}

impl Window<'_> {
    /// Feeds the window to an emptied session; `each` hears the logits and the token that should follow.
    pub(crate) fn feed(
        &self,
        session: &mut Session,
        mut each: impl FnMut(&[f32], u32) -> Result<(), EngineError>,
    ) -> Result<(), EvalError> {
        session.truncate(0);
        session.check(self.targets)?;
        Ok(session.feed_each(&self.input, |position, logits| each(logits, self.targets[position as usize]))?)
    }
}
