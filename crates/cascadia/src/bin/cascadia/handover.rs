//! A push that a running server is asked to do: the wish in one file of the coordinator's folder, the news in another.

use std::fs::File;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::fleet_home::{FleetHome, Part};
use crate::output::remark;

/// How often both sides look.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// How often a server tries to be the only one.
const TRIES: u32 = 10;

const WISH: Part = Part("coordinator/push.json");
/// The wish under the name that it has while it is fulfilled: names can be changed and removed on a full disk.
const TAKEN: Part = Part("coordinator/push-taken.json");
const NEWS: Part = Part("coordinator/push-news.json");
/// Held by whoever waits for a push.
const PUSHING: Part = Part("coordinator/pushing");
/// Held by the server for as long as it runs.
const SERVING: Part = Part("coordinator/serving");

/// What should be pushed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PushWish {
    /// Tells wishes apart.
    number: u64,
    /// The folder of the export.
    pub(crate) folder: PathBuf,
    /// Machines and the number of the stage each gets.
    pub(crate) targets: Vec<(String, usize)>,
    /// How long to wait for each of them.
    pub(crate) wait_seconds: u64,
}

/// What became of it so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct PushNews {
    number: u64,
    said: Vec<String>,
    /// How it ended.
    outcome: Option<Result<(), String>>,
}

/// Where the server says how a push goes.
pub(crate) struct PushTeller<'a> {
    home: &'a FleetHome,
    news: PushNews,
}

impl PushWish {
    pub(crate) fn new(folder: PathBuf, targets: Vec<(String, usize)>, wait_seconds: u64) -> PushWish {
        PushWish { number: std::process::id().into(), folder, targets, wait_seconds }
    }

    /// Lets the server that runs with this folder do it, and says what it says; `false` if none runs.
    pub(crate) fn fulfil(&self, home: &FleetHome) -> anyhow::Result<bool> {
        let Some(_alone) = home.lock(PUSHING)? else { bail!("another push is under way; wait for its end") };
        let runs = || Ok::<_, anyhow::Error>(home.lock(SERVING)?.is_none());
        if !runs()? {
            return Ok(false);
        }
        home.remove(NEWS)?;
        home.show(WISH, self)?;
        let mut said = 0;
        loop {
            thread::sleep(LOOK);
            let (is_there, is_done) = (runs()?, !home.has(WISH) && !home.has(TAKEN));
            let news = home.read::<PushNews>(NEWS)?.filter(|news| news.number == self.number).unwrap_or_default();
            news.said.iter().skip(said).for_each(|line| remark(line));
            said = said.max(news.said.len());
            match news.outcome {
                Some(outcome) => return outcome.map(|()| true).map_err(|problem| anyhow!("{problem}")),
                None if is_done => bail!(
                    "the server could not write down how the push ended; make room on the disk of {}, look with \
                    `cascadia fleet status`, and push again",
                    home.folder().display()
                ),
                None if is_there => {}
                None => {
                    home.remove(WISH)?;
                    bail!("the server has ended meanwhile; start it again, or push without it");
                }
            }
        }
    }

    /// Tells others that a server runs here for as long as the result is held. What was wished of an earlier one is
    /// forgotten.
    pub(crate) fn expect(home: &FleetHome) -> anyhow::Result<File> {
        // Whoever looks whether a server runs has the file for a moment.
        for _ in 0..TRIES {
            if let Some(serving) = home.lock(SERVING)? {
                home.remove(WISH)?;
                home.remove(TAKEN)?;
                return Ok(serving);
            }
            thread::sleep(LOOK);
        }
        bail!("a server runs with this fleet already; end it first")
    }

    /// What the server is asked to do, once, and by someone who still waits for it: what was refused to people, because
    /// the disk failed meanwhile, does not happen later.
    pub(crate) fn take(home: &FleetHome) -> Option<PushWish> {
        let wish = home.read(WISH).ok()??;
        if home.lock(PUSHING).ok()?.is_some() {
            home.remove(WISH).ok()?;
            return None;
        }
        home.rename(WISH, TAKEN).then_some(wish)
    }

    /// Where to say how it goes; nothing if nothing can be said there, in which case nothing should be done either.
    pub(crate) fn teller<'a>(&self, home: &'a FleetHome) -> Option<PushTeller<'a>> {
        let teller = PushTeller { home, news: PushNews { number: self.number, ..PushNews::default() } };
        teller.write().then_some(teller)
    }
}

impl PushTeller<'_> {
    /// Says something.
    pub(crate) fn say(&mut self, line: &str) {
        self.news.said.push(line.to_owned());
        self.write();
    }

    /// Says how it ended.
    pub(crate) fn end(mut self, outcome: Result<(), String>) {
        self.news.outcome = Some(outcome);
        self.write();
    }

    fn write(&self) -> bool {
        self.home.show(NEWS, &self.news).is_ok()
    }
}

impl Drop for PushTeller<'_> {
    /// Whoever waits finds out by this that it is over, even if nothing could be written.
    fn drop(&mut self) {
        let _ = self.home.remove(TAKEN);
    }
}
