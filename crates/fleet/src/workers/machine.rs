//! What a machine can do, as it measures itself, and what the link to it costs.

use cascadia_kernels::{Ops, Peak, Pool, peak_speed, read_speed};
use serde::{Deserialize, Serialize};

use crate::os;
use crate::wire::link::LinkError;
use crate::wire::message::{Reader, Writer};

/// Bytes that are read to measure: more than caches hold, little enough for a few milliseconds.
const TRIAL_BYTES: usize = 64 << 20;
/// How often; other programs may have disturbed one of them.
const TRIALS: usize = 3;

/// Kernels unpack numbers before they multiply them, and reach about a third of the peak.
const PEAK_PART: u64 = 3;

/// Memory that a machine is thought to have free where the system does not say.
const UNKNOWN_MEMORY: u64 = 4 << 30;

/// What a machine can do with the threads it gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSpeed {
    /// Bytes per second that its threads read from memory.
    pub read_bytes_per_second: u64,
    /// Products of small numbers per second.
    pub products_per_second: u64,
    /// Bytes of memory that are free.
    pub memory_bytes: u64,
    /// The threads it computes with.
    pub threads: u32,
}

/// The link to a machine and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSpeed {
    /// Microseconds until a short message is answered.
    pub round_trip_microseconds: u64,
    /// Bytes per second.
    pub bytes_per_second: u64,
}

impl MachineSpeed {
    /// Measures this machine for a few hundredths of a second. It may take all memory that is free.
    pub fn measure_here(pool: &Pool) -> MachineSpeed {
        MachineSpeed::measure(pool, os::free_memory().unwrap_or(UNKNOWN_MEMORY))
    }

    /// The same for a machine with so much memory.
    pub fn measure(pool: &Pool, memory_bytes: u64) -> MachineSpeed {
        let mut bytes = vec![0u8; TRIAL_BYTES];
        bytes.fill(1);
        let best = |trial: &dyn Fn() -> f64| (0..TRIALS).map(|_| trial()).fold(0.0, f64::max) as u64;
        MachineSpeed {
            read_bytes_per_second: best(&|| read_speed(pool, Ops::best(), &bytes)),
            // A product and its sum are two operations.
            products_per_second: best(&|| peak_speed(pool, Ops::best(), Peak::Int8)) / 2 / PEAK_PART,
            memory_bytes,
            threads: pool.threads() as u32,
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let MachineSpeed { read_bytes_per_second, products_per_second, memory_bytes, threads } = self;
        let numbers = [read_bytes_per_second, products_per_second, memory_bytes].map(|number| number.to_le_bytes());
        Writer::default().bytes(numbers.as_flattened()).number(*threads).0
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<MachineSpeed, LinkError> {
        let mut reader = Reader(bytes);
        let speed = MachineSpeed {
            read_bytes_per_second: u64::from_le_bytes(reader.array()?),
            products_per_second: u64::from_le_bytes(reader.array()?),
            memory_bytes: u64::from_le_bytes(reader.array()?),
            threads: reader.number()?,
        };
        reader.end()?;
        Ok(speed)
    }
}
