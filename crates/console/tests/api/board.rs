//! How everything stands, and replay campaigns, over HTTP: what is answered, to whom, and what is
//! not.

use onceward_console::overview::Standards;
use onceward_console::{Access, Scope, StoreBoard};
use onceward_core::campaign::{CampaignKind, Pacing};
use onceward_core::hold::HoldLimits;
use onceward_core::store::{
    Actor, Begin, Declared, Deferral, DeferralKind, Effects, End, NewCase, PlanCampaign, Replay,
    Schema, Selection, Settle, Source, Start, Terms,
};
use onceward_core::throttle::{Judged, Load, Verdict};
use onceward_core::{Failure, Identity, Row, Spent};
use serde_json::{Value, json};

use crate::client::{get, post, structured};
use crate::server::Server;

const SECRET: &str = "4111222233334444";

fn judged() -> Vec<Judged> {
    let load = Load {
        oldest_ms: 5_000,
        drain_ms: None,
    };
    let loads = vec![("fulfilment".to_owned(), load)];
    let judged = Judged::of("order.accepted".to_owned(), 1_000, Verdict::Open, loads);
    vec![judged]
}

/// A subscription with a message that waits, one that is held behind another, and two cases.
async fn start(access: Access) -> Server {
    let server = Server::start_onto(|console, store| {
        let limits = HoldLimits {
            depth: 0,
            ..HoldLimits::default()
        };
        let standards = Standards {
            holds: [("fulfilment".to_owned(), limits)].into(),
            ..Standards::default()
        };
        let board = StoreBoard::new(store.clone()).standards(standards);
        console.access(access).board(board.judged(judged))
    })
    .await;
    let types = ["order.accepted".to_owned()];
    let declared = Declared {
        subscription: "fulfilment",
        lanes: 1,
        types: &types,
        start: Some(Start::Earliest),
        renamed_from: None,
        terms: Terms::default(),
    };
    server.store.register(declared).await.unwrap();
    for (number, key) in [(1, "a"), (2, "b"), (3, "c"), (4, "c"), (5, "d")] {
        let event = json!({
            "specversion": "1.0", "id": format!("m-{number}"), "source": "//shop",
            "type": "order.accepted", "subject": key, "data": { "card": SECRET },
        });
        assert_eq!(
            structured(event.to_string())
                .send(server.address)
                .await
                .status,
            202
        );
    }
    let rows = server.log().await;
    let failure = Failure::permanent("no_address", format!("{SECRET} is not taken")).record();
    let case = |row: &Row| NewCase {
        key: row.envelope.key().to_owned(),
        row: row.clone(),
        reason: "permanent: no_address".to_owned(),
        failure: failure.clone(),
        spent: Spent::default(),
        holds_key: false,
    };
    let deferral = |row: &Row, kind| Deferral {
        seq: row.seq,
        slot: row.slot,
        key: row.envelope.key().to_owned(),
        kind,
        due_in_ms: Some(0),
        spent: Spent::default(),
        failure: None,
    };
    let settle = Settle {
        cases: &[case(&rows[0]), case(&rows[1])],
        defer: &[
            deferral(&rows[2], DeferralKind::Retry),
            deferral(&rows[3], DeferralKind::Held),
        ],
        ..Settle::nothing("fulfilment", Identity::Message)
    };
    let mut tx = server.store.begin(Begin { lease: None }).await.unwrap();
    server.store.settle(&mut tx, settle).await.unwrap();
    server.store.end(tx, End::Commit).await.unwrap();
    server
}

async fn plan(server: &Server, items_max: u32) -> i64 {
    let request = PlanCampaign {
        subscription: "fulfilment",
        kind: CampaignKind::Resend,
        selection: &Selection::of(Source::Cases),
        pacing: Pacing::default(),
        accept: &[],
        items_max,
        by: Actor {
            who: "ada",
            why: Some("the address is there"),
        },
    };
    server
        .store
        .plan_campaign(request)
        .await
        .unwrap()
        .campaign_id
}

async fn ask(server: &Server, path: &str) -> Value {
    let answer = get(path).send(server.address).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    assert!(!answer.body.contains(SECRET), "{}", answer.body);
    answer.json()
}

#[tokio::test]
async fn it_says_how_every_subscription_stands() {
    let server = start(Access::default()).await;
    let campaign = plan(&server, 1).await;
    let all = ask(&server, "/v1/backlog").await;
    let of = &all["subscriptions"][0];
    assert_eq!(of["subscription"], "fulfilment");
    assert_eq!((&of["waiting"], &of["quarantined"]), (&json!(1), &json!(2)));
    assert_eq!(of["deferred"]["retry"], 1, "{of}");
    assert_eq!(of["deferred"]["held"], 1, "{of}");
    assert!(of["ready_age_ms"].is_u64(), "{of}");
    let held = &of["held_longest"][0];
    assert_eq!(
        (&held["key"], &held["beyond"]),
        (&json!("c"), &json!(["depth"]))
    );
    assert_eq!(of["held_limits"]["depth"], 0);
    assert_eq!(of["dropped"][0]["last_day"], 0);
    assert_eq!(all["campaigns"][0]["campaign_id"], campaign);
    assert_eq!(all["refusing"][0]["verdict"], "refuse");
    assert_eq!(all["refusing"][0]["loads"][0][0], "fulfilment");
    assert_eq!(all["cases_past_retention"], Value::Null);
    let one = ask(
        &server,
        "/v1/backlog?subscription=fulfilment&keys_max=0&count_max=0",
    )
    .await;
    let of = &one["subscriptions"][0];
    assert_eq!(of["waiting_is_lower_bound"], true, "{of}");
    assert_eq!(of["held_longest"], json!([]));
    let none = get("/v1/backlog?subscription=fulfillment")
        .send(server.address)
        .await;
    none.problem(404, "OW2034");
    for wrong in [
        "count_max=100001",
        "keys_max=1001",
        "count_max=-1",
        "names=x",
    ] {
        let refused = get(&format!("/v1/backlog?{wrong}"))
            .send(server.address)
            .await;
        refused.problem(400, "OW2033");
    }
}

#[tokio::test]
async fn campaigns_and_their_messages_are_listed_in_pages() {
    let server = start(Access::default()).await;
    let first = plan(&server, 1).await;
    let second = plan(&server, 2).await;
    let numbers = |list: &Value| -> Vec<i64> {
        let campaigns = list["campaigns"].as_array().unwrap().iter();
        let numbers = campaigns.map(|campaign| campaign["campaign_id"].as_i64().unwrap());
        numbers.collect()
    };
    let all = ask(&server, "/v1/replays").await;
    assert_eq!(
        (numbers(&all), &all["next_after"]),
        (vec![first, second], &Value::Null)
    );
    let page = ask(&server, "/v1/replays?limit=1").await;
    assert_eq!(
        (numbers(&page), &page["next_after"]),
        (vec![first], &json!(first))
    );
    let page = ask(&server, &format!("/v1/replays?limit=1&after={first}")).await;
    assert_eq!(numbers(&page), [second]);
    assert!(numbers(&ask(&server, "/v1/replays?active=true").await).is_empty());
    assert!(numbers(&ask(&server, "/v1/replays?subscription=other").await).is_empty());
    let shown = ask(&server, &format!("/v1/replays/{second}")).await;
    assert_eq!(
        (&shown["state"], &shown["items_total"]),
        (&json!("planned"), &json!(2))
    );
    assert_eq!(shown["why"], "the address is there");
    let states: Vec<_> = shown["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["state"])
        .collect();
    assert_eq!(states, ["refused", "planned"], "the first is another's");
    let planned = ask(
        &server,
        &format!("/v1/replays/{second}?state=planned,running"),
    )
    .await;
    assert_eq!(planned["items"][0]["id"], "m-2");
    let page = ask(&server, &format!("/v1/replays/{second}?limit=1")).await;
    let after = page["next_after"].as_i64().unwrap();
    let page = ask(
        &server,
        &format!("/v1/replays/{second}?limit=1&after={after}"),
    )
    .await;
    assert_eq!(page["items"][0]["id"], "m-2");
    let refused = async |path: String, status, code| {
        get(&path).send(server.address).await.problem(status, code);
    };
    refused("/v1/replays/4711".to_owned(), 404, "OW2035").await;
    refused("/v1/replays/x".to_owned(), 400, "OW2033").await;
    refused(format!("/v1/replays/{second}?state=gone"), 400, "OW2033").await;
    refused("/v1/replays?limit=0".to_owned(), 400, "OW2033").await;
    let posted = post("/v1/replays", "{}").header("content-type: application/json");
    posted.send(server.address).await.problem(405, "OW2032");
}

#[tokio::test]
async fn it_needs_the_scope_to_read_and_a_board() {
    const READ: &str = "reader-0123456789abc";
    const PUBLISH: &str = "publisher-0123456789";
    let access = Access::default()
        .with_token("desk", READ, [Scope::Read])
        .unwrap();
    let access = access
        .with_token("shop", PUBLISH, [Scope::Publish])
        .unwrap();
    let server = Server::start_onto(|console, store| {
        console.access(access).board(StoreBoard::new(store.clone()))
    })
    .await;
    for path in ["/v1/backlog", "/v1/replays", "/v1/replays/1"] {
        get(path).send(server.address).await.problem(401, "OW2010");
        let of = |token: &str| get(path).header(format!("Authorization: Bearer {token}"));
        of(PUBLISH)
            .send(server.address)
            .await
            .problem(403, "OW2011");
        assert_ne!(of(READ).send(server.address).await.status, 403, "{path}");
    }
    let without = Server::start().await;
    for path in ["/v1/backlog", "/v1/replays"] {
        get(path).send(without.address).await.problem(404, "OW2031");
    }
}
