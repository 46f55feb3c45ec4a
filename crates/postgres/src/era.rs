//! Taking a restored or copied database into service.

use onceward_core::Position;
use onceward_core::store::{StoreError, StoreErrorKind};
use serde::Deserialize;
use sqlx::Row as _;

use crate::error::while_doing;
use crate::schema::run;
use crate::session::{BEGIN, Postgres, Tx};
use crate::snapshot::read_position;

const ACTION: &str = "start a new era";

#[derive(Deserialize)]
struct KeptSpan {
    position: Position,
}

impl Postgres {
    /// Seals the era that came with the data. Does nothing where the data are at home.
    pub(crate) async fn seal_and_start(&self) -> Result<u32, StoreError> {
        let mut tx = Tx::open(&self.leases, BEGIN, ACTION).await?;
        let connection = tx.connection();
        run(connection, include_str!("../sql/schema/lock.sql"), ACTION).await?;
        let query = sqlx::query(include_str!("../sql/schema/home.sql"));
        let home = query.fetch_one(&mut *connection).await.map_err(while_doing(ACTION))?;
        if home.try_get("is_home").map_err(while_doing(ACTION))? {
            let era: i32 = home.try_get("era").map_err(while_doing(ACTION))?;
            tx.roll_back().await;
            return Ok(era as u32);
        }
        let query = sqlx::query(include_str!("../sql/schema/kept_positions.sql"));
        let kept = query.fetch_all(&mut *connection).await.map_err(while_doing(ACTION))?;
        let mut trusted_seq = 0;
        for row in &kept {
            let text: &str = row.try_get("text").map_err(while_doing(ACTION))?;
            let is_record = row.try_get("is_record").map_err(while_doing(ACTION))?;
            trusted_seq = trusted_seq.max(highest(text, is_record)?);
        }
        let query = sqlx::query(include_str!("../sql/schema/seal.sql")).bind(trusted_seq as i64);
        let row = query.fetch_one(&mut *connection).await.map_err(while_doing(ACTION))?;
        let era: i32 = row.try_get("era").map_err(while_doing(ACTION))?;
        tx.commit(ACTION).await?;
        Ok(era as u32)
    }
}

/// The highest sequence that kept positions know of: what was appended since the data were
/// restored is above it, because a dump reads its sequences after its rows.
fn highest(text: &str, is_record: bool) -> Result<u64, StoreError> {
    let positions = if is_record {
        let spans: Vec<KeptSpan> = serde_json::from_str(text)
            .map_err(|error| StoreError::new(StoreErrorKind::Other, ACTION, error))?;
        spans.into_iter().map(|span| span.position).collect()
    } else {
        vec![read_position(text)?]
    };
    let highest = positions.iter().map(|position| {
        let within = position.within.as_ref().map_or(0, |w| w.seq.max(w.until.floor));
        position.after.floor.max(within)
    });
    Ok(highest.max().unwrap_or(0))
}
