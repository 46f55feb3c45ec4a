//! A producer: business row and message in one transaction, and a durable record of each commit
//! that was acknowledged.

use std::time::Duration;

use onceward::core::store::Append;
use onceward::postgres::Postgres;
use onceward::sqlite::Sqlite;
use onceward::{Envelope, Message, Payload};

use super::{ProducerArgs, files};
use crate::messages::{Deadly, Mood, Ordered};
use crate::record::Lines;
use crate::tables::{Books, Order};
use crate::trouble::{Trouble, while_doing};

/// Keys of an epoch in which anything may happen, and keys in which everything goes well.
const ROUGH_KEYS: u32 = 12;
const CALM_KEYS: u32 = 28;

/// Orders of one key.
pub(super) struct Draft {
    key: String,
    mood: Mood,
    is_deadly: bool,
    /// How many; what merges finds those of one transaction waiting together.
    orders: u32,
    /// All of them are of one operation.
    is_one_operation: bool,
    /// Undone after it was written.
    is_undone: bool,
    pause_ms: u64,
}

/// What a producer does in one transaction.
pub(super) trait Produce {
    /// Ids that were committed; none when it was undone.
    fn produce(&self, draft: &Draft) -> impl Future<Output = Result<Vec<String>, Trouble>>;
}

pub(super) struct OnPostgres(pub(super) Postgres);
pub(super) struct OnSqlite(pub(super) Sqlite);

impl Produce for OnPostgres {
    async fn produce(&self, draft: &Draft) -> Result<Vec<String>, Trouble> {
        let mut tx = self.0.pool().begin().await.map_err(while_doing("begin"))?;
        let ids = append(&self.0, &mut tx, draft).await?;
        if draft.is_undone {
            tx.rollback().await.map_err(while_doing("roll back"))?;
            return Ok(Vec::new());
        }
        tx.commit().await.map_err(while_doing("commit"))?;
        Ok(ids)
    }
}

impl Produce for OnSqlite {
    async fn produce(&self, draft: &Draft) -> Result<Vec<String>, Trouble> {
        let tx = self.0.pool().begin_with("BEGIN IMMEDIATE").await;
        let mut tx = tx.map_err(while_doing("begin"))?;
        let ids = append(&self.0, &mut tx, draft).await?;
        if draft.is_undone {
            tx.rollback().await.map_err(while_doing("roll back"))?;
            return Ok(Vec::new());
        }
        tx.commit().await.map_err(while_doing("commit"))?;
        Ok(ids)
    }
}

async fn append<S: Books>(
    store: &S,
    tx: &mut <S as Append>::Connection,
    draft: &Draft,
) -> Result<Vec<String>, Trouble> {
    let mut ids: Vec<String> = Vec::new();
    let mut operation = String::new();
    for _ in 0..draft.orders {
        let number = S::next(tx, &draft.key).await;
        let number = number.map_err(while_doing("draw a number"))?;
        let id = format!("{}-{number:05}", draft.key);
        if operation.is_empty() || !draft.is_one_operation {
            operation = format!("o-{id}");
        }
        let order = Order {
            id: &id,
            key: &draft.key,
            number,
            mood: draft.mood.as_str(),
            operation: &operation,
        };
        S::order(tx, &order)
            .await
            .map_err(while_doing("insert an order"))?;
        let envelope = envelope(&id, &operation, draft);
        let appended = store.append(tx, &[envelope]).await;
        appended.map_err(while_doing("append"))?;
        if draft.pause_ms > 0 {
            tokio::time::sleep(Duration::from_millis(draft.pause_ms)).await;
        }
        ids.push(id);
    }
    Ok(ids)
}

fn envelope(id: &str, operation: &str, draft: &Draft) -> Envelope {
    let mut payload = serde_json::json!({ "key": draft.key, "operation": operation });
    if draft.mood != Mood::Unreadable {
        payload["mood"] = draft.mood.as_str().into();
    }
    let message_type = if draft.is_deadly {
        Deadly::TYPE
    } else {
        Ordered::TYPE
    };
    let payload = Payload::Json(payload.to_string().into());
    let mut envelope = Envelope::new(id, "task", &draft.key, message_type, payload);
    envelope.operation_id = Some(operation.to_owned());
    envelope.schema_version = Some(1);
    envelope
}

fn draft(random: &mut fastrand::Rng, epoch: &str) -> Draft {
    let is_deadly = random.u32(..100) == 0;
    let is_rough = !is_deadly && random.u32(..10) < 3;
    let (kind, keys) = match (is_deadly, is_rough) {
        (true, _) => ('d', 6),
        (false, true) => ('r', ROUGH_KEYS),
        (false, false) => ('c', CALM_KEYS),
    };
    let mood = match (is_deadly, is_rough) {
        (true, _) if random.u32(..10) == 0 => Mood::Killer,
        (true, _) | (_, false) => match random.u32(..30) {
            0 if !is_deadly => Mood::RateLimited,
            1 if !is_deadly => Mood::Rejected,
            2 | 3 if !is_deadly => Mood::Transient,
            _ => Mood::Well,
        },
        (false, true) => match random.u32(..40) {
            0 => Mood::Poison,
            1 => Mood::Unreadable,
            2 => Mood::Operator,
            3..6 => Mood::Panic,
            6..10 => Mood::Transient,
            10 => Mood::Rejected,
            _ => Mood::Well,
        },
    };
    let (orders, is_one_operation) = match random.u32(..16) {
        _ if mood != Mood::Well || is_deadly => (1, false),
        0 => (2, true),
        1 | 2 => (random.u32(2..=5), false),
        _ => (1, false),
    };
    Draft {
        key: format!("{epoch}-{kind}{:02}", random.u32(..keys)),
        mood,
        is_deadly,
        orders,
        is_one_operation,
        is_undone: random.u32(..12) == 0,
        pause_ms: if random.u32(..10) == 0 {
            random.u64(1..25)
        } else {
            0
        },
    }
}

pub(super) async fn run(produce: impl Produce, args: ProducerArgs) -> Result<(), Trouble> {
    let path = args.folder.join(files::ACKNOWLEDGED);
    let mut record = Lines::open(&path).map_err(while_doing("open the record"))?;
    let mut random = fastrand::Rng::with_seed(args.seed);
    loop {
        match produce.produce(&draft(&mut random, &args.epoch)).await {
            Ok(ids) => {
                for id in ids {
                    record
                        .add_durably(&id)
                        .map_err(while_doing("write the record"))?;
                }
            }
            // Whether it happened, the orders say.
            Err(trouble) => {
                eprintln!("not produced: {trouble}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        let pause_ms = random.u64(..=2 * args.pause_ms);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    }
}
