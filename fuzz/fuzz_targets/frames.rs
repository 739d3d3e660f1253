//! Sends frames over a link that delivers them in pieces and damages some, to a receiver with limits of its own.
#![no_main]

use std::time::{Duration, Instant};

use cascadia_fleet::Clock;
use cascadia_fleet::frame::{Bounds, Frame, KINDS, Outgoing, Wait, receive};
use cascadia_fleet::link::{Link, LinkError};
use cascadia_fleet::verbs::VERBS;
use cascadia_fuzz::bounded;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = bounded(|| exchange(&mut Unstructured::new(data)));
});

/// Bytes on their way, handed out in pieces of at most so many.
struct Wire {
    bytes: Vec<u8>,
    read: usize,
    piece: usize,
}

impl Link for Wire {
    fn clock(&self) -> &Clock {
        Clock::system()
    }

    fn write(&mut self, bytes: &[u8]) -> std::result::Result<(), LinkError> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, out: &mut [u8], _deadline: Instant) -> std::result::Result<usize, LinkError> {
        let rest = &self.bytes[self.read..];
        let count = out.len().min(self.piece).min(rest.len());
        out[..count].copy_from_slice(&rest[..count]);
        self.read += count;
        if count == 0 { Err(LinkError::Closed) } else { Ok(count) }
    }
}

fn exchange(input: &mut Unstructured<'_>) -> Result<()> {
    let mut wire = Wire { bytes: Vec::new(), read: 0, piece: input.int_in_range(1..=64)? };
    let mut frame = Frame::default();
    while !input.is_empty() {
        let (table, rows) = (input.arbitrary::<&[u8]>()?, u16::from(input.arbitrary::<u8>()? % 8));
        let row_bytes = usize::from(input.arbitrary::<u8>()?);
        let row = vec![input.arbitrary::<u8>()?; usize::from(rows) * row_bytes];
        let (kind, epoch, step) = (*input.choose(&KINDS)?, input.arbitrary()?, input.arbitrary()?);
        let sent = Outgoing { kind, epoch, step, table, rows, row_bytes: &row };
        let begin = wire.bytes.len();
        sent.send(&mut wire, &mut Vec::new()).expect("it is short enough");
        let whole = wire.bytes[begin..].to_vec();
        for _ in 0..input.int_in_range(0..=3)? {
            let at = input.choose_index(whole.len())?;
            wire.bytes[begin + at] = input.arbitrary()?;
        }
        let is_whole = wire.bytes[begin..] == whole;
        let (hearing, _, kinds) = *input.choose(&VERBS)?;
        let bounds = Bounds {
            hearing,
            rows: input.int_in_range(0..=8)?,
            row_bytes: if input.ratio(9, 10)? { row_bytes } else { input.int_in_range(0..=1 << 20)? },
            table: input.int_in_range(0..=512)?,
        };
        let fits =
            u32::from(rows) <= bounds.rows && table.len() <= bounds.table as usize && row_bytes == bounds.row_bytes;
        let received = receive(&mut wire, &bounds, &mut frame, Wait::For(Duration::from_secs(1))).is_ok();
        // Nothing that was damaged or may not come is taken, and all that may come is.
        if rows == 0 || row_bytes == bounds.row_bytes {
            let may_come = kinds.contains(&kind) && (fits || rows == 0 && table.len() <= bounds.table as usize);
            assert_eq!(received, is_whole && may_come, "{sent:?} {bounds:?}");
        }
        if !received {
            return Ok(());
        }
        let header = frame.header;
        assert_eq!((header.kind, header.rows, header.epoch, header.step), (kind, rows, epoch, step));
        assert!(frame.table() == table && frame.rows() == row);
    }
    Ok(())
}
