//! A server that is killed in the middle of streams goes on with them from its log.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json as object;

use crate::live::{never_ends, read};
use crate::test_fleet::{Server, until};

/// Streams that run when the server is killed.
const STREAMS: usize = 3;
/// Tokens of each.
const TOKENS: u64 = 120;
/// The most of them that have to be sampled again where the disk, and the thread that writes there, keep up.
const AGAIN: u64 = 32;

/// What a client has of a stream.
#[derive(Default)]
struct Heard {
    text: String,
    last: String,
}

impl Heard {
    fn listen(&mut self, stream: impl Read) {
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        lines.for_each(|line| self.read(&line));
    }

    fn read(&mut self, line: &str) {
        read(line, &mut self.text, &mut self.last);
    }

    /// The number of its last event; 0 before the second.
    fn events(&self) -> u64 {
        self.last.rsplit_once('-').map_or(0, |(_, number)| number.parse().expect("a number"))
    }
}

fn counted(server: &Server, name: &str) -> u64 {
    let text = server.get("/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("cascadia_resumed_{name}_tokens_total ")));
    line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no number of {name} tokens in {text}"))
}

/// The logs in a folder that hold something.
fn logs(folder: &Path) -> BTreeSet<OsString> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let written = files.filter(|file| file.metadata().is_ok_and(|metadata| metadata.len() > 0));
    written.map(|file| file.file_name()).collect()
}

/// Kills a server so many times, each time at another moment; all streams go on and say what they would have said, and
/// each of them draws no more than so many tokens again.
fn check(kills: u64, most_again: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let start = || Server::start(&["--resume-log", log.to_str().expect("a UTF-8 path")]);
    let (never_killed, mut server) = (Server::start(&[]), start());
    let never = never_ends();
    let (mut most, mut sum, mut slowest) = (0, 0, Duration::ZERO);
    for kill in 0..kills {
        let body = |stream: usize| {
            let prompt = format!("Night {kill}, ship {stream}:");
            object!({"prompt": prompt, "max_tokens": TOKENS, "temperature": 1, "stream": true, "logit_bias": never})
        };
        let before = logs(&log);
        let mut sockets: Vec<_> = (0..STREAMS).map(|stream| BufReader::new(server.send(&body(stream), ""))).collect();
        let mut heard: Vec<Heard> = (0..STREAMS).map(|_| Heard::default()).collect();
        let wanted = 3 + kill * 37 % 110;
        while heard[0].events() < wanted {
            let mut line = String::new();
            assert!(sockets[0].read_line(&mut line).expect("it is there") > 0, "it ended before it was killed");
            heard[0].read(line.trim_end());
        }
        // Something is known of each, also where the thread that writes it down had to wait.
        until(|| (logs(&log).difference(&before).count() >= STREAMS).then_some(()));
        // As with kill -9; what was on its way to us still counts.
        drop(server);
        heard.iter_mut().zip(sockets).for_each(|(heard, socket)| heard.listen(socket));
        let begin = Instant::now();
        server = start();
        slowest = slowest.max(begin.elapsed());
        for (stream, heard) in heard.iter_mut().enumerate() {
            heard.listen(server.send(&body(stream), &format!("Last-Event-ID: {}\r\n", heard.last)));
            // The seed is in the name of every event.
            let mut body = body(stream);
            body["seed"] = u64::from_str_radix(&heard.last[..16], 16).expect("a number").cast_signed().into();
            let mut expected = Heard::default();
            expected.listen(never_killed.send(&body, ""));
            assert_eq!(heard.text, expected.text, "kill {kill}, stream {stream}");
        }
        let again = counted(&server, "recomputed");
        assert!(again <= most_again * STREAMS as u64, "kill {kill}: {again} tokens were sampled again");
        assert!(counted(&server, "known") > 0, "kill {kill}");
        (most, sum) = (again.max(most), sum + again);
    }
    eprintln!(
        "{kills} kills, {STREAMS} streams each: {sum} tokens sampled again, at most {most} after one kill; at most \
         {slowest:?} from a start to serving"
    );
}

#[test]
fn streams_go_on_from_the_log_after_a_kill() {
    // How much was written down when it was killed is up to the disk.
    check(2, TOKENS);
}

#[test]
#[ignore = "takes minutes; see CONTRIBUTING.md"]
fn a_hundred_kills() {
    check(100, AGAIN);
}
