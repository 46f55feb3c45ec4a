//! Reading the log by what became visible between two snapshots, and keeping positions.

use std::time::Duration;

use onceward_core::position::Within;
use onceward_core::store::{Log, Page, ReadPage, SavePosition, StoreError, StoreErrorKind};
use onceward_core::{Position, Row, Snapshot};
use serde_json::json;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::era::Era;
use crate::error::while_doing;
use crate::row::read_row;
use crate::session::Postgres;
use crate::snapshot::{above_started, has_no_floor, list, read_snapshot};

const ACTION: &str = "read the log";
const BEGIN_LOOK: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY";
/// Rows go by indexes, whatever the statistics of a fresh or fast-growing table say; and one page is
/// never worth compiling or sharing out. The usual page is a function, which has this set itself.
const BY_INDEX: &str = "SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL enable_sort = off;
SET LOCAL max_parallel_workers_per_gather = 0;
SET LOCAL jit = off";

impl Log for Postgres {
    async fn read(&self, request: ReadPage<'_>) -> Result<Page, StoreError> {
        let mut from = request.from.clone();
        loop {
            let request = ReadPage {
                from: &from,
                ..request.clone()
            };
            let Some(within) = from.within.as_ref().filter(|w| w.until.is_seal()) else {
                return self.read_tick(&request).await;
            };
            let (rows, onward) = self.read_sealed(&request, within).await?;
            if let Some(last) = rows.last() {
                // Also after the last one: a boundary would say that there is no more for now.
                let next = from.reach(&within.until, last.seq);
                return Ok(Page { rows, next });
            }
            from = onward;
        }
    }

    async fn head(&self) -> Result<Position, StoreError> {
        let script = [
            include_str!("../sql/log/floor.sql"),
            include_str!("../sql/log/snapshot.sql"),
        ];
        let rows = self.look(&script).await?;
        let (ground, rows) = self.stand_on(&rows)?;
        let snapshot = snapshot_of(rows, ground.floor).map_err(while_doing(ACTION))?;
        Ok(Position::at(ground.era, snapshot))
    }

    async fn save_position(&self, request: SavePosition<'_>) -> Result<(), StoreError> {
        const ACTION: &str = "save a position";
        let spans = request.spans.iter();
        let spans = spans.map(|s| json!({"position": s.stand, "lanes": s.lanes}));
        let mut tx = self.lease_tx(ACTION).await?;
        let query = sqlx::query(include_str!("../sql/log/save_position.sql"))
            .bind(request.subscription)
            .bind(request.member)
            .bind(serde_json::Value::from_iter(spans).to_string());
        let done = query
            .execute(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        tx.commit(ACTION).await?;
        if done.rows_affected() == 0 {
            let text = "the member has ended or was ended";
            return Err(StoreError::found(StoreErrorKind::Fenced, ACTION, text));
        }
        Ok(())
    }

    async fn doze(&self, wait_ms: u64) {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    }
}

/// What a reader stands on, read before its snapshot.
pub(crate) struct Ground {
    pub(crate) floor: u64,
    pub(crate) era: u32,
    is_unordered: bool,
}

impl Postgres {
    /// Runs statements in one read-only transaction and one trip, each with a snapshot of its own.
    pub(crate) async fn look(&self, statements: &[&str]) -> Result<Vec<PgRow>, StoreError> {
        let script = statements.join(";\n");
        let script = format!("{BEGIN_LOOK};\n{script};\nCOMMIT");
        self.script(&script, ACTION).await
    }

    /// Checks the answer of `floor.sql`, the first of `rows`, and returns the others.
    pub(crate) fn stand_on<'r>(
        &self,
        rows: &'r [PgRow],
    ) -> Result<(Ground, &'r [PgRow]), StoreError> {
        let Some((row, others)) = rows.split_first() else {
            let text = "the store's record of itself is missing";
            return Err(StoreError::found(StoreErrorKind::Schema, ACTION, text));
        };
        let read = || {
            Ok((
                row.try_get::<i64, _>("floor")?,
                row.try_get::<i64, _>("cache")?,
                row.try_get::<i32, _>("era")?,
                row.try_get::<bool, _>("is_home")?,
                row.try_get::<bool, _>("is_standby")?,
            ))
        };
        let (floor, cache, era, is_home, is_standby) = read().map_err(while_doing(ACTION))?;
        check_home(is_home, is_standby, ACTION)?;
        let ground = Ground {
            floor: floor as u64,
            era: era as u32,
            is_unordered: cache > 1,
        };
        self.seen.set(ground.era, ground.is_unordered);
        Ok((ground, others))
    }

    /// What a reader in `era` stands on; refused when the database is in another one.
    async fn ground_of(&self, era: u32) -> Result<Ground, StoreError> {
        let rows = self.look(&[include_str!("../sql/log/floor.sql")]).await?;
        let (ground, _) = self.stand_on(&rows)?;
        if ground.era == era {
            Ok(ground)
        } else {
            Err(wrong_era(era))
        }
    }

    async fn read_tick(&self, request: &ReadPage<'_>) -> Result<Page, StoreError> {
        let era = request.from.era;
        let (seen_era, mut is_unordered) = self.seen.get();
        if seen_era != era {
            is_unordered = self.ground_of(era).await?.is_unordered;
        }
        loop {
            let page = page_sql(request, is_unordered);
            let rows = self
                .look(&[include_str!("../sql/log/floor.sql"), &page])
                .await?;
            let (ground, rows) = self.stand_on(&rows)?;
            if ground.era != era {
                return Err(wrong_era(era));
            }
            if ground.is_unordered && !is_unordered {
                is_unordered = true;
                continue;
            }
            return read_tick(request, ground.floor, rows).map_err(while_doing(ACTION));
        }
    }

    /// Rows of an era that is over, in plain order, and where reading goes on after the last.
    async fn read_sealed(
        &self,
        request: &ReadPage<'_>,
        within: &Within,
    ) -> Result<(Vec<Row>, Position), StoreError> {
        let era = request.from.era;
        self.ground_of(era).await?;
        let eras = self.eras().await?;
        let sealed = eras
            .sealed_at(within.until.floor)
            .ok_or_else(|| wrong_era(era))?;
        let sql = sealed_sql(request, within, sealed);
        let rows = self.look(&[&sql]).await?;
        let (rows, _) = read_rows(&rows, request.rows_max).map_err(while_doing(ACTION))?;
        Ok((rows, eras.after(sealed)))
    }
}

/// The error for a position of an era that is over, or of another database.
pub(crate) fn wrong_era(era: u32) -> StoreError {
    let text = format!(
        "the position is of era {era}, which is not this database's; lanes taken anew go on"
    );
    StoreError::found(StoreErrorKind::WrongEra, ACTION, text)
}

/// Refuses standbys, and databases that are not the one the positions belong to.
pub(crate) fn check_home(
    is_home: bool,
    is_standby: bool,
    action: &'static str,
) -> Result<(), StoreError> {
    if is_standby {
        let text = "the server is a standby";
        return Err(StoreError::found(StoreErrorKind::ReadOnly, action, text));
    }
    if !is_home {
        let text = "the database is a restored or copied one, whose positions mean nothing here; \
                    start a new era to take it into service";
        return Err(StoreError::found(StoreErrorKind::WrongEra, action, text));
    }
    Ok(())
}

pub(crate) fn parse_snapshot(text: &str, floor: u64) -> Result<Snapshot, sqlx::Error> {
    read_snapshot(text, floor)
        .ok_or_else(|| sqlx::Error::Decode("the server's snapshot is not readable".into()))
}

fn snapshot_of(rows: &[PgRow], floor: u64) -> Result<Snapshot, sqlx::Error> {
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let snapshot = parse_snapshot(row.try_get("snapshot")?, floor)?;
    let started: i32 = row.try_get("started")?;
    Ok(above_started(snapshot, started.max(0) as u64))
}

/// Fills a statement's parameters in as literals, because the simple protocol, which does several
/// statements in one trip and plans them for these very values, knows no parameters.
/// Only numbers and lists of numbers come here.
pub(crate) fn render(statement: &str, literals: &[String]) -> String {
    let mut parts = statement.split('$');
    let mut rendered = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, rest) = part.split_at(digits);
        let literal = number
            .parse()
            .ok()
            .and_then(|n: usize| literals.get(n.wrapping_sub(1)));
        match literal {
            Some(literal) => {
                rendered.push('\'');
                rendered.push_str(literal);
                rendered.push('\'');
            }
            None => {
                rendered.push('$');
                rendered.push_str(number);
            }
        }
        rendered.push_str(rest);
    }
    rendered
}

pub(crate) fn array(xids: &[u64]) -> String {
    format!("{{{}}}", list(xids))
}

fn page_sql(request: &ReadPage<'_>, is_unordered: bool) -> String {
    let from = request.from;
    let (within_seq, until_xmax, until_xip, late) = match &from.within {
        Some(within) => {
            let late = from
                .after
                .xip
                .iter()
                .copied()
                .filter(|x| within.until.sees(*x));
            let until = &within.until;
            (within.seq, until.xmax, array(&until.xip), late.collect())
        }
        None => (0, u64::MAX, array(&[]), from.after.xip.clone()),
    };
    let literals = [
        from.after.floor.max(within_seq).to_string(),
        from.after.xmax.to_string(),
        until_xmax.to_string(),
        until_xip,
        array(&late),
        request.rows_max.max(1).to_string(),
        request.bytes_max.clamp(1, i64::MAX as u64).to_string(),
        within_seq.to_string(),
    ];
    // Inside a tick the lowest sequence is already kept with the position.
    if from.is_boundary() && (is_unordered || has_no_floor(&from.after)) {
        by_index(&render(
            include_str!("../sql/log/page_unordered.sql"),
            &literals,
        ))
    } else {
        render(include_str!("../sql/log/page.sql"), &literals)
    }
}

fn sealed_sql(request: &ReadPage<'_>, within: &Within, sealed: &Era) -> String {
    let after = &request.from.after;
    let literals = [
        within.seq.max(sealed.first_seq).to_string(),
        sealed.sealed_seq.to_string(),
        sealed.trusted_seq.to_string(),
        after.xmax.to_string(),
        array(&after.xip),
        request.rows_max.max(1).to_string(),
        request.bytes_max.clamp(1, i64::MAX as u64).to_string(),
    ];
    by_index(&render(
        include_str!("../sql/log/sealed_page.sql"),
        &literals,
    ))
}

fn by_index(statement: &str) -> String {
    format!("{BY_INDEX};\n{statement}")
}

/// The rows of a page, and whether there were no others: those that fit, without the one that
/// follows them.
fn read_rows(answer: &[PgRow], rows_max: u32) -> Result<(Vec<Row>, bool), sqlx::Error> {
    // Without any row of the log, the snapshot may still come in a row of its own.
    let is_empty = match answer.first() {
        Some(first) => first.try_get::<Option<i64>, _>("seq")?.is_none(),
        None => true,
    };
    if is_empty {
        return Ok((Vec::new(), true));
    }
    let is_beyond = match answer.last() {
        Some(last) => answer.len() > rows_max.max(1) as usize || last.try_get("is_beyond")?,
        None => false,
    };
    let fitting = &answer[..answer.len() - usize::from(is_beyond)];
    let rows = fitting.iter().map(read_row).collect::<Result<_, _>>()?;
    Ok((rows, !is_beyond))
}

fn read_tick(request: &ReadPage<'_>, floor: u64, answer: &[PgRow]) -> Result<Page, sqlx::Error> {
    let from = request.from;
    let (rows, is_complete) = read_rows(answer, request.rows_max)?;
    let until = match &from.within {
        Some(within) => within.until.clone(),
        None => snapshot_of(answer, floor)?,
    };
    let next = match rows.last() {
        Some(last) if !is_complete => {
            let mut next = from.reach(&until, last.seq);
            let lowest = answer
                .first()
                .map(|row| row.try_get::<Option<i64>, _>("lowest"));
            if let Some(Ok(Some(lowest))) = lowest {
                next.after.floor = lowest as u64;
            }
            next
        }
        _ => Position::at(from.era, until),
    };
    Ok(Page { rows, next })
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
