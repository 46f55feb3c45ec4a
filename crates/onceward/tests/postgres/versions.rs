//! Versions of aggregates while two engines share the work and hand it to one another.

use std::collections::BTreeMap;
use std::time::Duration;

use onceward::core::version::{Gaps, VersionPolicy};
use onceward::postgres::Postgres;
use onceward::{Context, Engine, Envelope, Running, Semantics, Start, Subscription};

use crate::place::{Place, RETRY, Thing, calm, record, thing, until};

const KEYS: usize = 24;
const VERSIONS: usize = 40;

fn work() -> Subscription<Postgres> {
    Subscription::new("views", Semantics::EffectOnce)
        .on(async |cx: &mut Context<Postgres>, thing: Thing| record(cx, "views", &thing).await)
        .versions(VersionPolicy {
            gaps: Gaps::Wait,
            gap_limit_ms: 600_000,
        })
        .retry(RETRY)
        .start(Start::Earliest)
}

async fn engine(place: &Place) -> Running<Postgres> {
    Engine::builder(place.store.clone())
        .options(calm())
        .subscribe(work())
        .start()
        .await
        .unwrap()
}

fn version(key: usize, version: usize) -> Envelope {
    Envelope {
        aggregate_version: Some(version as i64),
        ..thing(&format!("k{key}"), &format!("{version:03}"))
    }
}

#[tokio::test]
async fn versions_that_come_in_any_order_are_applied_in_theirs_by_a_fleet_that_changes() {
    let place = Place::new().await;
    // The first one seen is no gap: it comes first. The others move by a few places.
    let mut messages = Vec::new();
    for first in (1..=VERSIONS).step_by(4) {
        for key in 0..KEYS {
            let mut group: Vec<usize> = (first..first + 4).collect();
            if first > 1 {
                group.rotate_left(key % 4);
                group.reverse();
            }
            messages.extend(group.into_iter().map(|v| version(key, v)));
        }
    }
    let (before, after) = messages.split_at(messages.len() / 2);
    place.append(before).await;
    let one = engine(&place).await;
    place.until_some_effects(40).await;
    let other = engine(&place).await;
    for piece in after.chunks(50) {
        place.append(piece).await;
    }
    place.until_some_effects((KEYS * VERSIONS / 2) as i64).await;
    one.shutdown(Duration::from_secs(10)).await;
    place.until_effects((KEYS * VERSIONS) as i64).await;
    let expected: Vec<String> = (1..=VERSIONS).map(|v| format!("{v:03}")).collect();
    let values: BTreeMap<String, Vec<String>> = place.values("views").await;
    assert_eq!(values.len(), KEYS);
    for (key, values) in values {
        assert_eq!(values, expected, "{key}");
    }
    until("nothing waits any more", || async {
        place.backlog("views").await.deferred == Default::default()
    })
    .await;
    let odd = "select count(*) from onceward.ledger where ending <> 'done' or aggregateid is null";
    assert_eq!(place.count(odd).await, 0);
    other.shutdown(Duration::from_secs(10)).await;
}
