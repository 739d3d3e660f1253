//! Flags of `bench serve`.

use std::path::PathBuf;

use cascadia_eval::load::Sizes;
use clap::Args;

/// Flags of `bench serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia bench serve http://127.0.0.1:8080 --clients 8 --duration 30\n  \
    cascadia bench serve http://127.0.0.1:8080 --rate 2.5 --prompt 16..2048 --answer 16..512 --cancel 10% --slow-readers 10%\n  \
    cascadia bench serve http://127.0.0.1:8080 --clients 26 --tenants 4 --greedy 10 --keys keys.txt --json\n\n\
    The same seed sends the same requests, whatever the number of clients: answers of two runs can be compared.")]
pub struct LoadFlags {
    /// The server, such as http://127.0.0.1:8080; with or without /v1.
    pub url: String,
    /// Clients that each send their next request when the last has ended; 8 by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub clients: Option<u32>,
    /// Instead: requests per second, at random times that wait for nobody. With --clients, what they send together.
    #[arg(long, value_name = "R", value_parser = positive)]
    pub rate: Option<f64>,
    /// How many seconds requests are sent; 30 by default.
    #[arg(long, value_name = "SECONDS", conflicts_with = "requests", value_parser = positive)]
    pub duration: Option<f64>,
    /// Instead: how many requests are sent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub requests: Option<u64>,
    /// Words of a prompt, about as many tokens: a number or a range, small ones as likely as large ones.
    #[arg(long, value_name = "A..B", default_value = "16..512")]
    pub prompt: Sizes,
    /// The most tokens of an answer: a number or a range.
    #[arg(long, value_name = "A..B", default_value = "16..128")]
    pub answer: Sizes,
    /// Words that all prompts begin with.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub shared_prefix: u32,
    /// Part of the clients that leave before their answer is complete.
    #[arg(long, value_name = "P%", default_value = "0%", value_parser = part)]
    pub cancel: f64,
    /// Part of the clients that read 1 KiB per second.
    #[arg(long, value_name = "P%", default_value = "0%", value_parser = part)]
    pub slow_readers: f64,
    /// Who sends: each tenant uses a key of its own; as many as there are keys by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub tenants: Option<u32>,
    /// A file with one key per line.
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// How many times as much the first tenant sends as each of the others.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub greedy: u32,
    /// Temperatures, each as often as the others.
    #[arg(long = "temp", value_name = "T,…", value_delimiter = ',', default_value = "0.8")]
    pub temperatures: Vec<f64>,
    /// Same seed, same requests.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// What the server calls the model.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub model: String,
    /// Send conversations instead of plain prompts.
    #[arg(long)]
    pub chat: bool,
    /// The most seconds a request may take.
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = positive)]
    pub timeout: f64,
    /// Print one JSON object with every request, its times and its answer.
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

/// A part of a whole, such as `10%`.
fn part(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok()) {
        Some(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("give a part such as 10%".to_owned()),
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
