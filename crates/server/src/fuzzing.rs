//! What fuzz targets need of a server, and tests of unread answers: every route without a socket, and the keys that a file
//! gives.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use axum::response::Response;
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

/// An answer of which nothing is read until it is dropped.
pub struct Unread {
    /// Its status.
    pub status: u16,
    _response: Response,
}

impl Routes {
    /// The routes of a server.
    pub fn new(model: ServedModel, options: &ServerOptions) -> Result<Routes, ServerError> {
        let app = App::new(model.into(), options, None, None)?;
        let runtime = Builder::new_current_thread().max_blocking_threads(1).enable_all().build()?;
        Ok(Routes { router: routes::router(Arc::new(app)), runtime })
    }

    /// Sends a body to a path; gives the status and the body of the whole answer.
    pub fn post(&self, path: &str, body: &[u8]) -> Result<(u16, Vec<u8>), axum::Error> {
        self.runtime.block_on(async {
            let response = self.respond(path, body).await?;
            let status = response.status().as_u16();
            Ok((status, to_bytes(response.into_body(), usize::MAX).await?.to_vec()))
        })
    }

    /// The same for a client that does not read.
    pub fn post_unread(&self, path: &str, body: &[u8]) -> Result<Unread, axum::Error> {
        let response = self.runtime.block_on(self.respond(path, body))?;
        Ok(Unread { status: response.status().as_u16(), _response: response })
    }

    async fn respond(&self, path: &str, body: &[u8]) -> Result<Response, axum::Error> {
        let request = Request::post(path).header(header::HOST, "localhost").body(Body::from(body.to_vec()));
        self.router.clone().oneshot(request.map_err(axum::Error::new)?).await.map_err(axum::Error::new)
    }
}

/// Reads a file of keys as a server does, and looks for a key in it.
pub fn check_keys(path: &Path) -> Result<(), ServerError> {
    let keys = KeyRing::read(path)?;
    keys.find(b"csk-0");
    Ok(())
}
