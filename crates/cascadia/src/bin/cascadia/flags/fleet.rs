//! Flags of commands that spread a model over machines.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use cascadia_fleet::Hours;
use clap::{Args, Subcommand, ValueEnum};

use super::{ComputeFlags, KvChoice, OutputFlags, PageFlags, ThreadFlags};

/// Flags of `export`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia export org/name --stages 2 --out ./shards\n  \
    cascadia export model.gguf --splits 0,8,16 --precision keep --out ./shards\n\n\
    An interrupted export continues where it stopped.")]
pub struct ExportFlags {
    /// A short name (qwen3:4b), org/name on the Hugging Face Hub, a .gguf file or a model folder.
    pub model: String,
    /// Number of stages with about equally many layers. `auto` plans them for the fleet's machines, as `plan` does.
    #[arg(long, value_name = "N|auto", required_unless_present = "splits", conflicts_with = "splits")]
    pub stages: Option<StageCount>,
    /// First layer of each stage, such as 0,8,16.
    #[arg(long, value_name = "LAYERS", value_delimiter = ',')]
    pub splits: Vec<u32>,
    /// Weight format: a type of `quantize --type`, or `keep` for the source's.
    #[arg(long, value_name = "TYPE", default_value = "int4")]
    pub precision: String,
    /// How KV caches will be stored, as for `serve`; `--stages auto` plans for it.
    #[arg(long, value_name = "POLICY", default_value = "auto")]
    pub kv: KvChoice,
    /// Output folder; created if missing.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// What may be replaced.
    #[command(flatten)]
    pub output: OutputFlags,
    /// Compute threads.
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print a summary of what was written as one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Where the fleet's machines are recorded.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// How many stages a model is split into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageCount {
    /// Planned for the fleet.
    Auto,
    /// A fixed number.
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

/// Where this machine keeps its fleet data.
#[derive(Debug, Clone, Args)]
pub struct HomeFlags {
    /// Folder for keys, members and shards [default: ~/.cascadia].
    #[arg(long, value_name = "DIR")]
    pub home: Option<PathBuf>,
}

/// Commands of a coordinator.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Make this machine a coordinator, and let other machines join with a pairing code.
    Init(FleetInitFlags),
    /// Print an invitation for more machines.
    Invite(FleetInviteFlags),
    /// Let a machine join that waits for approval.
    Approve(FleetDecisionFlags),
    /// Send a machine away that waits for approval.
    Reject(FleetDecisionFlags),
    /// Send shards to workers.
    Push(FleetPushFlags),
    /// Show the fleet's machines and what each of them runs.
    Status(FleetStatusFlags),
    /// Remove a machine from the fleet. A standby takes over its stage.
    Revoke(FleetRevokeFlags),
    /// Readmit a machine that was excluded because it computed wrong results, or whose key has expired.
    Trust(FleetTrustFlags),
    /// Replace keys now: those of machines, or the fleet's own. All are replaced by themselves every 30 days.
    Rotate(FleetRotateFlags),
}

/// Flags of `fleet init`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia fleet init\n  cascadia fleet init --no-wait > invitation\n\n\
    While it runs, on every other machine:\n  cascadia join\n\n\
    `cascadia serve --fleet` may run beside it, or be started while it runs.")]
pub struct FleetInitFlags {
    /// Address that workers connect to [default: this machine's network address, port 7420].
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Minutes until the pairing code or the invitation expires.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=10080))]
    pub minutes: u64,
    /// Number of machines that may join [default: 10, or 1 with an invitation].
    #[arg(long, alias = "uses", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub machines: Option<u32>,
    /// Print a long invitation for scripts instead of a pairing code, and exit once all machines have joined with it.
    #[arg(long)]
    pub invitation: bool,
    /// Approve each machine with `fleet approve`, after comparing the code that it shows. Implies --invitation.
    #[arg(long)]
    pub approve: bool,
    /// Address to put into the invitation, if it differs from --listen. May be repeated. Implies --invitation.
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Vec<String>,
    /// Do not announce this coordinator on the local network (mDNS). Other machines then need its address: `join
    /// --coordinator ADDRESS`.
    #[arg(long)]
    pub no_announce: bool,
    /// Print the invitation and exit. Machines can join while `serve --fleet` or `fleet push` runs. Implies --invitation.
    #[arg(long)]
    pub no_wait: bool,
    /// Where keys are stored.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Flags of `fleet invite`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia fleet invite --uses 20 --ttl 8h --approve\n\n\
    Machines can join while `serve --fleet` or `fleet push` runs.")]
pub struct FleetInviteFlags {
    /// Number of machines that may join with the invitation.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub uses: u32,
    /// Time until the invitation expires, such as 30m, 8h or 2d; at most a week.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub ttl: Duration,
    /// Approve each machine with `fleet approve`, after comparing the code that it shows.
    #[arg(long)]
    pub approve: bool,
    /// Address to put into the invitation, if others see this machine under another one. May be repeated.
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Vec<String>,
    /// Where keys are stored.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// A time such as `8h`, of a minute to a week.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    if time.is_zero() { Err("give at least 1m".to_owned()) } else { Ok(time) }
}

/// A time such as `8h`, of at most a week.
fn parse_time(text: &str) -> Result<Duration, String> {
    let seconds = [("m", 60), ("h", 3600), ("d", 86_400)].into_iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(seconds)
    });
    let seconds = seconds.filter(|seconds| *seconds <= 7 * 86_400);
    seconds.map(Duration::from_secs).ok_or_else(|| "give a time such as 30m, 8h or 2d, at most 7d".to_owned())
}

/// Flags of `fleet approve` and `fleet reject`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia fleet status\n  cascadia fleet approve q3ik-7mza")]
pub struct FleetDecisionFlags {
    /// Name or code of the machine, as shown by `fleet status`.
    #[arg(value_name = "NODE|CODE")]
    pub node: String,
    /// Where keys are stored.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Flags of `fleet push`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia fleet push ./shards node-00:stage-0 node-01:stage-1\n  \
    cascadia fleet push ./shards here:stage-0 node-00:stage-1")]
pub struct FleetPushFlags {
    /// Folder that `export` wrote.
    pub shards: PathBuf,
    /// Which node gets which stage. `here` is the coordinator itself; nothing is sent to it.
    #[arg(value_name = "NODE:STAGE", required = true)]
    pub targets: Vec<String>,
    /// How long to wait for a worker to connect, in seconds.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub wait_seconds: u64,
    /// Where keys are stored.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Flags of `fleet status`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia fleet status --watch")]
pub struct FleetStatusFlags {
    /// Refresh every second until interrupted.
    #[arg(long, conflicts_with = "json")]
    pub watch: bool,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Where keys are stored.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Flags of `fleet revoke`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia fleet revoke node-01")]
pub struct FleetRevokeFlags {
    /// Node name, as shown by `fleet status`.
    pub node: String,
    /// Where keys are stored.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Flags of `fleet rotate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia fleet rotate node-01\n  cascadia fleet rotate all\n  \
    cascadia fleet rotate --coordinator --targets\n  cascadia fleet rotate --targets --grace 0h\n\n\
    With a node name or `all`, workers get new keys of their own. With --coordinator or --targets, the fleet's own keys are\n\
    replaced: workers learn them within a minute, or when they next connect. Both may be given at once.")]
pub struct FleetRotateFlags {
    /// Node name, as shown by `fleet status`, or `all` for every worker.
    #[arg(required_unless_present_any = ["coordinator", "targets"])]
    pub node: Option<String>,
    /// Replace the coordinator's key, which workers and invitations know it by. Invitations printed before become invalid.
    #[arg(long)]
    pub coordinator: bool,
    /// Replace the targets key, which signs what is pushed to workers.
    #[arg(long)]
    pub targets: bool,
    /// How long workers accept the fleet's old keys too, such as 1h; 0h if they may have been stolen. At most 7d.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = parse_time)]
    pub grace: Duration,
    /// Where keys are stored.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Flags of `fleet trust`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia fleet trust node-01")]
pub struct FleetTrustFlags {
    /// Node name, as shown by `fleet status`.
    pub node: String,
    /// Where keys are stored.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Commands of a worker.
#[derive(Debug, Subcommand)]
pub enum WorkerCommand {
    /// Connect to the coordinator and run the shard that it sends, or a local one.
    Start(WorkerFlags),
    /// Print the audit log head that this worker countersigned, for `audit verify --heads`.
    Head(WorkerHeadFlags),
    /// Set or show how much of this machine the fleet may use, and when.
    Limits(WorkerLimitsFlags),
}

/// Process priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Priority {
    /// Yield to other programs.
    Low,
    /// Same priority as other programs.
    Normal,
}

/// Flags of `worker limits`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia worker limits --cpu 50% --memory 4G --disk 20G --hours 18-8\n  \
    cascadia worker limits\n\nLimits apply from the next `worker start`. Limits that are not given stay unchanged.")]
pub struct WorkerLimitsFlags {
    /// Maximum share of the CPU cores, such as 50%. Sets the number of compute threads.
    #[arg(long, value_name = "SHARE", value_parser = parse_percent)]
    pub cpu: Option<u32>,
    /// Maximum number of compute threads.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Memory limit. Layers that do not fit are read from disk at every step. A stage that does not fit even so is
    /// refused.
    #[arg(long, value_name = "SIZE", value_parser = super::parse_bytes)]
    pub memory: Option<u64>,
    /// Maximum disk space for shards.
    #[arg(long, value_name = "SIZE", value_parser = super::parse_bytes)]
    pub disk: Option<u64>,
    /// Hours of the day in which the worker is available, such as 18-8.
    #[arg(long, value_name = "FROM-TO")]
    pub hours: Option<Hours>,
    /// Pause while other programs of normal priority use more than this share of the CPU.
    #[arg(long, value_name = "SHARE", value_parser = parse_percent)]
    pub busy: Option<u32>,
    /// Pause above this CPU temperature [default: 95].
    #[arg(long, value_name = "CELSIUS", value_parser = clap::value_parser!(u32).range(1..=150))]
    pub hot: Option<u32>,
    /// Stay available on battery power.
    #[arg(long)]
    pub on_battery: bool,
    /// Clear all limits that were set before.
    #[arg(long)]
    pub reset: bool,
    /// Where keys and shards are stored.
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
    /// Where keys and shards are stored.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Flags of `worker start`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia worker start\n  cascadia worker start --shard ./shards/stage-0\n\n\
    It ends with exit code 3 if this machine was removed from its fleet.")]
pub struct WorkerFlags {
    /// Address of the coordinator, if it has moved.
    #[arg(long, value_name = "HOST:PORT")]
    pub coordinator: Option<String>,
    /// How it runs.
    #[command(flatten)]
    pub run: WorkerRunFlags,
}

/// How a worker runs.
#[derive(Debug, Args)]
pub struct WorkerRunFlags {
    /// Local shard file. If it is not given or does not exist, the coordinator sends the shard.
    #[arg(long, value_name = "FILE")]
    pub shard: Option<PathBuf>,
    /// Maximum disk space for shards, such as 20G [default: the one of `worker limits`, or 50G].
    #[arg(long, value_name = "SIZE", value_parser = super::parse_bytes)]
    pub disk: Option<u64>,
    /// Memory limit for the process, such as 6G or 800MiB. Layers that do not fit are read from disk at every step.
    #[arg(long, value_name = "SIZE", value_parser = super::parse_bytes)]
    pub memory: Option<u64>,
    /// Compute threads and kernels.
    #[command(flatten)]
    pub compute: ComputeFlags,
    /// Where weights lie in memory.
    #[command(flatten)]
    pub pages: PageFlags,
    /// Fail unless the whole sandbox holds: the worker then can write only below its home, run no programs and accept no
    /// connections (Linux).
    #[arg(long)]
    pub require_sandbox: bool,
    /// Process priority relative to other programs.
    #[arg(long, value_enum, default_value_t = Priority::Low)]
    pub priority: Priority,
    /// Where keys and shards are stored.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Flags of `join`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia join\n  cascadia join --coordinator 192.168.1.20\n  \
    echo K7QF-3MXP | cascadia join --no-start\n  cascadia join cas1-…\n\n\
    It asks for the pairing code that `cascadia fleet init` shows on the coordinator, and goes on as `cascadia worker start`\n\
    does. With an invitation it only joins.")]
pub struct JoinFlags {
    /// The long invitation of `fleet init --invitation` or `fleet invite`, in place of a pairing code.
    #[arg(conflicts_with_all = ["code", "coordinator", "no_start"])]
    pub invitation: Option<String>,
    /// The pairing code [default: asked for, or read from standard input].
    #[arg(long)]
    pub code: Option<String>,
    /// Name or address of the coordinator [default: the one that answers in the local network].
    #[arg(long, value_name = "NAME|HOST:PORT")]
    pub coordinator: Option<String>,
    /// Node name [default: the name of this machine].
    #[arg(long)]
    pub name: Option<String>,
    /// Join only; `cascadia worker start` starts the worker.
    #[arg(long)]
    pub no_start: bool,
    /// How the worker runs.
    #[command(flatten)]
    pub run: WorkerRunFlags,
}

/// Flags of `leave`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia leave")]
pub struct LeaveFlags {
    /// Where keys and shards are stored.
    #[command(flatten)]
    pub home: HomeFlags,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_numbers_with_a_unit() {
        let check = |text: &str, seconds: Option<u64>| {
            assert_eq!(parse_duration(text).ok().map(|time| time.as_secs()), seconds, "{text}");
        };
        check("30m", Some(1800));
        check("8h", Some(28_800));
        check("7d", Some(604_800));
        for wrong in ["", "8", "h", "0m", "8d", "-1h", "1.5h", "99999999999999999999d", "300000000000000000d"] {
            check(wrong, None);
        }
    }
}
