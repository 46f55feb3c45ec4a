//! The listener.

use std::collections::BTreeMap;
use std::future::IntoFuture as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use onceward::{EngineState, Outbox, Running};
use onceward_console::{
    Access, Console, Payloads, StoreBoard, StoreDesk, StoreGate, check_exposure,
};
use onceward_core::Payload;
use onceward_core::sensitivity::Sensitivity;
use onceward_core::store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, PayloadRules};
use crate::error::{Code, Error};

/// The tokens.
pub(super) fn access(config: &Config) -> Result<Access, Error> {
    let mut access = Access::default();
    for token in &config.tokens {
        let secret = token.token.read()?;
        let scopes = token.scopes.iter().copied();
        access = access
            .with_token(&token.name, secret.reveal(), scopes)
            .map_err(|error| Error::new(Code::Secret, error.to_string()))?;
    }
    Ok(access)
}

/// Opens the listener, unless it would be open to strangers.
pub(super) async fn listen(config: &Config, access: &Access) -> Result<TcpListener, Error> {
    let address = config.http.listen;
    check_exposure(address, access).map_err(|e| Error::new(Code::Listen, e.to_string()))?;
    TcpListener::bind(address).await.map_err(|e| {
        Error::new(Code::Listen, format!("could not listen on {address}")).with_source(e)
    })
}

/// Where it listens, once a port was chosen.
pub(super) fn address(listener: &TcpListener) -> Result<SocketAddr, Error> {
    listener
        .local_addr()
        .map_err(|e| Error::new(Code::Listen, "the listener has no address").with_source(e))
}

/// The API over a store, ready while the engine is and nobody has asked to stop.
pub(super) fn router<S: Store>(
    config: &Config,
    access: Access,
    store: S,
    engine: &Running<S>,
    stopping: Arc<AtomicBool>,
) -> Router {
    let (state, throttle) = (engine.watch(), engine.throttle());
    let outbox = Outbox::new(store.clone());
    let desk = StoreDesk(store.clone());
    let judging = throttle.clone();
    let board = StoreBoard::new(store.clone())
        .standards(config.standards())
        .judged(move || judging.judged());
    let gate = StoreGate::new(store)
        .engine(move || pulse(&state.borrow(), stopping.load(Ordering::SeqCst)))
        .doorbell(move || outbox.ring())
        .throttle(move |message_type| Some(throttle.check(message_type).err()?.retry_after_ms));
    let own = config.http.listen.ip();
    let own = if own.is_ipv6() {
        format!("[{own}]")
    } else {
        own.to_string()
    };
    Console::new(gate)
        .desk(desk)
        .board(board)
        .payloads(ConfiguredPayloads(config.payloads.clone()))
        .access(access)
        .hosts(config.http.hosts.iter().cloned().chain([own]))
        .types(config.contract.messages.keys().cloned())
        .body_bytes_max(config.http.body_bytes_max)
        .router()
}

/// What the configuration says of payloads.
struct ConfiguredPayloads(BTreeMap<String, PayloadRules>);

impl Payloads for ConfiguredPayloads {
    fn sensitivity(&self, message_type: &str) -> Sensitivity {
        let rules = self.0.get(message_type);
        rules.map_or_else(Sensitivity::default, |rules| rules.sensitivity.clone())
    }

    fn check(&self, message_type: &str, payload: &Payload) -> Result<(), Vec<String>> {
        let rules = self.0.get(message_type);
        rules.map_or(Ok(()), |rules| rules.check(payload))
    }
}

/// Whether the engine is fit for work, or why not.
fn pulse(state: &EngineState, is_stopping: bool) -> Result<(), String> {
    if is_stopping {
        return Err("stopping".to_owned());
    }
    if let Some(trouble) = &state.trouble {
        return Err(trouble.clone());
    }
    if !state.is_member {
        return Err("no lease yet".to_owned());
    }
    Ok(())
}

/// Serves until told to close; then requests that have begun are finished.
pub(super) async fn serve(listener: TcpListener, router: Router, closing: CancellationToken) {
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let served = axum::serve(listener, service)
        .with_graceful_shutdown(closing.cancelled_owned())
        .into_future()
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "the listener failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_with_a_lease_and_without_trouble_until_told_to_stop() {
        let mut state = EngineState {
            is_member: true,
            ..EngineState::default()
        };
        assert_eq!(pulse(&state, false), Ok(()));
        assert_eq!(pulse(&state, true), Err("stopping".into()));
        state.trouble = Some("the database is away".into());
        assert_eq!(pulse(&state, false), Err("the database is away".into()));
        assert_eq!(
            pulse(&EngineState::default(), false),
            Err("no lease yet".into())
        );
    }
}
