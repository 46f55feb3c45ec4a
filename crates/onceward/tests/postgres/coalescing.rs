//! Coalescing is invisible: however many messages share a commit, each ends as if it had run alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use onceward::core::Identity;
use onceward::postgres::Postgres;
use onceward::{
    Boxed, Context, Engine, Envelope, Failure, OnPoison, RetryPolicy, Semantics, Start,
    Subscription,
};

use crate::place::{Place, RETRY, Thing, calm, message, record};

const TABLES: &str = "
create table claims (name text primary key);
insert into claims values ('taken');
create table parents (id integer primary key);
create table children (
    parent integer references parents deferrable initially deferred
)";

/// What the messages of a schedule come to, by their share of a hundred among those that do not
/// simply succeed.
const TROUBLES: [&str; 12] = [
    "transient1",
    "transient2",
    "always",
    "permanent",
    "rejected",
    "panics once",
    "panics",
    "unique",
    "at commit",
    "conflict2",
    "conflict9",
    "deadlock1",
];

/// How often each message of each subscription has met its conflict, whatever was rolled back.
type Met = Arc<Mutex<HashMap<(&'static str, String), u32>>>;

async fn conflict(
    cx: &mut Context<Postgres>,
    met: &Met,
    name: (&'static str, String),
    times: u32,
    raise: &'static str,
) -> Result<(), Failure> {
    let is_due = {
        let mut met = met.lock().unwrap();
        let count = met.entry(name).or_default();
        *count += 1;
        *count <= times
    };
    if is_due {
        sqlx::raw_sql(raise).execute(cx.tx()).await?;
    }
    Ok(())
}

const SERIALIZATION: &str = "do $$ begin raise sqlstate '40001'; end $$";
const DEADLOCK: &str = "do $$ begin raise sqlstate '40P01'; end $$";

async fn act(
    cx: &mut Context<Postgres>,
    subscription: &'static str,
    thing: Thing,
    met: &Met,
) -> Result<String, Failure> {
    record(cx, subscription, &thing).await?;
    let id = format!("{subscription}|{}|{}", cx.message().seq, thing.value);
    cx.append_envelope(message(&id, "thing.followed", &thing.key, &thing.value));
    let what = thing.value.split_once(':').map_or("", |(_, what)| what);
    let name = (subscription, thing.value.clone());
    match what {
        "transient1" if cx.attempt() <= 1 => Err(Failure::transient("busy", "later"))?,
        "transient2" if cx.attempt() <= 2 => Err(Failure::transient("busy", "later"))?,
        "always" => return Err(Failure::transient("busy", "never free")),
        "permanent" => return Err(Failure::permanent("bad", "never")),
        "rejected" => return Err(Failure::rejected("no", "not today")),
        "panics once" if cx.attempt() == 1 => panic!("once"),
        "panics" => panic!("always"),
        "unique" => {
            let taken = sqlx::query("insert into claims values ('taken')");
            taken.execute(cx.tx()).await?;
        }
        "at commit" => {
            let orphan = sqlx::query("insert into children values (1)");
            orphan.execute(cx.tx()).await?;
        }
        "conflict2" => conflict(cx, met, name, 2, SERIALIZATION).await?,
        "conflict9" => conflict(cx, met, name, 9, SERIALIZATION).await?,
        "deadlock1" => conflict(cx, met, name, 1, DEADLOCK).await?,
        _ => {}
    }
    Ok(format!("result of {}", thing.value))
}

/// Messages on a few keys; some repeat the operation of an earlier one of their key, with the same
/// payload or with another.
fn schedule(seed: u64, count: usize, troubles_percent: u32) -> Vec<Envelope> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut of_key: BTreeMap<u32, Vec<Envelope>> = BTreeMap::new();
    let mut all = Vec::new();
    for i in 0..count {
        let key = random.u32(..12);
        let earlier = of_key.entry(key).or_default();
        let what = match random.u32(..100) < troubles_percent {
            true => TROUBLES[random.usize(..TROUBLES.len())],
            false => "ok",
        };
        let value = format!("{i}:{what}");
        let mut envelope = message(&format!("m{i}"), "thing.done", &format!("k{key}"), &value);
        envelope.operation_id = Some(format!("op{i}"));
        if random.u32(..100) < 18 && !earlier.is_empty() {
            let first = &earlier[random.usize(..earlier.len())];
            envelope.operation_id.clone_from(&first.operation_id);
            if random.u32(..3) > 0 {
                envelope.payload = first.payload.clone();
            }
        }
        earlier.push(envelope.clone());
        all.push(envelope);
    }
    all
}

/// Everything that can be seen of a subscription in the end.
#[derive(Debug, PartialEq)]
struct End {
    effects: BTreeMap<String, Vec<(String, i32)>>,
    ledger: Vec<(String, String, Option<String>)>,
    /// Id, reason, failures, deaths, code.
    cases: Vec<(String, String, u32, u32, String)>,
    /// Kind, sequence, failures.
    deferred: Vec<(String, i64, i64)>,
    followed: Vec<String>,
}

impl End {
    fn lines(&self) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        for (key, values) in &self.effects {
            lines.extend(values.iter().map(|v| format!("effect {key} {v:?}")));
        }
        lines.extend(self.ledger.iter().map(|l| format!("ledger {l:?}")));
        lines.extend(self.cases.iter().map(|c| format!("case {c:?}")));
        lines.extend(self.followed.iter().map(|f| format!("followed {f}")));
        lines.extend(self.deferred.iter().map(|d| format!("deferred {d:?}")));
        lines
    }
}

/// What only one of two ends has, for a short message.
fn differences(alone: &End, together: &End) -> Vec<String> {
    let (alone, together) = (alone.lines(), together.lines());
    let only_alone = alone.difference(&together);
    let only_alone = only_alone.map(|line| format!("only alone: {line}"));
    let only_together = together.difference(&alone);
    let only_together = only_together.map(|line| format!("only together: {line}"));
    only_alone.chain(only_together).collect()
}

async fn end_of(place: &Place, subscription: &'static str) -> End {
    let mut effects: BTreeMap<String, Vec<(String, i32)>> = BTreeMap::new();
    for effect in place.effects(subscription).await {
        let of_key = effects.entry(effect.key).or_default();
        of_key.push((effect.value, effect.attempt));
    }
    let ledger = "select identity, ending, result::text from onceward.operation_ledger \
                  where subscription = $1 order by identity";
    let deferred = "select kind, seq, failures from onceward.deferrals \
                    where subscription = $1 order by seq";
    let followed = "select substring(id from length($1) + 2) from onceward.outbox \
                    where type = 'thing.followed' and id like $1 || '|%' order by id";
    let mut cases: Vec<_> = place.cases(subscription).await;
    cases.sort_by_key(|case| case.row.seq);
    let cases = cases.into_iter().map(|case| {
        let id = case.row.envelope.id;
        let spent = case.spent;
        (
            id,
            case.reason,
            spent.failures,
            spent.deaths,
            case.failure.code,
        )
    });
    let pool = place.pool();
    End {
        effects,
        cases: cases.collect(),
        ledger: sqlx::query_as(ledger)
            .bind(subscription)
            .fetch_all(pool)
            .await
            .unwrap(),
        deferred: sqlx::query_as(deferred)
            .bind(subscription)
            .fetch_all(pool)
            .await
            .unwrap(),
        followed: sqlx::query_scalar(followed)
            .bind(subscription)
            .fetch_all(pool)
            .await
            .unwrap(),
    }
}

fn subscription(
    name: &'static str,
    batch_max: u32,
    on_poison: OnPoison,
    met: &Met,
) -> Subscription<Postgres> {
    let met = Arc::clone(met);
    let handler = crate::place::handler(move |cx, thing| -> Boxed<'_, _> {
        let met = Arc::clone(&met);
        Box::pin(async move { act(cx, name, thing, &met).await })
    });
    Subscription::new(name, Semantics::EffectOnce)
        .on::<Thing, _>(handler)
        .identity(Identity::Operation)
        .batch_max(batch_max)
        .on_poison(on_poison)
        .start(Start::Earliest)
        .retry(RetryPolicy {
            attempts_max: 4,
            ..RETRY
        })
}

/// Runs a schedule alone and coalesced, on both answers to poison, and compares the ends.
async fn compare(seed: u64, count: usize, troubles_percent: u32) -> Place {
    let place = Place::new().await;
    place.run(TABLES).await;
    for part in schedule(seed, count, troubles_percent).chunks(40) {
        place.append(part).await;
    }
    let met = Met::default();
    let names = [
        ("alone", 1, OnPoison::Skip),
        ("together", 100, OnPoison::Skip),
        ("alone-holding", 1, OnPoison::HoldKey),
        ("together-holding", 100, OnPoison::HoldKey),
    ];
    let mut engine = Engine::builder(place.store.clone()).options(calm());
    for (name, batch_max, on_poison) in names {
        engine = engine.subscribe(subscription(name, batch_max, on_poison, &met));
    }
    let engine = engine.start().await.unwrap();
    for (name, ..) in names {
        place.idle(name).await;
    }
    engine.shutdown(std::time::Duration::from_secs(5)).await;
    for (alone, together) in [("alone", "together"), ("alone-holding", "together-holding")] {
        let (alone, together) = (end_of(&place, alone).await, end_of(&place, together).await);
        assert!(!alone.effects.is_empty() && !alone.cases.is_empty());
        let differences = differences(&alone, &together);
        assert!(differences.is_empty(), "seed {seed}: {differences:#?}");
        assert_eq!(alone, together, "seed {seed}");
    }
    let held = end_of(&place, "alone-holding").await.deferred;
    assert!(!held.is_empty() && held.iter().all(|(kind, ..)| kind == "held"));
    place
}

/// Effects whose row was written by a subtransaction: they ran under a savepoint.
const UNDER_SAVEPOINT: &str = "select count(*) from effects \
    where subscription like 'together%' and xmin::text::bigint <> top::text::bigint % 4294967296";
/// Commits of the coalesced subscription against its effects.
const SHARED: &str = "select count(*) - count(distinct top) from effects \
    where subscription like 'together%'";

#[tokio::test]
async fn many_failures_end_the_same_alone_and_together() {
    let seed = fastrand::u64(..);
    let place = compare(seed, 300, 40).await;
    let shared = place.count(SHARED).await;
    assert!(shared > 20, "seed {seed}: only {shared} shared a commit");
    let marked = place.count(UNDER_SAVEPOINT).await;
    assert!(marked > 0, "seed {seed}: no savepoint was used");
}

#[tokio::test]
async fn few_failures_end_the_same_alone_and_together() {
    let seed = fastrand::u64(..);
    let place = compare(seed, 600, 3).await;
    let shared = place.count(SHARED).await;
    assert!(shared > 100, "seed {seed}: only {shared} shared a commit");
}
