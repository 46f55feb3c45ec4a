//! Members, leases, and who works on which lanes.

use onceward_core::rate::RateLimit;
use onceward_core::store::{
    Join, LaneState, Lanes, Lease, MemberState, Release, Renew, Still, StoreError, StoreErrorKind,
    SubscriptionState, Survey, Take, TakenLane,
};

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use crate::effects::fenced;
use crate::era::{Carrier, eras};
use crate::error::while_doing;
use crate::log::check_home;
use crate::positions::{KeptLane, Records};
use crate::session::{Postgres, moment};
use crate::snapshot::stand_text;

const TAKE: &str = "take lanes";
/// How long a takeover waits for transactions of a dead member that are just committing, before
/// it ends their sessions. In milliseconds.
const COMMITTING_MS: i64 = 1_000;
/// How often it then tries again.
const TAKEOVER_TRIES: u32 = 6;
/// How long a member that leaves waits for its own last transaction. In milliseconds.
const LEAVING_MS: i64 = 2_000;

impl Lanes for Postgres {
    async fn join(&self, request: Join<'_>) -> Result<Lease, StoreError> {
        const ACTION: &str = "join the fleet";
        let mut tx = self.lease_tx(ACTION).await?;
        let query = sqlx::query(include_str!("../sql/lanes/join.sql"))
            .bind(request.member)
            .bind(request.description.replace('\0', "\u{fffd}"))
            .bind(
                i64::try_from(request.lease_ms)
                    .unwrap_or(i64::MAX)
                    .min(MAX_LEASE_MS),
            )
            .bind(request.subscriptions);
        let row = query
            .fetch_one(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        let fence = row.try_get("fence").map_err(while_doing(ACTION))?;
        beat(tx.connection(), fence, self.now()).await?;
        tx.commit(ACTION).await?;
        Ok(Lease {
            member: request.member.to_owned(),
            fence,
            lease_ms: request.lease_ms,
        })
    }

    async fn renew(&self, request: Renew<'_>) -> Result<(), StoreError> {
        let mut tx = self.lease_tx(RENEW).await?;
        beat(tx.connection(), request.lease.fence, self.now()).await?;
        if !request.still.is_empty() {
            stand_still(tx.connection(), &request, self.now()).await?;
        }
        tx.commit(RENEW).await
    }

    async fn survey(&self) -> Result<Survey, StoreError> {
        const ACTION: &str = "survey members and lanes";
        let mut tx = self.lease_tx(ACTION).await?;
        let query = sqlx::query(include_str!("../sql/lanes/members.sql")).bind(self.now());
        let members = query
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        let query = sqlx::query(include_str!("../sql/lanes/lanes.sql"));
        let lanes = query
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        let query = sqlx::query(include_str!("../sql/lanes/subscriptions.sql"));
        let subscriptions = query
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        tx.roll_back().await;
        let members: Result<_, sqlx::Error> = members.iter().map(read_member).collect();
        let lanes: Result<_, sqlx::Error> = lanes.iter().map(read_lane).collect();
        let subscriptions = subscriptions.iter().map(read_subscription);
        let subscriptions: Result<_, sqlx::Error> = subscriptions.collect();
        Ok(Survey {
            members: members.map_err(while_doing(ACTION))?,
            lanes: lanes.map_err(while_doing(ACTION))?,
            subscriptions: subscriptions.map_err(while_doing(ACTION))?,
        })
    }

    async fn take(&self, request: Take<'_>) -> Result<Vec<TakenLane>, StoreError> {
        let lanes: Vec<i32> = request.lanes.iter().map(|lane| i32::from(*lane)).collect();
        for fence in self.lapsed_owners(&request, &lanes).await? {
            self.end_lapsed(fence).await?;
        }
        let mut tx = self.lease_tx(TAKE).await?;
        check_member(tx.connection(), request.lease, TAKE).await?;
        let query = sqlx::query(include_str!("../sql/lanes/lock_lanes.sql"))
            .bind(request.subscription)
            .bind(&lanes);
        query
            .execute(tx.connection())
            .await
            .map_err(while_doing(TAKE))?;
        let query = sqlx::query(include_str!("../sql/lanes/offers.sql"))
            .bind(request.subscription)
            .bind(&lanes);
        let rows = query
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(TAKE))?;
        let offers: Result<Vec<_>, StoreError> = rows.iter().map(read_offer).collect();
        let mut offers = offers?;
        // One that is the member's already was taken without its knowledge: an answer was lost.
        offers.retain(|offer| match &offer.kept.owner {
            Some(owner) => offer.owner_ended || *owner == request.lease.member,
            None => true,
        });
        let taken = give(tx.connection(), &request, &offers).await?;
        stop_running(tx.connection(), request.subscription, &offers, self.now()).await?;
        tx.commit(TAKE).await?;
        Ok(taken)
    }

    async fn release(&self, request: Release<'_>) -> Result<(), StoreError> {
        const ACTION: &str = "release lanes";
        let mut tx = self.lease_tx(ACTION).await?;
        check_member(tx.connection(), request.lease, ACTION).await?;
        let freed = request.lanes.iter().map(|lane| {
            Ok(Freed {
                lane: i32::from(lane.lane),
                epoch: lane.epoch as i64,
                position: stand_text(&lane.stand)?,
            })
        });
        let freed = freed.collect::<Result<Vec<_>, StoreError>>()?;
        let member = &request.lease.member;
        let rows = free(tx.connection(), request.subscription, member, &freed).await?;
        if rows < freed.len() as u64 {
            return Err(fenced(ACTION));
        }
        tx.commit(ACTION).await
    }

    async fn leave(&self, lease: &Lease) -> Result<(), StoreError> {
        const ACTION: &str = "leave the fleet";
        let mut tx = self.lease_tx(ACTION).await?;
        lock_fence(tx.connection(), lease.fence, LEAVING_MS)
            .await
            .map_err(while_doing(ACTION))?;
        let query = sqlx::query(include_str!("../sql/lanes/leave.sql"))
            .bind(lease.fence)
            .bind(self.now());
        let done = query
            .execute(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        if done.rows_affected() == 0 {
            return Err(fenced(ACTION));
        }
        for (subscription, freed) in owned(tx.connection(), &lease.member).await? {
            free(tx.connection(), &subscription, &lease.member, &freed).await?;
        }
        tx.commit(ACTION).await
    }
}

const RENEW: &str = "renew the lease";
/// A year.
const MAX_LEASE_MS: i64 = 366 * 86_400_000;

/// A lane that is given back.
struct Freed {
    lane: i32,
    epoch: i64,
    position: String,
}

/// A lane as found when someone wants it.
struct Offer {
    kept: KeptLane,
    owner_ended: bool,
    ended_cleanly: bool,
    not_before: Option<i64>,
    lanes: i32,
}

impl Offer {
    fn is_suspect(&self) -> bool {
        self.kept.owner.is_some() && !self.ended_cleanly
    }
}

impl Postgres {
    /// Checks that this is the right database, and finds the owners whose lease has run out.
    async fn lapsed_owners(
        &self,
        request: &Take<'_>,
        lanes: &[i32],
    ) -> Result<Vec<i64>, StoreError> {
        let mut tx = self.lease_tx(TAKE).await?;
        let query = sqlx::query(include_str!("../sql/schema/home.sql"));
        let home = query
            .fetch_one(tx.connection())
            .await
            .map_err(while_doing(TAKE))?;
        let is_home = home.try_get("is_home").map_err(while_doing(TAKE))?;
        check_home(is_home, false, TAKE)?;
        let query = sqlx::query(include_str!("../sql/lanes/lapsed_owners.sql"))
            .bind(request.subscription)
            .bind(lanes)
            .bind(self.now());
        let rows = query
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(TAKE))?;
        tx.roll_back().await;
        let fences: Result<_, sqlx::Error> = rows.iter().map(|row| row.try_get("fence")).collect();
        fences.map_err(while_doing(TAKE))
    }

    /// Ends a member whose lease has run out. Its effect transactions hold its fence, shared: those
    /// that are committing are waited for, the others are ended by ending their sessions.
    pub(crate) async fn end_lapsed(&self, fence: i64) -> Result<(), StoreError> {
        for attempt in 1.. {
            let mut tx = self.lease_tx(TAKE).await?;
            match lock_fence(tx.connection(), fence, COMMITTING_MS).await {
                Ok(()) => {
                    let query = sqlx::query(include_str!("../sql/lanes/end_lapsed.sql"))
                        .bind(fence)
                        .bind(self.now());
                    query
                        .execute(tx.connection())
                        .await
                        .map_err(while_doing(TAKE))?;
                    return tx.commit(TAKE).await;
                }
                Err(error) => {
                    let error = while_doing(TAKE)(error);
                    if error.kind() != StoreErrorKind::Conflict || attempt >= TAKEOVER_TRIES {
                        return Err(error);
                    }
                }
            }
            tx.roll_back().await;
            let mut tx = self.lease_tx(TAKE).await?;
            let query = sqlx::query(include_str!("../sql/lanes/end_holders.sql")).bind(fence);
            query
                .execute(tx.connection())
                .await
                .map_err(while_doing(TAKE))?;
            tx.commit(TAKE).await?;
        }
        Ok(())
    }
}

async fn beat(
    connection: &mut PgConnection,
    fence: i64,
    now: Option<i64>,
) -> Result<(), StoreError> {
    let query = sqlx::query(include_str!("../sql/lanes/beat.sql"))
        .bind(fence)
        .bind(now);
    let done = query
        .execute(connection)
        .await
        .map_err(while_doing(RENEW))?;
    if done.rows_affected() == 0 {
        return Err(fenced(RENEW));
    }
    Ok(())
}

/// Begins or prolongs the pauses of what stands still.
async fn stand_still(
    connection: &mut PgConnection,
    request: &Renew<'_>,
    now: Option<i64>,
) -> Result<(), StoreError> {
    let names: Vec<&str> = request
        .still
        .iter()
        .map(|still| still.subscription)
        .collect();
    let query = sqlx::query_scalar(include_str!("../sql/lanes/lock_still.sql")).bind(names);
    let locked: Vec<String> = query
        .fetch_all(&mut *connection)
        .await
        .map_err(while_doing(RENEW))?;
    let is_locked = |still: &&Still<'_>| locked.iter().any(|name| name == still.subscription);
    let still: Vec<&Still<'_>> = request.still.iter().filter(is_locked).collect();
    if still.is_empty() {
        return Ok(());
    }
    let bounded = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX).min(MAX_LEASE_MS);
    let query = sqlx::query(include_str!("../sql/lanes/stand_still.sql"))
        .bind(still.iter().map(|s| s.subscription).collect::<Vec<_>>())
        .bind(still.iter().map(|s| s.because.as_str()).collect::<Vec<_>>())
        .bind(
            still
                .iter()
                .map(|s| bounded(s.since_ms))
                .collect::<Vec<_>>(),
        )
        .bind(
            still
                .iter()
                .map(|s| s.until_ms.map(bounded))
                .collect::<Vec<_>>(),
        )
        .bind(bounded(request.still_for_ms))
        .bind(now);
    query
        .execute(connection)
        .await
        .map_err(while_doing(RENEW))?;
    Ok(())
}

async fn check_member(
    connection: &mut PgConnection,
    lease: &Lease,
    action: &'static str,
) -> Result<(), StoreError> {
    let query = sqlx::query(include_str!("../sql/lanes/check_member.sql"))
        .bind(lease.fence)
        .bind(&lease.member);
    let found = query
        .fetch_optional(connection)
        .await
        .map_err(while_doing(action))?;
    found.map(|_| ()).ok_or_else(|| fenced(action))
}

async fn lock_fence(
    connection: &mut PgConnection,
    fence: i64,
    timeout_ms: i64,
) -> Result<(), sqlx::Error> {
    let query = sqlx::query(include_str!("../sql/lanes/lock_fence.sql"))
        .bind(fence)
        .bind(timeout_ms);
    query.execute(connection).await?;
    Ok(())
}

fn read_subscription(row: &PgRow) -> Result<SubscriptionState, sqlx::Error> {
    Ok(SubscriptionState {
        subscription: row.try_get("subscription")?,
        revision: row.try_get::<i64, _>("revision")? as u64,
        is_paused: row.try_get("is_paused")?,
        concurrency_max: row
            .try_get::<Option<i32>, _>("concurrency_max")?
            .map(|max| max as u16),
        rate: read_rate(row)?,
        has_campaign: row.try_get("has_campaign")?,
    })
}

/// A limit of starts per second, if one is set.
pub(crate) fn read_rate(row: &PgRow) -> Result<Option<RateLimit>, sqlx::Error> {
    let number = |column| row.try_get::<Option<i64>, _>(column);
    let rate = number("rate_per_second")?.zip(number("rate_burst")?);
    let bounded = |number| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(rate.map(|(per_second, burst)| RateLimit {
        per_second: bounded(per_second),
        burst: bounded(burst),
    }))
}

fn read_member(row: &PgRow) -> Result<MemberState, sqlx::Error> {
    Ok(MemberState {
        member: row.try_get("member")?,
        description: row.try_get("description")?,
        is_live: row.try_get("is_live")?,
        subscriptions: row.try_get("subscriptions")?,
    })
}

fn read_lane(row: &PgRow) -> Result<LaneState, sqlx::Error> {
    Ok(LaneState {
        subscription: row.try_get("subscription")?,
        lane: row.try_get::<i32, _>("lane")? as u16,
        epoch: row.try_get::<i64, _>("epoch")? as u64,
        owner: row.try_get("owner")?,
    })
}

fn read_offer(row: &PgRow) -> Result<Offer, StoreError> {
    let read = || {
        Ok((
            row.try_get("owner_ended")?,
            row.try_get("ended_cleanly")?,
            row.try_get("not_before")?,
            row.try_get("lanes")?,
        ))
    };
    let (owner_ended, ended_cleanly, not_before, lanes) = read().map_err(while_doing(TAKE))?;
    Ok(Offer {
        kept: KeptLane::read(row)?,
        owner_ended,
        ended_cleanly,
        not_before,
        lanes,
    })
}

/// Gives all offered lanes to the member, each at the place where its last owner stood.
async fn give(
    connection: &mut PgConnection,
    request: &Take<'_>,
    offers: &[Offer],
) -> Result<Vec<TakenLane>, StoreError> {
    let mut carrier = Carrier::new(eras(connection).await?);
    let mut records = Records::default();
    let mut taken = Vec::with_capacity(offers.len());
    for offer in offers {
        let stand = records
            .stand(connection, request.subscription, &offer.kept)
            .await?;
        taken.push(TakenLane {
            lane: offer.kept.lane,
            epoch: offer.kept.epoch + 1,
            stand: carrier.carry_stand(connection, stand).await?,
            is_suspect: offer.is_suspect(),
            not_before: offer.not_before.map(moment),
        });
    }
    let positions = taken.iter().map(|lane| stand_text(&lane.stand));
    let positions = positions.collect::<Result<Vec<_>, _>>()?;
    let query = sqlx::query(include_str!("../sql/lanes/give.sql"))
        .bind(request.subscription)
        .bind(&request.lease.member)
        .bind(
            taken
                .iter()
                .map(|lane| i32::from(lane.lane))
                .collect::<Vec<_>>(),
        )
        .bind(positions);
    query.execute(connection).await.map_err(while_doing(TAKE))?;
    Ok(taken)
}

/// Counts a death for what ran where the owner did not end cleanly.
async fn stop_running(
    connection: &mut PgConnection,
    subscription: &str,
    offers: &[Offer],
    now: Option<i64>,
) -> Result<(), StoreError> {
    let Some(lanes) = offers.first().map(|offer| offer.lanes) else {
        return Ok(());
    };
    let suspect = offers.iter().filter(|offer| offer.is_suspect());
    let suspect: Vec<i32> = suspect.map(|offer| i32::from(offer.kept.lane)).collect();
    if suspect.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(include_str!("../sql/lanes/stop_running.sql"))
        .bind(subscription)
        .bind(suspect)
        .bind(lanes)
        .bind(now);
    query.execute(connection).await.map_err(while_doing(TAKE))?;
    Ok(())
}

/// Frees lanes that are still the member's, and says how many were.
async fn free(
    connection: &mut PgConnection,
    subscription: &str,
    member: &str,
    freed: &[Freed],
) -> Result<u64, StoreError> {
    let query = sqlx::query(include_str!("../sql/lanes/free.sql"))
        .bind(subscription)
        .bind(member)
        .bind(freed.iter().map(|f| f.lane).collect::<Vec<_>>())
        .bind(freed.iter().map(|f| f.epoch).collect::<Vec<_>>())
        .bind(
            freed
                .iter()
                .map(|f| f.position.as_str())
                .collect::<Vec<_>>(),
        );
    let done = query
        .execute(connection)
        .await
        .map_err(while_doing("release lanes"))?;
    Ok(done.rows_affected())
}

/// The member's lanes by subscription, each at its last saved position.
async fn owned(
    connection: &mut PgConnection,
    member: &str,
) -> Result<Vec<(String, Vec<Freed>)>, StoreError> {
    const ACTION: &str = "leave the fleet";
    let query = sqlx::query(include_str!("../sql/lanes/owned.sql")).bind(member);
    let rows = query
        .fetch_all(&mut *connection)
        .await
        .map_err(while_doing(ACTION))?;
    let mut records = Records::default();
    let mut by_subscription: Vec<(String, Vec<Freed>)> = Vec::new();
    for row in &rows {
        let subscription: String = row.try_get("subscription").map_err(while_doing(ACTION))?;
        let kept = KeptLane::read(row)?;
        let freed = Freed {
            lane: i32::from(kept.lane),
            epoch: kept.epoch as i64,
            position: stand_text(&records.stand(connection, &subscription, &kept).await?)?,
        };
        match by_subscription.last_mut() {
            Some((last, lanes)) if *last == subscription => lanes.push(freed),
            _ => by_subscription.push((subscription, vec![freed])),
        }
    }
    Ok(by_subscription)
}
