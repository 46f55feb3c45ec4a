//! `broker check`, and relays of the daemon: with brokers in the build, and without.

#[cfg(feature = "nats")]
use futures_util::StreamExt as _;
#[cfg(feature = "nats")]
use onceward_testkit::brokers::NatsServer;

#[cfg(not(any(feature = "nats", feature = "rabbitmq")))]
use crate::on_both_stores;
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
use crate::on_both_stores;
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
use crate::place::{Place, event};
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
use crate::receiver::{Received, Receiver};

fn relay_to(broker: &str) -> String {
    format!(
        "[broker.events]\n{broker}\n\n[message.\"order.accepted\"]\n\n[subscription.relay]\n\
         messages = [\"order.accepted\"]\nbroker = \"events\"\ntopic = \"orders.{{type}}\"\n\
         start = \"earliest\"\nretry = {{ base = \"50ms\", cap = \"1s\" }}\n\
         breaker = {{ pause = \"100ms\", pause_max = \"500ms\" }}\n"
    )
}

#[cfg(not(feature = "rabbitmq"))]
on_both_stores! {
    async fn a_broker_that_this_build_does_not_have_says_which_feature_does(place) {
        let broker = "kind = \"rabbitmq\"\nurl = \"amqp://127.0.0.1\"\nexchange = \"\"";
        place.configure(&relay_to(broker));
        place.run(&["broker", "check", "events"]).ended(1).says(&["OW1060", "--features rabbitmq"]);
        place.run(&["up", "--migrate"]).ended(1).says(&["OW1060", "--features rabbitmq"]);
    }
}

#[cfg(feature = "nats")]
async fn received(server: &NatsServer, count: usize) -> Vec<(String, String)> {
    let client = async_nats::connect(server.url()).await.unwrap();
    let jetstream = async_nats::jetstream::new(client);
    let stream = jetstream.get_stream("ORDERS").await.unwrap();
    let config = async_nats::jetstream::consumer::pull::OrderedConfig::default();
    let consumer = stream.create_consumer(config).await.unwrap();
    let messages = consumer.messages().await.unwrap().take(count);
    let messages = messages.map(|message| {
        let message = message.unwrap();
        let id = message
            .headers
            .as_ref()
            .unwrap()
            .get("ce-id")
            .unwrap()
            .to_string();
        (id, String::from_utf8(message.payload.to_vec()).unwrap())
    });
    messages.collect().await
}

#[cfg(feature = "nats")]
on_both_stores! {
    async fn messages_are_published_in_order_over_an_outage_and_a_kill(place) {
        let server = NatsServer::start().await;
        let broker = format!(
            "kind = \"nats\"\nurl = \"{}\"\nstream = \"ORDERS\"\n\
             declare_subjects = [\"orders.>\"]\ntimeout = \"2s\"",
            server.url()
        );
        place.configure(&relay_to(&broker));
        let checked = place.run(&["broker", "check", "events"]).ended(0);
        assert!(checked.out.contains("stream ORDERS: is there"), "{checked:#?}");
        place.run(&["broker", "check", "event"]).ended(1).says(&["OW1023", "events"]);
        let daemon = place.up(&["--migrate", "--lease", "1s"]);
        let lines = |from: usize| -> String {
            let ids = from..from + 10;
            ids.map(|n| event(&format!("m{n:02}"), "order.accepted", "o1", "{\"n\": 1.0}")).collect()
        };
        place.run_with_input(&["send"], lines(0)).ended(0);
        place.run(&["operation", "watch", "m09", "--timeout", "60s"]).ended(0);
        // While the broker is away, and the daemon is killed meanwhile.
        server.kill();
        place.run_with_input(&["send"], lines(10)).ended(0);
        place.run(&["broker", "check", "events"]).ended(1).says(&["OW1061"]);
        daemon.kill();
        let daemon = place.up(&["--lease", "1s"]);
        server.start_again();
        place.run(&["operation", "watch", "m19", "--timeout", "60s"]).ended(0);
        let wanted: Vec<(String, String)> =
            (0..20).map(|n| (format!("m{n:02}"), "{\"n\": 1.0}".to_owned())).collect();
        assert_eq!(received(&server, 20).await, wanted);
        let cases = place.run(&["quarantine", "list", "--json"]).ended(0);
        assert_eq!(cases.json()["cases"].as_array().map(Vec::len), Some(0));
        assert_eq!(daemon.stop(), 0);
    }
}

/// What a service that pushes what it takes in from a broker says of it.
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
fn taken_from(broker: &str, url: &str) -> String {
    format!(
        "[broker.orders]\n{broker}\n\n[message.\"order.accepted\"]\n\n[subscription.hook]\n\
         messages = [\"order.accepted\"]\nsource = \"orders\"\nstart = \"earliest\"\n\
         retry = {{ base = \"10ms\", cap = \"50ms\" }}\npush = {{ url = \"{url}\" }}\n"
    )
}

/// One service relays, another takes in and pushes, each with a store of its own. The one that takes
/// in is killed in the middle of it.
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
async fn through(place: Place, broker: &str, keeps_order: bool, in_between: impl Fn()) {
    let mut receiver = Receiver::start(|_: &Received| axum::http::StatusCode::OK, false).await;
    place.configure(&taken_from(broker, &receiver.url()));
    let shop = Place::sqlite();
    shop.configure(&relay_to(broker));
    // What messages go to is made by the side that needs it.
    let daemon = place.up(&["--migrate", "--lease", "1s"]);
    place.until("the broker has what is taken from", || {
        let checked = place.run(&["broker", "check", "orders"]);
        (checked.code == 0).then_some(())
    });
    let relay = shop.up(&["--migrate", "--lease", "1s"]);
    let lines = |from: usize| -> String {
        let ids = from..from + 20;
        ids.map(|n| event(&format!("m{n:02}"), "order.accepted", "o1", "{\"n\": 1.0}"))
            .collect()
    };
    shop.run_with_input(&["send"], lines(0)).ended(0);
    let first = receiver.next().await;
    daemon.kill();
    shop.run_with_input(&["send"], lines(20)).ended(0);
    in_between();
    let daemon = place.up(&["--lease", "1s"]);
    shop.watch("m39", 0);
    let mut seen = vec![first.header("webhook-id").to_owned()];
    while seen.len() < 40 {
        let received = receiver.next().await;
        assert_eq!(received.text(), "{\"n\": 1.0}");
        let id = received.header("webhook-id").to_owned();
        // A push may come twice where its process was killed.
        if !seen.contains(&id) {
            seen.push(id);
        }
    }
    let wanted: Vec<String> = (0..40).map(|n| format!("m{n:02}")).collect();
    if !keeps_order {
        // What the dead one had comes again after what nobody had yet.
        seen.sort_unstable();
    }
    assert_eq!(seen, wanted);
    place.watch("m39", 0);
    let cases = place.run(&["quarantine", "list", "--json"]).ended(0);
    assert_eq!(cases.json()["cases"].as_array().map(Vec::len), Some(0));
    assert_eq!(daemon.stop(), 0);
    assert_eq!(relay.stop(), 0);
}

#[cfg(feature = "nats")]
on_both_stores! {
    async fn another_service_takes_in_what_went_through_nats(place) {
        let server = NatsServer::start().await;
        let broker = format!(
            "kind = \"nats\"\nurl = \"{}\"\nstream = \"ORDERS\"\nconsumer = \"hook\"\n\
             declare_subjects = [\"orders.>\"]\ntimeout = \"2s\"\nack_wait = \"3s\"",
            server.url()
        );
        through(place, &broker, false, || {
            server.kill();
            server.start_again();
        })
        .await;
    }
}

#[cfg(feature = "rabbitmq")]
on_both_stores! {
    async fn another_service_takes_in_what_went_through_rabbitmq(place) {
        let url = onceward_testkit::brokers::RabbitServer::shared_url().await;
        let name = format!("through-{}-{}", std::process::id(), place.is_sqlite());
        // With credentials, which do not belong into the file itself.
        place.write_secret("broker.url", &url);
        let broker = format!(
            "kind = \"rabbitmq\"\nurl_file = {:?}\nexchange = \"{name}\"\n\
             declare_exchange = true\nqueue = \"{name}\"\nbindings = [\"orders.#\"]\n\
             timeout = \"5s\"",
            place.path("broker.url")
        );
        through(place, &broker, true, || ()).await;
    }
}
