//! What a server that runs has loaded.

use serde_json::Value;

use crate::client::Client;
use crate::explain::{Failure, server_failure};
use crate::{HubError, HubOptions};

/// A model that a server has loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningModel {
    /// What requests call it.
    pub name: String,
    /// The memory that it takes, where the server says so.
    pub bytes: Option<u64>,
    /// The length of its context, where the server says so.
    pub context: Option<u64>,
    /// When it will be unloaded, where the server says so.
    pub expires: Option<String>,
}

/// The models that the server at the endpoint of `options` has loaded; their token is sent to it as its key.
pub fn running(options: &HubOptions) -> Result<Vec<RunningModel>, HubError> {
    let client = Client::new(options);
    let ask = |path: &str| client.json(&client.address(path));
    let answer = match ask("api/ps") {
        // A server that does not unload models has loaded all that it lists.
        Err(Failure::Status(404)) => ask("v1/models").map(|answer| (answer, "data", "id")),
        answer => answer.map(|answer| (answer, "models", "name")),
    };
    let (answer, list, name) = answer.map_err(|failure| server_failure(&options.endpoint, &failure))?;
    let model = |model: &Value| {
        Some(RunningModel {
            name: model[name].as_str()?.to_owned(),
            bytes: model["size"].as_u64(),
            context: model["context_length"].as_u64(),
            expires: model["expires_at"].as_str().map(str::to_owned),
        })
    };
    Ok(answer[list].as_array().into_iter().flatten().filter_map(model).collect())
}
