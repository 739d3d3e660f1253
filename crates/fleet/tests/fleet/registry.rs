//! Machines that wait for a shard: who is there, how fast they are, and that a push which breaks off is made again.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use cascadia_fleet::frame::Kind;
use cascadia_fleet::link::{ChannelLink, LinkFaults, channel_pair, fair};
use cascadia_fleet::{
    Admission, Assignment, Clock, Hello, MachineSpeed, Sandbox, SignedShard, Store, WorkerRegistry, greet,
    greet_measured,
};

use crate::harness::PROGRAM;
use crate::kill_points::{Moment, Point, Sender, deadly};
use crate::pushing::{MIB, shard, signed};

const SPEED: MachineSpeed =
    MachineSpeed { read_bytes_per_second: 7, products_per_second: 11, memory_bytes: 13, threads: 2 };

fn hello() -> Hello {
    Hello { program: PROGRAM.to_owned(), shard: None, sandbox: Sandbox::None }
}

/// Lets a machine wait; gives its end of the link once it has said who it is.
fn wait(
    registry: &WorkerRegistry,
    node: &str,
    faults: [LinkFaults; 2],
    serve: impl FnOnce(ChannelLink) + Send + 'static,
) {
    let (here, there) = channel_pair(faults);
    thread::spawn(move || serve(there));
    assert_eq!(registry.admit(Box::new(here), node), Ok(Admission::Waits));
}

#[test]
fn who_waits_is_measured_and_who_is_gone_is_released() {
    let (registry, patience) = (WorkerRegistry::default(), Duration::from_secs(60));
    let measured = |mut link: ChannelLink| drop(greet_measured(&mut link, &hello(), (&SPEED, &|| true)));
    for node in ["one", "other", "stranger"] {
        wait(&registry, node, [fair(), fair()], measured);
    }
    let dies = Point { name: "ping", sender: Sender::Coordinator, kind: Kind::Ping, count: 1, moments: &[] };
    wait(&registry, "gone", deadly(&dies, Moment::Before).0, measured);
    registry.sweep(patience, |node| node != "stranger");
    assert_eq!(registry.holdings(), "one holds no shard, other holds no shard");
    let nodes = ["one", "gone", "other"].map(str::to_owned);
    for _ in 0..2 {
        let found = registry.measure(&nodes, Clock::system().now());
        assert!(found.keys().eq(&["one", "other"]) && found.values().all(|(speed, _)| *speed == SPEED), "{found:?}");
    }
}

#[test]
fn a_push_that_breaks_off_is_made_again_when_the_machine_comes_again() {
    let [from, to] = [0, 1].map(|_| tempfile::tempdir().expect("a folder"));
    let (shard, signed) = (shard(from.path(), 2 * MIB), signed());
    let (registry, said, patience) = (WorkerRegistry::default(), Mutex::new(Vec::new()), Duration::from_secs(60));
    let take = |quota: u64| {
        let store = Store::open(to.path(), quota).expect("a folder");
        move |mut link: ChannelLink| {
            let Ok(Assignment::Store(offer)) = greet(&mut link, &hello()) else { return };
            drop(store.take(&mut link, &offer, &[], |_| Ok(())));
        }
    };
    let send = || {
        let say = |line: &str| said.lock().unwrap().push(line.to_owned());
        let shard = SignedShard { folder: from.path(), shard: &shard, signed: &signed };
        registry.send("node", shard, patience, (|_| {}, say))
    };
    let tries = |count: usize| {
        while said.lock().unwrap().len() < count {
            thread::yield_now()
        }
    };
    let dies = Point { name: "piece", sender: Sender::Coordinator, kind: Kind::Chunk, count: 2, moments: &[] };
    thread::scope(|scope| {
        wait(&registry, "node", deadly(&dies, Moment::Before).0, take(u64::MAX));
        let sent = scope.spawn(send);
        tries(1);
        wait(&registry, "node", [fair(), fair()], take(u64::MAX));
        sent.join().expect("it ends").expect("it is sent in the end");
    });
    assert!(said.lock().unwrap()[0].contains("it is tried again"), "{said:?}");
    assert!(said.lock().unwrap()[1].contains("node holds stage-0.gguf"), "{said:?}");
    // What it has no room for it refuses as often as it is asked.
    std::fs::remove_file(to.path().join(shard.digest.to_string())).expect("it is there");
    let refused = thread::scope(|scope| {
        wait(&registry, "node", [fair(), fair()], take(1));
        let sent = scope.spawn(send);
        for count in [3, 4] {
            tries(count);
            wait(&registry, "node", [fair(), fair()], take(1));
        }
        sent.join().expect("it ends").expect_err("it does not fit").to_string()
    });
    assert!(refused.contains("its owner allows"), "{refused}");
}
