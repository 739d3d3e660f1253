//! Server-sent events, as they arrive.

/// The longest line; an event of a language model is far shorter.
const MAX_LINE: usize = 4 << 20;

/// What came with one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// Its number, where the server gives them.
    pub(super) id: Option<u64>,
    /// Its data.
    pub(super) data: String,
}

/// Puts events together from pieces of a body.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    line: Vec<u8>,
    event: Event,
}

impl EventReader {
    /// Takes bytes in and hands out the events that are complete.
    pub(super) fn feed(&mut self, bytes: &[u8], mut receive: impl FnMut(Event)) -> Result<(), String> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.len() > MAX_LINE {
                return Err("an event of the stream is too long".to_owned());
            }
            if piece.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&self.line).into_owned();
                self.line.clear();
                self.read_line(line.trim_end_matches(['\n', '\r']), &mut receive);
            }
        }
        Ok(())
    }

    fn read_line(&mut self, line: &str, receive: &mut impl FnMut(Event)) {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if !event.data.is_empty() {
                receive(event);
            }
            return;
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.event.id = value.parse().ok(),
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_in_any_pieces() {
        let text = "id: 0\ndata: {\"a\": 1}\n\n: still working\n\ndata:one\ndata: two\r\n\r\nid: 7\n\ndata: [DONE]\n\ndata: cut";
        let expected = [(Some(0), "{\"a\": 1}"), (None, "one\ntwo"), (None, "[DONE]")];
        for size in [1, 2, 5, text.len()] {
            let (mut events, mut received) = (EventReader::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                events.feed(piece, |event| received.push(event)).unwrap();
            }
            let received: Vec<_> = received.iter().map(|event| (event.id, event.data.as_str())).collect();
            assert_eq!(received, expected, "by {size}");
        }
        assert!(EventReader::default().feed(&vec![b'a'; MAX_LINE + 1], |_| {}).is_err());
    }
}
