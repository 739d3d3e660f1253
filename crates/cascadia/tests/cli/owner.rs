//! A machine keeps to what its owner lends.

use std::process::Command;

use crate::program::cascadia;
use crate::test_fleet::{Running, TestFleet};

#[test]
fn a_worker_goes_last_and_keeps_its_hours() {
    let test_fleet = TestFleet::with_machines(1);
    let home = test_fleet.home(0);
    let limits = |more: &[&str]| cascadia(&[&["worker", "limits", "--home", &home], more].concat());
    let shown = limits(&["--memory", "4G", "--threads", "1", "--cpu", "100%"]);
    assert!(shown.code == 0 && shown.stdout.contains("memory       4.00 GB"), "{shown:?}");
    // Set on its own, the rest stays.
    let hour = Command::new("date").arg("+%H").output().expect("there is a date").stdout;
    let hour: u32 = std::str::from_utf8(&hour).unwrap().trim().parse().unwrap();
    let hours = format!("{}-{}", (hour + 2) % 24, (hour + 3) % 24);
    let shown = limits(&["--hours", &hours]);
    assert!(shown.stdout.contains("4.00 GB") && shown.stdout.contains(&hours), "{shown:?}");
    let worker = Running::start(&["worker", "start", "--home", &home]);
    worker.line(&format!("this machine takes no part now, because its owner lends it from {hours} o'clock"));
    let niceness = |process: &str| -> i32 {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().parse().unwrap()
    };
    assert_eq!(niceness(&worker.id().to_string()), (niceness("self") + 10).min(19));
    drop(worker);
    let shown = limits(&["--reset"]);
    assert!(shown.stdout.contains("hours        no limit"), "{shown:?}");
    let worker = Running::start(&["worker", "start", "--home", &home]);
    worker.line("cannot reach the coordinator");
    for wrong in [["--cpu", "0%"], ["--cpu", "50"], ["--hours", "8-8"], ["--memory", "x"]] {
        assert_eq!(limits(&wrong).code, 2, "{wrong:?}");
    }
    drop(worker);
    assert_eq!(cascadia(&["leave", "--home", &home]).code, 0);
    assert!(!std::path::Path::new(&home).join("worker").exists(), "limits go with the rest");
}

/// What the real worker process has given up, as the kernel says; a kernel without Landlock offers only a part.
#[test]
fn a_worker_runs_in_a_sandbox_and_says_so() {
    let test_fleet = TestFleet::with_machines(1);
    let worker = test_fleet.worker(0);
    let sandbox = worker.line("sandbox: ");
    worker.line("cannot reach the coordinator");
    let status = std::fs::read_to_string(format!("/proc/{}/status", worker.id())).unwrap();
    let is = |field: &str, value: &str| status.lines().any(|line| line == format!("{field}:\t{value}"));
    assert!(is("NoNewPrivs", "1") && is("Seccomp", "2") || sandbox.contains("seccomp failed"), "{sandbox}\n{status}");
    drop(worker);
    let home = test_fleet.home(0);
    let required = ["worker", "start", "--home", &home, "--require-sandbox"];
    if sandbox.trim() == "sandbox: full" {
        Running::start(&required).line("sandbox: full");
    } else {
        eprintln!("This kernel enforces only a part: {sandbox}");
        assert!(Running::start(&required).fails().contains("--require-sandbox"));
    }
}
