//! The daemon is killed while it pushes, or asked to stop while a receiver does not answer.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;

use crate::on_both_stores;
use crate::place::{event, push_to};
use crate::receiver::{Answer, Received, Receiver};

const EVENTS: usize = 300;
const KEYS: usize = 20;

fn events() -> String {
    let one = |n: usize| {
        let subject = format!("o{}", n % KEYS);
        event(
            &format!("e{n:03}"),
            "order.accepted",
            &subject,
            &format!("{{\"n\": {n}.0}}"),
        )
    };
    (0..EVENTS).map(one).collect()
}

/// What was received, in order, by key.
#[derive(Default)]
struct Seen(BTreeMap<String, Vec<String>>, BTreeMap<String, usize>);

impl Seen {
    fn take(&mut self, request: &Received) {
        let id = request.header("webhook-id").to_owned();
        let number: usize = id[1..].parse().unwrap();
        assert_eq!(request.text(), format!("{{\"n\": {number}.0}}"));
        let times = self.1.entry(id.clone()).or_default();
        *times += 1;
        if *times == 1 {
            let key = request.header("ce-subject").to_owned();
            self.0.entry(key).or_default().push(id);
        }
    }
}

on_both_stores! {
    async fn nothing_is_lost_when_it_is_killed_again_and_again(place) {
        let mut receiver = Receiver::start(|_| StatusCode::OK, false).await;
        place.configure(&push_to(&receiver.url()));
        place.run(&["migrate"]).ended(0);
        place.run_with_input(&["send"], events()).ended(0);
        let mut seen = Seen::default();
        for kill_after in [20, 100, 180] {
            let daemon = place.up(&["--lease", "1s"]);
            while seen.1.len() < kill_after {
                seen.take(&receiver.next().await);
            }
            daemon.kill();
        }
        let daemon = place.up(&["--lease", "1s"]);
        while seen.1.len() < EVENTS {
            seen.take(&receiver.next().await);
        }
        place.nothing_is_left();
        place.watch("e299", 0);
        for (key, ids) in &seen.0 {
            assert!(ids.is_sorted(), "{key}: {ids:?}");
        }
        assert_eq!(daemon.stop(), 0);
    }

    async fn a_receiver_that_does_not_answer_does_not_hold_up_the_end(place) {
        let is_silent = Arc::new(AtomicBool::new(true));
        let silent = Arc::clone(&is_silent);
        let answer = move |_: &Received| match silent.load(Ordering::SeqCst) {
            true => Answer::Never,
            false => StatusCode::OK.into(),
        };
        let mut receiver = Receiver::start(answer, false).await;
        place.configure(&push_to(&receiver.url()));
        let daemon = place.up(&["--migrate", "--grace", "1s"]);
        let three: String = (0..3).map(|n| event(&format!("m{n}"), "order.accepted", &format!("o{n}"), "1")).collect();
        place.run_with_input(&["send"], three).ended(0);
        let mut in_flight = Vec::new();
        for _ in 0..3 {
            in_flight.push(receiver.next().await.header("webhook-id").to_owned());
        }
        // Neither does a client that never ends its request.
        let address = daemon.url.strip_prefix("http://").unwrap();
        let mut half = TcpStream::connect(address).unwrap();
        half.write_all(b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n").unwrap();
        let asked = Instant::now();
        assert_eq!(daemon.stop(), 0);
        let took = asked.elapsed();
        // The pushes had 15 s. The rest is room for a machine that does other things too.
        assert!(took < Duration::from_secs(8), "{took:?}");
        for id in &in_flight {
            assert_ne!(place.state_of(id)["state"], "delivered", "{id}");
        }
        // Handed back: the next one begins at once, with the same ids.
        is_silent.store(false, Ordering::SeqCst);
        let daemon = place.up(&[]);
        let mut again = Vec::new();
        for _ in 0..3 {
            again.push(receiver.next().await.header("webhook-id").to_owned());
        }
        in_flight.sort();
        again.sort();
        assert_eq!(again, in_flight);
        for id in &in_flight {
            place.watch(id, 0);
        }
        assert_eq!(daemon.stop(), 0);
    }
}
