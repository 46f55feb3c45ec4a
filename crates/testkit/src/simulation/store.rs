//! The store as a simulated process sees it: slow, unreliable, and gone when the process dies.

use std::error::Error as StdError;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::Envelope;
use onceward_core::Position;
use onceward_core::store::*;

use super::fault::Fault;
use super::history::Event;
use super::process::Process;
use crate::memory::{MemoryConnection, MemoryStore, MemoryTx};

/// A process's handle of the simulated database.
#[derive(Clone, Debug)]
pub(super) struct SimStore {
    pub(super) inner: MemoryStore,
    pub(super) process: Arc<Process>,
}

/// The connection inside a transaction, with the process that it belongs to.
#[derive(Debug)]
pub(super) struct SimConnection {
    tx: Option<MemoryTx>,
    pub(super) process: Arc<Process>,
}

impl SimConnection {
    /// The database's own connection.
    pub(super) fn memory(&mut self) -> &mut MemoryConnection {
        let tx = self.tx.as_mut();
        tx.expect("the transaction is taken out only when it ends")
            .connection()
    }
}

/// A transaction of a process.
#[derive(Debug)]
pub(super) struct SimTx {
    pub(super) connection: SimConnection,
}

impl SimTx {
    pub(super) fn memory(&mut self) -> &mut MemoryTx {
        let tx = self.connection.tx.as_mut();
        tx.expect("the transaction is taken out only when it ends")
    }

    pub(super) fn into_memory(mut self) -> MemoryTx {
        let tx = self.connection.tx.take();
        tx.expect("the transaction is taken out only when it ends")
    }
}

impl Drop for SimConnection {
    fn drop(&mut self) {
        if let Some(tx) = self.tx.take()
            && let Some(until_ms) = self.process.lingers_until_ms()
        {
            self.process.world.bury(until_ms, tx);
        }
    }
}

/// Errors that pass.
const PASSING: [StoreErrorKind; 4] = [
    StoreErrorKind::Unavailable,
    StoreErrorKind::Conflict,
    StoreErrorKind::ReadOnly,
    StoreErrorKind::Full,
];

/// Of so many draws a fault takes its rate.
const DRAWS: u64 = 10_000;

impl SimStore {
    pub(super) fn new(inner: MemoryStore, process: Arc<Process>) -> Self {
        Self { inner, process }
    }

    fn has(&self, fault: Fault) -> bool {
        !self.process.world.is_calm() && self.process.world.setup.has(fault)
    }

    /// Draws whether a fault happens whose rate is a share of the usual one.
    fn draws(&self, fault: Fault, share: u64) -> bool {
        let rate = u64::from(self.process.world.setup.rate);
        self.has(fault) && self.process.world.random(DRAWS * share) < rate
    }

    pub(super) fn fault(&self, what: &'static str, operation: &'static str) {
        self.process.say(Event::Fault(what, operation));
    }

    async fn travel(&self, operation: &'static str) {
        let world = &self.process.world;
        if self.draws(Fault::Hang, 2) {
            self.fault("hangs", operation);
            self.process
                .step(world.random(3 * world.setup.lease_ms))
                .await;
        } else if world.chance(3) {
            self.process
                .step(1 + world.random(world.setup.latency_ms))
                .await;
        }
        self.process.if_alive().await;
    }

    pub(super) async fn before(&self, operation: &'static str) -> Result<(), StoreError> {
        self.process.if_alive().await;
        self.travel(operation).await;
        if self.draws(Fault::Crash, 10) {
            self.process.die(operation);
            self.process.if_alive().await;
        }
        if self.draws(Fault::Refuse, 1) {
            self.fault("refused", operation);
            let kind = PASSING[self.process.world.random(4) as usize];
            return Err(StoreError::found(kind, operation, "simulated"));
        }
        Ok(())
    }

    pub(super) async fn after(&self, operation: &'static str) -> Result<(), StoreError> {
        if self.draws(Fault::Crash, 10) {
            self.process.die(operation);
        }
        self.travel(operation).await;
        if self.draws(Fault::Lost, 2) {
            self.fault("answer lost", operation);
            let kind = StoreErrorKind::Unavailable;
            return Err(StoreError::found(kind, operation, "simulated: answer lost"));
        }
        Ok(())
    }

    async fn through<T>(
        &self,
        operation: &'static str,
        doing: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.before(operation).await?;
        let done = doing.await?;
        self.after(operation).await?;
        Ok(done)
    }
}

impl Log for SimStore {
    async fn read(&self, request: ReadPage<'_>) -> Result<Page, StoreError> {
        self.through("read", self.inner.read(request)).await
    }

    async fn head(&self) -> Result<Position, StoreError> {
        self.through("head", self.inner.head()).await
    }

    async fn save_position(&self, request: SavePosition<'_>) -> Result<(), StoreError> {
        let spans = self.spans_to_save(request.spans).await?;
        let request = SavePosition {
            spans: &spans,
            ..request
        };
        self.through("save", self.inner.save_position(request))
            .await
    }

    async fn doze(&self, wait_ms: u64) {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    }
}

impl Append for SimStore {
    type Connection = SimConnection;

    async fn append(
        &self,
        connection: &mut SimConnection,
        envelopes: &[Envelope],
    ) -> Result<(), StoreError> {
        self.before("append").await?;
        self.inner.append(connection.memory(), envelopes).await?;
        self.after("append").await
    }

    fn classify(&self, error: &(dyn StdError + 'static)) -> Option<StoreErrorKind> {
        self.inner.classify(error)
    }
}

impl Effects for SimStore {
    type Tx = SimTx;

    async fn begin(&self, request: Begin<'_>) -> Result<SimTx, StoreError> {
        self.before("begin").await?;
        let tx = self.inner.begin(request).await?;
        let tx = SimTx {
            connection: SimConnection {
                tx: Some(tx),
                process: Arc::clone(&self.process),
            },
        };
        self.after("begin").await?;
        Ok(tx)
    }

    fn connection<'t>(&self, tx: &'t mut SimTx) -> &'t mut SimConnection {
        &mut tx.connection
    }

    async fn known(&self, tx: &mut SimTx, request: Known<'_>) -> Result<Found, StoreError> {
        self.before("known").await?;
        let mut known = self.inner.known(tx.memory(), request.clone()).await?;
        self.forget_known(&request, &mut known);
        self.after("known").await?;
        Ok(known)
    }

    async fn settle(&self, tx: &mut SimTx, request: Settle<'_>) -> Result<Settled, StoreError> {
        self.before("settle").await?;
        let settled = self.settle_or_worse(tx, request).await?;
        self.after("settle").await?;
        Ok(settled)
    }

    async fn mark(&self, tx: &mut SimTx, mark: Mark) -> Result<(), StoreError> {
        self.before("mark").await?;
        self.inner.mark(tx.memory(), mark).await?;
        self.after("mark").await
    }

    async fn end(&self, tx: SimTx, end: End) -> Result<(), StoreError> {
        let operation = match end {
            End::Commit => "commit",
            End::RollBack => "rollback",
        };
        self.before(operation).await?;
        if end == End::RollBack {
            return self.roll_back_or_worse(tx).await;
        }
        let is_lost = self.draws(Fault::Lost, 1);
        if is_lost && self.process.world.chance(2) {
            self.fault("never arrives", operation);
            drop(tx);
            self.travel(operation).await;
            return Err(commit_unknown());
        }
        let Some(tx) = self.commit_early(tx) else {
            return Ok(());
        };
        self.inner.end(tx.into_memory(), End::Commit).await?;
        if self.draws(Fault::Crash, 10) {
            self.process.die(operation);
        }
        self.travel(operation).await;
        if is_lost {
            self.fault("answer lost", operation);
            return Err(self.lost_commit());
        }
        Ok(())
    }
}

pub(super) fn commit_unknown() -> StoreError {
    let kind = StoreErrorKind::CommitUnknown;
    StoreError::found(kind, "commit", "simulated: answer lost")
}

impl Versions for SimStore {
    async fn last_versions(
        &self,
        tx: &mut SimTx,
        request: LastVersions<'_>,
    ) -> Result<Vec<Option<i64>>, StoreError> {
        self.before("last_versions").await?;
        let mut last = self.inner.last_versions(tx.memory(), request).await?;
        self.forget_versions(&mut last);
        self.after("last_versions").await?;
        Ok(last)
    }
}

impl Time for SimStore {
    async fn time(&self, tx: &mut SimTx) -> Result<onceward_core::Timestamp, StoreError> {
        self.before("time").await?;
        let time = self.inner.time(tx.memory()).await?;
        self.after("time").await?;
        Ok(self.ahead(time))
    }

    async fn pauses(
        &self,
        tx: &mut SimTx,
        request: Pauses<'_>,
    ) -> Result<Vec<onceward_core::shed::Paused>, StoreError> {
        self.before("pauses").await?;
        let pauses = self.inner.pauses(tx.memory(), request).await?;
        self.after("pauses").await?;
        Ok(pauses)
    }
}

impl Lanes for SimStore {
    async fn join(&self, request: Join<'_>) -> Result<Lease, StoreError> {
        self.before("join").await?;
        let lease = self.inner.join(request).await?;
        self.joined(&lease);
        self.after("join").await?;
        Ok(lease)
    }

    async fn renew(&self, request: Renew<'_>) -> Result<(), StoreError> {
        self.through("renew", self.inner.renew(request)).await
    }

    async fn survey(&self) -> Result<Survey, StoreError> {
        self.before("survey").await?;
        self.hand_over_early().await?;
        let mut survey = self.by_its_clock(self.inner.survey()).await?;
        self.lives_by_its_clock(&mut survey);
        self.after("survey").await?;
        Ok(survey)
    }

    async fn take(&self, request: Take<'_>) -> Result<Vec<TakenLane>, StoreError> {
        self.before("take").await?;
        let subscription = request.subscription;
        let taken = self.by_its_clock(self.inner.take(request)).await?;
        self.taken(subscription, &taken);
        self.after("take").await?;
        Ok(taken)
    }

    async fn release(&self, request: Release<'_>) -> Result<(), StoreError> {
        let lanes = self.lanes_to_release(request.lanes).await?;
        let request = Release {
            lanes: &lanes,
            ..request
        };
        self.through("release", self.inner.release(request)).await
    }

    async fn leave(&self, lease: &Lease) -> Result<(), StoreError> {
        self.through("leave", self.inner.leave(lease)).await
    }
}

impl Deferrals for SimStore {
    async fn held_keys(&self, query: HeldKeysQuery<'_>) -> Result<Vec<HeldKey>, StoreError> {
        let held = self.through("held_keys", self.inner.held_keys(query));
        Ok(self.remembered(held.await?))
    }

    async fn load_key(&self, request: LoadKey<'_>) -> Result<Vec<DeferredRow>, StoreError> {
        self.before("load_key").await?;
        let subscription = request.subscription.to_owned();
        let is_of_versions = request.versions_to.is_some();
        let mut rows = self.inner.load_key(request).await?;
        self.forget_earlier(is_of_versions, &mut rows);
        for row in &mut rows {
            let subscription = subscription.clone();
            self.process.say(Event::Loaded {
                subscription,
                seq: row.row.seq,
                age_ms: row.spent.age_ms,
            });
            self.forget_count(row);
        }
        self.after("load_key").await?;
        Ok(rows)
    }
}

impl Cases for SimStore {
    async fn cases(&self, query: CaseQuery<'_>) -> Result<Vec<Case>, StoreError> {
        self.through("cases", self.inner.cases(query)).await
    }

    async fn cased(&self, query: CasedQuery<'_>) -> Result<Vec<u64>, StoreError> {
        self.through("cased", self.inner.cased(query)).await
    }

    async fn held_cases(&self, query: HeldKeysQuery<'_>) -> Result<Vec<HeldCase>, StoreError> {
        self.through("held_cases", self.inner.held_cases(query))
            .await
    }
}

impl Operate for SimStore {
    async fn act_on_case(&self, request: ActOnCase<'_>) -> Result<Standing, StoreError> {
        self.through("act_on_case", self.inner.act_on_case(request))
            .await
    }

    async fn resume_deferred(&self, request: ResumeDeferred<'_>) -> Result<u64, StoreError> {
        self.through("resume_deferred", self.inner.resume_deferred(request))
            .await
    }

    async fn set_pause(&self, request: SetPause<'_>) -> Result<(), StoreError> {
        self.through("set_pause", self.inner.set_pause(request))
            .await
    }

    async fn set_limit(&self, request: SetLimit<'_>) -> Result<(), StoreError> {
        self.through("set_limit", self.inner.set_limit(request))
            .await
    }

    async fn reveal_operation(&self, request: RevealOperation<'_>) -> Result<(), StoreError> {
        self.through("reveal_operation", self.inner.reveal_operation(request))
            .await
    }

    async fn history(&self, query: HistoryQuery<'_>) -> Result<Vec<AuditEntry>, StoreError> {
        self.through("history", self.inner.history(query)).await
    }

    async fn case_groups(&self, query: GroupQuery<'_>) -> Result<Vec<CaseGroup>, StoreError> {
        self.through("case_groups", self.inner.case_groups(query))
            .await
    }
}

impl Registry for SimStore {
    async fn rename(&self, request: Rename<'_>) -> Result<(), StoreError> {
        self.through("rename", self.inner.rename(request)).await
    }

    async fn remove(&self, request: Remove<'_>) -> Result<Removed, StoreError> {
        self.through("remove", self.inner.remove(request)).await
    }
}

impl Replay for SimStore {
    async fn plan_campaign(&self, request: PlanCampaign<'_>) -> Result<Campaign, StoreError> {
        self.through("plan_campaign", self.inner.plan_campaign(request))
            .await
    }

    async fn act_on_campaign(&self, request: ActOnCampaign<'_>) -> Result<Campaign, StoreError> {
        self.through("act_on_campaign", self.inner.act_on_campaign(request))
            .await
    }

    async fn campaigns(&self, query: CampaignQuery<'_>) -> Result<Vec<Campaign>, StoreError> {
        self.through("campaigns", self.inner.campaigns(query)).await
    }

    async fn campaign_items(&self, query: ItemQuery<'_>) -> Result<Vec<CampaignItem>, StoreError> {
        self.through("campaign_items", self.inner.campaign_items(query))
            .await
    }

    async fn step_campaign(&self, request: StepCampaign) -> Result<Stepped, StoreError> {
        self.through("step_campaign", self.inner.step_campaign(request))
            .await
    }
}

impl Acceptance for SimStore {
    async fn accept(
        &self,
        connection: &mut SimConnection,
        request: AcceptRequest<'_>,
    ) -> Result<Accepted, StoreError> {
        let inner = self.inner.accept(connection.memory(), request);
        self.through("accept", inner).await
    }

    async fn answer(
        &self,
        connection: &mut SimConnection,
        request: AcceptRequest<'_>,
        answer: &str,
    ) -> Result<(), StoreError> {
        let inner = self.inner.answer(connection.memory(), request, answer);
        self.through("answer", inner).await
    }
}

impl Status for SimStore {
    async fn operation(&self, query: OperationQuery<'_>) -> Result<Vec<MessageStatus>, StoreError> {
        self.through("operation", self.inner.operation(query)).await
    }

    async fn subscriptions(&self) -> Result<Vec<String>, StoreError> {
        self.through("subscriptions", self.inner.subscriptions())
            .await
    }

    async fn backlog(&self, query: BacklogQuery<'_>) -> Result<Backlog, StoreError> {
        self.through("backlog", self.inner.backlog(query)).await
    }

    async fn longest_held(&self, query: HeldQuery<'_>) -> Result<Vec<LongHeld>, StoreError> {
        self.through("longest_held", self.inner.longest_held(query))
            .await
    }

    async fn dropped(&self, query: DroppedQuery<'_>) -> Result<Vec<Dropped>, StoreError> {
        self.through("dropped", self.inner.dropped(query)).await
    }

    async fn drop_counts(&self, query: DropCountQuery<'_>) -> Result<Vec<DropCount>, StoreError> {
        self.through("drop_counts", self.inner.drop_counts(query))
            .await
    }
}

impl Upkeep for SimStore {
    async fn tidy(&self, retention: Retention) -> Result<UpkeepReport, StoreError> {
        self.through("tidy", self.inner.tidy(retention)).await
    }

    async fn last_tidy(
        &self,
    ) -> Result<Option<(onceward_core::Timestamp, UpkeepReport)>, StoreError> {
        self.through("last_tidy", self.inner.last_tidy()).await
    }
}

impl Schema for SimStore {
    async fn schema_state(&self) -> Result<SchemaState, StoreError> {
        self.through("schema_state", self.inner.schema_state())
            .await
    }

    async fn migrate(&self) -> Result<SchemaState, StoreError> {
        self.inner.migrate().await
    }

    async fn start_era(&self) -> Result<u32, StoreError> {
        self.inner.start_era().await
    }

    async fn register(&self, declared: Declared<'_>) -> Result<Registered, StoreError> {
        self.through("register", self.inner.register(declared))
            .await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.through("ping", self.inner.ping()).await
    }
}
