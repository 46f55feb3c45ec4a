//! Brokers and relays: what is read, and what is refused where it stands.

use std::path::Path;

use onceward_core::contract::Semantics;

use super::super::{BrokerKind, BrokerUrl, Config, SecretSource};

const GOOD: &str = r#"[store]
url = "sqlite:shop.db"

[broker.events]
kind = "nats"
url = "nats://127.0.0.1:4222"
stream = "ORDERS"
timeout = "20s"

[broker.shop]
kind = "rabbitmq"
url_file = "broker.url"
exchange = ""

[message."order.accepted"]

[subscription.relay]
messages = ["order.accepted"]
broker = "events"
topic = "orders.{type}"
"#;

fn parse(text: &str) -> Result<Config, Vec<String>> {
    let parsed = Config::parse(Path::new("shop/onceward.toml"), text);
    parsed.map_err(|faults| {
        let shown = faults.iter().map(ToString::to_string);
        shown
            .map(|fault| fault.replace("shop/onceward.toml:", ""))
            .collect()
    })
}

/// The one fault of the good text with `from` replaced.
#[track_caller]
fn fault(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    let mut faults = parse(&GOOD.replace(from, to)).unwrap_err();
    assert_eq!(faults.len(), 1, "{faults:#?}");
    faults.remove(0)
}

#[test]
fn brokers_and_relays_are_read() {
    let config = parse(GOOD).unwrap();
    let events = &config.brokers["events"];
    assert_eq!(events.url, BrokerUrl::Plain("nats://127.0.0.1:4222".into()));
    assert_eq!(events.timeout_ms, 20_000);
    let shop = &config.brokers["shop"];
    let file = SecretSource::File("shop/broker.url".into());
    assert_eq!(shop.url, BrokerUrl::Secret(file));
    assert!(
        matches!(&shop.kind, BrokerKind::RabbitMq { exchange, declare: false, .. } if exchange.as_deref() == Some(""))
    );
    let relay = &config.relays["relay"];
    assert_eq!(
        (relay.broker.as_str(), relay.timeout_ms),
        ("events", 20_000)
    );
    let contract = &config.contract.subscriptions["relay"];
    assert_eq!(contract.semantics, Semantics::AtLeastOnce);
    assert!(contract.timeout_ms >= 25_000, "a publish ends by itself");
}

#[test]
fn what_cannot_be_is_refused_where_it_stands() {
    let shown = fault("broker = \"events\"", "broker = \"event\"");
    assert!(
        shown.starts_with("19:10:") && shown.contains("there is no [broker.event]"),
        "{shown}"
    );
    assert!(
        shown.contains("events") && shown.ends_with("[OW1014]"),
        "{shown}"
    );
    let shown = fault("{type}", "{tpye}");
    assert!(
        shown.starts_with("20:9:") && shown.contains("{tpye} is no placeholder"),
        "{shown}"
    );
    let shown = fault("broker = \"events\"\n", "");
    assert!(
        shown.contains("topic says nothing without broker"),
        "{shown}"
    );
    let once = "topic = \"a\"\nsemantics = \"effect-once\"";
    let shown = fault("topic = \"orders.{type}\"", once);
    assert!(
        shown.starts_with("21:1:") && shown.contains("a relay cannot promise"),
        "{shown}"
    );
    let push = "topic = \"a\"\npush = { url = \"http://127.0.0.1:1/\" }";
    let shown = fault("topic = \"orders.{type}\"", push);
    assert!(shown.contains("a push or a broker, not both"), "{shown}");
    let short = "topic = \"a\"\ntimeout = \"21s\"";
    let shown = fault("topic = \"orders.{type}\"", short);
    assert!(
        shown.contains("a confirmation may take 20000 ms"),
        "{shown}"
    );
}

#[test]
fn brokers_say_what_they_need_and_keep_credentials_out() {
    let shown = fault("kind = \"nats\"", "kind = \"kafka\"");
    assert!(
        shown.starts_with("5:8:") && shown.contains("rabbitmq"),
        "{shown}"
    );
    let shown = fault("stream = \"ORDERS\"\n", "");
    assert!(
        shown.contains("stream is missing in [broker.events]"),
        "{shown}"
    );
    let shown = fault("exchange = \"\"\n", "");
    assert!(
        shown.contains("exchange is missing in [broker.shop]"),
        "{shown}"
    );
    let shown = fault("nats://127", "nats://shop:hunter2@127");
    assert!(
        shown.starts_with("6:7:") && shown.ends_with("[OW1017]"),
        "{shown}"
    );
    assert!(!shown.contains("hunter2"), "{shown}");
    let shown = fault("timeout = \"20s\"", "exchange = \"x\"");
    assert!(
        shown.starts_with("8:1:") && shown.ends_with("[OW1011]"),
        "{shown}"
    );
}

const TAKING: &str = r#"[store]
url = "sqlite:shop.db"

[broker.orders]
kind = "nats"
url = "nats://127.0.0.1:4222"
stream = "ORDERS"
consumer = "billing"
ahead_max = 500
redelivery_window = "40d"

[broker.returns]
kind = "rabbitmq"
url = "amqp://127.0.0.1"
queue = "returns"
bindings = ["return.#"]

[message."order.accepted"]
[message."order.returned"]

[subscription.billing]
messages = ["order.accepted"]
source = "orders"

[subscription.refunds]
messages = ["order.returned"]
source = ["outbox", "returns"]
"#;

#[test]
fn intakes_and_sources_are_read() {
    let config = parse(TAKING).unwrap();
    let orders = config.brokers["orders"].intake.as_ref().unwrap();
    assert_eq!((orders.from.as_str(), orders.ahead_max), ("billing", 500));
    assert_eq!(orders.redelivery_window_ms, 40 * 86_400_000);
    assert_eq!(orders.prefetch, 500);
    let returns = &config.brokers["returns"];
    assert!(matches!(
        &returns.kind,
        BrokerKind::RabbitMq { exchange: None, .. }
    ));
    assert_eq!(returns.intake.as_ref().unwrap().bindings, ["return.#"]);
    let subscriptions = &config.contract.subscriptions;
    assert_eq!(subscriptions["billing"].sources, ["orders"]);
    assert_eq!(subscriptions["refunds"].sources, ["outbox", "returns"]);
    assert_eq!(parse(GOOD).unwrap().brokers["events"].intake, None);
}

#[test]
fn a_source_has_to_be_one() {
    for (from, to, place, text) in [
        (
            "source = \"orders\"",
            "source = \"order\"",
            "23:10:",
            "there is no [broker.order]",
        ),
        ("source = \"orders\"", "source = 1", "23:10:", "a string"),
        (
            "consumer = \"billing\"\n",
            "",
            "22:10:",
            "from which consumer",
        ),
        (
            "queue = \"returns\"",
            "exchange = \"\"",
            "27:21:",
            "from which queue",
        ),
        ("queue = \"returns\"", "queue = \"\"", "15:9:", "taken from"),
        ("ahead_max = 500", "prefetch = 0", "9:1:", "between 1 and"),
        (
            "ahead_max = 500",
            "prefetch = 1001",
            "9:1:",
            "between 1 and 1000",
        ),
        (
            "source = \"orders\"",
            "broker = \"returns\"",
            "23:10:",
            "names no exchange",
        ),
    ] {
        assert!(TAKING.contains(from), "{from}");
        let faults = parse(&TAKING.replace(from, to)).unwrap_err();
        assert_eq!(faults.len(), 1, "{to}: {faults:#?}");
        assert!(
            faults[0].starts_with(place) && faults[0].contains(text),
            "{to}: {faults:#?}"
        );
    }
}

#[test]
fn a_type_has_the_same_sources_everywhere() {
    let text = format!("{TAKING}\n[subscription.more]\nmessages = [\"order.accepted\"]\n");
    let faults = parse(&text).unwrap_err();
    assert_eq!(faults.len(), 1, "{faults:#?}");
    assert!(faults[0].contains("the same sources"), "{faults:#?}");
}
