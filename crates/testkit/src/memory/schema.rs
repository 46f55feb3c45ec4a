//! Migration, subscriptions, eras.

use onceward_core::Position;
use onceward_core::store::{Declared, Registered, Schema, SchemaState, Start, StoreError};

use super::state::{Lane, State, Subscription};
use super::writes::LedgerPlace;
use super::{MemoryStore, Operation};

/// There is only one.
const VERSION: u32 = 1;

impl Schema for MemoryStore {
    async fn schema_state(&self) -> Result<SchemaState, StoreError> {
        self.enter(Operation::Migrate).await?;
        Ok(if self.shared.state().is_migrated {
            SchemaState::Current { version: VERSION }
        } else {
            SchemaState::Missing
        })
    }

    async fn migrate(&self) -> Result<SchemaState, StoreError> {
        self.enter(Operation::Migrate).await?;
        self.shared.state().is_migrated = true;
        Ok(SchemaState::Current { version: VERSION })
    }

    async fn start_era(&self) -> Result<u32, StoreError> {
        self.enter(Operation::Declare).await?;
        let mut state = self.shared.state();
        state.era += 1;
        let start = Position::origin(state.era);
        for lane in state.lanes.values_mut() {
            lane.stand = start.clone().into();
        }
        Ok(state.era)
    }

    async fn register(&self, declared: Declared<'_>) -> Result<Registered, StoreError> {
        self.enter(Operation::Declare).await?;
        let mut state = self.shared.state();
        let name = declared.subscription;
        if let Some(former) = declared.renamed_from
            && !state.subscriptions.contains_key(name)
        {
            rename(&mut state, former, name);
        }
        if let Some(known) = state.subscriptions.get_mut(name) {
            known.types = declared.types.to_vec();
            known.terms = declared.terms.clone();
            return Ok(Registered::Known { lanes: known.lanes });
        }
        let mut log = state.tables.log.values();
        let has_its_types = log.any(|row| declared.types.contains(&row.envelope.message_type));
        if declared.start.is_none() && has_its_types {
            return Ok(Registered::StartMissing);
        }
        let position = match declared.start {
            Some(Start::Now) => Position::at(state.era, state.snapshot()),
            _ => Position::origin(state.era),
        };
        for number in 0..declared.lanes {
            let lane = Lane {
                epoch: 0,
                owner: None,
                stand: position.clone().into(),
            };
            state.lanes.insert((name.to_owned(), number), lane);
        }
        let subscription = Subscription {
            lanes: declared.lanes,
            types: declared.types.to_vec(),
            not_before: match declared.start {
                Some(Start::At(at)) => Some(at),
                _ => None,
            },
            terms: declared.terms,
        };
        state.subscriptions.insert(name.to_owned(), subscription);
        Ok(Registered::New)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.enter(Operation::Declare).await
    }
}

/// Hands everything of a subscription to its new name; does nothing when there is none.
pub(super) fn rename(state: &mut State, former: &str, name: &str) {
    let Some(subscription) = state.subscriptions.remove(former) else {
        return;
    };
    state.subscriptions.insert(name.to_owned(), subscription);
    let lanes: Vec<_> = state
        .lanes
        .extract_if(.., |(of, _), _| of == former)
        .collect();
    for ((_, number), lane) in lanes {
        state.lanes.insert((name.to_owned(), number), lane);
    }
    state.campaigns.rename(former, name);
    let tables = &mut state.tables;
    let deferrals: Vec<_> = tables
        .deferrals
        .extract_if(.., |(of, _), _| of == former)
        .collect();
    for ((_, seq), deferred) in deferrals {
        tables.deferrals.insert((name.to_owned(), seq), deferred);
    }
    let ledger: Vec<_> = tables
        .ledger
        .extract_if(.., |place, _| place.subscription == former)
        .collect();
    for (place, recorded) in ledger {
        let subscription = name.to_owned();
        let place = LedgerPlace {
            subscription,
            ..place
        };
        tables.ledger.insert(place, recorded);
    }
    if let Some(revision) = tables.revisions.remove(former) {
        tables.revisions.insert(name.to_owned(), revision);
    }
    if let Some(limit) = tables.limits.remove(former) {
        tables.limits.insert(name.to_owned(), limit);
    }
    for pause in &mut tables.pauses {
        if pause.subscription == former {
            pause.subscription = name.to_owned();
        }
    }
    for case in tables.cases.values_mut() {
        if case.subscription == former {
            case.subscription = name.to_owned();
        }
    }
}
