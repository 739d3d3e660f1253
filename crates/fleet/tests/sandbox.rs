//! A process in the sandbox of a worker tries what it may do and what it may not, and says what happened.
//!
//! This is a program without the usual test runner: files are closed only to the thread that enters the sandbox and to
//! those it starts, so it has to be the first.

use std::fs::{self, OpenOptions};
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;

use cascadia_fleet::{Sandbox, SandboxPlaces};

/// Where things are tried.
#[derive(Clone)]
struct Places {
    /// May be written.
    own: PathBuf,
    /// May be read.
    shard: PathBuf,
    /// Belongs to others.
    others: PathBuf,
    /// Somebody listens there.
    address: String,
}

/// Which part of the sandbox forbids something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Nothing,
    Landlock,
    Seccomp,
}

type Act = fn(&Places) -> io::Result<()>;

const ACTS: [(&str, By, Act); 17] = [
    ("write a file of its own", By::Nothing, |places| fs::write(places.own.join("new"), "x")),
    ("rename a file of its own", By::Nothing, |places| fs::rename(places.own.join("new"), places.own.join("other"))),
    ("remove a file of its own", By::Nothing, |places| fs::remove_file(places.own.join("other"))),
    ("make a folder of its own", By::Nothing, |places| fs::create_dir_all(places.own.join("folder"))),
    ("read its shard", By::Nothing, |places| fs::read(&places.shard).map(drop)),
    ("read the load of the machine", By::Nothing, |_| fs::read("/proc/stat").map(drop)),
    ("connect to its coordinator", By::Nothing, |places| TcpStream::connect(&places.address).map(drop)),
    ("ask the local network", By::Nothing, |_| UdpSocket::bind("127.0.0.1:0").map(drop)),
    ("start a thread", By::Nothing, |_| thread::Builder::new().spawn(|| {}).map(|thread| thread.join().unwrap())),
    ("write to its shard", By::Landlock, |places| OpenOptions::new().append(true).open(&places.shard).map(drop)),
    ("write a file of others", By::Landlock, |places| fs::write(places.others.join("new"), "x")),
    ("cut off a file of others", By::Landlock, |places| truncate(&places.others.join("secret"))),
    ("read a file of others", By::Landlock, |places| fs::read(places.others.join("secret")).map(drop)),
    ("read it on a new thread", By::Landlock, |places| {
        let path = places.others.join("secret");
        thread::spawn(move || fs::read(path).map(drop)).join().unwrap()
    }),
    ("run a program", By::Seccomp, |_| Command::new("/bin/true").status().map(drop)),
    ("listen on a port", By::Seccomp, |_| TcpListener::bind("127.0.0.1:0").map(drop)),
    ("signal another process", By::Seccomp, |_| signal_parent()),
];

fn truncate(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.set_len(0)
}

#[cfg(unix)]
fn signal_parent() -> io::Result<()> {
    let parent = rustix::process::getppid().ok_or(io::ErrorKind::NotFound)?;
    Ok(rustix::process::test_kill_process(parent)?)
}

#[cfg(not(unix))]
fn signal_parent() -> io::Result<()> {
    Ok(())
}

/// Tries everything and prints a line for each; in the sandbox, the first lines tell what that is.
fn probe(arguments: &[String]) {
    let [mode, own, shard, others, address] = arguments else { panic!("{arguments:?}") };
    let places = Places { own: own.into(), shard: shard.into(), others: others.into(), address: address.clone() };
    if mode == "confined" {
        let allowed = SandboxPlaces { writes: vec![places.own.clone()], reads: vec![places.shard.clone()] };
        let (sandbox, problems) = Sandbox::enter(&allowed);
        print(&format!("sandbox: {sandbox}"));
        problems.iter().for_each(|problem| print(&format!("problem: {problem}")));
    }
    for (name, _, act) in ACTS {
        print(&match act(&places) {
            Ok(()) => format!("{name}: done"),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => format!("{name}: refused"),
            Err(error) => format!("{name}: {error}"),
        });
    }
}

#[expect(clippy::print_stdout, reason = "what was tried is told to the process that started this one")]
fn print(line: &str) {
    println!("{line}");
}

/// What a process of its own says that tries everything.
fn run(mode: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let [own, others] = ["own", "others"].map(|name| folder.path().join(name));
    let shard = folder.path().join("stage-0.gguf");
    [&own, &others].into_iter().for_each(|path| fs::create_dir(path).expect("a folder"));
    [&shard, &others.join("secret")].into_iter().for_each(|path| fs::write(path, "secret").expect("a file"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let told = command.args(["probe", mode]).args([&own, &shard, &others]).arg(address).output().expect("it starts");
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    if mode == "confined" && !has_line(&told.stdout, "no Landlock") {
        assert_eq!(fs::read(others.join("secret")).ok().as_deref(), Some(&b"secret"[..]), "it was written to");
    }
    String::from_utf8(told.stdout).expect("text")
}

fn has_line(said: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(said).contains(text)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "probe") {
        probe(&arguments[1..]);
        return ExitCode::SUCCESS;
    }
    if !cfg!(target_os = "linux") {
        let (sandbox, _) = Sandbox::enter(&SandboxPlaces::default());
        assert_eq!(sandbox, Sandbox::NotOffered);
        print("The sandbox was not tried: there is none for this operating system.");
        return ExitCode::SUCCESS;
    }
    let free = run("free");
    let is_done = |(name, ..): &(&str, By, Act)| free.contains(&format!("{name}: done\n"));
    assert!(ACTS.iter().all(is_done), "without a sandbox, everything can be done:\n{free}");
    let said = run("confined");
    let lacks = |name: &str| said.lines().any(|line| line.starts_with("problem:") && line.contains(name));
    let missing: Vec<By> = [(By::Landlock, "Landlock"), (By::Seccomp, "seccomp")]
        .into_iter()
        .filter_map(|(by, name)| lacks(name).then_some(by))
        .collect();
    for (name, by, _) in ACTS {
        let expected = if by == By::Nothing { "done" } else { "refused" };
        assert!(missing.contains(&by) || said.contains(&format!("{name}: {expected}\n")), "{name}, by {by:?}:\n{said}");
    }
    assert_eq!(said.starts_with("sandbox: full\n"), missing.is_empty(), "{said}");
    if !missing.is_empty() {
        print(&format!("Part of the sandbox was not tried, because this kernel lacks it: {missing:?}."));
    }
    ExitCode::SUCCESS
}
