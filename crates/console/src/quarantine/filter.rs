//! Which cases are asked for.

use onceward_core::Timestamp;
use onceward_core::store::{CaseQuery, CaseState};
use serde::Deserialize;

/// Most cases where nothing else is said.
const CASES_DEFAULT: u32 = 100;

/// The parameters of a list, as they come.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    subscription: Option<String>,
    /// Names with commas between them, or `all`.
    state: Option<String>,
    owner: Option<String>,
    fingerprint: Option<String>,
    #[serde(rename = "type")]
    message_type: Option<String>,
    key: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    #[serde(default)]
    after: i64,
    limit: Option<u32>,
}

/// The same, checked.
pub(super) struct Checked {
    filter: Filter,
    states: Vec<CaseState>,
    limit: u32,
}

impl Filter {
    /// Those that are not over, where no state is named.
    pub(super) fn checked(self) -> Result<Checked, String> {
        let live = CaseState::ALL.into_iter().filter(|state| state.is_live());
        let states = match self.state.as_deref() {
            None => live.collect(),
            Some("all") => Vec::new(),
            Some(names) => {
                let states = names.split(',').map(|name| {
                    CaseState::named(name).ok_or_else(|| {
                        let names = CaseState::ALL.map(CaseState::as_str).join(", ");
                        format!("a state is one of {names}, or all")
                    })
                });
                states.collect::<Result<_, _>>()?
            }
        };
        let limit = super::limit(self.limit, CASES_DEFAULT)?;
        Ok(Checked {
            filter: self,
            states,
            limit,
        })
    }
}

impl Checked {
    /// The question for the store.
    pub(super) fn query(&self) -> CaseQuery<'_> {
        let filter = &self.filter;
        CaseQuery {
            subscription: filter.subscription.as_deref(),
            case_id: None,
            states: &self.states,
            owner: filter.owner.as_deref(),
            fingerprint: filter.fingerprint.as_deref(),
            message_type: filter.message_type.as_deref(),
            key: filter.key.as_deref(),
            opened_from: filter.since,
            opened_before: filter.until,
            after_case_id: filter.after,
            rows_max: self.limit,
        }
    }
}
