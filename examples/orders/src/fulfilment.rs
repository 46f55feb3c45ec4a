//! The consumer: has each accepted order booked with the carrier, and keeps the order book.

use onceward::core::breaker::BreakerPolicy;
use onceward::core::store::Store;
use onceward::{
    Call, Context, Engine, EngineBuilder, EngineOptions, Failure, Identity, Probe, RetryPolicy,
    Semantics, Start, Subscription,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::between::{Between, BetweenError, Side};
use crate::carrier::{CarrierAnswer, CarrierClient};
use crate::in_hand::InHand;
use crate::message::{FulfillmentRejected, OrderAccepted, ShipmentCreated};
use crate::shop::Shop;

/// The subscription that books with the carrier.
pub const FULFILMENT: &str = "fulfilment";
/// The subscription that keeps the order book.
pub const ORDER_BOOK: &str = "order-book";

/// A consumer that is broken on purpose, to see that the demo's verdict notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Broken {
    /// No ledger and no probe: what is unclear is simply done again.
    Doubling,
    /// Some shipments are reported as written and are not.
    Losing,
}

/// What a consumer is made of.
#[derive(Clone, Debug)]
pub struct Fulfilment {
    /// The carrier.
    pub carrier: CarrierClient,
    /// Shows what is unfinished.
    pub in_hand: InHand,
    /// Whether the carrier is asked what became of a call whose answer did not come.
    pub has_probe: bool,
    /// How it is broken, if it is.
    pub broken: Option<Broken>,
}

/// An effect outside the database: no transaction is open while the carrier works, and what is
/// unclear is looked up by the operation before anything is tried again.
impl<S: Shop> Call<S> for Fulfilment {
    type Message = OrderAccepted;
    type Answer = CarrierAnswer;
    type Reply = ShipmentCreated;

    async fn call(&self, operation: &str, order: &OrderAccepted) -> Result<CarrierAnswer, Failure> {
        let _piece = self.in_hand.take();
        match self.carrier.book(operation, order).await {
            Err(failure) if self.broken == Some(Broken::Doubling) => {
                Err(Failure::transient("tried_again", failure.message()))
            }
            other => other,
        }
    }

    async fn probe(
        &self,
        operation: &str,
        _order: &OrderAccepted,
    ) -> Result<Probe<CarrierAnswer>, Failure> {
        let _piece = self.in_hand.take();
        match self.broken {
            _ if !self.has_probe => Ok(Probe::Unsupported),
            Some(Broken::Doubling) => Ok(Probe::DidNotHappen),
            _ => self.carrier.find(operation).await,
        }
    }

    fn can_probe(&self) -> bool {
        self.has_probe
    }

    async fn outcome(
        &self,
        cx: &mut Context<S>,
        order: OrderAccepted,
        answer: CarrierAnswer,
    ) -> Result<ShipmentCreated, Failure> {
        let _piece = self.in_hand.take();
        let OrderAccepted {
            order_id,
            checkout_id,
            ..
        } = order;
        match answer {
            CarrierAnswer::Booked(booked) => {
                let shipment = ShipmentCreated {
                    order_id,
                    checkout_id,
                    shipment_id: format!("ship-{}", Uuid::now_v7().simple()),
                    booking: booked.booking,
                };
                if self.broken != Some(Broken::Losing) || !shipment.booking.ends_with('7') {
                    S::insert_shipment(cx.tx(), &shipment).await?;
                    cx.append(&shipment)?;
                }
                Ok(shipment)
            }
            CarrierAnswer::Refused(reason) => {
                let rejection = FulfillmentRejected {
                    order_id,
                    checkout_id,
                    reason,
                };
                S::insert_rejection(cx.tx(), &rejection).await?;
                cx.append(&rejection)?;
                // A final answer of the business: the row and the message above stay.
                let text = "the carrier does not deliver to this address";
                let outcome = serde_json::to_string(&rejection)?;
                Err(Failure::rejected(rejection.reason, text).with_outcome(outcome))
            }
        }
    }
}

/// An order has come to its end: the shipment is there.
async fn mark_shipped<S: Shop>(
    cx: &mut Context<S>,
    shipment: ShipmentCreated,
) -> Result<(), Failure> {
    mark::<S>(cx, &shipment.order_id, "shipped").await
}

/// An order has come to its end: there will be no shipment.
async fn mark_rejected<S: Shop>(
    cx: &mut Context<S>,
    rejection: FulfillmentRejected,
) -> Result<(), Failure> {
    mark::<S>(cx, &rejection.order_id, "rejected").await
}

async fn mark<S: Shop>(cx: &mut Context<S>, order_id: &str, status: &str) -> Result<(), Failure> {
    match S::set_status(cx.tx(), order_id, status).await? {
        1 => Ok(()),
        _ => Err(Failure::permanent(
            "no_open_order",
            "there is no open order of this id",
        )),
    }
}

/// Both subscriptions in one process, over one store.
pub fn engine<S: Shop + Store>(
    store: S,
    fulfilment: Fulfilment,
    options: EngineOptions,
) -> EngineBuilder<S> {
    Engine::builder(store)
        .subscribe(fulfil(fulfilment))
        .subscribe(book())
        .options(options)
}

/// One of the two services, which has a store of its own and reaches the other by a broker.
///
/// # Errors
/// When this build does not have the broker, or its address is none.
pub fn engine_of<S: Shop + Store>(
    store: S,
    side: Side,
    between: &Between,
    fulfilment: Fulfilment,
    options: EngineOptions,
) -> Result<EngineBuilder<S>, BetweenError> {
    let work = match side {
        Side::Shop => book(),
        Side::Fulfilment => fulfil(fulfilment),
    };
    Ok(Engine::builder(store)
        .intake(between.intake(side)?)
        .subscribe(work.from([side.incoming()]))
        .subscribe(between.relay(side)?)
        .options(options))
}

/// Who is away for a while is waited for.
pub(crate) fn retry() -> RetryPolicy {
    RetryPolicy {
        base_ms: 100,
        cap_ms: 1_000,
        attempts_max: 50,
        ..RetryPolicy::default()
    }
}

fn fulfil<S: Shop + Store>(fulfilment: Fulfilment) -> Subscription<S> {
    let semantics = match fulfilment.broken {
        Some(Broken::Doubling) => Semantics::AtLeastOnce,
        _ => Semantics::EffectOnce,
    };
    Subscription::new(FULFILMENT, semantics)
        .call(fulfilment)
        // One booking for one checkout, whatever messages ask for it.
        .identity(Identity::Operation)
        .retry(retry())
        // Its silences are moods, not its load: asking for less would not help.
        .concurrency_min(8)
        .breaker(BreakerPolicy {
            pause_ms: 50,
            pause_max_ms: 500,
            ..BreakerPolicy::default()
        })
        .timeout_ms(10_000)
        .start(Start::Earliest)
}

fn book<S: Shop + Store>() -> Subscription<S> {
    Subscription::new(ORDER_BOOK, Semantics::EffectOnce)
        .on::<ShipmentCreated, _>(mark_shipped::<S>)
        .on::<FulfillmentRejected, _>(mark_rejected::<S>)
        // What a process that dies had in hand is done again one by one: let it not be much.
        .batch_max(25)
        .concurrency(2)
        .retry(retry())
        .start(Start::Earliest)
}
