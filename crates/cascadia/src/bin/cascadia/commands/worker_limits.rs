//! `cascadia worker limits`, and the eye that `worker start` keeps on the machine.

use std::path::Path;
use std::sync::Arc;
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use anyhow::bail;
use cascadia_fleet::{Availability, OwnerLimits, Probe, Reading};

use crate::flags::WorkerLimitsFlags;
use crate::fleet_home::FleetHome;
use crate::os;
use crate::output::print;

/// The time between two looks at the machine.
const LOOK: Duration = Duration::from_secs(2);
/// Looks after which the clock is asked again.
const LOOKS_PER_HOUR_CHECK: u32 = 15;

/// Sets what flags say, and shows what holds.
pub(crate) fn limits(flags: &WorkerLimitsFlags) -> anyhow::Result<()> {
    let home = FleetHome::find(flags.home.home.as_deref())?;
    let before = if flags.reset { OwnerLimits::default() } else { home.limits()? };
    let limits = OwnerLimits {
        threads: flags.threads.or(before.threads),
        cpu_percent: flags.cpu.or(before.cpu_percent),
        memory: flags.memory.or(before.memory),
        disk: flags.disk.or(before.disk),
        hours: flags.hours.or(before.hours),
        busy_percent: flags.busy.or(before.busy_percent),
        celsius: flags.hot.or(before.celsius),
        on_battery: flags.on_battery || before.on_battery,
    };
    threads(&limits)?;
    home.set_limits(&limits)?;
    let mut probe = Probe::at(Path::new("/"));
    probe.read(None);
    // How busy the machine is takes a moment to see.
    thread::sleep(Duration::from_millis(200));
    Ok(print(&shown(&limits, &probe.read(os::hour())))?)
}

/// The threads that the owner lends; nothing if that is not limited.
pub(crate) fn threads(limits: &OwnerLimits) -> anyhow::Result<Option<u32>> {
    let processors = available_parallelism().map_or(1, |count| count.get() as u32);
    limits.threads_of(processors).map_err(anyhow::Error::msg)
}

/// Looks at the machine for as long as the program runs; the result says whether it should take part.
pub(crate) fn watch(limits: OwnerLimits) -> anyhow::Result<Arc<Availability>> {
    let hour = || limits.hours.and_then(|_| os::hour());
    if limits.hours.is_some() && hour().is_none() {
        bail!(
            "this system does not tell the hour, so --hours cannot be kept; set other limits with `worker limits --reset`"
        );
    }
    let (turn, mut probe) = (Arc::new(Availability::default()), Probe::at(Path::new("/")));
    turn.update(&limits, &probe.read(hour()), Instant::now());
    let watched = Arc::clone(&turn);
    thread::spawn(move || {
        let mut now = None;
        for look in 0u32.. {
            if look % LOOKS_PER_HOUR_CHECK == 0 {
                now = limits.hours.and_then(|_| os::hour());
            }
            watched.update(&limits, &probe.read(now), Instant::now());
            thread::sleep(LOOK);
        }
    });
    Ok(turn)
}

/// The limits, and what the machine says of itself.
fn shown(limits: &OwnerLimits, reading: &Reading) -> String {
    let or = |value: Option<String>, otherwise: &str| value.unwrap_or_else(|| otherwise.to_owned());
    let gigabytes = |bytes: u64| format!("{:.2} GB", bytes as f64 / 1e9);
    let percent = |share: u32| format!("{share}%");
    let (none, not_offered) = ("no limit", "not offered by this system");
    let battery = if limits.on_battery { "takes part" } else { "leaves" };
    let rows = [
        ("processors", or(limits.cpu_percent.map(percent), none), String::new()),
        ("threads", or(limits.threads.map(|threads| threads.to_string()), none), String::new()),
        ("memory", or(limits.memory.map(gigabytes), none), String::new()),
        ("disk", or(limits.disk.map(gigabytes), "50.00 GB"), String::new()),
        (
            "hours",
            or(limits.hours.map(|hours| hours.to_string()), none),
            or(reading.hour.map(|hour| format!("{hour} now")), not_offered),
        ),
        (
            "owner busy",
            or(limits.busy_percent.map(|share| format!("leaves above {share}%")), "stays"),
            or(reading.busy.map(|busy| format!("{:.0}% now", 100.0 * busy)), not_offered),
        ),
        (
            "hot",
            format!("leaves above {} °C", limits.celsius.unwrap_or(OwnerLimits::HOT_CELSIUS)),
            or(reading.celsius.map(|celsius| format!("{celsius:.0} °C now")), not_offered),
        ),
        (
            "on battery",
            battery.to_owned(),
            or(reading.on_battery.map(|on| if on { "on battery" } else { "plugged in" }.to_owned()), not_offered),
        ),
    ];
    rows.iter().map(|(name, limit, now)| format!("{name:<12} {limit:<20} {now}").trim_end().to_owned() + "\n").collect()
}
