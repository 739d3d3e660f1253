//! What the system says of a machine: who uses its processors, what feeds it, how hot it is.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Reading;

/// Asks a system of Linux's kind through its files; other systems have none of these, and offer nothing.
pub struct Probe {
    root: PathBuf,
    last: Option<Ticks>,
}

/// Ticks of all processors since the machine started.
#[derive(Clone, Copy)]
struct Ticks {
    all: u64,
    /// Those of programs at usual priority, without this one.
    busy: u64,
}

impl Probe {
    /// Asks the system whose files begin at `root`, which is `/` but in tests.
    pub fn at(root: &Path) -> Probe {
        Probe { root: root.to_owned(), last: None }
    }

    /// What it says now; how busy it was is since the last time.
    pub fn read(&mut self, hour: Option<u32>) -> Reading {
        let ticks = self.ticks();
        let busy = self.last.zip(ticks).and_then(|(before, now)| {
            let all = now.all.checked_sub(before.all).filter(|all| *all > 0)?;
            Some(now.busy.saturating_sub(before.busy) as f64 / all as f64)
        });
        self.last = ticks;
        Reading { busy: busy.map(|busy| busy.min(1.0)), on_battery: self.on_battery(), celsius: self.celsius(), hour }
    }

    fn ticks(&self) -> Option<Ticks> {
        let all = fs::read_to_string(self.root.join("proc/stat")).ok()?;
        let line = all.lines().next()?.strip_prefix("cpu ")?;
        let numbers: Vec<u64> = line.split_whitespace().map_while(|number| number.parse().ok()).collect();
        let [user, _nice, system, _idle, _waiting, interrupts, soft, ..] = numbers[..] else { return None };
        let own = fs::read_to_string(self.root.join("proc/self/stat")).ok()?;
        // The name of the program comes before this and may hold anything.
        let own: Vec<&str> = own.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |at: usize| own.get(at)?.parse::<i64>().ok();
        let (own_user, own_system, priority) = (field(11)?, field(12)?, field(16)?);
        // What runs at a low priority, as this program mostly does, is counted apart.
        let own_user = if priority > 0 { 0 } else { own_user };
        let own = u64::try_from(own_user.checked_add(own_system)?).ok()?;
        let busy = [user, system, interrupts, soft].into_iter().try_fold(0u64, u64::checked_add)?;
        let all = numbers.iter().take(8).try_fold(0u64, |sum, number| sum.checked_add(*number))?;
        Some(Ticks { all, busy: busy.saturating_sub(own) })
    }

    fn on_battery(&self) -> Option<bool> {
        let supplies = self.folders("sys/class/power_supply", "");
        let is = |supply: &PathBuf, file: &str, value: &str| text(&supply.join(file)).as_deref() == Some(value);
        // Batteries of mice and headsets do not feed the machine.
        let batteries =
            || supplies.iter().filter(|supply| is(supply, "type", "Battery") && !is(supply, "scope", "Device"));
        batteries().next()?;
        let plugged = supplies.iter().any(|supply| is(supply, "type", "Mains") && is(supply, "online", "1"));
        Some(!plugged && batteries().any(|battery| is(battery, "status", "Discharging")))
    }

    fn celsius(&self) -> Option<f64> {
        let zones = self.folders("sys/class/thermal", "thermal_zone");
        let degrees = zones.iter().filter_map(|zone| text(&zone.join("temp"))?.parse::<f64>().ok());
        // Sensors that are not there read as nonsense.
        degrees
            .map(|thousandths| thousandths / 1000.0)
            .filter(|degrees| (0.0..150.0).contains(degrees))
            .reduce(f64::max)
    }

    fn folders(&self, below: &str, prefix: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.root.join(below)).into_iter().flatten().flatten();
        let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
        named.map(|entry| entry.path()).collect()
    }
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system made of files.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        put(root.path(), files);
        root
    }

    fn put(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("it can be written");
        }
    }

    fn own(user: u32, system: u32, nice: i32) -> String {
        format!("42 (a (name) 7) S 1 1 1 0 -1 0 0 0 0 0 {user} {system} 0 0 30 {nice} 5 0 99 0 0")
    }

    #[test]
    fn only_what_others_do_counts() {
        let check = |before: (&str, String), after: (&str, String), expected: Option<f64>| {
            let root = system(&[("proc/stat", before.0), ("proc/self/stat", &before.1)]);
            let mut probe = Probe::at(root.path());
            assert_eq!(probe.read(None).busy, None, "there is nothing to compare with yet");
            put(root.path(), &[("proc/stat", after.0), ("proc/self/stat", &after.1)]);
            assert_eq!(probe.read(None).busy, expected, "{after:?}");
        };
        let (idle, busy) = ("cpu  100 50 10 1000 5 0 0 0 0 0\ncpu0 1 2\n", "cpu  150 50 20 1040 5 0 0 0 0 0\n");
        // Sixty of a hundred ticks, of which this program had none, or some.
        check((idle, own(0, 0, 0)), (busy, own(0, 0, 0)), Some(0.6));
        check((idle, own(0, 0, 0)), (busy, own(40, 10, 0)), Some(0.1));
        // At a low priority its own are among those that are counted apart.
        let niced = "cpu  100 130 20 1010 5 0 0 0 0 0\n";
        check((idle, own(0, 0, 10)), (niced, own(80, 10, 10)), Some(0.0));
        check((idle, own(0, 0, 0)), (idle, own(0, 0, 0)), None);
        check((idle, own(0, 0, 0)), ("nonsense", own(0, 0, 0)), None);
        check((idle, own(0, 0, 0)), (busy, "42 (x".to_owned()), None);
        check((idle, own(0, 0, 0)), ("cpu  18446744073709551615 1 1 1 1 1 1 1\n", own(0, 0, 0)), None);
    }

    #[test]
    fn batteries_and_heat_are_found() {
        let check = |files: &[(&str, &str)], on_battery: Option<bool>, celsius: Option<f64>| {
            let reading = Probe::at(system(files).path()).read(Some(7));
            assert_eq!(
                (reading.on_battery, reading.celsius, reading.hour),
                (on_battery, celsius, Some(7)),
                "{files:?}"
            );
        };
        let supply = |name: &str, file: &str| format!("sys/class/power_supply/{name}/{file}");
        let (kind, status) = (supply("BAT0", "type"), supply("BAT0", "status"));
        let (mains, online) = (supply("AC", "type"), supply("AC", "online"));
        let (mouse, scope) = (supply("mouse", "type"), supply("mouse", "scope"));
        check(&[], None, None);
        check(&[(&kind, "Battery\n"), (&status, "Discharging\n")], Some(true), None);
        check(&[(&kind, "Battery\n"), (&status, "Charging\n")], Some(false), None);
        let plugged = [(&*kind, "Battery"), (&*status, "Discharging"), (&*mains, "Mains"), (&*online, "1\n")];
        check(&plugged, Some(false), None);
        check(&[(&mains, "Mains"), (&online, "1")], None, None);
        check(&[(&mouse, "Battery"), (&scope, "Device")], None, None);
        let zone = |number: u32| format!("sys/class/thermal/thermal_zone{number}/temp");
        let heat = [(zone(0), "41000\n"), (zone(1), "87500\n"), (zone(2), "-273000"), (zone(3), "hot")];
        let heat: Vec<(&str, &str)> = heat.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        check(&heat, None, Some(87.5));
    }
}
