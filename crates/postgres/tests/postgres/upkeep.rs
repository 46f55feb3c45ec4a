//! The log goes by whole ranges, and no append ever waits for that.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use onceward_core::store::Log;
use onceward_core::store::{
    Append, Lanes, Retention, SavePosition, Schema, Span, Start, Upkeep, UpkeepReport,
};
use onceward_core::{Position, Timestamp};
use onceward_postgres::{Clock, Postgres};
use onceward_testkit::postgres::TestDatabase;

use crate::support::{
    SUB, append, drain, envelope, execute, ids, join, register, session, store, take, until,
};

const DAY_MS: u64 = 86_400_000;

async fn clocked() -> (TestDatabase, Postgres, Clock) {
    let (database, store) = store().await;
    let now = database
        .psql("select onceward.micros(now())")
        .await
        .trim()
        .parse()
        .unwrap();
    let clock = Clock::fixed(Timestamp::from_micros(now));
    (database, store.with_clock(clock.clone()), clock)
}

async fn tidy(store: &Postgres) -> UpkeepReport {
    store.tidy(Retention::default()).await.unwrap()
}

/// Waits until transactions of other tests, which run on the same server, are past the closing of
/// ranges here.
async fn passed(database: &TestDatabase) {
    let query = "select pg_snapshot_xmin(pg_current_snapshot())::text::numeric
        >= coalesce(max(closing_xmax::text::numeric), 0) from onceward.ranges";
    until(database, query).await;
}

/// A member that has everything behind it.
async fn read_all(store: &Postgres) {
    let name = format!("reader-{}", store.head().await.unwrap().after.xmax);
    let lease = join(store, &name, 60_000).await;
    let lanes = take(store, &lease).await;
    assert_eq!(lanes.len(), 4);
    let lanes = lanes.iter().map(|lane| (lane.lane, lane.epoch)).collect();
    let spans = [Span {
        stand: store.head().await.unwrap().into(),
        lanes,
    }];
    let save = SavePosition {
        member: &name,
        subscription: SUB,
        spans: &spans,
    };
    store.save_position(save).await.unwrap();
    store.leave(&lease).await.unwrap();
}

async fn leaves(database: &TestDatabase) -> String {
    let sql = "select string_agg(inhrelid::regclass::text, ' ' order by inhrelid)
        from pg_inherits where inhparent = 'onceward.outbox'::regclass";
    database.psql(sql).await.trim().to_owned()
}

/// Cut, closed, emptied, dropped; with an append open through all of it and others going on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ex_16_a_range_goes_when_nobody_needs_it() {
    let (database, store, clock) = clocked().await;
    register(&store, Start::Earliest).await;
    append(&store, &[envelope("old", "a")]).await;
    read_all(&store).await;
    clock.advance_ms(DAY_MS);
    let report = tidy(&store).await;
    assert_eq!(
        (report.log_removed, report.made_ahead),
        (0, 3),
        "{report:?}"
    );
    append(&store, &[envelope("new", "a")]).await;
    assert_eq!(
        database
            .psql("select max(seq) from onceward.outbox")
            .await
            .trim(),
        "68719476736"
    );
    passed(&database).await;
    read_all(&store).await;

    clock.advance_ms(8 * DAY_MS);
    let mut open = session(&database).await;
    execute(&mut open, "begin").await;
    store
        .append(&mut open, &[envelope("open", "a")])
        .await
        .unwrap();
    let (report, during) = tidy_beside_appends(&database, &store, Retention::default()).await;
    assert_eq!((report.log_removed, report.held_back_by), (1, None));
    // The open append keeps its transaction's view of the table: the leaf cannot go yet.
    execute(&mut open, "commit").await;
    tidy(&store).await;
    let left = leaves(&database).await;
    assert!(!left.contains("outbox_0"), "{left}");
    assert_eq!(
        database
            .psql("select to_regclass('onceward.outbox_0') is null")
            .await
            .trim(),
        "t"
    );
    let rows = drain(&store, &mut Position::origin(1), 10_000).await;
    assert_eq!(rows.len(), during + 2);
    assert!(!ids(&rows).contains(&"old"));
}

/// An open case keeps its day of the ledger; the days around it go, and so does what came before.
#[tokio::test]
async fn only_the_day_that_is_needed_stays() {
    let (database, store, clock) = clocked().await;
    register(&store, Start::Earliest).await;
    append(&store, &[envelope("a", "a")]).await;
    read_all(&store).await;
    let open = "insert into onceward.cases (subscription, xid, seq, slot, id, aggregatetype,
            aggregateid, type, payload, priority, recorded_at, reason, failure, failures, deaths,
            waits, age_ms, holds_key, opened_at, key, first_opened_at)
        select 'ship', xid, seq, slot, id, aggregatetype, aggregateid, type, payload, priority,
            recorded_at, 'ambiguous', '{}', 1, 0, 0, 0, false, now(), aggregateid, now()
        from onceward.outbox";
    database.psql(open).await;
    clock.advance_ms(40 * DAY_MS);
    let reason = loop {
        let report = tidy(&store).await;
        if !report.has_more {
            break report.held_back_by.unwrap();
        }
    };
    // Read first: as a plain join the names of all relations might be taken for days.
    let left = "with parts as materialized (select relname from pg_inherits
        join pg_class on oid = inhrelid where inhparent = 'onceward.ledger'::regclass)
        select string_agg(substr(relname, 8), ' ' order by relname) from parts
        where case relname when 'ledger_early' then true
            else to_date(substr(relname, 8), 'YYYYMMDD') < current_date + 8 end";
    let today = "select to_char(recorded_at at time zone 'UTC', 'YYYYMMDD') from onceward.outbox";
    let today = database.psql(today).await;
    assert_eq!(database.psql(left).await.trim(), today.trim());
    let expected = format!("ledger_{} is needed: case 1", today.trim());
    assert_eq!(reason, expected);
}

/// A `pg_dump` that is read slowly, and an append that stays open, while upkeep cuts, attaches,
/// empties and detaches: nobody waits for anybody, and what was put off is done afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_dump_only_puts_it_off() {
    let (database, store, clock) = clocked().await;
    register(&store, Start::Earliest).await;
    // Many times what a pipe holds, so that the dump cannot end before it is read.
    let fill = "insert into onceward.outbox (id, aggregatetype, aggregateid, type, payload)
        select 'old-' || n, 'order', 'a', 'order.accepted', to_json(repeat('x', 500))
        from generate_series(1, 4000) n";
    database.psql(fill).await;
    clock.advance_ms(DAY_MS);
    tidy(&store).await;
    append(&store, &[envelope("new", "a")]).await;
    passed(&database).await;
    read_all(&store).await;
    clock.advance_ms(8 * DAY_MS);

    let dump = Dump::start(&database).await;
    let mut open = session(&database).await;
    execute(&mut open, "begin").await;
    store
        .append(&mut open, &[envelope("open", "a")])
        .await
        .unwrap();
    let short = Retention {
        ledger_ms: 2 * DAY_MS,
        ..Retention::default()
    };
    let (report, during) = tidy_beside_appends(&database, &store, short).await;
    assert_eq!((report.log_removed, report.ledger_removed), (0, 0));
    assert_eq!(
        report.made_ahead,
        1 + 8,
        "a range, and the days that passed"
    );
    let reason = report.held_back_by.unwrap();
    assert!(reason.contains("outbox_0"), "{reason}");
    let newest = "select max(seq) >= 2 * 68719476736 from onceward.outbox";
    assert_eq!(database.psql(newest).await.trim(), "t", "it was cut");

    let text = dump.finish().await;
    let dumped = text.lines().filter(|line| line.contains("\told-")).count();
    assert_eq!(dumped, 4_000, "the dump is whole");
    assert!(text.contains("\tnew\t") && !text.contains("\tduring-"));
    execute(&mut open, "commit").await;
    // What was appended meanwhile is old for the short memory, and needed until it is read.
    read_all(&store).await;
    let report = store.tidy(short).await.unwrap();
    assert_eq!(report.held_back_by, None);
    assert_eq!(report.log_removed, 1);
    assert!(report.ledger_removed >= 7, "{report:?}");
    let left = leaves(&database).await;
    assert!(!left.contains("outbox_0"), "{left}");
    let rows = drain(&store, &mut Position::origin(1), 10_000).await;
    assert_eq!(rows.len(), during + 2);
}

/// A `pg_dump` in the middle of the log's rows.
struct Dump {
    program: Child,
    output: BufReader<ChildStdout>,
    text: String,
}

impl Dump {
    /// Reads what it says until it has come to the rows: then it has locked all it will ever lock.
    async fn start(database: &TestDatabase) -> Self {
        let mut program = Command::new("pg_dump")
            .arg(format!("--dbname={}", database.url()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(program.stdout.take().unwrap());
        let mut dump = Self {
            program,
            output,
            text: String::new(),
        };
        let read = move || {
            while !dump.text.contains("\told-1\t") {
                assert!(dump.output.read_line(&mut dump.text).unwrap() > 0);
            }
            dump
        };
        tokio::task::spawn_blocking(read).await.unwrap()
    }

    /// All that it says, once it has ended well.
    async fn finish(mut self) -> String {
        let read = move || {
            self.output.read_to_string(&mut self.text).unwrap();
            assert!(self.program.wait().unwrap().success());
            self.text
        };
        tokio::task::spawn_blocking(read).await.unwrap()
    }
}

/// A round of upkeep, and how many appends and ledger rows were written beside it, none of which
/// may wait for a lock.
async fn tidy_beside_appends(
    database: &TestDatabase,
    store: &Postgres,
    retention: Retention,
) -> (UpkeepReport, usize) {
    let mut impatient = session(database).await;
    execute(&mut impatient, "set lock_timeout = '100ms'").await;
    let round = tokio::spawn({
        let store = store.clone();
        async move { store.tidy(retention).await.unwrap() }
    });
    let mut during = 0;
    while !round.is_finished() {
        let message = [envelope(&format!("during-{during}"), "a")];
        store.append(&mut impatient, &message).await.unwrap();
        let effect = format!(
            "insert into onceward.ledger (subscription, source, type, identity, recordedtime)
             values ('mail', 's', 't', '{during}', now() + interval '9 days')"
        );
        execute(&mut impatient, effect).await;
        during += 1;
        tokio::task::yield_now().await;
    }
    assert!(during > 10, "only {during} appends beside a round");
    (round.await.unwrap(), during)
}

#[tokio::test]
async fn a_subscription_that_lags_keeps_its_rows() {
    let (database, store, clock) = clocked().await;
    register(&store, Start::Earliest).await;
    append(&store, &[envelope("old", "a")]).await;
    clock.advance_ms(DAY_MS);
    tidy(&store).await;
    clock.advance_ms(400 * DAY_MS);
    let report = tidy(&store).await;
    assert_eq!(report.log_removed, 0);
    assert_eq!(
        report.held_back_by.unwrap(),
        "subscription ship has not come past it"
    );
    passed(&database).await;
    read_all(&store).await;
    assert_eq!(tidy(&store).await.log_removed, 1);
}

/// The writer started before the range was closed and commits after everybody's position.
#[tokio::test]
async fn an_open_writer_keeps_its_range() {
    let (database, store, clock) = clocked().await;
    register(&store, Start::Earliest).await;
    append(&store, &[envelope("old", "a")]).await;
    let mut open = session(&database).await;
    execute(&mut open, "begin").await;
    store
        .append(&mut open, &[envelope("open", "a")])
        .await
        .unwrap();
    clock.advance_ms(DAY_MS);
    tidy(&store).await;
    append(&store, &[envelope("new", "a")]).await;
    read_all(&store).await;
    clock.advance_ms(8 * DAY_MS);
    assert_eq!(tidy(&store).await.log_removed, 0);
    execute(&mut open, "commit").await;
    assert_eq!(tidy(&store).await.log_removed, 0, "not read yet");
    passed(&database).await;
    read_all(&store).await;
    assert_eq!(tidy(&store).await.log_removed, 1);
}

/// Maintenance stops for longer than there is room: appends go on, then it repairs itself.
#[tokio::test]
async fn ex_27_room_lasts_and_is_made_again() {
    let (database, store, clock) = clocked().await;
    let day = "select (max(substr(c.relname, 8)::date) - current_date) from pg_inherits i
        join pg_class c on c.oid = i.inhrelid where c.relname ~ '^ledger_\\d{8}$'";
    let ahead: i64 = database.psql(day).await.trim().parse().unwrap();
    assert!(ahead >= 40, "{ahead} days of the ledger are made ahead");
    clock.advance_ms(60 * DAY_MS);
    append(&store, &[envelope("m", "a")]).await;
    let mut rounds = 0;
    while tidy(&store).await.has_more {
        rounds += 1;
        assert!(rounds < 20);
    }
    let ahead: i64 = database.psql(day).await.trim().parse().unwrap();
    assert!(ahead >= 100, "{ahead} days");
    let gaps = "select count(*) from (
        select substr(c.relname, 8)::date
            - lag(substr(c.relname, 8)::date) over (order by c.relname) as step
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where c.relname ~ '^ledger_\\d{8}$') d where step <> 1";
    assert_eq!(database.psql(gaps).await.trim(), "0");
    assert!(
        database
            .psql("select report is not null from onceward.upkeep")
            .await
            .contains('t')
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_may_tidy_at_once() {
    let (database, store, clock) = clocked().await;
    append(&store, &[envelope("old", "a")]).await;
    clock.advance_ms(DAY_MS);
    tidy(&store).await;
    clock.advance_ms(8 * DAY_MS);
    append(&store, &[envelope("new", "a")]).await;
    let rounds: Vec<_> = (0..4)
        .map(|_| {
            let (url, clock) = (database.url().to_owned(), clock.clone());
            tokio::spawn(async move {
                let store = Postgres::connect(&url).await.unwrap().with_clock(clock);
                store.tidy(Retention::default()).await.unwrap().log_removed
            })
        })
        .collect();
    let mut removed = 0;
    for round in rounds {
        removed += round.await.unwrap();
    }
    assert_eq!(removed, 1);
    append(&store, &[envelope("newer", "a")]).await;
    let rows = drain(&store, &mut Position::origin(1), 10).await;
    assert_eq!(ids(&rows), ["new", "newer"]);
    store.schema_state().await.unwrap();
}

/// The leaves made later are made like the first ones.
#[tokio::test]
async fn later_ranges_are_like_the_first() {
    let (database, store, clock) = clocked().await;
    append(&store, &[envelope("old", "a")]).await;
    clock.advance_ms(DAY_MS);
    tidy(&store).await;
    let shape = "select count(distinct (
            (select string_agg(concat(a.attname, a.attstorage, a.attgenerated, a.atthasdef, a.attnotnull), ',' order by a.attname)
             from pg_attribute a where a.attrelid = i.inhrelid and a.attnum > 0 and not a.attisdropped),
            (select count(*) from pg_index x where x.indrelid = i.inhrelid),
            (select string_agg(c.conname, ',' order by c.conname) from pg_constraint c
             where c.conrelid = i.inhrelid and c.contype = 'c')))
        from pg_inherits i where i.inhparent = 'onceward.outbox'::regclass";
    assert_eq!(database.psql(shape).await.trim(), "1");
}
