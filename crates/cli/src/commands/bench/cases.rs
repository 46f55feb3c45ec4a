//! `onceward bench cases`: how long operators wait for an answer while many cases are there.

use std::time::{Duration, Instant};

use onceward_core::campaign::{CampaignAction, CampaignKind, Pacing};
use onceward_core::lane::slot_of;
use onceward_core::store::{
    ActOnCampaign, ActOnCase, Actor, Begin, CaseAction, CaseQuery, CaseState, Declared, End,
    GroupQuery, NewCase, PlanCampaign, Selection, Settle, Source, Start, Store, StoreError, Terms,
};
use onceward_core::{Class, Envelope, FailureRecord, Identity, Payload, Row, Spent, Timestamp};
use serde_json::{Value, json};

use super::CasesArgs;
use super::ground::{Ground, Scratch};
use crate::error::{Code, Error};
use crate::output::Output;

/// Cases that are opened with one commit.
const AT_ONCE: u32 = 1_000;
/// Each question is asked so often; the longest answer counts.
const TIMES: u32 = 5;
/// Causes, types and keys among the cases.
const CAUSES: u32 = 100;
const TYPES: u32 = 20;
const KEYS: u32 = 200_000;

const BY: Actor<'static> = Actor {
    who: "bench",
    why: Some("measured"),
};

/// Opens cases, then asks what operators ask.
pub(super) async fn cases<G: Ground>(
    ground: &G,
    output: Output,
    args: CasesArgs,
) -> Result<(), Error> {
    let scratch = ground.scratch().await?;
    let measured = measure(scratch.store(), args.cases).await;
    scratch.remove().await?;
    let found = measured.map_err(|error| {
        Error::new(Code::StoreFailed, "the cases could not be measured").with_source(error)
    })?;
    output.json(&json!({ "cases": args.cases, "milliseconds": found }))
}

async fn measure<S: Store>(store: &S, count: u32) -> Result<Value, StoreError> {
    let types: Vec<String> = (0..TYPES).map(|n| format!("bench.type-{n}")).collect();
    let declared = Declared {
        subscription: "bench",
        lanes: 16,
        types: &types,
        start: Some(Start::Earliest),
        renamed_from: None,
        terms: Terms::default(),
    };
    store.register(declared).await?;
    for first in (0..count).step_by(AT_ONCE as usize) {
        let last = count.min(first + AT_ONCE);
        let cases: Vec<NewCase> = (first..last).map(case).collect();
        let settle = Settle {
            cases: &cases,
            ..Settle::nothing("bench", Identity::Message)
        };
        let mut tx = store.begin(Begin { lease: None }).await?;
        store.settle(&mut tx, settle).await?;
        store.end(tx, End::Commit).await?;
    }
    // Some are over, some have an owner: in the middle, where nothing finds them by chance.
    let middle = i64::from(count / 2);
    for case_id in middle..middle + i64::from(count.min(1_000) / 4) {
        let action = match case_id % 2 {
            0 => CaseAction::Discard,
            _ => CaseAction::Assign { owner: Some("bo") },
        };
        let request = ActOnCase {
            case_id,
            action,
            expected: None,
            by: BY,
        };
        store.act_on_case(request).await?;
    }
    let mut found = serde_json::Map::new();
    for (name, query) in questions(count) {
        let mut longest = Duration::ZERO;
        for _ in 0..TIMES {
            let begun = Instant::now();
            store.cases(query.clone()).await?;
            longest = longest.max(begun.elapsed());
        }
        found.insert(name.to_owned(), milliseconds(longest));
    }
    for (name, with_resolved) in [("groups", false), ("groups, all", true)] {
        let mut longest = Duration::ZERO;
        for _ in 0..TIMES {
            let query = GroupQuery {
                with_resolved,
                ..GroupQuery::default()
            };
            let begun = Instant::now();
            store.case_groups(query).await?;
            longest = longest.max(begun.elapsed());
        }
        found.insert(name.to_owned(), milliseconds(longest));
    }
    for items_max in [1_000, 10_000] {
        let name = format!("planning a replay of {items_max}");
        found.insert(name, milliseconds(plan(store, items_max).await?));
    }
    Ok(Value::Object(found))
}

/// Plans campaigns over what is there, each over other cases.
async fn plan<S: Store>(store: &S, items_max: u32) -> Result<Duration, StoreError> {
    let mut longest = Duration::ZERO;
    for _ in 0..TIMES {
        let selection = Selection::of(Source::Cases);
        let request = PlanCampaign {
            subscription: "bench",
            kind: CampaignKind::Resend,
            selection: &selection,
            pacing: Pacing::default(),
            accept: &[],
            items_max,
            by: BY,
        };
        let begun = Instant::now();
        let campaign = store.plan_campaign(request).await?;
        longest = longest.max(begun.elapsed());
        let stop = ActOnCampaign {
            campaign_id: campaign.campaign_id,
            action: CampaignAction::Stop,
            by: BY,
        };
        store.act_on_campaign(stop).await?;
    }
    Ok(longest)
}

fn milliseconds(time: Duration) -> Value {
    json!((time.as_secs_f64() * 1e4).round() / 10.0)
}

/// A case of a message that was never in the log.
fn case(number: u32) -> NewCase {
    let payload = format!("{{\"order\":{number},\"text\":\"{}\"}}", "x".repeat(200));
    let key = format!("order-{}", number % KEYS);
    let message_type = format!("bench.type-{}", number % TYPES);
    let payload = Payload::Json(payload.into());
    let envelope = Envelope::new(format!("m-{number}"), "bench", &key, message_type, payload);
    NewCase {
        row: Row {
            xid: u64::from(number) + 1,
            seq: u64::from(number) + 1,
            slot: slot_of(&key),
            recorded_at: Timestamp::from_micros(1_700_000_000_000_000),
            envelope,
            corrects: None,
        },
        key,
        reason: "permanent: bench".to_owned(),
        failure: FailureRecord {
            class: Class::Permanent,
            code: format!("code-{}", number % CAUSES),
            message: "the other side does not take it".to_owned(),
            detail: None,
        },
        spent: Spent::default(),
        holds_key: false,
    }
}

/// Each filter by itself and in pairs; those with few matches or none have nothing to stop at.
fn questions(count: u32) -> Vec<(&'static str, CaseQuery<'static>)> {
    const LIVE: &[CaseState] = &[
        CaseState::Open,
        CaseState::Acknowledged,
        CaseState::Corrected,
    ];
    const DISCARDED: &[CaseState] = &[CaseState::Discarded];
    let live = CaseQuery {
        states: LIVE,
        ..CaseQuery::default()
    };
    let long_ago = Timestamp::from_micros(1_000_000);
    let discarded = CaseQuery {
        states: DISCARDED,
        ..CaseQuery::default()
    };
    let with = |change: fn(&mut CaseQuery<'static>)| {
        let mut query = live.clone();
        change(&mut query);
        query
    };
    let mut late = live.clone();
    late.after_case_id = i64::from(count) - 10;
    let mut old = live.clone();
    old.opened_before = Some(long_ago);
    vec![
        ("list", live.clone()),
        ("list, last page", late),
        ("list, of a rare state", discarded),
        (
            "list, by subscription",
            with(|q| q.subscription = Some("bench")),
        ),
        ("list, by owner", with(|q| q.owner = Some("bo"))),
        ("list, by owner, none", with(|q| q.owner = Some("nobody"))),
        (
            "list, by type",
            with(|q| q.message_type = Some("bench.type-7")),
        ),
        (
            "list, by type, none",
            with(|q| q.message_type = Some("none")),
        ),
        ("list, by key", with(|q| q.key = Some("order-777"))),
        (
            "list, by fingerprint, none",
            with(|q| q.fingerprint = Some("0000000000000000")),
        ),
        ("list, opened before, none", old),
        (
            "list, by type and a rare state",
            with(|q| {
                q.message_type = Some("bench.type-7");
                q.states = DISCARDED;
            }),
        ),
    ]
}
