//! A push that a running server is asked to do: the request in one file of the coordinator's folder, the report in
//! another.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::folder::{FleetHome, HomeFile};
use crate::event::FleetEvent;
use crate::{Clock, FleetError};

/// How often both sides look at the files.
pub const POLL: Duration = Duration::from_millis(100);

const REQUEST: HomeFile = HomeFile("coordinator/push.json");
/// The request under the name that it has while it is done: files can be renamed and removed on a full disk.
const TAKEN: HomeFile = HomeFile("coordinator/push-taken.json");
const REPORT: HomeFile = HomeFile("coordinator/push-news.json");
/// Held by whoever waits for a push.
const PUSHING: HomeFile = HomeFile("coordinator/pushing");

/// What should be pushed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PushRequest {
    /// Tells requests apart.
    number: u64,
    /// The folder of the export.
    pub folder: PathBuf,
    /// Machines and the number of the stage each gets.
    pub targets: Vec<(String, usize)>,
    /// How long to wait for each of them.
    pub wait_seconds: u64,
}

/// How far the push is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Report {
    number: u64,
    said: Vec<String>,
    /// How it ended.
    outcome: Option<Result<(), String>>,
}

/// Where the server reports how a push goes.
pub struct PushReport<'a> {
    home: &'a FleetHome,
    report: Report,
}

impl PushRequest {
    /// A request of this process.
    pub fn new(folder: PathBuf, targets: Vec<(String, usize)>, wait_seconds: u64) -> PushRequest {
        PushRequest { number: std::process::id().into(), folder, targets, wait_seconds }
    }

    /// Lets the server that runs with this folder do it, and passes on what it reports; `false` if none runs.
    pub fn hand_over(&self, home: &FleetHome) -> Result<bool, FleetError> {
        let Some(_alone) = home.lock(PUSHING)? else {
            let problem = "another push is under way; wait for its end".to_owned();
            return Err(FleetError::InUse { problem });
        };
        if !home.is_served() {
            return Ok(false);
        }
        home.remove(REPORT)?;
        home.show(REQUEST, self)?;
        let failed = |problem: String| FleetError::PushFailed { problem };
        let mut said = 0;
        loop {
            Clock::system().sleep(POLL);
            let (is_there, is_done) = (home.is_served(), !home.has(REQUEST) && !home.has(TAKEN));
            let report = home.read::<Report>(REPORT)?.filter(|report| report.number == self.number).unwrap_or_default();
            report.said.iter().skip(said).for_each(|line| home.notify(FleetEvent::Push { note: line.clone() }));
            said = said.max(report.said.len());
            match report.outcome {
                Some(outcome) => return outcome.map(|()| true).map_err(failed),
                None if is_done => {
                    return Err(failed(format!(
                        "the server could not write down how the push ended; make room on the disk of {}, look with \
                        `cascadia fleet status`, and push again",
                        home.folder().display()
                    )));
                }
                None if is_there => {}
                None => {
                    home.remove(REQUEST)?;
                    let problem = "the server has ended meanwhile; start it again, or push without it";
                    return Err(failed(problem.to_owned()));
                }
            }
        }
    }

    /// Lets other processes know that a server runs here for as long as the result is held. Requests to an earlier
    /// server are dropped.
    pub fn accept(home: &FleetHome) -> Result<File, FleetError> {
        let serving = home.serve()?;
        home.remove(REQUEST)?;
        home.remove(TAKEN)?;
        Ok(serving)
    }

    /// The request, once, and only while somebody waits for it: a push that was reported as failed, because the disk
    /// was full, must not happen later.
    pub fn take(home: &FleetHome) -> Option<PushRequest> {
        let request = home.read(REQUEST).ok()??;
        if home.lock(PUSHING).ok()?.is_some() {
            home.remove(REQUEST).ok()?;
            return None;
        }
        home.rename(REQUEST, TAKEN).then_some(request)
    }

    /// Where to report; nothing if nothing can be written there, in which case nothing should be pushed either.
    pub fn report<'a>(&self, home: &'a FleetHome) -> Option<PushReport<'a>> {
        let report = PushReport { home, report: Report { number: self.number, ..Report::default() } };
        report.write().then_some(report)
    }
}

impl PushReport<'_> {
    /// Adds a line.
    pub fn add(&mut self, line: &str) {
        self.report.said.push(line.to_owned());
        self.write();
    }

    /// Says how it ended.
    pub fn end(mut self, outcome: Result<(), String>) {
        self.report.outcome = Some(outcome);
        self.write();
    }

    fn write(&self) -> bool {
        self.home.show(REPORT, &self.report).is_ok()
    }
}

impl Drop for PushReport<'_> {
    /// Whoever waits learns by this that the push is over, even if nothing could be written.
    fn drop(&mut self) {
        let _ = self.home.remove(TAKEN);
    }
}
