//! Flags of `plan`.

use std::str::FromStr;

use cascadia_fleet::{LinkSpeed, MachineSpeed};
use clap::Args;

use super::{HomeFlags, KvChoice, ThreadFlags, parse_bytes};

/// Flags of `plan`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia plan org/name --fleet all\n  \
    cascadia plan model.gguf --nodes 16G@20G,2*8G@15G/1 --users 4\n\n\
    A worker measures its machine when it starts. The coordinator stores the numbers each time a worker connects.")]
pub struct PlanFlags {
    /// A short name (qwen3:4b), org/name on the Hugging Face Hub, a .gguf file or a model folder. No weights are downloaded.
    pub model: String,
    /// Machines to plan for: `all` measured ones, or a comma-separated list. `here` is this machine.
    #[arg(long, value_name = "all|NODES", default_value = "all", conflicts_with = "nodes")]
    pub fleet: String,
    /// Plan for hypothetical machines besides this one, as MEMORY@BANDWIDTH. 16G@20G has 16 GB of free memory that it
    /// reads at 20 GB/s; 2*8G@15G/1 means two machines with a round trip of 1 ms [default: 0.5 ms].
    #[arg(long, value_name = "SPEC", value_delimiter = ',')]
    pub nodes: Vec<Imagined>,
    /// Number of concurrent users.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub users: u32,
    /// Context length per user, in tokens [default: the model's limit, at most 4096].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ctx: Option<u32>,
    /// Weight format of the shards, as for `export`.
    #[arg(long, value_name = "TYPE", default_value = "int4")]
    pub precision: String,
    /// How KV caches will be stored, as for `serve`.
    #[arg(long, value_name = "POLICY", default_value = "auto")]
    pub kv: KvChoice,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Threads to compute with here.
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Where keys are.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Machines that may not exist yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Imagined {
    /// How many.
    pub count: u32,
    /// Speed of each.
    pub speed: MachineSpeed,
    /// Link to it.
    pub link: LinkSpeed,
}

/// Products that machines make for every byte that they can read: a usual office machine.
const PRODUCTS_PER_BYTE: u64 = 8;
/// 1 Gbit/s.
const LINK_BYTES: u64 = 125_000_000;

impl FromStr for Imagined {
    type Err = String;

    fn from_str(text: &str) -> Result<Imagined, String> {
        let wrong =
            || format!("cannot parse machine `{text}`; write 16G@20G, or 2*8G@15G/1 for two with a 1 ms round trip");
        let (count, one) = text.split_once('*').unwrap_or(("1", text));
        let (machine, milliseconds) = one.split_once('/').unwrap_or((one, "0.5"));
        let (memory, read) = machine.split_once('@').ok_or_else(wrong)?;
        let count = count.parse().ok().filter(|count| (1..=1024).contains(count)).ok_or_else(wrong)?;
        let milliseconds = milliseconds.parse::<f64>().ok().filter(|time| (0.0..=10_000.0).contains(time));
        let read = parse_bytes(read)?;
        Ok(Imagined {
            count,
            speed: MachineSpeed {
                read_bytes_per_second: read,
                products_per_second: read.saturating_mul(PRODUCTS_PER_BYTE),
                memory_bytes: parse_bytes(memory)?,
                threads: 0,
            },
            link: LinkSpeed {
                round_trip_microseconds: (1e3 * milliseconds.ok_or_else(wrong)?) as u64,
                bytes_per_second: LINK_BYTES,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_can_be_imagined() {
        let check = |text: &str, expected: Option<(u32, u64, u64, u64)>| {
            let found = text.parse::<Imagined>().ok().map(|Imagined { count, speed, link }| {
                (count, speed.memory_bytes, speed.read_bytes_per_second, link.round_trip_microseconds)
            });
            assert_eq!(found, expected, "{text}");
        };
        check("16G@20G", Some((1, 16_000_000_000, 20_000_000_000, 500)));
        check("2*8G@15G/1", Some((2, 8_000_000_000, 15_000_000_000, 1000)));
        check("3*800MiB@1.5G/0.2", Some((3, 800 << 20, 1_500_000_000, 200)));
        for wrong in ["", "16G", "@", "0*8G@15G", "x*8G@15G", "8G@15G/x", "8G@15G/-1", "8G@15G/1e99", "8X@15G"] {
            check(wrong, None);
        }
    }
}
