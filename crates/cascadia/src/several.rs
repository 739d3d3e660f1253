//! Several models behind one server, within one memory.

use std::path::Path;
use std::sync::{Arc, Mutex};

use cascadia_server::{KeepAlive, OnDemandModel, OnDemandModels, Server as HttpServer};
use cascadia_weights::MemoryProbe;

use crate::serve::{details, served};
use crate::{Error, ModelBuilder, ModelInfo, ModelSource, Server, ServerBuilder};

impl ServerBuilder {
    /// Listens, and serves several models. The first is loaded at once, the others when requests name them; each leaves memory
    /// when nobody has used it for `keep_alive`. If [`ModelBuilder::memory`] has room for all of them, each gets a part of it;
    /// otherwise one at a time has it. Adapters are not offered.
    pub fn serve_several(
        &self,
        sources: Vec<ModelSource>,
        builder: &ModelBuilder,
        keep_alive: KeepAlive,
    ) -> Result<Server, Error> {
        let opened = sources.iter().map(|source| Ok((source, source.files()?)));
        let opened = opened.collect::<Result<Vec<_>, Error>>()?;
        let needs = opened.iter().map(|(_, files)| builder.bytes_of_one(files)).collect::<Result<Vec<u64>, Error>>()?;
        let room = builder.memory.map(|memory| memory.saturating_sub(builder.reserved));
        let machine = || MemoryProbe::at(Path::new("/")).total().map(|total| total / 4 * 3);
        let together = room.or_else(machine).is_none_or(|room| needs.iter().sum::<u64>() <= room);
        let models = opened.iter().zip(&needs).map(|((source, files), need)| {
            let builder = match room.filter(|_| together) {
                Some(room) => builder.clone().reserve(0).memory(part(room, *need, &needs)),
                None => builder.clone(),
            };
            on_demand((*source).clone(), details(ModelInfo::of(files, source.digest())), builder)
        });
        let models = OnDemandModels { models: models.collect(), together, keep_alive };
        let name = models.models.first().map(|model| model.name.clone()).unwrap_or_default();
        let http = HttpServer::bind(models, &self.options)?;
        Ok(Server { http, name, service: Arc::new(Mutex::new(None)), conclude: Box::new(|| Ok(())) })
    }
}

/// What one of several models may take of the room for all, by what they need.
fn part(room: u64, need: u64, needs: &[u64]) -> u64 {
    let all: u128 = needs.iter().map(|need| u128::from(*need)).sum();
    u64::try_from(u128::from(room) * u128::from(need) / all.max(1)).unwrap_or(room)
}

/// A model that is opened like this when it is wanted.
fn on_demand(source: ModelSource, details: cascadia_server::ModelDetails, builder: ModelBuilder) -> OnDemandModel {
    let name = source.name();
    let load = move || {
        let loaded = builder.open(source.clone()).and_then(|model| served(model, (None, &[])));
        loaded.map(|(service, model)| (model, service)).map_err(|error| error.to_string())
    };
    OnDemandModel { name, details, load: Box::new(load) }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_are_as_needs_and_take_no_more_than_all() {
        let needs = [3_000_000_000, 1_000_000_000, 7];
        let parts = needs.map(|need| part(6_000_000_000, need, &needs));
        assert!(parts.iter().zip(needs).all(|(part, need)| *part >= need), "{parts:?}");
        assert!(parts.iter().sum::<u64>() <= 6_000_000_000, "{parts:?}");
        assert_eq!(part(u64::MAX, u64::MAX, &[u64::MAX, u64::MAX]), u64::MAX / 2);
        assert_eq!(part(10, 0, &[0]), 0);
    }
}
