//! The way between a machine and the coordinator: a relay that can be cut, or lets nothing through.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How often it is looked whether something may pass again.
const PAUSE: Duration = Duration::from_millis(5);

/// A port that leads to another.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    silent: AtomicBool,
    /// Both ends of what is connected now.
    open: Mutex<Vec<TcpStream>>,
}

impl Relay {
    /// A relay to an address, for as long as the program runs.
    pub(super) fn to(coordinator: SocketAddr) -> io::Result<Relay> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let (address, state) = (listener.local_addr()?, Arc::<State>::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                // Who cannot be connected tries again.
                let _ = shared.connect(socket, coordinator);
            }
        });
        Ok(Relay { address, state })
    }

    /// Ends every connection.
    pub(super) fn cut(&self) {
        for socket in self.state.open().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Lets nothing through from now on.
    pub(super) fn fall_silent(&self) {
        self.state.silent.store(true, Ordering::Relaxed);
    }

    /// Lets everything through again.
    pub(super) fn speak(&self) {
        self.state.silent.store(false, Ordering::Relaxed);
    }
}

impl State {
    fn open(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(self: &Arc<State>, worker: TcpStream, coordinator: SocketAddr) -> io::Result<()> {
        let coordinator = TcpStream::connect(coordinator)?;
        for socket in [&worker, &coordinator] {
            socket.set_nodelay(true)?;
        }
        // What was connected before has ended, or will as this begins.
        self.open().drain(..).for_each(drop);
        self.open().extend([worker.try_clone()?, coordinator.try_clone()?]);
        for (from, to) in [(worker.try_clone()?, coordinator.try_clone()?), (coordinator, worker)] {
            let state = Arc::clone(self);
            thread::spawn(move || state.copy(from, to));
        }
        Ok(())
    }

    /// Passes on what comes until an end is gone; then the other goes too.
    fn copy(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut piece = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut piece) {
            while self.silent.load(Ordering::Relaxed) {
                thread::sleep(PAUSE);
            }
            if to.write_all(&piece[..count]).is_err() {
                break;
            }
        }
        for socket in [from, to] {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}
