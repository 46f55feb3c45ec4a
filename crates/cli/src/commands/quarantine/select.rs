//! Which cases a command is about: by number, or by what they are.

use clap::Args;
use onceward_core::Timestamp;
use onceward_core::store::{Case, CaseQuery, CaseState, Cases};

use crate::commands::acting::{case_number, past};
use crate::error::{Code, EXIT_USAGE, Error};
use crate::store::Opened;

/// States of cases that are not over.
const LIVE: [CaseState; 3] = [
    CaseState::Open,
    CaseState::Acknowledged,
    CaseState::Corrected,
];

/// What cases are.
#[derive(Debug, Default, Args)]
pub struct FilterArgs {
    /// Only cases of this subscription
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
    /// Only in this state; several may be given, `all` is any
    #[arg(long = "state", value_name = "STATE", value_parser = state)]
    states: Vec<StateArg>,
    /// Only with this owner
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// Only of this cause, see `quarantine groups`
    #[arg(long, value_name = "HEX")]
    fingerprint: Option<String>,
    /// Only of messages of this type
    #[arg(long = "type", value_name = "TYPE")]
    message_type: Option<String>,
    /// Only of messages of this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only opened since then: a moment, or so long ago (2h)
    #[arg(long, value_name = "WHEN", value_parser = past)]
    since: Option<Timestamp>,
    /// Only opened before then
    #[arg(long, value_name = "WHEN", value_parser = past)]
    until: Option<Timestamp>,
}

/// One or all states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StateArg {
    One(CaseState),
    All,
}

fn state(text: &str) -> Result<StateArg, String> {
    if text == "all" {
        return Ok(StateArg::All);
    }
    CaseState::named(text).map(StateArg::One).ok_or_else(|| {
        let names = CaseState::ALL.map(CaseState::as_str).join(", ");
        format!("a state is one of {names}, or all")
    })
}

impl FilterArgs {
    /// The states asked for; empty means any.
    pub(super) fn states(&self) -> Vec<CaseState> {
        if self.states.contains(&StateArg::All) {
            return Vec::new();
        }
        let named = self.states.iter().filter_map(|state| match state {
            StateArg::One(state) => Some(*state),
            StateArg::All => None,
        });
        let named: Vec<CaseState> = named.collect();
        if named.is_empty() {
            LIVE.to_vec()
        } else {
            named
        }
    }

    /// The question for the store.
    pub(super) fn query<'a>(
        &'a self,
        states: &'a [CaseState],
        after_case_id: i64,
        rows_max: u32,
    ) -> CaseQuery<'a> {
        CaseQuery {
            subscription: self.subscription.as_deref(),
            case_id: None,
            states,
            owner: self.owner.as_deref(),
            fingerprint: self.fingerprint.as_deref(),
            message_type: self.message_type.as_deref(),
            key: self.key.as_deref(),
            opened_from: self.since,
            opened_before: self.until,
            after_case_id,
            rows_max,
        }
    }

    /// The subscription asked for.
    pub(super) fn subscription(&self) -> Option<&str> {
        self.subscription.as_deref()
    }

    fn is_empty(&self) -> bool {
        self.subscription.is_none()
            && self.states.is_empty()
            && self.owner.is_none()
            && self.fingerprint.is_none()
            && self.message_type.is_none()
            && self.key.is_none()
            && self.since.is_none()
            && self.until.is_none()
    }
}

/// Cases by number, or by what they are.
#[derive(Debug, Args)]
pub struct SelectArgs {
    /// Case numbers
    #[arg(value_name = "CASE", value_parser = case_number)]
    case_ids: Vec<i64>,
    /// Or what they are.
    #[command(flatten)]
    filter: FilterArgs,
}

/// What was selected.
pub(super) struct Selected {
    pub(super) cases: Vec<Case>,
    /// Numbers without a case.
    pub(super) missing: Vec<i64>,
}

impl SelectArgs {
    /// The cases, at most so many.
    ///
    /// # Errors
    /// When nothing or both is said, there are more, or the store fails.
    pub(super) async fn select<S: Cases>(
        &self,
        opened: Opened<'_, S>,
        max: u32,
    ) -> Result<Selected, Error> {
        let usage = |message: String| {
            let error = Error::new(Code::Unconfirmed, message);
            error.with_exit(EXIT_USAGE)
        };
        if self.case_ids.is_empty() == self.filter.is_empty() {
            let message = "name cases by number, or say what they are (--subscription, \
                           --fingerprint, …): one of the two";
            return Err(usage(message.to_owned()));
        }
        let too_many = || {
            let message = format!(
                "nothing was changed: these are more than {max} cases; say more exactly which, or \
                 raise --max"
            );
            usage(message)
        };
        if self.case_ids.is_empty() {
            let states = self.filter.states();
            let query = self.filter.query(&states, 0, max + 1);
            let cases = opened.check(opened.store.cases(query).await)?;
            if cases.len() > max as usize {
                return Err(too_many());
            }
            let missing = Vec::new();
            return Ok(Selected { cases, missing });
        }
        let mut case_ids = self.case_ids.clone();
        case_ids.sort_unstable();
        case_ids.dedup();
        if case_ids.len() > max as usize {
            return Err(too_many());
        }
        let (mut cases, mut missing) = (Vec::new(), Vec::new());
        for case_id in case_ids {
            let query = CaseQuery {
                case_id: Some(case_id),
                rows_max: 1,
                ..CaseQuery::default()
            };
            match opened.check(opened.store.cases(query).await)?.pop() {
                Some(case) => cases.push(case),
                None => missing.push(case_id),
            }
        }
        Ok(Selected { cases, missing })
    }
}
