//! Members, leases and lanes. Every decision is made inside a write transaction, so nobody can
//! decide otherwise at the same time.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use onceward_core::lane::slots_of;
use onceward_core::store::{
    Join, LaneState, Lanes, Lease, MemberState, Release, Renew, StoreError, StoreErrorKind,
    SubscriptionState, Survey, Take, TakenLane,
};
use onceward_core::{Stand, Timestamp};
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::Sqlite;
use crate::error::Attempt;
use crate::log::reached;
use crate::row::{from_json, int, rate, small, to_json, unsigned};

const JOIN: &str = include_str!("../sql/lanes/join.sql");
const RENEW: &str = include_str!("../sql/lanes/renew.sql");
const PROLONG_STILL: &str = include_str!("../sql/lanes/prolong_still.sql");
const BEGIN_STILL: &str = include_str!("../sql/lanes/begin_still.sql");
const CHECK_FENCE: &str = include_str!("../sql/lanes/check_fence.sql");
const MEMBERS: &str = include_str!("../sql/lanes/members.sql");
const LANES: &str = include_str!("../sql/lanes/lanes.sql");
const SUBSCRIPTIONS: &str = include_str!("../sql/lanes/subscriptions.sql");
const FIND: &str = include_str!("../sql/lanes/find.sql");
const END_UNCLEANLY: &str = include_str!("../sql/lanes/end_uncleanly.sql");
const SUSPECT: &str = include_str!("../sql/lanes/suspect.sql");
const TAKE: &str = include_str!("../sql/lanes/take.sql");
const REQUEUE_RUNNING: &str = include_str!("../sql/lanes/requeue_running.sql");
const RELEASE: &str = include_str!("../sql/lanes/release.sql");
const END_CLEANLY: &str = include_str!("../sql/lanes/end_cleanly.sql");
const RELEASE_ALL: &str = include_str!("../sql/lanes/release_all.sql");

const TAKING: &str = "take lanes";

fn fenced(action: &'static str) -> StoreError {
    StoreError::found(
        StoreErrorKind::Fenced,
        action,
        "this member's lease ran out and its lanes were taken over",
    )
}

/// Leases, and how long something stands still, are added to moments in microseconds.
fn lease_ms(ms: u64) -> i64 {
    int(ms).min(i64::MAX / 4_000)
}

/// Refuses a member that was ended. Inside a write transaction the answer holds until its end.
pub(crate) async fn check_fence(
    connection: &mut SqliteConnection,
    lease: &Lease,
    action: &'static str,
) -> Result<(), StoreError> {
    let is_member: bool = sqlx::query_scalar(CHECK_FENCE)
        .bind(lease.fence)
        .bind(&lease.member)
        .fetch_one(connection)
        .await
        .attempting(action)?;
    if is_member {
        Ok(())
    } else {
        Err(fenced(action))
    }
}

pub(crate) async fn renew(
    connection: &mut SqliteConnection,
    lease: &Lease,
    now: Option<i64>,
    action: &'static str,
) -> Result<(), StoreError> {
    let done = sqlx::query(RENEW)
        .bind(lease.fence)
        .bind(&lease.member)
        .bind(now)
        .execute(connection)
        .await
        .attempting(action)?;
    if done.rows_affected() == 0 {
        return Err(fenced(action));
    }
    Ok(())
}

impl Lanes for Sqlite {
    async fn join(&self, request: Join<'_>) -> Result<Lease, StoreError> {
        const ACTION: &str = "join the fleet";
        let mut tx = self.write(ACTION).await?;
        let fence = sqlx::query_scalar(JOIN)
            .bind(request.member)
            .bind(request.description)
            .bind(to_json(&request.subscriptions, ACTION)?)
            .bind(lease_ms(request.lease_ms))
            .bind(self.now())
            .fetch_one(tx.connection())
            .await
            .attempting(ACTION)?;
        tx.commit(ACTION).await?;
        self.renewed(fence);
        Ok(Lease {
            member: request.member.to_owned(),
            fence,
            lease_ms: request.lease_ms,
        })
    }

    async fn renew(&self, request: Renew<'_>) -> Result<(), StoreError> {
        const ACTION: &str = "renew the lease";
        let lease = request.lease;
        let patience = Duration::from_millis(lease.lease_ms / 4);
        // Kept over the looks at the clock: whoever gave its place in the queue up would wait
        // behind all later writes, again and again.
        let mut write = std::pin::pin!(self.write(ACTION));
        let mut tx = loop {
            match tokio::time::timeout(patience, write.as_mut()).await {
                Ok(tx) => break tx?,
                // As long as a transaction of this member holds the file, nobody can take its lanes,
                // and its commit renews the lease.
                Err(_) if self.has_open_effect(lease.fence) => return Ok(()),
                Err(_) => {}
            }
        };
        renew(tx.connection(), request.lease, self.now(), ACTION).await?;
        for still in request.still {
            for statement in [PROLONG_STILL, BEGIN_STILL] {
                sqlx::query(statement)
                    .bind(still.subscription)
                    .bind(still.because.as_str())
                    .bind(lease_ms(still.since_ms))
                    .bind(still.until_ms.map(lease_ms))
                    .bind(lease_ms(request.still_for_ms))
                    .bind(self.now())
                    .execute(tx.connection())
                    .await
                    .attempting(ACTION)?;
            }
        }
        tx.commit(ACTION).await?;
        self.renewed(lease.fence);
        Ok(())
    }

    async fn survey(&self) -> Result<Survey, StoreError> {
        const ACTION: &str = "survey members and lanes";
        // One transaction, so that all of it comes from one moment.
        let mut tx = self.reads().begin().await.attempting(ACTION)?;
        let found = sqlx::query(MEMBERS)
            .bind(self.now())
            .fetch_all(&mut *tx)
            .await;
        let members = found.attempting(ACTION)?;
        let lanes = sqlx::query(LANES)
            .fetch_all(&mut *tx)
            .await
            .attempting(ACTION)?;
        let subscriptions = sqlx::query(SUBSCRIPTIONS)
            .fetch_all(&mut *tx)
            .await
            .attempting(ACTION)?;
        tx.rollback().await.attempting(ACTION)?;
        let subscriptions = subscriptions.iter().map(subscription_state);
        let members = members.iter().map(|row| member_state(row, ACTION));
        let lanes = lanes.iter().map(|row| lane_state(row).attempting(ACTION));
        Ok(Survey {
            members: members.collect::<Result<_, _>>()?,
            lanes: lanes.collect::<Result<_, _>>()?,
            subscriptions: subscriptions
                .collect::<Result<_, sqlx::Error>>()
                .attempting(ACTION)?,
        })
    }

    async fn take(&self, request: Take<'_>) -> Result<Vec<TakenLane>, StoreError> {
        let mut tx = self.write(TAKING).await?;
        check_fence(tx.connection(), request.lease, TAKING).await?;
        let mut taken = Vec::with_capacity(request.lanes.len());
        for lane in request.lanes {
            let one = self.take_one(tx.connection(), &request, *lane).await?;
            taken.extend(one);
        }
        tx.commit(TAKING).await?;
        Ok(taken)
    }

    async fn release(&self, request: Release<'_>) -> Result<(), StoreError> {
        const ACTION: &str = "hand lanes back";
        let mut tx = self.write(ACTION).await?;
        check_fence(tx.connection(), request.lease, ACTION).await?;
        for lane in request.lanes {
            sqlx::query(RELEASE)
                .bind(request.subscription)
                .bind(lane.lane)
                .bind(&request.lease.member)
                .bind(int(lane.epoch))
                .bind(to_json(&lane.stand, ACTION)?)
                .bind(int(reached(&lane.stand.position)))
                .execute(tx.connection())
                .await
                .attempting(ACTION)?;
        }
        tx.commit(ACTION).await
    }

    async fn leave(&self, lease: &Lease) -> Result<(), StoreError> {
        const ACTION: &str = "leave the fleet";
        let mut tx = self.write(ACTION).await?;
        let ended = sqlx::query(END_CLEANLY)
            .bind(lease.fence)
            .bind(&lease.member)
            .bind(self.now())
            .execute(tx.connection())
            .await
            .attempting(ACTION)?;
        // Whoever was taken over owns nothing any more; there is nothing left to hand back.
        if ended.rows_affected() > 0 {
            sqlx::query(RELEASE_ALL)
                .bind(&lease.member)
                .execute(tx.connection())
                .await
                .attempting(ACTION)?;
        }
        tx.commit(ACTION).await
    }
}

/// A lane with its owner, inside the transaction that may take it.
struct Found {
    epoch: u64,
    owner: Option<String>,
    owner_is_live: bool,
    is_suspect: bool,
    stand: Stand,
    lanes: u16,
    not_before: Option<Timestamp>,
}

impl Sqlite {
    /// Keeps whose effect transaction is open.
    pub(crate) fn effect_opened(&self, fence: Option<&Arc<i64>>) {
        let effect = self.shared.effect.lock();
        *effect.unwrap_or_else(PoisonError::into_inner) =
            fence.map(Arc::downgrade).unwrap_or_default();
    }

    fn has_open_effect(&self, fence: i64) -> bool {
        let effect = self.shared.effect.lock();
        let open = effect.unwrap_or_else(PoisonError::into_inner).upgrade();
        open.is_some_and(|open| *open == fence)
    }

    /// Keeps that a lease was renewed just now.
    pub(crate) fn renewed(&self, fence: i64) {
        let renewal = self.shared.renewal.lock();
        *renewal.unwrap_or_else(PoisonError::into_inner) = Some((fence, Instant::now()));
    }

    /// Whether a lease that was renewed here was renewed longer ago than this.
    pub(crate) fn is_renewal_due(&self, fence: i64, after: Duration) -> bool {
        let renewal = self.shared.renewal.lock();
        let renewal = *renewal.unwrap_or_else(PoisonError::into_inner);
        renewal.is_some_and(|(of, at)| of == fence && at.elapsed() > after)
    }

    async fn take_one(
        &self,
        connection: &mut SqliteConnection,
        request: &Take<'_>,
        lane: u16,
    ) -> Result<Option<TakenLane>, StoreError> {
        let Some(mut found) = self
            .find_lane(connection, request.subscription, lane)
            .await?
        else {
            return Ok(None);
        };
        let is_mine = found.owner.as_deref() == Some(request.lease.member.as_str());
        if is_mine {
            // It was taken before, but the answer was lost, and with it whether it is suspect.
            found.is_suspect = true;
            return Ok(Some(found.taken(lane)));
        }
        if found.owner.is_some() && found.owner_is_live {
            return Ok(None);
        }
        if let Some(owner) = found.owner.take() {
            self.end_uncleanly(connection, &owner).await?;
            found.is_suspect = true;
        }
        let epoch: i64 = sqlx::query_scalar(TAKE)
            .bind(request.subscription)
            .bind(lane)
            .bind(&request.lease.member)
            .fetch_one(&mut *connection)
            .await
            .attempting(TAKING)?;
        found.epoch = unsigned(epoch);
        let (first, last) = slots_of(lane, found.lanes);
        if found.is_suspect {
            sqlx::query(REQUEUE_RUNNING)
                .bind(request.subscription)
                .bind(first)
                .bind(last)
                .bind(self.now())
                .execute(connection)
                .await
                .attempting(TAKING)?;
        }
        Ok(Some(found.taken(lane)))
    }

    async fn find_lane(
        &self,
        connection: &mut SqliteConnection,
        subscription: &str,
        lane: u16,
    ) -> Result<Option<Found>, StoreError> {
        let row = sqlx::query(FIND)
            .bind(subscription)
            .bind(lane)
            .bind(self.now())
            .fetch_optional(connection)
            .await
            .attempting(TAKING)?;
        row.map(|row| Found::read(&row)).transpose()
    }

    /// After this nothing of the member can commit any more: its lanes are free and suspect.
    pub(crate) async fn end_uncleanly(
        &self,
        connection: &mut SqliteConnection,
        member: &str,
    ) -> Result<(), StoreError> {
        let ended = sqlx::query(END_UNCLEANLY).bind(member).bind(self.now());
        ended.execute(&mut *connection).await.attempting(TAKING)?;
        let suspected = sqlx::query(SUSPECT).bind(member).execute(connection).await;
        suspected.attempting(TAKING)?;
        Ok(())
    }
}

impl Found {
    fn read(row: &SqliteRow) -> Result<Self, StoreError> {
        let position: &str = row.try_get("position").attempting(TAKING)?;
        let mut stand: Stand = from_json(position, TAKING)?;
        let era = small(row.try_get("era").attempting(TAKING)?);
        for position in stand.positions_mut() {
            position.era = era;
        }
        let not_before: Option<i64> = row.try_get("not_before").attempting(TAKING)?;
        Ok(Self {
            epoch: unsigned(row.try_get("epoch").attempting(TAKING)?),
            owner: row.try_get("owner").attempting(TAKING)?,
            owner_is_live: row.try_get("owner_is_live").attempting(TAKING)?,
            is_suspect: row.try_get("is_suspect").attempting(TAKING)?,
            stand,
            lanes: small(row.try_get("lanes").attempting(TAKING)?),
            not_before: not_before.map(Timestamp::from_micros),
        })
    }

    fn taken(self, lane: u16) -> TakenLane {
        TakenLane {
            lane,
            epoch: self.epoch,
            stand: self.stand,
            is_suspect: self.is_suspect,
            not_before: self.not_before,
        }
    }
}

fn member_state(row: &SqliteRow, action: &'static str) -> Result<MemberState, StoreError> {
    let subscriptions: &str = row.try_get("subscriptions").attempting(action)?;
    Ok(MemberState {
        member: row.try_get("member").attempting(action)?,
        description: row.try_get("description").attempting(action)?,
        is_live: row.try_get("is_live").attempting(action)?,
        subscriptions: from_json(subscriptions, action)?,
    })
}

fn subscription_state(row: &SqliteRow) -> Result<SubscriptionState, sqlx::Error> {
    Ok(SubscriptionState {
        subscription: row.try_get("subscription")?,
        revision: unsigned(row.try_get("revision")?),
        is_paused: row.try_get("is_paused")?,
        concurrency_max: row.try_get("concurrency_max")?,
        rate: rate(row)?,
        has_campaign: row.try_get("has_campaign")?,
    })
}

fn lane_state(row: &SqliteRow) -> Result<LaneState, sqlx::Error> {
    Ok(LaneState {
        subscription: row.try_get("subscription")?,
        lane: small(row.try_get("lane")?),
        epoch: unsigned(row.try_get("epoch")?),
        owner: row.try_get("owner")?,
    })
}
