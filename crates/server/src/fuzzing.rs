//! What fuzz targets need of a server: every route without a socket, and the keys that a file gives.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

use crate::app::App;
use crate::error::ServerError;
use crate::http::keys::KeyRing;
use crate::model::frontend::ServedModel;
use crate::options::ServerOptions;
use crate::routes;

/// All routes behind the guard, as connections reach them.
pub struct Routes {
    router: Router,
    runtime: Runtime,
}

impl Routes {
    /// The routes of a server with default options.
    pub fn new(model: ServedModel) -> Result<Routes, ServerError> {
        let app = App::new(model, &ServerOptions::default(), None, None)?;
        let runtime = Builder::new_current_thread().max_blocking_threads(1).enable_all().build()?;
        Ok(Routes { router: routes::router(Arc::new(app)), runtime })
    }

    /// Sends a body to a path; gives the status and the body of the whole answer.
    pub fn post(&self, path: &str, body: &[u8]) -> Result<(u16, Vec<u8>), axum::Error> {
        let request = Request::post(path).header(header::HOST, "localhost").body(Body::from(body.to_vec()));
        let request = request.map_err(axum::Error::new)?;
        self.runtime.block_on(async {
            let response = self.router.clone().oneshot(request).await.map_err(axum::Error::new)?;
            let status = response.status().as_u16();
            Ok((status, to_bytes(response.into_body(), usize::MAX).await?.to_vec()))
        })
    }
}

/// Reads a file of keys as a server does, and looks for a key in it.
pub fn check_keys(path: &Path) -> Result<(), ServerError> {
    let keys = KeyRing::read(path)?;
    keys.find(b"csk-0");
    Ok(())
}
