//! What differs between operating systems: how a process is told to end.

/// Waits for Ctrl-C or for the signal that service managers send.
#[cfg(unix)]
pub(crate) async fn ended_by_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
        (Ok(mut interrupt), Ok(mut terminate)) => {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
        // Without signals only a stopper ends the server.
        _ => std::future::pending().await,
    }
}

/// Waits for Ctrl-C.
#[cfg(not(unix))]
pub(crate) async fn ended_by_signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        // Without signals only a stopper ends the server.
        std::future::pending::<()>().await;
    }
}
