//! Stop strings, found across the boundaries of streamed pieces of text.

use crate::TextError;

/// Most stop strings one request may carry.
pub const MAX_STOP_STRINGS: usize = 64;
/// Longest stop string, in bytes.
pub const MAX_STOP_STRING_BYTES: usize = 1024;

/// Watches a stream of text for stop strings.
///
/// The stream ends at the first stop string to be completed (the longest one if several end there). No part of it is
/// ever emitted; text is held back only while it could still grow into a stop string.
#[derive(Debug, Clone)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
    stopped: bool,
}

/// What [`StopStrings::push`] lets through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StopOutput {
    /// Text which certainly belongs to no stop string.
    pub text: String,
    /// The stop string that ended the stream, by its position in the list.
    pub hit: Option<usize>,
}

impl StopStrings {
    /// Accepts up to [`MAX_STOP_STRINGS`] strings of 1 to [`MAX_STOP_STRING_BYTES`] bytes.
    pub fn new(stops: &[String]) -> Result<StopStrings, TextError> {
        if stops.len() > MAX_STOP_STRINGS {
            return Err(TextError::TooLarge {
                what: "the list of stop strings",
                size: stops.len(),
                limit: MAX_STOP_STRINGS,
                unit: "entries",
            });
        }
        for (index, stop) in stops.iter().enumerate() {
            if stop.is_empty() {
                return Err(TextError::StopString { index, reason: "it is empty; leave it out" });
            }
            if stop.len() > MAX_STOP_STRING_BYTES {
                return Err(TextError::StopString { index, reason: "it is longer than 1024 bytes; shorten it" });
            }
        }
        Ok(StopStrings { stops: stops.to_vec(), held: String::new(), stopped: false })
    }

    /// Takes the next piece of the stream. After a hit, everything is swallowed.
    pub fn push(&mut self, text: &str) -> StopOutput {
        if self.stopped {
            return StopOutput::default();
        }
        self.held.push_str(text);
        if let Some((index, start)) = self.first_completed() {
            self.stopped = true;
            self.held.truncate(start);
            return StopOutput { text: std::mem::take(&mut self.held), hit: Some(index) };
        }
        let keep_from = self.held.len() - self.longest_open_prefix();
        let kept = self.held.split_off(keep_from);
        StopOutput { text: std::mem::replace(&mut self.held, kept), hit: None }
    }

    /// The end of the stream: whatever was held back did not become a stop string.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Index and start of the stop string that ends earliest; of those, the one that starts earliest.
    fn first_completed(&self) -> Option<(usize, usize)> {
        let found = self.stops.iter().enumerate().filter_map(|(index, stop)| {
            let start = self.held.find(stop.as_str())?;
            Some((start + stop.len(), start, index))
        });
        found.min().map(|(_, start, index)| (index, start))
    }

    /// Length of the longest suffix of the held text which is a proper prefix of a stop string.
    fn longest_open_prefix(&self) -> usize {
        self.stops.iter().map(|stop| open_prefix(&self.held, stop)).max().unwrap_or(0)
    }
}

fn open_prefix(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len() - 1);
    (1..=longest)
        .rev()
        .find(|&length| stop.is_char_boundary(length) && text.as_bytes().ends_with(&stop.as_bytes()[..length]))
        .unwrap_or(0)
}
