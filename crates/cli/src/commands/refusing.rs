//! Which message types are refused now, for `backlog`: judged as acceptance judges them, by looks of
//! its own.

use std::time::Duration;

use onceward_console::overview::SubscriptionNow;
use onceward_core::contract::Contract;
use onceward_core::store::{Backlog, BacklogQuery, Status};
use onceward_core::throttle::{Gauge, Judged, Load, Sight, Throttle, Verdict, promised_ms};

use crate::error::Error;
use crate::output::age;
use crate::store::Opened;

/// Between two looks: in less time positions may not have moved.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);

/// Looks at what waits of the types that may be refused. A second look, two seconds after the
/// first, tells how fast it goes; where nothing waits none is needed.
///
/// # Errors
/// When the store fails.
pub async fn find<S: Status>(
    opened: Opened<'_, S>,
    contract: &Contract,
    first: &[SubscriptionNow],
    count_max: u64,
) -> Result<Vec<Judged>, Error> {
    let messages = contract.messages.iter();
    let promised = messages.filter(|(_, message)| message.throttle == Throttle::Refuse);
    let promised: Vec<(&String, u64)> = promised
        .filter_map(|(name, message)| Some((name, promised_ms(&message.promise)?)))
        .collect();
    let takes = |backlog: &&Backlog| {
        let mut types = backlog.types.iter();
        types.any(|t| promised.iter().any(|(name, _)| *name == t))
    };
    let takers = first.iter().map(|subscription| &subscription.backlog);
    let takers: Vec<&Backlog> = takers.filter(takes).collect();
    if takers.iter().any(|backlog| backlog.waiting > 0) {
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
    let mut loads: Vec<(&Backlog, Load)> = Vec::new();
    for backlog in takers {
        let mut gauge = Gauge::default();
        let mut load = gauge.see(Sight::of(backlog));
        if backlog.waiting > 0 {
            let query = BacklogQuery {
                before: Some(backlog.now),
                ..BacklogQuery::new(&backlog.subscription, count_max)
            };
            let second = opened.check(opened.store.backlog(query).await)?;
            load = gauge.see(Sight::of(&second));
        }
        loads.push((backlog, load));
    }
    let of_type = |(name, promised_ms): (&String, u64)| {
        let its = loads
            .iter()
            .filter(|(backlog, _)| backlog.types.contains(name));
        let its: Vec<(String, Load)> = its
            .map(|(backlog, load)| (backlog.subscription.clone(), *load))
            .collect();
        Judged::of(name.clone(), promised_ms, Verdict::Open, its)
    };
    Ok(promised.into_iter().map(of_type).collect())
}

/// What is to be said of it, if new messages are refused.
#[must_use]
pub fn line(judged: &Judged) -> Option<String> {
    let Verdict::Refuse { retry_after_ms } = judged.verdict else {
        return None;
    };
    let words = |ms: u64| age(i64::try_from(ms).unwrap_or(i64::MAX));
    let worst = judged
        .loads
        .iter()
        .max_by_key(|(_, load)| load.needed_ms())?;
    let (subscription, load) = worst;
    let drain = load
        .drain_ms
        .map_or("nobody knows how long".to_owned(), words);
    Some(format!(
        "refused: new {} messages, promised within {}: in {subscription} the oldest waits for \
         {}, and what waits takes {drain}; try again in {}",
        judged.message_type,
        words(judged.promised_ms),
        words(load.oldest_ms),
        words(retry_after_ms),
    ))
}
