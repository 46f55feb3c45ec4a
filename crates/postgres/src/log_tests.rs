use onceward_core::store::Schema;
use onceward_testkit::postgres::TestDatabase;

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

/// Buffers that the server touches for the page after a position.
async fn buffers(store: &Postgres, from: &Position) -> u64 {
    let request = ReadPage {
        from,
        rows_max: PAGE_ROWS,
        bytes_max: 1 << 30,
    };
    let explain = format!(
        "explain (analyze, buffers, format json) {}",
        page_sql(&request, false)
    );
    let rows = store.look(&[&explain]).await.unwrap();
    let row = rows.first().unwrap();
    // The type is json, whose bytes are those of its text.
    let plan: String = row.try_get_unchecked(0).unwrap();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    let top = &plan[0]["Plan"];
    assert_eq!(top["Actual Rows"], PAGE_ROWS, "the page is full");
    let count = |name| top[name].as_u64().unwrap();
    count("Shared Hit Blocks") + count("Shared Read Blocks")
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
