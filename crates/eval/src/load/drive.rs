//! Sends a workload: in a closed loop, by clients that wait for each answer, or in an open loop, at random times.

use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, Scope, sleep};
use std::time::{Duration, Instant};

use super::client::{Client, ClientOptions};
use super::record::Record;
use super::workload::Workload;
use crate::EvalError;
use crate::random::Random;

/// Requests that may be in flight at once in an open loop.
const MOST_IN_FLIGHT: usize = 4096;
/// A client needs little.
const STACK_BYTES: usize = 256 << 10;

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// At random times, this many per second on average, whether or not earlier ones have been answered.
    PerSecond(f64),
    /// By this many clients, each of which sends its next request when the last has ended.
    Clients(usize),
    /// By this many clients in the same way, which together send this many requests per second on average if they can.
    Paced(usize, f64),
}

/// How long requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extent {
    /// So many seconds; what is in flight then may end.
    Seconds(f64),
    /// So many requests.
    Requests(u64),
}

/// A load to put on a server.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// What is asked.
    pub workload: Workload,
    /// Where and how it is sent.
    pub client: ClientOptions,
    /// When.
    pub arrivals: Arrivals,
    /// How long.
    pub extent: Extent,
}

/// What became of a load.
#[derive(Clone, Debug)]
pub struct LoadRun {
    /// Requests that were to be sent.
    pub sent: u64,
    /// What became of them, in the order of their numbers.
    pub records: Vec<Record>,
}

/// Puts the load on the server. `progress` hears how many requests have ended.
pub fn run_load(plan: &LoadPlan, mut progress: impl FnMut(u64)) -> Result<LoadRun, EvalError> {
    let address = &plan.client.target.address;
    TcpStream::connect(address).map_err(|source| EvalError::Connect { address: address.clone(), source })?;
    let (sender, records) = channel();
    let (client, begin) = (Client::new(&plan.client), Instant::now());
    let run = Run { plan, client, begin, next: AtomicU64::new(0), in_flight: AtomicUsize::new(0) };
    let mut records = std::thread::scope(|scope| {
        let clients = |count: usize, rate: Option<f64>| {
            for number in 0..count {
                let (run, sender) = (&run, sender.clone());
                start(scope, move || run.closed_loop(LoopClient { number, count, rate }, &sender));
            }
        };
        match plan.arrivals {
            Arrivals::Clients(count) => clients(count, None),
            Arrivals::Paced(count, rate) => clients(count, Some(rate)),
            Arrivals::PerSecond(rate) => {
                let (run, sender) = (&run, sender.clone());
                start(scope, move || run.open_loop(rate, scope, &sender));
            }
        }
        drop(sender);
        let mut ended = Vec::new();
        for record in records {
            ended.push(record);
            progress(ended.len() as u64);
        }
        ended
    });
    records.sort_by_key(|record| record.number);
    Ok(LoadRun { sent: run.next.into_inner(), records })
}

/// A thread of the scope. One that the system does not give is as bad as memory that it does not give.
fn start<'scope>(scope: &'scope Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) {
    let started = Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
    started.expect("the system gives a thread to a client");
}

struct Run<'plan> {
    plan: &'plan LoadPlan,
    client: Client<'plan>,
    begin: Instant,
    next: AtomicU64,
    in_flight: AtomicUsize,
}

/// One of several clients that each wait for their answer.
#[derive(Clone, Copy)]
struct LoopClient {
    number: usize,
    count: usize,
    /// Requests per second of all of them, if they do not send as fast as they can.
    rate: Option<f64>,
}

impl Run<'_> {
    /// The number of the next request, if there is to be one.
    fn next(&self) -> Option<u64> {
        match self.plan.extent {
            Extent::Seconds(seconds) if self.begin.elapsed().as_secs_f64() >= seconds => None,
            Extent::Seconds(_) => Some(self.next.fetch_add(1, Ordering::Relaxed)),
            Extent::Requests(count) => {
                let take = |number| (number < count).then_some(number + 1);
                self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()
            }
        }
    }

    /// One client: a request, its answer, the next request; when refused, it waits as long as the server asks.
    fn closed_loop(&self, client: LoopClient, ended: &Sender<Record>) {
        let workload = &self.plan.workload;
        let tenant = workload.tenant_of_client(client.number, client.count);
        let mut random = Random::new(workload.seed ^ 2, client.number as u64);
        let mut due = 0.0;
        loop {
            if let Some(rate) = client.rate {
                due += random.pause(rate / client.count as f64);
                sleep(Duration::from_secs_f64(due).saturating_sub(self.begin.elapsed()).min(self.time_left()));
            }
            let Some(number) = self.next() else { return };
            let record = self.client.send(&workload.request(number), tenant, self.begin);
            let pause = record.retry_after.filter(|_| record.is_refused()).map(u64::from);
            // Nobody listens any more only when the run is given up.
            let _ = ended.send(record);
            if let Some(pause) = pause {
                sleep(Duration::from_secs(pause).min(self.time_left()));
            }
        }
    }

    fn time_left(&self) -> Duration {
        match self.plan.extent {
            Extent::Seconds(seconds) => Duration::from_secs_f64(seconds).saturating_sub(self.begin.elapsed()),
            Extent::Requests(_) => Duration::MAX,
        }
    }

    /// Requests at random times, whether or not earlier ones were answered, each on a thread of its own.
    fn open_loop<'scope>(&'scope self, rate: f64, scope: &'scope Scope<'scope, '_>, ended: &Sender<Record>) {
        let mut random = Random::new(self.plan.workload.seed ^ 2, 0);
        let mut time = 0.0;
        loop {
            time += random.pause(rate);
            sleep(Duration::from_secs_f64(time).saturating_sub(self.begin.elapsed()));
            let Some(number) = self.next() else { return };
            let workload = &self.plan.workload;
            let (tenant, request) = (workload.tenant_of_request(number), workload.request(number));
            let ended = ended.clone();
            if self.in_flight.fetch_add(1, Ordering::Relaxed) >= MOST_IN_FLIGHT {
                self.in_flight.fetch_sub(1, Ordering::Relaxed);
                let _ = ended.send(Record::not_sent(&request, tenant, "too many requests are in flight"));
                continue;
            }
            start(scope, move || {
                let record = self.client.send(&request, tenant, self.begin);
                self.in_flight.fetch_sub(1, Ordering::Relaxed);
                let _ = ended.send(record);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::super::client::tests::read_request;
    use super::super::{Endpoint, Sizes, Target, check_history};
    use super::*;

    const ANSWER: &str =
        "HTTP/1.1 200 OK\r\n\r\nid: 0\ndata: {\"choices\": [{\"text\": \"a\"}]}\n\nid: 1\ndata: [DONE]\n\n";
    const REFUSAL: &str = "HTTP/1.1 429 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n";

    /// A server that refuses every third request.
    fn server() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let mut asked = 0;
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                // The first connection only finds out whether anybody is there.
                if !read_request(&mut stream).is_empty() {
                    asked += 1;
                    let _ = stream.write_all(if asked % 3 == 0 { REFUSAL } else { ANSWER }.as_bytes());
                }
            }
        });
        address
    }

    fn plan(address: String, arrivals: Arrivals, extent: Extent) -> LoadPlan {
        let size = Sizes { least: 2, most: 9 };
        LoadPlan {
            workload: Workload {
                seed: 1,
                prompt: size,
                answer: size,
                shared_prefix: 0,
                cancel: 0.0,
                slow: 0.0,
                temperatures: vec![0.0],
                tenants: 2,
                greed: 1,
            },
            client: ClientOptions {
                target: Target { address, prefix: String::new() },
                endpoint: Endpoint::Chat,
                model: "default".to_owned(),
                keys: Vec::new(),
                timeout: Duration::from_secs(30),
            },
            arrivals,
            extent,
        }
    }

    fn check(arrivals: Arrivals, extent: Extent) -> LoadRun {
        let run = run_load(&plan(server(), arrivals, extent), |_| {}).unwrap();
        assert_eq!(check_history(&run.records, run.sent), Vec::<String>::new());
        let refused = run.records.iter().filter(|record| record.is_refused()).count();
        assert_eq!((refused, run.records.iter().any(Record::is_failed)), (run.records.len() / 3, false));
        run
    }

    #[test]
    fn every_request_is_sent_and_ends_once() {
        for arrivals in [Arrivals::Clients(3), Arrivals::PerSecond(300.0), Arrivals::Paced(3, 300.0)] {
            let run = check(arrivals, Extent::Requests(21));
            assert_eq!((run.sent, run.records.len()), (21, 21), "{arrivals:?}");
        }
        let run = check(Arrivals::Clients(2), Extent::Seconds(0.1));
        assert!(run.sent > 0);
    }

    #[test]
    fn nobody_there_is_an_error() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let plan = plan(free, Arrivals::Clients(1), Extent::Requests(1));
        assert!(matches!(run_load(&plan, |_| {}), Err(EvalError::Connect { .. })));
    }
}
