//! `cascadia worker limits`.

use cascadia_fleet::{OwnerLimits, Reading, lent_threads, read_machine};

use crate::flags::WorkerLimitsFlags;
use crate::home::home;
use crate::output::print;

/// Sets what flags say, and shows what holds.
pub(crate) fn limits(flags: &WorkerLimitsFlags) -> anyhow::Result<()> {
    let home = home(flags.home.home.as_deref())?;
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
    lent_threads(&limits)?;
    home.set_limits(&limits)?;
    Ok(print(&shown(&limits, &read_machine()))?)
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
