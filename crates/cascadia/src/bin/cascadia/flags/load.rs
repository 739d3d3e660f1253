//! Flags of `bench serve`.

use std::path::PathBuf;

use cascadia_eval::load::Sizes;
use clap::Args;

/// Flags of `bench serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia bench serve http://127.0.0.1:8080 --clients 8 --duration 30\n  \
    cascadia bench serve http://127.0.0.1:8080 --rate 2.5 --prompt 16..2048 --answer 16..512 --cancel 10% --slow-readers 10%\n  \
    cascadia bench serve http://127.0.0.1:8080 --clients 26 --tenants 4 --greedy 10 --keys keys.txt --json\n\n\
    The same seed sends the same requests for any number of clients, so the answers of two runs can be compared.")]
pub struct LoadFlags {
    /// Server URL, such as http://127.0.0.1:8080, with or without /v1.
    pub url: String,
    /// Number of clients. Each sends its next request when the previous one has ended [default: 8].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub clients: Option<u32>,
    /// Send this many requests per second at random times (open loop). With --clients: their total rate.
    #[arg(long, value_name = "R", value_parser = positive)]
    pub rate: Option<f64>,
    /// How long to send requests, in seconds [default: 30].
    #[arg(long, value_name = "SECONDS", conflicts_with = "requests", value_parser = positive)]
    pub duration: Option<f64>,
    /// Send this many requests instead of running for a fixed time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub requests: Option<u64>,
    /// Words per prompt (about one token each): a number or a range. Every doubling within a range is equally likely.
    #[arg(long, value_name = "A..B", default_value = "16..512")]
    pub prompt: Sizes,
    /// Maximum tokens per answer: a number or a range.
    #[arg(long, value_name = "A..B", default_value = "16..128")]
    pub answer: Sizes,
    /// Length of a prefix that all prompts share, in words.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub shared_prefix: u32,
    /// Share of clients that disconnect before their answer is complete.
    #[arg(long, value_name = "P%", default_value = "0%", value_parser = part)]
    pub cancel: f64,
    /// Share of clients that read only 1 KiB per second.
    #[arg(long, value_name = "P%", default_value = "0%", value_parser = part)]
    pub slow_readers: f64,
    /// Number of tenants, each with its own key [default: the number of keys].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub tenants: Option<u32>,
    /// File with one API key per line.
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// Load factor of the first tenant compared with each of the others.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub greedy: u32,
    /// Temperatures, comma-separated, each used equally often.
    #[arg(long = "temp", value_name = "T,…", value_delimiter = ',', default_value = "0.8")]
    pub temperatures: Vec<f64>,
    /// Random seed for the requests.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Model name to request.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub model: String,
    /// Use the chat API instead of plain completions.
    #[arg(long)]
    pub chat: bool,
    /// Timeout per request, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = positive)]
    pub timeout: f64,
    /// Print one JSON object with every request, its timings and its answer.
    #[arg(long)]
    pub json: bool,
}

/// A number above 0 that is small enough to be a time.
fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number <= 1e6 => Ok(number),
        _ => Err("give a number above 0".to_owned()),
    }
}

/// A share such as `10%`.
pub(super) fn part(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok()) {
        Some(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("give a share such as 10%".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_a_sign() {
        for (text, expected) in
            [("10%", Some(0.1)), ("0%", Some(0.0)), ("100%", Some(1.0)), ("10", None), ("-1%", None)]
        {
            assert_eq!(part(text).ok(), expected, "{text}");
        }
        for (text, expected) in [("2.5", Some(2.5)), ("0", None), ("-1", None), ("NaN", None), ("inf", None)] {
            assert_eq!(positive(text).ok(), expected, "{text}");
        }
    }
}
