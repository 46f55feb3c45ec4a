//! Signals to stop: the first ends in order, the second at once.

use crate::error::{Code, Error};

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT.
#[cfg(unix)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

#[cfg(unix)]
impl Signals {
    /// Listens from now on.
    pub(super) fn listen() -> Result<Self, Error> {
        let listen = |kind| {
            signal(kind)
                .map_err(|e| Error::new(Code::Engine, "could not listen to signals").with_source(e))
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Waits for the first.
    pub(super) async fn first(&mut self) {
        self.next().await;
    }

    /// Waits for the next one after that.
    pub(super) async fn second(&mut self) {
        self.next().await;
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
pub(super) struct Signals;

#[cfg(not(unix))]
impl Signals {
    /// Listens from now on.
    pub(super) fn listen() -> Result<Self, Error> {
        Ok(Self)
    }

    /// Waits for the first.
    pub(super) async fn first(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for the next one after that.
    pub(super) async fn second(&mut self) {
        self.first().await;
    }
}
