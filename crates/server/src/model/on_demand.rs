//! Several models in one process. Those that requests name are loaded, and leave memory when nobody has used them for a while, or
//! when another needs their room.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cascadia_engine::service::{Service, SubmitError};
use tokio::sync::{Notify, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use super::frontend::{DEFAULT, LATEST, ModelDetails, ModelFrontend, ServedModel, unix_seconds};
use super::keep_alive::KeepAlive;
use super::short_name::is_short_for;
use super::slot::ModelSlot;
use crate::error::{ApiError, ErrorKind, ServerError};
use crate::request::validate::shortened;

/// The most requests that wait for models to be loaded.
const MOST_WAITING: usize = 64;
/// The time between two looks for models that nobody uses.
const INTERVAL: Duration = Duration::from_secs(1);
/// The same while one has to leave for another.
const LEAVING_INTERVAL: Duration = Duration::from_millis(10);
/// When it is worth trying again where too many wait.
const RETRY: Duration = Duration::from_secs(2);

/// A model that is loaded when a request names it.
pub struct OnDemandModel {
    /// What clients call it.
    pub name: String,
    /// Facts about it, which are shown also while it is not in memory.
    pub details: ModelDetails,
    /// Loads it, or says what is wrong. Takes time.
    pub load: Box<dyn Fn() -> Result<LoadedModel, String> + Send + Sync>,
}

/// A model in memory, and what computes it.
pub type LoadedModel = (ServedModel, Service);

/// The models of a server that has several.
pub struct OnDemandModels {
    /// All of them, at least one. The first is meant where a request names none.
    pub models: Vec<OnDemandModel>,
    /// Whether memory has room for all of them; otherwise they are in memory one at a time.
    pub together: bool,
    /// How long a model stays after its last request, unless that says otherwise.
    pub keep_alive: KeepAlive,
}

/// Loads models and lets them go.
pub(crate) struct OnDemand {
    offered: OnDemandModels,
    state: Mutex<State>,
    /// Something waits to be loaded.
    wanted: Notify,
    /// The model that was loaded last, for those who look at the server as a whole.
    slot: ModelSlot,
    /// The longest that a request waits.
    patience: Duration,
    /// When the server started, in seconds since 1970.
    since: u64,
}

/// What is in memory and what waits, model by model.
struct State {
    places: Vec<Place>,
    /// Models that requests wait for, in the order in which the first of these came.
    order: VecDeque<usize>,
}

#[derive(Default)]
struct Place {
    in_memory: Option<InMemory>,
    waiting: Vec<oneshot::Sender<Result<Arc<ModelFrontend>, ApiError>>>,
}

struct InMemory {
    frontend: Arc<ModelFrontend>,
    service: Service,
    /// When a request was last seen to use it.
    last_use: Instant,
}

/// A model that requests may name.
pub(crate) enum OfferedModel<'a> {
    /// In memory, and how much longer it stays there if nobody uses it.
    InMemory(Arc<ModelFrontend>, KeepAlive),
    /// Loaded when a request names it; and since when it is served, in seconds since 1970.
    Stored(&'a OnDemandModel, u64),
}

impl OnDemand {
    /// Loads the first model.
    pub(crate) fn start(
        offered: OnDemandModels,
        slot: impl FnOnce(ServedModel) -> ModelSlot,
        patience: Duration,
    ) -> Result<OnDemand, ServerError> {
        let name = |model: &OnDemandModel| model.name.clone();
        let wrong = |name: String, problem: String| ServerError::Model { name, problem };
        let Some(first) = offered.models.first() else {
            return Err(wrong(DEFAULT.to_owned(), "there is none; give at least one".to_owned()));
        };
        for (position, model) in offered.models.iter().enumerate() {
            if offered.models[..position].iter().any(|earlier| earlier.name == model.name) {
                let problem = "two models have this name; rename one of them, or give it once".to_owned();
                return Err(wrong(name(model), problem));
            }
        }
        let (model, service) = (first.load)().map_err(|problem| wrong(name(first), problem))?;
        let slot = slot(model);
        let mut places: Vec<Place> = offered.models.iter().map(|_| Place::default()).collect();
        places[0].in_memory = Some(InMemory { frontend: slot.current(), service, last_use: Instant::now() });
        let state = Mutex::new(State { places, order: VecDeque::new() });
        Ok(OnDemand { offered, state, wanted: Notify::new(), slot, patience, since: unix_seconds() })
    }

    /// Where the model is that was loaded last.
    pub(crate) fn slot(&self) -> &ModelSlot {
        &self.slot
    }

    /// The number of the model that a request names.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<usize, ApiError> {
        let Some(name) = name else { return Ok(0) };
        let models = self.offered.models.iter();
        let mut meant = models.clone().enumerate().filter(|(_, model)| is_short_for(name, &model.name));
        let found = models.clone().position(|model| model.name == name);
        // A short name that two models have is neither of them.
        let found = found.or_else(|| meant.next().filter(|_| meant.next().is_none()).map(|(position, _)| position));
        let plain = || name.strip_suffix(LATEST)?.strip_suffix(':');
        let is_first = |name: &str| name == DEFAULT || self.slot.is_alias(name);
        let found = found.or_else(|| (is_first(name) || plain().is_some_and(is_first)).then_some(0));
        found.ok_or_else(|| {
            let names: Vec<String> = self.offered.models.iter().map(|model| format!("`{}`", model.name)).collect();
            let message = format!("there is no model `{}`; this server has {}", shortened(name), names.join(", "));
            ApiError::no_model(message)
        })
    }

    /// A model, once it is in memory. It stays there until what is returned is dropped.
    pub(crate) async fn get(&self, model: usize) -> Result<Arc<ModelFrontend>, ApiError> {
        let waiting = {
            let State { places, order } = &mut *self.state();
            if let Some(in_memory) = &mut places[model].in_memory {
                in_memory.last_use = Instant::now();
                return Ok(Arc::clone(&in_memory.frontend));
            }
            let waiting = places.iter().map(|place| place.waiting.len()).sum::<usize>();
            if waiting >= MOST_WAITING {
                let message = format!("{waiting} requests wait for models to be loaded; try again in 2 s");
                return Err(ApiError::busy(message, RETRY));
            }
            let (sender, receiver) = oneshot::channel();
            places[model].waiting.push(sender);
            if !order.contains(&model) {
                order.push_back(model);
            }
            receiver
        };
        self.wanted.notify_one();
        let ended = || ApiError::new(ErrorKind::Unavailable, "the server is shutting down");
        match timeout(self.patience, waiting).await {
            Ok(loaded) => loaded.unwrap_or_else(|_| Err(ended())),
            Err(_) => {
                let message = "the model was not loaded in time, because others were in use; try again";
                Err(ApiError::new(ErrorKind::Unavailable, message))
            }
        }
    }

    /// An error while memory is so full that no job is taken.
    pub(crate) fn check_memory(&self) -> Result<(), SubmitError> {
        self.in_memory().iter().try_for_each(|frontend| frontend.model.service.check_memory())
    }

    /// The models in memory.
    pub(crate) fn in_memory(&self) -> Vec<Arc<ModelFrontend>> {
        let state = self.state();
        let in_memory = state.places.iter().filter_map(|place| place.in_memory.as_ref());
        in_memory.map(|in_memory| Arc::clone(&in_memory.frontend)).collect()
    }

    /// All models, in the order in which they were given.
    pub(crate) fn all(&self) -> Vec<OfferedModel<'_>> {
        let state = self.state();
        let of = |(model, place): (_, &Place)| match &place.in_memory {
            None => OfferedModel::Stored(model, self.since),
            Some(InMemory { frontend, last_use, .. }) => {
                let KeepAlive(time) = frontend.keep_alive().unwrap_or(self.offered.keep_alive);
                let left = time.map(|time| time.saturating_sub(last_use.elapsed()));
                OfferedModel::InMemory(Arc::clone(frontend), KeepAlive(left))
            }
        };
        self.offered.models.iter().zip(&state.places).map(of).collect()
    }

    /// Loads what requests wait for, and lets go what nobody uses, for as long as the server runs.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            // One that is wanted while another is being loaded is found below.
            let _ = timeout(INTERVAL, self.wanted.notified()).await;
            while let Some(model) = self.next_wanted() {
                self.load(model).await;
            }
            for unused in self.take_unused() {
                self.let_go(unused).await;
            }
        }
    }

    fn next_wanted(&self) -> Option<usize> {
        let State { places, order } = &mut *self.state();
        // Nobody waits for one that was asked for again while it was being loaded.
        std::iter::from_fn(|| order.pop_front()).find(|model| !places[*model].waiting.is_empty())
    }

    /// Loads a model for those that wait for it, after others have made room for it.
    async fn load(self: &Arc<Self>, model: usize) {
        for other in self.take_others(model) {
            self.let_go(other).await;
        }
        let (own, begin) = (Arc::clone(self), Instant::now());
        let loaded = spawn_blocking(move || (own.offered.models[model].load)()).await;
        let loaded = loaded.unwrap_or_else(|_| Err("it could not be loaded; see the server's log".to_owned()));
        let name = &self.offered.models[model].name;
        let mut state = self.state();
        let place = &mut state.places[model];
        let loaded = loaded.map(|(served, service)| {
            self.slot.replace(served);
            let frontend = self.slot.current();
            place.in_memory = Some(InMemory { frontend: Arc::clone(&frontend), service, last_use: Instant::now() });
            tracing::info!(model = name, seconds = begin.elapsed().as_secs_f64(), "loaded a model");
            frontend
        });
        let loaded = loaded.map_err(|problem| {
            tracing::error!(model = name, problem, "cannot load a model");
            // The problem names files of this machine, which are not for clients.
            ApiError::new(ErrorKind::Unavailable, format!("cannot load the model `{name}`; see the server's log"))
        });
        for waiting in take(&mut place.waiting) {
            // One that no longer waits needs no answer.
            let _ = waiting.send(loaded.clone());
        }
    }

    /// Takes out what has to leave memory for a model; requests that come now wait until it is back.
    fn take_others(&self, model: usize) -> Vec<InMemory> {
        if self.offered.together {
            return Vec::new();
        }
        let mut state = self.state();
        let others = state.places.iter_mut().enumerate().filter(|(number, _)| *number != model);
        others.filter_map(|(_, place)| place.in_memory.take()).collect()
    }

    /// Takes out what nobody has used for as long as it stays.
    fn take_unused(&self) -> Vec<InMemory> {
        let mut state = self.state();
        let mut unused = Vec::new();
        for place in &mut state.places {
            let Some(in_memory) = &mut place.in_memory else { continue };
            if self.is_used(&in_memory.frontend) {
                in_memory.last_use = Instant::now();
                continue;
            }
            let KeepAlive(time) = in_memory.frontend.keep_alive().unwrap_or(self.offered.keep_alive);
            if time.is_some_and(|time| in_memory.last_use.elapsed() >= time) {
                unused.extend(place.in_memory.take());
            }
        }
        unused
    }

    /// Waits until the requests of a model have their answers, then ends it.
    async fn let_go(&self, InMemory { frontend, service, .. }: InMemory) {
        while self.is_used(&frontend) {
            sleep(LEAVING_INTERVAL).await;
        }
        // What it had runs no longer in any case.
        let _ = spawn_blocking(move || service.drain()).await;
        tracing::info!(model = frontend.model.name, "unloaded a model");
    }

    /// Whether somebody has a model besides those who keep it.
    fn is_used(&self, frontend: &Arc<ModelFrontend>) -> bool {
        let is_shown = Arc::ptr_eq(frontend, &self.slot.current());
        Arc::strong_count(frontend) > 1 + usize::from(is_shown)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use cascadia_engine::service::ServiceOptions;
    use cascadia_engine::{Engine, OpenOptions, Source};
    use cascadia_kernels::Pool;
    use tokio::task::{JoinHandle, yield_now};

    use super::*;
    use crate::model::frontend::Common;
    use crate::observe::metrics::Metrics;
    use crate::options::Limits;

    const MINUTE: Duration = Duration::from_secs(60);
    /// Long enough for whatever does not have to wait for something else.
    const SOON: Duration = Duration::from_secs(5);

    /// Two models, `a` and `b`, whose loads are counted.
    struct Pair {
        models: Arc<OnDemand>,
        loads: Arc<AtomicUsize>,
        /// Loading `b` fails while this is set.
        is_broken: Arc<AtomicBool>,
    }

    impl Pair {
        fn start(together: bool, keep_alive: Option<Duration>) -> Pair {
            let (loads, is_broken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
            let model = |name: &str| {
                let (loads, is_broken, own) = (Arc::clone(&loads), Arc::clone(&is_broken), name.to_owned());
                let load = move || {
                    loads.fetch_add(1, Ordering::SeqCst);
                    match own == "b" && is_broken.load(Ordering::SeqCst) {
                        true => Err("its file is gone".to_owned()),
                        false => Ok(loaded(&own)),
                    }
                };
                OnDemandModel { name: name.to_owned(), details: ModelDetails::default(), load: Box::new(load) }
            };
            let models = vec![model("a"), model("b")];
            let offered = OnDemandModels { models, together, keep_alive: KeepAlive(keep_alive) };
            let metrics = Arc::new(Metrics::default());
            let common = Common::new(&["gpt".to_owned()], metrics, &Limits::default(), 2);
            let slot = |model| ModelSlot::new(model, common);
            let models = OnDemand::start(offered, slot, 10 * MINUTE).expect("the first model is loaded");
            let models = Arc::new(models);
            tokio::spawn(Arc::clone(&models).run());
            Pair { models, loads, is_broken }
        }

        fn loads(&self) -> usize {
            self.loads.load(Ordering::SeqCst)
        }

        fn in_memory(&self) -> Vec<String> {
            self.models.in_memory().iter().map(|frontend| frontend.model.name.clone()).collect()
        }

        /// Asks for a model on a task of its own, which has begun to wait when this returns.
        async fn ask(&self, model: usize) -> JoinHandle<Result<Arc<ModelFrontend>, ApiError>> {
            let models = Arc::clone(&self.models);
            let asking = tokio::spawn(async move { models.get(model).await });
            yield_now().await;
            asking
        }
    }

    fn loaded(name: &str) -> LoadedModel {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cascadia/model/rainier-33m-q4_k_m.gguf");
        let options = OpenOptions { context: Some(64), ..OpenOptions::new(Arc::new(Pool::new(1))) };
        let engine = Engine::open(Source::Path(&path), &options).expect("the model opens");
        let text = Arc::new(engine.text().expect("the model has a tokenizer"));
        let service = Service::start(engine, Arc::clone(&text), ServiceOptions::default()).expect("it starts");
        let (name, details) = (name.to_owned(), ModelDetails::default());
        (ServedModel { name, text, service: service.handle(), queue: 64, details, adapters: None }, service)
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_leaves_when_nobody_has_used_it_for_a_while() {
        let pair = Pair::start(true, Some(MINUTE));
        let held = pair.models.get(1).await.expect("it loads");
        assert_eq!((pair.in_memory(), pair.loads()), (vec!["a".to_owned(), "b".to_owned()], 2));
        sleep(2 * MINUTE).await;
        assert_eq!(pair.in_memory(), ["b"], "a request still has it");
        drop(held);
        sleep(MINUTE / 2).await;
        assert_eq!(pair.in_memory(), ["b"], "it may be used again");
        sleep(MINUTE).await;
        assert!(pair.in_memory().is_empty());
        let again = pair.models.get(0).await.expect("it loads again");
        assert_eq!((again.model.name.as_str(), pair.loads()), ("a", 3));
        again.keep(KeepAlive(None));
        drop(again);
        sleep(60 * MINUTE).await;
        assert_eq!(pair.in_memory(), ["a"], "it was asked to stay");
        pair.models.get(0).await.expect("it is there").keep(KeepAlive(Some(Duration::ZERO)));
        sleep(SOON).await;
        assert!(pair.in_memory().is_empty(), "it was asked to leave");
    }

    #[tokio::test(start_paused = true)]
    async fn where_memory_has_room_for_one_they_take_turns() {
        let pair = Pair::start(false, None);
        let first = pair.models.get(0).await.expect("it is there");
        let (second, third) = (pair.ask(1).await, pair.ask(1).await);
        sleep(MINUTE).await;
        assert!(!second.is_finished() && pair.loads() == 1, "the first is still used");
        let fourth = pair.ask(0).await;
        sleep(MINUTE).await;
        assert!(!fourth.is_finished(), "who comes later does not keep it in memory");
        drop(first);
        let (second, third) = (second.await.unwrap().expect("it loads"), third.await.unwrap().expect("it is there"));
        assert!(Arc::ptr_eq(&second, &third), "both waited for one load");
        sleep(MINUTE).await;
        assert!(!fourth.is_finished() && pair.loads() == 2, "the second is used now");
        drop((second, third));
        assert_eq!(fourth.await.unwrap().expect("it loads").model.name, "a");
        assert_eq!((pair.in_memory(), pair.loads()), (vec!["a".to_owned()], 3));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_cannot_be_loaded_is_tried_again_when_it_is_asked_for() {
        let pair = Pair::start(false, None);
        pair.is_broken.store(true, Ordering::SeqCst);
        let error = pair.models.get(1).await.err().expect("it cannot be loaded");
        assert_eq!(error.message, "cannot load the model `b`; see the server's log");
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert_eq!(pair.models.get(0).await.expect("it loads again").model.name, "a");
        pair.is_broken.store(false, Ordering::SeqCst);
        assert_eq!(pair.models.get(1).await.expect("its file is back").model.name, "b");
    }

    #[tokio::test(start_paused = true)]
    async fn few_wait_and_not_for_ever() {
        let pair = Pair::start(false, None);
        let _held = pair.models.get(0).await.expect("it is there");
        let mut waiting = Vec::new();
        for _ in 0..MOST_WAITING {
            waiting.push(pair.ask(1).await);
        }
        let refused = pair.models.get(1).await.err().expect("too many wait");
        assert_eq!((refused.kind, refused.retry_after), (ErrorKind::Busy, Some(RETRY)));
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap().err().expect("it never loads").kind, ErrorKind::Unavailable);
        }
        assert_eq!(pair.loads(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_found() {
        let pair = Pair::start(true, None);
        for (name, expected) in [("a", 0), ("a:latest", 0), ("b", 1), ("b:latest", 1), ("default", 0), ("gpt", 0)] {
            assert_eq!(pair.models.find(Some(name)).ok(), Some(expected), "{name}");
        }
        assert_eq!(pair.models.find(None).ok(), Some(0));
        let unknown = pair.models.find(Some("c")).expect_err("there is none");
        assert_eq!(unknown.message, "there is no model `c`; this server has `a`, `b`");
    }
}
