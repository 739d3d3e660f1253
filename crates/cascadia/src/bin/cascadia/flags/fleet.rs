//! Flags of commands that spread a model over machines.

use std::path::PathBuf;
use std::str::FromStr;

use cascadia_fleet::Hours;
use clap::{Args, Subcommand, ValueEnum};

use super::ThreadFlags;

/// Flags of `export`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia export org/name --stages 2 --out ./shards\n  \
    cascadia export model.gguf --splits 0,8,16 --precision keep --out ./shards\n\n\
    What is finished in the folder already is not made again.")]
pub struct ExportFlags {
    /// A .gguf file, a model folder, or org/name on the Hugging Face hub.
    pub model: String,
    /// How many stages of about equally many layers; `auto` plans them for the machines of the fleet, as `plan` does.
    #[arg(long, value_name = "N|auto", required_unless_present = "splits", conflicts_with = "splits")]
    pub stages: Option<StageCount>,
    /// The first layer of every stage, such as 0,8,16.
    #[arg(long, value_name = "LAYERS", value_delimiter = ',')]
    pub splits: Vec<u32>,
    /// The number format: one that `quantize --type` knows, or `keep` for that of the source.
    #[arg(long, value_name = "TYPE", default_value = "int4")]
    pub precision: String,
    /// The folder to write to; it is made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Threads to compute with.
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print one JSON object that says what was written.
    #[arg(long)]
    pub json: bool,
    /// Where the fleet's machines are known.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// How many stages a model is cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageCount {
    /// As many as suit the fleet.
    Auto,
    /// So many.
    Count(u32),
}

impl FromStr for StageCount {
    type Err = String;

    fn from_str(text: &str) -> Result<StageCount, String> {
        match text {
            "auto" => Ok(StageCount::Auto),
            number => number.parse().map(StageCount::Count).map_err(|_| "give a number, or auto".to_owned()),
        }
    }
}

/// Where this machine keeps what it knows of its fleet.
#[derive(Debug, Clone, Args)]
pub struct HomeFlags {
    /// The folder for keys, members and shards; .cascadia in your home folder by default.
    #[arg(long, value_name = "DIR")]
    pub home: Option<PathBuf>,
}

/// What can be done with a fleet from its coordinator.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Make this machine a coordinator, and print a line with which another machine joins.
    Init(FleetInitFlags),
    /// Send shards to machines of the fleet.
    Push(FleetPushFlags),
    /// Show the machines, and which of them run what.
    Status(FleetStatusFlags),
    /// Take a machine out of the fleet; what it was computing goes to another.
    Revoke(FleetRevokeFlags),
    /// Let a machine take part again that was found to compute wrong rows.
    Trust(FleetTrustFlags),
}

/// Flags of `fleet init`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia fleet init\n\nOn another machine, while this one waits:\n  \
    cascadia join cas1-…")]
pub struct FleetInitFlags {
    /// The address for workers; that of this machine on its network, port 7420, by default.
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Minutes until the invitation ends.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=10080))]
    pub minutes: u64,
    /// Machines that may join with the line.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub uses: u32,
    /// Where other machines reach this one, if that is not where it listens; may be given several times.
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Vec<String>,
    /// Do not announce in the local network (mDNS) where this coordinator is; machines then find it only where it was
    /// when they joined.
    #[arg(long)]
    pub no_announce: bool,
    /// Only print the line; a machine can join whenever `serve --fleet` or `fleet push` runs.
    #[arg(long)]
    pub no_wait: bool,
    /// Where keys are.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Flags of `fleet push`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia fleet push ./shards node-00:stage-0 node-01:stage-1\n  \
    cascadia fleet push ./shards here:stage-0 node-00:stage-1")]
pub struct FleetPushFlags {
    /// The folder that `export` wrote.
    pub shards: PathBuf,
    /// Which machine gets which stage; `here` is the coordinator itself, which is sent nothing.
    #[arg(value_name = "NODE:STAGE", required = true)]
    pub targets: Vec<String>,
    /// Seconds to wait for a machine to connect.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub wait_seconds: u64,
    /// Where keys are.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Flags of `fleet status`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia fleet status --watch")]
pub struct FleetStatusFlags {
    /// Show it again every second, until the program is ended.
    #[arg(long, conflicts_with = "json")]
    pub watch: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Where keys are.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Flags of `fleet revoke`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia fleet revoke node-01")]
pub struct FleetRevokeFlags {
    /// The machine, as `fleet status` calls it.
    pub node: String,
    /// Where keys are.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Flags of `fleet trust`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia fleet trust node-01")]
pub struct FleetTrustFlags {
    /// The machine, as `fleet status` calls it.
    pub node: String,
    /// Where keys are.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// What can be done as a worker.
#[derive(Debug, Subcommand)]
pub enum WorkerCommand {
    /// Run the shard that this machine was sent, or one that lies here, for the coordinator it has joined.
    Start(WorkerFlags),
    /// Print what this machine remembers of the coordinator's audit log, for `audit verify --heads`.
    Head(WorkerHeadFlags),
    /// Set or show what this machine lends to the fleet, and when.
    Limits(WorkerLimitsFlags),
}

/// How a program stands beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Priority {
    /// Others go first.
    Low,
    /// As all others.
    Normal,
}

/// Flags of `worker limits`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia worker limits --cpu 50% --memory 4G --disk 20G --hours 18-8\n  \
    cascadia worker limits\n\nThey hold from the next `worker start` on; what is not given stays as it was.")]
pub struct WorkerLimitsFlags {
    /// The most of the machine's processors, such as 50%: so many threads compute.
    #[arg(long, value_name = "SHARE", value_parser = parse_percent)]
    pub cpu: Option<u32>,
    /// The most threads.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// The most memory; layers that do not fit are read from disk for every step, and a stage that cannot is refused.
    #[arg(long, value_name = "SIZE", value_parser = super::parse_bytes)]
    pub memory: Option<u64>,
    /// The most disk space for shards.
    #[arg(long, value_name = "SIZE", value_parser = super::parse_bytes)]
    pub disk: Option<u64>,
    /// The hours of the day in which it takes part, such as 18-8.
    #[arg(long, value_name = "FROM-TO")]
    pub hours: Option<Hours>,
    /// Leave while other programs of usual priority take more than this share of the processors.
    #[arg(long, value_name = "SHARE", value_parser = parse_percent)]
    pub busy: Option<u32>,
    /// Leave while it is hotter than this; 95 by default.
    #[arg(long, value_name = "CELSIUS", value_parser = clap::value_parser!(u32).range(1..=150))]
    pub hot: Option<u32>,
    /// Take part on battery too.
    #[arg(long)]
    pub on_battery: bool,
    /// Forget all limits that were set before.
    #[arg(long)]
    pub reset: bool,
    /// Where keys and shards are.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// A share such as `50%`.
fn parse_percent(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('%').and_then(|number| number.parse().ok());
    number.filter(|number| (1..=100).contains(number)).ok_or_else(|| "give a share such as 50%".to_owned())
}

/// Flags of `worker head`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia worker head > node-00.json")]
pub struct WorkerHeadFlags {
    /// Where keys and shards are.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Flags of `worker start`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia worker start\n  cascadia worker start --shard ./shards/stage-0")]
pub struct WorkerFlags {
    /// The shard; without it, or while it is not there, the one that the coordinator sends.
    #[arg(long, value_name = "FILE")]
    pub shard: Option<PathBuf>,
    /// Where the coordinator listens, if it is no longer where it was.
    #[arg(long, value_name = "HOST:PORT")]
    pub coordinator: Option<String>,
    /// The most disk space for shards, such as 20G; what `worker limits` says, or 50G, by default.
    #[arg(long, value_name = "SIZE", value_parser = super::parse_bytes)]
    pub disk: Option<u64>,
    /// The most memory to take, such as 6G or 800MiB; layers that do not fit are read from disk for every step.
    #[arg(long, value_name = "SIZE", value_parser = super::parse_bytes)]
    pub memory: Option<u64>,
    /// Threads to compute with.
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Whether other programs on this machine go first.
    #[arg(long, value_enum, default_value_t = Priority::Low)]
    pub priority: Priority,
    /// Where keys and shards are.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Flags of `join`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia join cas1-…")]
pub struct JoinFlags {
    /// The line that `fleet init` printed.
    pub invitation: String,
    /// What this machine should be called; node-00, node-01 and so on by default.
    #[arg(long, default_value = "")]
    pub name: String,
    /// Where keys are.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Flags of `leave`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia leave")]
pub struct LeaveFlags {
    /// Where keys and shards are.
    #[command(flatten)]
    pub home: HomeFlags,
}
