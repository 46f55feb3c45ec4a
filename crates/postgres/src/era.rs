//! Taking a restored or copied database into service.
//!
//! Snapshots mean nothing in another cluster. Starting an era seals the rows that are there; a
//! position of an old era becomes one that stands in the sealed rows: its `after` still says what
//! the old snapshot had seen, and its tick ends with a snapshot that sees everything up to the
//! seal. Sealed rows are read in plain order, then reading goes on in the new era.

use onceward_core::position::Within;
use onceward_core::store::StoreError;
use onceward_core::{Position, Snapshot, Stand};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use crate::error::while_doing;
use crate::log::{array, parse_snapshot, wrong_era};
use crate::positions::read_spans;
use crate::schema::run;
use crate::session::{BEGIN, Postgres};
use crate::snapshot::{read_stand, seal};

const ACTION: &str = "start a new era";

/// An era as kept.
#[derive(Debug)]
pub(crate) struct Era {
    pub(crate) era: u32,
    /// The boundary before its first row.
    opening: Snapshot,
    /// Rows up to here belong to earlier eras.
    pub(crate) first_seq: u64,
    /// The last row; 0 while it runs.
    pub(crate) sealed_seq: u64,
    /// Rows above this may carry transaction ids of another cluster.
    pub(crate) trusted_seq: u64,
}

/// All eras of a database, oldest first.
#[derive(Debug)]
pub(crate) struct Eras(Vec<Era>);

impl Eras {
    /// The era that ends with a sequence.
    pub(crate) fn sealed_at(&self, seq: u64) -> Option<&Era> {
        self.0.iter().rev().find(|era| era.sealed_seq == seq)
    }

    pub(crate) fn current(&self) -> u32 {
        self.0.last().map_or(0, |era| era.era)
    }

    /// Where reading goes on after a sealed era.
    pub(crate) fn after(&self, sealed: &Era) -> Position {
        let current = self.current();
        let next = self.0.iter().find(|era| era.era == sealed.era + 1);
        match next {
            Some(next) if next.era < current => Position {
                era: current,
                after: next.opening.clone(),
                within: Some(Within {
                    until: seal(next.sealed_seq),
                    seq: next.first_seq,
                }),
            },
            next => Position::at(
                current,
                next.map_or_else(Snapshot::origin, |next| next.opening.clone()),
            ),
        }
    }

    /// Whether a row is behind a position, whatever the eras of both.
    pub(crate) fn is_past(&self, position: &Position, xid: u64, seq: u64) -> bool {
        let Some(row_era) = self.0.iter().rev().find(|era| seq > era.first_seq) else {
            return false;
        };
        let stands_in = match &position.within {
            Some(w) if w.until.is_seal() => self.sealed_at(w.until.floor).map(|era| era.era),
            _ => Some(position.era),
        };
        match stands_in {
            Some(era) if era == row_era.era => {
                let is_trusted = row_era.sealed_seq == 0 || seq <= row_era.trusted_seq;
                position.is_past(if is_trusted { xid } else { FOREIGN }, seq)
            }
            Some(era) => era > row_era.era,
            None => false,
        }
    }
}

/// The transaction of a row of which it is not known whether it is one of this cluster.
const FOREIGN: u64 = i64::MAX as u64;

/// All eras.
pub(crate) async fn eras(connection: &mut PgConnection) -> Result<Eras, StoreError> {
    let query = sqlx::query(include_str!("../sql/log/eras.sql"));
    let rows = query
        .fetch_all(connection)
        .await
        .map_err(while_doing(ACTION))?;
    let eras: Result<_, sqlx::Error> = rows.iter().map(read_era).collect();
    Ok(Eras(eras.map_err(while_doing(ACTION))?))
}

fn read_era(row: &PgRow) -> Result<Era, sqlx::Error> {
    let first_seq = row.try_get::<i64, _>("opening_floor")? as u64;
    let opening: String = row.try_get("opening")?;
    let number = |name| Ok::<_, sqlx::Error>(row.try_get::<Option<i64>, _>(name)?.unwrap_or(0));
    Ok(Era {
        era: row.try_get::<i32, _>("era")? as u32,
        opening: parse_snapshot(&opening, first_seq)?,
        first_seq,
        sealed_seq: number("sealed_seq")? as u64,
        trusted_seq: number("trusted_seq")? as u64,
    })
}

/// Carries positions over, each only once: lanes mostly stand together.
pub(crate) struct Carrier {
    eras: Eras,
    known: Vec<(Position, Position)>,
}

impl Carrier {
    pub(crate) const fn new(eras: Eras) -> Self {
        Self {
            eras,
            known: Vec::new(),
        }
    }

    /// Where a lane stands, in positions of the current era.
    pub(crate) async fn carry_stand(
        &mut self,
        connection: &mut PgConnection,
        mut stand: Stand,
    ) -> Result<Stand, StoreError> {
        for position in stand.positions_mut() {
            *position = self.carry(connection, position.clone()).await?;
        }
        Ok(stand)
    }

    /// A kept position as one of the current era.
    pub(crate) async fn carry(
        &mut self,
        connection: &mut PgConnection,
        from: Position,
    ) -> Result<Position, StoreError> {
        if let Some((_, to)) = self.known.iter().find(|(known, _)| *known == from) {
            return Ok(to.clone());
        }
        let to = carry_over(connection, &self.eras, from.clone()).await?;
        self.known.push((from, to.clone()));
        Ok(to)
    }
}

async fn carry_over(
    connection: &mut PgConnection,
    eras: &Eras,
    mut position: Position,
) -> Result<Position, StoreError> {
    let current = eras.current();
    if position.era == current {
        return Ok(position);
    }
    if position.within.as_ref().is_some_and(|w| w.until.is_seal()) {
        position.era = current;
        return Ok(position);
    }
    let sealed = eras
        .0
        .iter()
        .find(|era| era.era == position.era && era.sealed_seq > 0);
    let Some(sealed) = sealed else {
        return Err(wrong_era(position.era));
    };
    let within = position.within.take().unwrap_or(Within {
        until: Snapshot::origin(),
        seq: 0,
    });
    let query = sqlx::query(include_str!("../sql/log/first_due.sql"))
        .bind(sealed.first_seq as i64)
        .bind(sealed.sealed_seq as i64)
        .bind(sealed.trusted_seq as i64)
        .bind(position.after.xmax.to_string())
        .bind(array(&position.after.xip))
        .bind(within.until.xmax.to_string())
        .bind(array(&within.until.xip))
        .bind(within.seq as i64);
    let row = query
        .fetch_one(connection)
        .await
        .map_err(while_doing(ACTION))?;
    let first_due: Option<i64> = row.try_get("seq").map_err(while_doing(ACTION))?;
    Ok(match first_due {
        // Rows of the old tick that had been reached and come later are read once more, past the
        // ledger: one snapshot and one sequence cannot say more.
        Some(seq) => Position {
            era: current,
            after: position.after,
            within: Some(Within {
                until: seal(sealed.sealed_seq),
                seq: seq as u64 - 1,
            }),
        },
        None => eras.after(sealed),
    })
}

impl Postgres {
    /// All eras.
    pub(crate) async fn eras(&self) -> Result<Eras, StoreError> {
        let mut tx = self.read_tx(ACTION).await?;
        let eras = eras(tx.connection()).await?;
        tx.roll_back().await;
        Ok(eras)
    }

    /// Seals the era that came with the data and starts a new one.
    pub(crate) async fn seal_and_start(&self) -> Result<u32, StoreError> {
        let mut tx = self.open(&self.leases, BEGIN, ACTION).await?;
        let connection = tx.connection();
        run(connection, include_str!("../sql/schema/lock.sql"), ACTION).await?;
        let query = sqlx::query(include_str!("../sql/schema/home.sql"));
        let home = query
            .fetch_one(&mut *connection)
            .await
            .map_err(while_doing(ACTION))?;
        let is_home = home.try_get("is_home").map_err(while_doing(ACTION))?;
        let query = sqlx::query(include_str!("../sql/schema/kept_positions.sql"));
        let kept = query
            .fetch_all(&mut *connection)
            .await
            .map_err(while_doing(ACTION))?;
        // At home every row's transaction is one of this cluster.
        let mut trusted_seq = if is_home { i64::MAX as u64 } else { 0 };
        for row in &kept {
            let text: &str = row.try_get("text").map_err(while_doing(ACTION))?;
            let is_record = row.try_get("is_record").map_err(while_doing(ACTION))?;
            trusted_seq = trusted_seq.max(highest(text, is_record)?);
        }
        let query = sqlx::query(include_str!("../sql/schema/seal.sql")).bind(trusted_seq as i64);
        let row = query
            .fetch_one(&mut *connection)
            .await
            .map_err(while_doing(ACTION))?;
        let era: i32 = row.try_get("era").map_err(while_doing(ACTION))?;
        tx.commit(ACTION).await?;
        Ok(era as u32)
    }
}

/// The highest sequence that kept positions know of: what was appended since the data were
/// restored is above it, because a dump reads its sequences after its rows.
fn highest(text: &str, is_record: bool) -> Result<u64, StoreError> {
    let stands = if is_record {
        read_spans(text)?
            .into_iter()
            .map(|span| span.stand)
            .collect()
    } else {
        vec![read_stand(text)?]
    };
    let positions = stands.iter().flat_map(Stand::positions);
    let highest = positions.map(|position| {
        let within = position
            .within
            .as_ref()
            .map_or(0, |w| w.seq.max(w.until.floor));
        position.after.floor.max(within)
    });
    Ok(highest.max().unwrap_or(0))
}
