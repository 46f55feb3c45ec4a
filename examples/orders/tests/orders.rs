//! The example's parts in one process, over real HTTP and a real SQLite file.

// In a test, what cannot be unwrapped is the failure.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::{Duration, Instant};

use onceward::core::store::Schema;
use onceward::sqlite::Sqlite;
use onceward::{EngineOptions, Outbox, Running};
use onceward_orders::carrier::{
    self, CarrierAddress, CarrierClient, CarrierOptions, Line, Mood, Moods, Record, read_record,
};
use onceward_orders::fulfilment::{Fulfilment, engine};
use onceward_orders::in_hand::InHand;
use onceward_orders::message::{Address, OrderAccepted};
use onceward_orders::service;
use onceward_orders::shop::{OrderStatus, Shop, ShopBooks};
use reqwest::StatusCode;
use tokio::net::TcpListener;

/// How long the carrier's client waits; silence is several times longer.
const TIMEOUT_MS: u64 = 200;
const STALL_MS: u64 = 1_200;

/// The parts, without a consumer.
struct Place {
    folder: tempfile::TempDir,
    store: Sqlite,
    service: String,
    carrier: String,
    http: reqwest::Client,
}

async fn serve(router: axum::Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

impl Place {
    async fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("orders.db");
        let store = Sqlite::connect(file.to_str().unwrap()).await.unwrap();
        store.migrate().await.unwrap();
        store.create_tables().await.unwrap();
        let record = Record::open(&folder.path().join("carrier.jsonl"), false).unwrap();
        let carrier = carrier::router(CarrierOptions {
            record,
            moods: Moods::new(1, STALL_MS),
            in_hand: InHand::default(),
        });
        Self {
            service: serve(service::router(store.clone(), InHand::default())).await,
            carrier: serve(carrier).await,
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            folder,
            store,
        }
    }

    async fn consumer(&self) -> Running<Sqlite> {
        let address = CarrierAddress::Fixed(self.carrier.clone());
        let fulfilment = Fulfilment {
            carrier: CarrierClient::new(address, TIMEOUT_MS).unwrap(),
            in_hand: InHand::default(),
            has_probe: true,
            broken: None,
        };
        let engine = engine(self.store.clone(), fulfilment, EngineOptions::default());
        engine.start().await.unwrap()
    }

    async fn post(&self, key: Option<&str>, body: &str) -> (StatusCode, bool, serde_json::Value) {
        let mut request = self.http.post(format!("{}/orders", self.service));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let response = request.body(body.to_owned()).send().await.unwrap();
        let status = response.status();
        let is_replayed = response.headers().contains_key("idempotency-replayed");
        let text = response.text().await.unwrap();
        let json = serde_json::from_str(&text).unwrap_or_default();
        (status, is_replayed, json)
    }

    /// Orders and returns the order's id.
    async fn order(&self, checkout_id: &str, country: &str) -> String {
        let (status, _, answer) = self
            .post(Some(checkout_id), &body(checkout_id, country))
            .await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
        answer["order_id"].as_str().unwrap().to_owned()
    }

    async fn status(&self, order_id: &str) -> OrderStatus {
        let url = format!("{}/orders/{order_id}", self.service);
        self.http
            .get(url)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap()
    }

    async fn settled(&self, order_id: &str) -> OrderStatus {
        let started = Instant::now();
        loop {
            let order = self.status(order_id).await;
            if order.status != "accepted" {
                return order;
            }
            assert!(started.elapsed() < Duration::from_secs(20), "{order:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn bookings(&self, checkout_id: &str) -> usize {
        let lines = read_record(&self.folder.path().join("carrier.jsonl")).unwrap();
        let is_booking = |line: &&Line| matches!(line, Line::Booked { operation, .. } if operation == checkout_id);
        lines.iter().filter(is_booking).count()
    }
}

fn body(checkout_id: &str, country: &str) -> String {
    let address = format!(r#"{{"country":"{country}","city":"Hamburg","street":"Kai 1"}}"#);
    format!(r#"{{"checkout_id":"{checkout_id}","address":{address}}}"#)
}

/// A checkout id whose first request meets this kind of mood.
fn checkout_that_meets(is_wanted: impl Fn(Mood) -> bool) -> String {
    let moods = Moods::new(1, STALL_MS);
    let mut ids = (0..10_000).map(|i| format!("checkout-{i}"));
    ids.find(|id| is_wanted(moods.of(id))).unwrap()
}

#[tokio::test]
async fn an_order_is_accepted_once() {
    let place = Place::new().await;
    let order = body("checkout-284", "DE");
    let (first, is_replayed, answer) = place.post(Some("k-1"), &order).await;
    assert_eq!((first, is_replayed), (StatusCode::CREATED, false));
    let (again, is_replayed, same) = place.post(Some("k-1"), &order).await;
    assert_eq!((again, is_replayed), (StatusCode::CREATED, true));
    assert_eq!(answer, same, "the stored answer");
    let (other, _, problem) = place.post(Some("k-1"), &body("checkout-285", "DE")).await;
    assert_eq!(other, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert_eq!(place.store.counts().await.unwrap().orders, 1);
    let status = place.status(answer["order_id"].as_str().unwrap()).await;
    assert_eq!(
        (status.status.as_str(), status.shipment_id),
        ("accepted", None)
    );
}

#[tokio::test]
async fn odd_requests_are_refused() {
    let place = Place::new().await;
    let refused = async |key, body: &str| place.post(key, body).await.0;
    let order = body("checkout-284", "DE");
    assert_eq!(refused(None, &order).await, StatusCode::BAD_REQUEST);
    assert_eq!(refused(Some("k"), "{").await, StatusCode::BAD_REQUEST);
    let (_, _, problem) = place.post(Some("k"), &body("checkout-284", "de")).await;
    assert_eq!(problem["pointer"], "/address/country");
    let large = " ".repeat(service::BODY_BYTES_MAX) + &order;
    assert_eq!(
        refused(Some("k"), &large).await,
        StatusCode::PAYLOAD_TOO_LARGE
    );
    assert_eq!(place.store.counts().await.unwrap().orders, 0);
    let url = format!("{}/orders/ord-1", place.service);
    let nowhere = place.http.get(url).send().await.unwrap().status();
    assert_eq!(nowhere, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn orders_come_to_their_end() {
    let place = Place::new().await;
    let consumer = place.consumer().await;
    let shipped = checkout_that_meets(|mood| matches!(mood, Mood::Fine(_)));
    let order = place.order(&shipped, "DE").await;
    let order = place.settled(&order).await;
    assert_eq!(order.status, "shipped");
    assert!(order.shipment_id.is_some() && order.reason.is_none());
    assert_eq!(place.bookings(&shipped), 1);
    let order = place.order("checkout-to-antarctica", "AQ").await;
    let order = place.settled(&order).await;
    assert_eq!(order.status, "rejected");
    assert_eq!(order.reason.as_deref(), Some("unsupported_address"));
    assert_eq!(place.bookings("checkout-to-antarctica"), 0);
    consumer.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_silent_carrier_is_asked_before_anything_is_tried_again() {
    let place = Place::new().await;
    let consumer = place.consumer().await;
    let done = checkout_that_meets(|mood| matches!(mood, Mood::DoneLate(_)));
    let lost = checkout_that_meets(|mood| matches!(mood, Mood::Lost(_)));
    let busy = checkout_that_meets(|mood| mood == Mood::Busy);
    for checkout_id in [&done, &lost, &busy] {
        let order = place.order(checkout_id, "FR").await;
        assert_eq!(
            place.settled(&order).await.status,
            "shipped",
            "{checkout_id}"
        );
        assert_eq!(place.bookings(checkout_id), 1, "{checkout_id}");
    }
    assert_eq!(place.store.books().await.unwrap().shipments.len(), 3);
    consumer.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_message_that_comes_again_creates_no_second_shipment() {
    let place = Place::new().await;
    let consumer = place.consumer().await;
    let checkout_id = checkout_that_meets(|mood| matches!(mood, Mood::Fine(_)));
    let order_id = place.order(&checkout_id, "DE").await;
    let shipped = place.settled(&order_id).await;
    // The same business operation with a new message id, as a producer's repeat would be.
    let repeat = OrderAccepted {
        order_id: order_id.clone(),
        checkout_id: checkout_id.clone(),
        address: Address {
            country: "DE".to_owned(),
            city: "Hamburg".to_owned(),
            street: "Kai 1".to_owned(),
        },
    };
    let outbox = Outbox::new(place.store.clone());
    let mut tx = place.store.begin_shop().await.unwrap();
    outbox.append(&mut tx, &repeat).await.unwrap();
    Sqlite::commit_shop(tx).await.unwrap();
    outbox.ring();
    // One key is worked on in order: when the next order of that key is through, so is the repeat.
    let next = OrderAccepted {
        checkout_id: format!("{checkout_id}-next"),
        ..repeat
    };
    let mut tx = place.store.begin_shop().await.unwrap();
    outbox.append(&mut tx, &next).await.unwrap();
    Sqlite::commit_shop(tx).await.unwrap();
    outbox.ring();
    let started = Instant::now();
    while place.bookings(&next.checkout_id) == 0 {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "the next is never booked"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(place.bookings(&checkout_id), 1);
    assert_eq!(place.status(&order_id).await, shipped);
    consumer.shutdown(Duration::from_secs(5)).await;
    let shipments = place.store.books().await.unwrap().shipments;
    let of_it = shipments.iter().filter(|s| s.1 == checkout_id).count();
    assert_eq!(of_it, 1);
}

#[test]
fn the_readme_names_files_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let named: Vec<&str> = readme
        .split('`')
        .filter(|text| text.starts_with("src/") && text.ends_with(".rs"))
        .collect();
    assert!(named.len() > 4);
    for file in named {
        assert!(root.join(file).exists(), "{file}");
    }
}
