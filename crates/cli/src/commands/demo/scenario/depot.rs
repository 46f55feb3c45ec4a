//! The scenarios' business: parcels are scanned on their way, step after step, and a depot keeps
//! what it was told. Nothing in its table forbids a second row of a scan, or another order.

use std::future::Future;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use onceward::postgres::Postgres;
use onceward::push::{PushDeliverer, PushOptions, SigningSecrets};
use onceward::sqlite::Sqlite;
use onceward::{
    Context, Engine, EngineOptions, Failure, Gaps, Message, OnPoison, RetryPolicy, Semantics,
    Start, Subscription, VersionPolicy,
};
use onceward_core::breaker::BreakerPolicy;
use onceward_core::store::Append;
use onceward_orders::part::{CONNECTIONS, CommonArgs, GRACE, is_postgres, ready, until_told};
use onceward_orders::shop::ShopBooks;
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use super::Scenario;
use crate::error::{Code, Error};

/// Keeps what was told; a poisoned message is skipped.
pub(super) const TRACKING: &str = "tracking";
/// Keeps what was told; a poisoned message holds its parcel.
pub(super) const BILLING: &str = "billing";
/// Pushes what was told to a receiver.
pub(super) const HOOK: &str = "hook";

/// Requests that a push has under way at most.
pub(super) const HOOK_AT_ONCE: u16 = 8;
/// How long a version is waited for, in milliseconds.
pub(super) const GAP_LIMIT_MS: u64 = 4_000;
/// Attempts of a message in the scenario of the outage: one may be cut off by the kill.
pub(super) const OUTAGE_ATTEMPTS_MAX: u32 = 2;

/// The tables of the depot.
pub(in crate::commands::demo) const DEPOT_TABLES: [&str; 2] = ["depot_scans", "depot_faults"];

const SCANS_SQLITE: &str = "CREATE TABLE IF NOT EXISTS depot_scans (n INTEGER PRIMARY KEY \
    AUTOINCREMENT, subscription text NOT NULL, parcel text NOT NULL, scan text NOT NULL)";
const SCANS_POSTGRES: &str = "CREATE TABLE IF NOT EXISTS depot_scans (n bigserial PRIMARY KEY, \
    subscription text NOT NULL, parcel text NOT NULL, scan text NOT NULL)";
const FAULTS: &str = "CREATE TABLE IF NOT EXISTS depot_faults (place text PRIMARY KEY, \
    fault text NOT NULL)";
const INSERT_SCAN: &str =
    "INSERT INTO depot_scans (subscription, parcel, scan) VALUES ($1, $2, $3)";
const ALL_SCANS: &str = "SELECT subscription, parcel, scan FROM depot_scans ORDER BY n";
const FIND_FAULT: &str = "SELECT fault FROM depot_faults WHERE place = $1";
const SET_FAULT: &str = "INSERT INTO depot_faults (place, fault) VALUES ($1, $2)";
const MEND: &str = "DELETE FROM depot_faults WHERE place = $1";

/// A parcel was seen somewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Message)]
#[message(
    type = "parcel.scanned", version = 1,
    key = parcel, operation = scan, aggregate_version = step
)]
pub(super) struct Scan {
    /// The parcel: what is kept in order.
    pub(super) parcel: String,
    /// The scan: the operation, and the message's id.
    pub(super) scan: String,
    /// Which of the parcel's scans it is, from 1.
    pub(super) step: u32,
    /// Where.
    pub(super) place: String,
}

impl Scan {
    /// A step of a parcel at a place.
    pub(super) fn of(parcel: &str, step: u32, place: &str) -> Self {
        Self {
            parcel: parcel.to_owned(),
            scan: format!("{parcel}-{step}"),
            step,
            place: place.to_owned(),
        }
    }
}

/// What is wrong with the handler, at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It refuses the scan for good.
    Refuse,
    /// It kills its process.
    Crash,
    /// It says that all is well and writes nothing.
    Lose,
    /// It writes two rows.
    Double,
}

impl Fault {
    const ALL: [Self; 4] = [Self::Refuse, Self::Crash, Self::Lose, Self::Double];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Crash => "crash",
            Self::Lose => "lose",
            Self::Double => "double",
        }
    }
}

/// A row of the depot: subscription, parcel, scan.
pub(super) type DepotRow = (String, String, String);

/// The depot's tables.
pub(in crate::commands::demo) trait Depot: ShopBooks {
    /// Makes the tables that are missing.
    fn create_depot(&self) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Writes what a subscription was told.
    fn insert_scan(
        connection: &mut <Self as Append>::Connection,
        row: [&str; 3],
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// What is wrong with the handler at a place, if anything is.
    fn find_fault(
        connection: &mut <Self as Append>::Connection,
        place: &str,
    ) -> impl Future<Output = sqlx::Result<Option<String>>> + Send;

    /// Breaks the handler at a place, or mends it.
    fn set_fault(
        &self,
        place: &str,
        fault: Option<&str>,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// All rows, in the order in which they were written.
    fn scans(&self) -> impl Future<Output = sqlx::Result<Vec<DepotRow>>> + Send;
}

/// The statements are the same for both databases; only the types of sqlx differ.
macro_rules! depot {
    ($store:ty, $scans:expr) => {
        impl Depot for $store {
            async fn create_depot(&self) -> sqlx::Result<()> {
                for statement in [$scans, FAULTS] {
                    sqlx::query(statement).execute(self.pool()).await?;
                }
                Ok(())
            }

            async fn insert_scan(
                connection: &mut <$store as Append>::Connection,
                [subscription, parcel, scan]: [&str; 3],
            ) -> sqlx::Result<()> {
                let query = sqlx::query(INSERT_SCAN)
                    .bind(subscription)
                    .bind(parcel)
                    .bind(scan);
                query.execute(connection).await.map(drop)
            }

            async fn find_fault(
                connection: &mut <$store as Append>::Connection,
                place: &str,
            ) -> sqlx::Result<Option<String>> {
                let query = sqlx::query_scalar(FIND_FAULT).bind(place);
                query.fetch_optional(connection).await
            }

            async fn set_fault(&self, place: &str, fault: Option<&str>) -> sqlx::Result<()> {
                let query = match fault {
                    Some(fault) => sqlx::query(SET_FAULT).bind(place).bind(fault),
                    None => sqlx::query(MEND).bind(place),
                };
                query.execute(self.pool()).await.map(drop)
            }

            async fn scans(&self) -> sqlx::Result<Vec<DepotRow>> {
                sqlx::query_as(ALL_SCANS).fetch_all(self.pool()).await
            }
        }
    };
}

depot!(Sqlite, SCANS_SQLITE);
depot!(Postgres, SCANS_POSTGRES);

/// Breaks the handler at a place, or mends it.
pub(super) async fn set_fault<S: Depot>(
    store: &S,
    place: &str,
    fault: Option<Fault>,
) -> Result<(), Error> {
    let set = store.set_fault(place, fault.map(Fault::as_str)).await;
    set.map_err(|e| Error::new(Code::Demo, "could not change the depot's handler").with_source(e))
}

async fn track<S: Depot>(cx: &mut Context<S>, scan: Scan) -> Result<(), Failure> {
    take_in(cx, TRACKING, &scan).await
}

async fn bill<S: Depot>(cx: &mut Context<S>, scan: Scan) -> Result<(), Failure> {
    take_in(cx, BILLING, &scan).await
}

/// The handler, with whatever is wrong with it today.
async fn take_in<S: Depot>(
    cx: &mut Context<S>,
    subscription: &str,
    scan: &Scan,
) -> Result<(), Failure> {
    let found = S::find_fault(cx.tx(), &scan.place).await?;
    let fault = Fault::ALL
        .into_iter()
        .find(|fault| Some(fault.as_str()) == found.as_deref());
    let row = [subscription, &scan.parcel, &scan.scan];
    match fault {
        Some(Fault::Refuse) => {
            let text = "no depot is at this place";
            return Err(Failure::permanent("unknown_place", text));
        }
        Some(Fault::Crash) => {
            let _ = kill_process(getpid(), Signal::KILL);
            // The signal is on its way: nothing after it is to happen.
            std::future::pending::<()>().await;
        }
        Some(Fault::Lose) => return Ok(()),
        Some(Fault::Double) => S::insert_scan(cx.tx(), row).await?,
        None => {}
    }
    S::insert_scan(cx.tx(), row).await?;
    Ok(())
}

/// Options of a process that works for the depot.
#[derive(Clone, Debug, Args)]
pub(in crate::commands::demo) struct DepotArgs {
    /// In which scenario
    #[arg(long)]
    scenario: Scenario,
    /// Where pushes go
    #[arg(long, value_name = "URL")]
    push_to: Option<String>,
    /// How long this process may be silent before others take over
    #[arg(long, value_name = "MS")]
    lease_ms: u64,
    /// How often it says that it is there
    #[arg(long, value_name = "MS")]
    renew_ms: u64,
    /// What all parts have.
    #[command(flatten)]
    common: CommonArgs,
}

fn failed<E>(text: &'static str) -> impl FnOnce(E) -> Error
where
    E: std::error::Error + Send + Sync + 'static,
{
    move |error| Error::new(Code::Demo, text).with_source(error)
}

/// Works for the depot until it is told to stop.
pub(in crate::commands::demo) async fn run_depot(url: &str, args: DepotArgs) -> Result<(), Error> {
    let text = "could not open the store";
    if is_postgres(url) {
        let store = Postgres::connect_with(url, CONNECTIONS).await;
        return run_on(store.map_err(failed(text))?, args).await;
    }
    run_on(Sqlite::connect(url).await.map_err(failed(text))?, args).await
}

async fn run_on<S: Depot>(store: S, args: DepotArgs) -> Result<(), Error> {
    let mut engine = Engine::builder(store).options(EngineOptions {
        lease_ms: args.lease_ms,
        renew_ms: args.renew_ms,
        description: format!("depot, process {}", std::process::id()),
        ..EngineOptions::default()
    });
    for subscription in subscriptions(&args)? {
        engine = engine.subscribe(subscription);
    }
    let running = engine.start().await;
    let running = running.map_err(failed("the engine did not start"))?;
    ready(None).map_err(failed("nobody listens"))?;
    let told = until_told(&args.common).await;
    told.map_err(failed("could not wait for the end"))?;
    running.shutdown(GRACE).await;
    Ok(())
}

/// What is subscribed in a scenario.
fn subscriptions<S: Depot>(args: &DepotArgs) -> Result<Vec<Subscription<S>>, Error> {
    let effect_once = |name| Subscription::new(name, Semantics::EffectOnce).start(Start::Earliest);
    let retry = RetryPolicy {
        base_ms: 50,
        cap_ms: 200,
        attempts_max: 3,
        ..RetryPolicy::default()
    };
    Ok(match args.scenario {
        // The orders example works there, not the depot.
        Scenario::Ambiguous => Vec::new(),
        Scenario::Poison => vec![
            effect_once(TRACKING)
                .on::<Scan, _>(track::<S>)
                .on_poison(OnPoison::Skip)
                .retry(retry)
                .lanes(4),
            effect_once(BILLING)
                .on::<Scan, _>(bill::<S>)
                .on_poison(OnPoison::HoldKey)
                .retry(retry)
                .lanes(4),
        ],
        Scenario::Gap => vec![
            effect_once(TRACKING)
                .on::<Scan, _>(track::<S>)
                .on_poison(OnPoison::HoldKey)
                .versions(VersionPolicy {
                    gaps: Gaps::Wait,
                    gap_limit_ms: GAP_LIMIT_MS,
                })
                .lanes(4),
        ],
        Scenario::Replay => vec![
            effect_once(TRACKING)
                .on::<Scan, _>(track::<S>)
                .on_poison(OnPoison::HoldKey)
                .retry(retry)
                .batch_max(5)
                .lanes(4),
        ],
        Scenario::Outage => vec![
            hook(args)?
                .retry(RetryPolicy {
                    base_ms: 200,
                    cap_ms: 500,
                    attempts_max: OUTAGE_ATTEMPTS_MAX,
                    ..RetryPolicy::default()
                })
                .breaker(BreakerPolicy {
                    messages_min: 3,
                    pause_ms: 200,
                    pause_max_ms: 400,
                }),
        ],
        // One attempt: if waiting for a window used one, its message would become a case.
        Scenario::Ratelimit => vec![hook(args)?.retry(RetryPolicy {
            attempts_max: 1,
            ..RetryPolicy::default()
        })],
        Scenario::Hotkey => vec![
            hook(args)?
                .on_poison(OnPoison::HoldKey)
                .concurrency_min(HOOK_AT_ONCE)
                // Small, so that the hot parcel alone would fill it.
                .window_rows(128),
        ],
    })
}

fn hook<S: Depot>(args: &DepotArgs) -> Result<Subscription<S>, Error> {
    // Nobody but this run's receiver gets anything: a secret of its own is enough.
    let secret: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..))
        .take(32)
        .collect();
    let secret = format!("whsec_{}", BASE64_STANDARD.encode(secret));
    let secrets = SigningSecrets::parse(&secret).map_err(failed("no secret could be made"))?;
    let url = args.push_to.as_deref().unwrap_or_default();
    let push = PushDeliverer::new(PushOptions::new(url, secrets));
    let push = push.map_err(failed("the push could not be set up"))?;
    let hook = Subscription::new(HOOK, Semantics::AtLeastOnce).push([Scan::TYPE], push);
    Ok(hook.concurrency(HOOK_AT_ONCE).start(Start::Earliest))
}
