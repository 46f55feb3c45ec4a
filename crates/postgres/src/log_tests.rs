use onceward_core::store::{
    Declared, Join, Lanes, Lease, Renew, Retention, Schema, Span, Start, Take, Upkeep,
};
use onceward_testkit::postgres::TestDatabase;
use sqlx::Connection as _;

use super::*;

#[test]
fn literals_take_the_places_of_parameters() {
    let literals: Vec<String> = (1..=10).map(|n| format!("v{n}")).collect();
    assert_eq!(render("a $1, $10 b", &literals), "a 'v1', 'v10' b");
    assert_eq!(render("$11 $x", &literals), "$11 $x");
    assert_eq!(render("nothing", &[]), "nothing");
}

/// Large enough that a page of an index more or less does not matter.
const PAGE_ROWS: u32 = 5_000;

/// Rows that the topmost node of an explained plan returned, and buffers that the server touched.
fn counted(rows: &[PgRow]) -> (u64, u64) {
    // The type is json, whose bytes are those of its text.
    let plan: String = rows.first().unwrap().try_get_unchecked(0).unwrap();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    let top = &plan[0]["Plan"];
    let count = |name| top[name].as_u64().unwrap();
    (
        count("Actual Rows"),
        count("Shared Hit Blocks") + count("Shared Read Blocks"),
    )
}

fn explained(statement: &str) -> String {
    format!("explain (analyze, buffers, format json) {statement}")
}

/// Buffers that the server touches for a full page after a position.
async fn page_buffers(store: &Postgres, from: &Position, rows_max: u32) -> u64 {
    let request = ReadPage {
        from,
        rows_max,
        bytes_max: 1 << 30,
    };
    let explain = explained(&page_sql(&request, false));
    let mut least = u64::MAX;
    // A session that reads its first page, or the first one after a change of the table, also
    // makes the plan.
    for _ in 0..8 {
        let (rows, buffers) = counted(&store.look(&[&explain]).await.unwrap());
        assert!(rows >= u64::from(rows_max), "the page is full");
        least = least.min(buffers);
    }
    least
}

async fn buffers(store: &Postgres, from: &Position) -> u64 {
    page_buffers(store, from, PAGE_ROWS).await
}

/// The head without transactions of other tests on the same server, each of which would be looked
/// for.
async fn quiet_head(store: &Postgres) -> Position {
    let mut position = store.head().await.unwrap();
    position.after.xip.clear();
    position
}

async fn fill(store: &Postgres, rows: u32) {
    let fill = "insert into onceward.outbox (id, aggregatetype, aggregateid, type, payload)
        select 'm' || n, 'order', 'o' || n % 1000, 'order.accepted', '{\"n\": 1}'
        from generate_series(1, $1) n";
    sqlx::query(fill)
        .bind(rows as i32)
        .execute(store.pool())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_page_costs_the_same_however_much_is_behind() {
    let database = TestDatabase::lease().await;
    let store = Postgres::connect(database.url()).await.unwrap();
    store.migrate().await.unwrap();
    let mut costs = Vec::new();
    for behind in [10_000, 984_000] {
        fill(&store, behind).await;
        let position = quiet_head(&store).await;
        fill(&store, 6_000).await;
        // The first look at a page also settles which of its rows are committed.
        buffers(&store, &position).await;
        costs.push(buffers(&store, &position).await);
    }
    let (few, many) = (costs[0] as f64, costs[1] as f64);
    assert!(
        (many - few).abs() <= 0.1 * few,
        "{few} buffers, then {many}"
    );
}

#[tokio::test]
async fn a_page_costs_the_same_however_much_waits() {
    let database = TestDatabase::lease().await;
    let store = Postgres::connect(database.url()).await.unwrap();
    store.migrate().await.unwrap();
    fill(&store, 10).await;
    let position = quiet_head(&store).await;
    fill(&store, 6_000).await;
    buffers(&store, &position).await;
    let few = buffers(&store, &position).await as f64;
    fill(&store, 50_000).await;
    buffers(&store, &position).await;
    let many = buffers(&store, &position).await as f64;
    assert!(
        (many - few).abs() <= 0.1 * few,
        "{few} buffers, then {many}"
    );
}

const SUB: &str = "ship";
const MEMBER: &str = "m";

/// Takes all lanes of a subscription.
async fn own(store: &Postgres) -> (Lease, Vec<(u16, u64)>) {
    let types = ["order.accepted".to_owned()];
    let declared = Declared {
        subscription: SUB,
        lanes: 4,
        types: &types,
        start: Some(Start::Earliest),
        renamed_from: None,
        terms: onceward_core::store::Terms::default(),
    };
    store.register(declared).await.unwrap();
    let join = Join {
        member: MEMBER,
        description: MEMBER,
        lease_ms: 3_600_000,
        subscriptions: &[SUB.to_owned()],
    };
    let lease = store.join(join).await.unwrap();
    let take = Take {
        lease: &lease,
        subscription: SUB,
        lanes: &[0, 1, 2, 3],
    };
    let taken = store.take(take).await.unwrap();
    let lanes = taken.iter().map(|lane| (lane.lane, lane.epoch)).collect();
    (lease, lanes)
}

/// What a page costs, and what is kept around it: the place to begin, the position, a heartbeat, and
/// looking both up again as a successor would.
async fn round_buffers(store: &Postgres, lease: &Lease) -> Vec<u64> {
    let analyze = "analyze onceward.positions, onceward.heartbeats, onceward.members";
    sqlx::query(analyze).execute(store.pool()).await.unwrap();
    let position = quiet_head(store).await;
    fill(store, 100).await;
    // The first look at a page also settles which of its rows are committed.
    page_buffers(store, &position, 10).await;
    let mut round = vec![page_buffers(store, &position, 10).await];
    let mut connection = store.pool().acquire().await.unwrap();
    let fence = lease.fence.to_string();
    let [sub, member, spans] = [SUB, MEMBER, "[]"].map(str::to_owned);
    for statement in [
        include_str!("../sql/log/floor.sql").to_owned(),
        render(
            include_str!("../sql/log/save_position.sql"),
            &[sub.clone(), member.clone(), spans],
        ),
        include_str!("../sql/lanes/beat.sql")
            .replace("$1", &fence)
            .replace("$2", "null"),
        render(
            include_str!("../sql/lanes/latest_position.sql"),
            &[sub, member],
        ),
        include_str!("../sql/lanes/members.sql").replace("$1", "null"),
    ] {
        let explain = explained(&statement);
        // The first time it also reads the catalogue, and a table's page may just fill up.
        let mut costs = Vec::new();
        for _ in 0..3 {
            let mut tx = connection.begin().await.unwrap();
            let query = sqlx::raw_sql(sqlx::AssertSqlSafe(explain.clone()));
            costs.push(counted(&query.fetch_all(&mut *tx).await.unwrap()).1);
            tx.rollback().await.unwrap();
        }
        round.extend(costs.into_iter().min());
    }
    round
}

/// Reads what was appended in small pages, with a position saved and a heartbeat after each.
async fn read_in_small_pages(
    store: &Postgres,
    position: &mut Position,
    (lease, lanes): &(Lease, Vec<(u16, u64)>),
    pages: u32,
) -> u32 {
    const ROWS: u32 = 4;
    let mut rows = 0;
    for n in 0..pages {
        if n % 25 == 0 {
            fill(store, 25 * ROWS).await;
        }
        let request = ReadPage {
            from: position,
            rows_max: ROWS,
            bytes_max: 1 << 20,
        };
        let page = store.read(request).await.unwrap();
        rows += page.rows.len() as u32;
        *position = page.next;
        let spans = [Span {
            stand: position.clone().into(),
            lanes: lanes.clone(),
        }];
        let save = SavePosition {
            member: MEMBER,
            subscription: SUB,
            spans: &spans,
        };
        store.save_position(save).await.unwrap();
        store.renew(Renew::of(lease)).await.unwrap();
        if n % 250 == 249 {
            // Also removes old records, which stay as dead rows under the pinned snapshot.
            store.tidy(Retention::default()).await.unwrap();
        }
    }
    rows
}

/// Somebody forgets a transaction, one that has written too, and nothing that is removed can be
/// cleaned away any more.
#[tokio::test]
async fn ex_18_a_page_costs_the_same_while_a_snapshot_is_pinned() {
    let database = TestDatabase::lease().await;
    let store = Postgres::connect(database.url()).await.unwrap();
    store.migrate().await.unwrap();
    let owner = own(&store).await;
    let mut position = quiet_head(&store).await;
    let mut pinned = store.pool().begin_with(PIN).await.unwrap();
    let write = "select pg_current_xact_id(), count(*) from onceward.outbox";
    sqlx::query(write).execute(&mut *pinned).await.unwrap();
    // So that all tables and indexes have their usual shape, dead rows included.
    read_in_small_pages(&store, &mut position, &owner, 350).await;
    let before = round_buffers(&store, &owner.0).await;
    let rows = read_in_small_pages(&store, &mut position, &owner, 1_000).await;
    assert!(rows >= 4_000, "{rows} rows");
    let dead = "select min(revision) > 1000 from onceward.positions";
    assert_eq!(database.psql(dead).await.trim(), "t", "old records went");
    let after = round_buffers(&store, &owner.0).await;
    // A few more where an index has grown by a level, or a catalogue was looked into again. What is
    // dead and not left behind would cost hundreds.
    let is_close = |(before, after): (&u64, &u64)| *after as f64 <= 1.1 * *before as f64 + 4.0;
    assert!(
        before.iter().zip(&after).all(is_close),
        "{before:?} buffers, then {after:?} with {rows} rows read in between"
    );
    pinned.rollback().await.unwrap();
}

const PIN: &str = "begin isolation level repeatable read";
