//! `GET /v1/operations/{id}`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::{Extension, Json};
use onceward_core::store::{Actor, MessageState, MessageStatus, RevealOperation, StoreErrorKind};
use onceward_core::{Ending, Timestamp};
use serde::{Deserialize, Serialize};

use crate::access::{Caller, Scope};
use crate::code::Code;
use crate::gate::GateError;
use crate::messages::failed;
use crate::problem::Problem;
use crate::{Console, guard};

/// How far something has come, the least finished first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Progress {
    Quarantined,
    Deferred,
    /// Accepted and not finished everywhere.
    Accepted,
    /// Somebody ended its case without it.
    Resolved,
    Rejected,
    /// Its time was over before it could be done.
    Expired,
    /// A later one had been done, or took its place.
    Superseded,
    /// It was given up because its turn came late.
    Shed,
    /// A later message of its key was handled in its place.
    Merged,
    Completed,
}

#[derive(Debug, Serialize)]
pub(crate) struct Operation {
    operation: String,
    status: Progress,
    messages: Vec<Message>,
}

#[derive(Debug, Serialize)]
struct Message {
    id: String,
    source: String,
    #[serde(rename = "type")]
    message_type: String,
    subject: String,
    status: Progress,
    recorded_at: Timestamp,
    subscriptions: BTreeMap<String, MessageState>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    #[serde(default)]
    reveal: bool,
    /// For the audit log, where it is to be revealed.
    why: Option<String>,
}

pub(crate) async fn show(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
    options: Result<Query<Options>, QueryRejection>,
) -> Result<Json<Operation>, Problem> {
    guard::require(&caller, Scope::Read)?;
    let unreadable = |detail: String| Problem::new(Code::AddressUnreadable, detail);
    let Path(operation) = path.map_err(|rejection| unreadable(rejection.body_text()))?;
    let Query(options) = options.map_err(|rejection| unreadable(rejection.body_text()))?;
    let found = console.gate.operation(&operation).await.map_err(failed)?;
    if found.is_empty() {
        let detail = "no message of this operation is known, or not any more";
        return Err(Problem::new(Code::NoOperation, detail));
    }
    if options.reveal {
        record(
            &console,
            &caller,
            &operation,
            options.why.as_deref(),
            &found,
        )
        .await?;
    }
    Ok(Json(report(operation, found, options.reveal)))
}

/// On record before it is shown, and also when it may not be.
async fn record(
    console: &Console,
    caller: &Caller,
    operation: &str,
    why: Option<&str>,
    found: &[MessageStatus],
) -> Result<(), Problem> {
    let states = found.iter().flat_map(|message| &message.subscriptions);
    let names: BTreeSet<&str> = states.map(|(name, _)| name.as_str()).collect();
    let subscriptions: Vec<&str> = names.into_iter().collect();
    let request = RevealOperation {
        operation,
        subscriptions: &subscriptions,
        is_permitted: caller.may(Scope::Reveal),
        by: Actor {
            who: &caller.name,
            why,
        },
    };
    let recorded = console.gate.reveal_operation(request).await;
    guard::require(caller, Scope::Reveal)?;
    recorded.map_err(|error| match error {
        GateError::Store(error) if error.kind() == StoreErrorKind::Refused => {
            Problem::new(Code::CaseRefused, error.to_string())
        }
        error => failed(error),
    })
}

fn report(operation: String, found: Vec<MessageStatus>, reveal: bool) -> Operation {
    let messages: Vec<Message> = found.into_iter().map(|m| message(m, reveal)).collect();
    let status = messages.iter().map(|m| m.status).min();
    Operation {
        operation,
        status: status.unwrap_or(Progress::Accepted),
        messages,
    }
}

fn message(found: MessageStatus, reveal: bool) -> Message {
    let status = found.subscriptions.iter().map(|(_, state)| progress(state));
    Message {
        // What no subscription takes stays accepted: nobody has completed anything.
        status: status.min().unwrap_or(Progress::Accepted),
        id: found.id,
        source: found.source,
        message_type: found.message_type,
        subject: found.subject,
        recorded_at: found.recorded_at,
        subscriptions: found
            .subscriptions
            .into_iter()
            .map(|(name, state)| (name, if reveal { state } else { withheld(state) }))
            .collect(),
    }
}

fn progress(state: &MessageState) -> Progress {
    match state {
        MessageState::Quarantined { .. } => Progress::Quarantined,
        MessageState::Deferred { .. } => Progress::Deferred,
        MessageState::Pending => Progress::Accepted,
        MessageState::Finished { ending, .. } => match ending {
            Ending::Done => Progress::Completed,
            Ending::Rejected => Progress::Rejected,
            Ending::Expired => Progress::Expired,
            Ending::Superseded => Progress::Superseded,
            Ending::Shed => Progress::Shed,
            Ending::Merged => Progress::Merged,
        },
        MessageState::Resolved { .. } => Progress::Resolved,
        MessageState::Delivered => Progress::Completed,
    }
}

/// A state without what may hold payload data.
fn withheld(mut state: MessageState) -> MessageState {
    match &mut state {
        MessageState::Finished { result, .. } => *result = None,
        MessageState::Deferred {
            failure: Some(failure),
            ..
        } => failure.detail = None,
        _ => {}
    }
    state
}

#[cfg(test)]
mod tests {
    use onceward_core::{FailureRecord, Spent};

    use super::*;

    fn status(states: &[MessageState]) -> MessageStatus {
        let named = states.iter().enumerate();
        MessageStatus {
            id: "m".into(),
            source: "//s".into(),
            message_type: "a.b".into(),
            operation: "op".into(),
            subject: "a".into(),
            recorded_at: Timestamp::from_micros(0),
            subscriptions: named.map(|(i, s)| (format!("s{i}"), s.clone())).collect(),
        }
    }

    fn finished(ending: Ending) -> MessageState {
        let result = Some("{\"card\":4111}".into());
        MessageState::finished(ending, Timestamp::from_micros(0), result)
    }

    fn deferred() -> MessageState {
        MessageState::Deferred {
            kind: "retry".into(),
            due_at: None,
            spent: Spent::default(),
            failure: Some(FailureRecord {
                class: onceward_core::Class::Transient,
                code: "x".into(),
                message: "away".into(),
                detail: Some("near 4111".into()),
            }),
        }
    }

    #[test]
    fn accepted_is_never_shown_as_completed() {
        let of = |states: &[MessageState]| report("op".into(), vec![status(states)], false).status;
        let done = finished(Ending::Done);
        assert_eq!(of(&[]), Progress::Accepted);
        assert_eq!(
            of(&[MessageState::Pending, done.clone()]),
            Progress::Accepted
        );
        assert_eq!(of(&[done.clone(), deferred()]), Progress::Deferred);
        assert_eq!(
            of(&[done.clone(), MessageState::Delivered]),
            Progress::Completed
        );
        assert_eq!(
            of(&[done.clone(), finished(Ending::Rejected)]),
            Progress::Rejected
        );
        let case = MessageState::Quarantined {
            case_id: 1,
            reason: "x".into(),
        };
        assert_eq!(of(&[done.clone(), case]), Progress::Quarantined);
        let two = vec![status(&[done]), status(&[MessageState::Pending])];
        assert_eq!(report("op".into(), two, false).status, Progress::Accepted);
    }

    #[test]
    fn results_and_details_are_withheld() {
        let found = || vec![status(&[finished(Ending::Done), deferred()])];
        let shown = serde_json::to_string(&report("op".into(), found(), false)).unwrap();
        assert!(!shown.contains("4111"), "{shown}");
        assert!(shown.contains("\"s1\":{\"state\":\"deferred\""), "{shown}");
        let shown = serde_json::to_string(&report("op".into(), found(), true)).unwrap();
        assert_eq!(shown.matches("4111").count(), 2, "{shown}");
    }
}
