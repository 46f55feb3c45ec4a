//! Subscriptions that get another name, or end.

use onceward_core::case::{Refusal, may_remove};
use onceward_core::store::{
    AuditEntry, Registry, Remove, Removed, Rename, StoreError, StoreErrorKind,
};

use super::operate::{commit, entry, known};
use super::schema::rename;
use super::state::State;
use super::writes::Write;
use super::{Defect, MemoryStore, Operation};

const ACTION: &str = Operation::Operate.action();

impl Registry for MemoryStore {
    async fn rename(&self, request: Rename<'_>) -> Result<(), StoreError> {
        self.enter(Operation::Operate).await?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        let refused = |refusal| StoreError::refused(ACTION, refusal);
        request.by.check().map_err(refused)?;
        known(&state, request.from)?;
        if state.subscriptions.contains_key(request.to) {
            return Err(refused(Refusal::NameTaken));
        }
        is_free(&state, request.from, now)?;
        rename(&mut state, request.from, request.to);
        let record = AuditEntry {
            before: serde_json::json!({ "subscription": request.from }).to_string(),
            after: serde_json::json!({ "subscription": request.to }).to_string(),
            ..entry(now, request.by, "rename", request.to)
        };
        let mut writes = vec![Write::Audit(record)];
        writes.extend(self.revise(request.to));
        commit(&mut state, now, writes);
        Ok(())
    }

    async fn remove(&self, request: Remove<'_>) -> Result<Removed, StoreError> {
        self.enter(Operation::Operate).await?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        let name = request.subscription;
        known(&state, name)?;
        is_free(&state, name, now)?;
        let cases = state.tables.cases.values();
        let live = cases.filter(|case| case.subscription == name && case.standing.state.is_live());
        let deferrals = state.tables.deferrals.keys();
        let deferred = deferrals.filter(|(of, _)| of == name).count() as u64;
        let lanes = state.lanes.keys().filter(|(of, _)| of == name).count() as u64;
        let removed = Removed { lanes, deferred };
        let discards = request.discards_deferred || self.shared.has(Defect::RemovesWhatIsLeft);
        let checked = may_remove(request.by, live.count() as u64, deferred, discards);
        checked.map_err(|refusal| StoreError::refused(ACTION, refusal))?;
        state.subscriptions.remove(name);
        state.lanes.retain(|(of, _), _| of != name);
        let tables = &mut state.tables;
        tables.deferrals.retain(|(of, _), _| of != name);
        tables.pauses.retain(|pause| pause.subscription != name);
        tables.limits.remove(name);
        let account = |lanes, deferred| {
            serde_json::json!({ "lanes": lanes, "deferred": deferred }).to_string()
        };
        let record = AuditEntry {
            before: account(lanes, deferred),
            after: account(0, 0),
            ..entry(now, request.by, "remove", name)
        };
        commit(&mut state, now, vec![Write::Audit(record)]);
        Ok(removed)
    }
}

/// Refuses while a process works on it.
fn is_free(state: &State, name: &str, now: onceward_core::Timestamp) -> Result<(), StoreError> {
    let mut members = state.members.values();
    let works = members.any(|m| m.is_live(now) && m.subscriptions.iter().any(|of| of == name));
    if !works {
        return Ok(());
    }
    let text = format!("a process still works under the name {name}: stop it first");
    Err(StoreError::found(StoreErrorKind::Conflict, ACTION, text))
}
