//! Files reach a worker whole, once, within its limits, and an interrupted push continues where it was.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use cascadia_fleet::link::{LinkError, LinkFaults, channel_pair, fair};
use cascadia_fleet::{
    Assignment, Digest, FleetError, Hello, Identity, PendingWorker, Sandbox, Shard, SignedManifest, SignedShard, Store,
    greet,
};

use crate::harness::{PROGRAM, Traffic, counted};
use crate::hash_model::model_workers;

pub(crate) const MIB: usize = 1 << 20;

/// A shard in which every byte is as frequent as any other.
pub(crate) fn shard(folder: &Path, bytes: usize) -> Shard {
    shard_of(folder, &(0..bytes).map(even).collect::<Vec<u8>>())
}

fn even(at: usize) -> u8 {
    (at * 7 + at / 251) as u8
}

fn shard_of(folder: &Path, content: &[u8]) -> Shard {
    fs::write(folder.join("stage-0.gguf"), content).expect("it can be written");
    let (digest, bytes) = (Digest::of(content), content.len() as u64);
    Shard { file: "stage-0.gguf".to_owned(), digest, bytes, layers: [0, 1], tensors: Vec::new() }
}

/// What shards are offered under; a store does not ask whose it is.
pub(crate) fn signed() -> SignedManifest {
    let folder = tempfile::tempdir().expect("a folder");
    let key = Identity::open_or_make(&folder.path().join("targets")).expect("a key");
    SignedManifest::new(model_workers().manifest(), 1, &key).expect("it signs")
}

/// Pushes a shard to a store; gives what both ends say and how many bytes were sent.
pub(crate) fn check(
    from: &Path,
    shard: &Shard,
    (to, quota): (&Path, u64),
    faults: [LinkFaults; 2],
) -> (Result<(), FleetError>, Result<(), LinkError>, u64) {
    let (here, mut there) = channel_pair(faults);
    let store = Store::open(to, quota).expect("a folder");
    let worker = thread::spawn(move || {
        let hello = Hello { program: PROGRAM.to_owned(), shard: None, sandbox: Sandbox::None };
        let Assignment::Store(offer) = greet(&mut there, &hello)? else { panic!("a file is offered") };
        store.take(&mut there, &offer, &[], |path| {
            assert!(path.metadata().unwrap().permissions().readonly());
            Ok(())
        })
    });
    let (mut first, mut last) = (None, 0);
    let mut pending_worker = PendingWorker::hear(Box::new(here), "node-00").expect("it says who it is");
    let signed = signed();
    let pushed = pending_worker.send(SignedShard { folder: from, shard, signed: &signed }, |done| {
        first.get_or_insert(done);
        last = done;
    });
    drop(pending_worker);
    let sent = first.map_or(0, |first| last - first.min(last));
    (pushed, worker.join().expect("the worker ends"), sent)
}

#[test]
fn a_file_arrives_once_and_continues_where_it_was() {
    let [from, to] = [0, 1].map(|_| tempfile::tempdir().expect("a folder"));
    let shard = shard(from.path(), 3 * MIB + 4567);
    let (here, there) = (from.path(), (to.path(), u64::MAX));
    // An earlier push ended in the middle of the third piece.
    let part = to.path().join(format!("{}.part", shard.digest));
    let content = fs::read(from.path().join(&shard.file)).expect("it was written");
    fs::write(&part, &content[..2 * MIB + 100]).expect("it can be written");
    let (pushed, taken, sent) = check(here, &shard, there, [fair(), fair()]);
    pushed.expect("it is sent");
    taken.expect("it is taken");
    assert!(sent < 2 * MIB as u64, "{sent} bytes were sent again");
    assert_eq!(Digest::of_file(&to.path().join(shard.digest.to_string())).unwrap(), (shard.digest, shard.bytes));
    assert!(!part.exists());
    let (pushed, taken, sent) = check(here, &shard, there, [fair(), fair()]);
    assert!(pushed.is_ok() && taken.is_ok() && sent == 0, "nothing is sent twice");
    // What was damaged since is noticed, and sent again.
    let kept = to.path().join(shard.digest.to_string());
    fs::remove_file(&kept).expect("it is there");
    fs::write(&kept, vec![7; content.len()]).expect("it can be written");
    let (pushed, taken, _) = check(here, &shard, there, [fair(), fair()]);
    assert!(pushed.is_ok() && taken.is_ok());
    assert_eq!(Digest::of_file(&kept).unwrap(), (shard.digest, shard.bytes));
}

#[test]
fn what_can_be_compressed_goes_in_fewer_bytes() {
    let [from, to] = [0, 1].map(|_| tempfile::tempdir().expect("a folder"));
    // A piece of thirty bytes, one of all, and the rest.
    let content = (0..2 * MIB + 5001).map(|at| if at < MIB { even(at) % 30 } else { even(at) });
    let shard = shard_of(from.path(), &content.collect::<Vec<u8>>());
    let traffic = Traffic::default();
    let (pushed, taken, _) = check(from.path(), &shard, (to.path(), u64::MAX), [counted(&traffic), fair()]);
    assert!(pushed.is_ok() && taken.is_ok());
    assert_eq!(Digest::of_file(&to.path().join(shard.digest.to_string())).unwrap(), (shard.digest, shard.bytes));
    // An offer, and the pieces with a header and a digest each.
    let [_, compressed, whole, rest] = traffic.lock().unwrap()[..] else { panic!("{traffic:?}") };
    assert!(compressed < MIB * 2 / 3 && whole == MIB + 52 && rest == 5001 + 52, "{traffic:?}");
}

#[test]
fn limits_and_damage_are_noticed() {
    let [from, to] = [0, 1].map(|_| tempfile::tempdir().expect("a folder"));
    let shard = shard(from.path(), MIB + 9);
    let (pushed, taken, _) = check(from.path(), &shard, (to.path(), MIB as u64), [fair(), fair()]);
    let message = pushed.expect_err("it is more than allowed").to_string();
    assert!(
        message.starts_with("node-00 did not take stage-0.gguf") && message.contains("its owner allows"),
        "{message}"
    );
    assert!(taken.is_err());
    let huge = Shard { bytes: 1 << 60, ..shard.clone() };
    let (pushed, ..) = check(from.path(), &huge, (to.path(), u64::MAX), [fair(), fair()]);
    assert!(pushed.expect_err("no disk is that large").to_string().contains("do not fit"));
    let mut pieces = 0;
    let damage = move |mut piece: Vec<u8>| {
        pieces += 1;
        if pieces == 2 {
            piece[5000] ^= 1;
        }
        Some(vec![piece])
    };
    let (pushed, taken, _) = check(from.path(), &shard, (to.path(), u64::MAX), [Box::new(damage), fair()]);
    assert!(pushed.is_err() && taken.expect_err("a piece was damaged").to_string().contains("damaged"));
    // A manifest that names another content than the file has.
    let other = Shard { digest: Digest::of(b"other"), ..shard };
    let (pushed, taken, _) = check(from.path(), &other, (to.path(), u64::MAX), [fair(), fair()]);
    assert!(pushed.is_err() && taken.is_err());
    assert_eq!(fs::read_dir(to.path()).unwrap().filter(|file| file.is_ok()).count(), 1, "the rest of the damaged one");
}

#[test]
fn only_an_offer_that_fits_then_removes_others() {
    let [from, to] = [0, 1].map(|_| tempfile::tempdir().expect("a folder"));
    let shard = shard(from.path(), MIB);
    let names = ["old", "older", "oldest"];
    for (age, name) in names.iter().enumerate() {
        let path = to.path().join(name);
        fs::write(&path, vec![0; MIB]).expect("it can be written");
        let file = fs::File::options().write(true).open(&path).expect("it is there");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 - age as u64);
        file.set_modified(time).expect("it can be dated");
    }
    let left = || names.iter().copied().filter(|name| to.path().join(name).exists()).collect::<Vec<_>>();
    let quota = 3 * MIB as u64;
    // It would not even fit into an empty store, by the quota or by the disk.
    for (bytes, quota) in [(quota + 1, quota), (1 << 60, u64::MAX)] {
        let never = Shard { bytes, ..shard.clone() };
        let (pushed, ..) = check(from.path(), &never, (to.path(), quota), [fair(), fair()]);
        assert!(pushed.is_err());
        assert_eq!(left(), names, "nothing is gained by removing them");
    }
    let (pushed, taken, _) = check(from.path(), &shard, (to.path(), quota), [fair(), fair()]);
    assert!(pushed.is_ok() && taken.is_ok());
    assert_eq!(left(), ["old", "older"], "one was enough");
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_full_in_the_middle_is_said_and_not_kept_full() {
    let [from, to] = [0, 1].map(|_| tempfile::tempdir().expect("a folder"));
    let shard = shard(from.path(), 5 * MIB);
    let part = to.path().join(format!("{}.part", shard.digest));
    std::os::unix::fs::symlink("/dev/full", &part).expect("it can be made");
    let (pushed, taken, _) = check(from.path(), &shard, (to.path(), u64::MAX), [fair(), fair()]);
    let message = pushed.expect_err("nothing fits").to_string();
    assert!(message.contains("its 5242880 bytes cannot be stored, with "), "{message}");
    assert!(message.contains(" free: No space left on device"), "{message}");
    assert!(taken.is_err() && part.symlink_metadata().is_err());
    let (pushed, taken, _) = check(from.path(), &shard, (to.path(), u64::MAX), [fair(), fair()]);
    assert!(pushed.is_ok() && taken.is_ok(), "there is room again");
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_cannot_be_read_for_now_is_not_taken_for_a_damaged_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(folder.path(), u64::MAX).expect("a folder");
    let kept = store.path(Digest::of(b"shard"));
    // Nothing is at the address 0 of any program.
    std::os::unix::fs::symlink("/proc/self/mem", &kept).expect("it can be made");
    let message = store.has(Digest::of(b"shard")).expect_err("it cannot be read").to_string();
    assert!(message.contains("Input/output error") && kept.symlink_metadata().is_ok(), "{message}");
}
