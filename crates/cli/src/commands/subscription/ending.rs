//! `onceward subscription rename` and `onceward subscription remove`.

use onceward_core::store::{
    ActOnCase, BacklogQuery, CaseAction, CaseQuery, CaseState, Cases, Operate, Registry, Remove,
    Rename, Status, StoreError, StoreErrorKind,
};
use serde_json::json;

use super::{RemoveArgs, RenameArgs};
use crate::commands::acting::{no_subscription, of_name, refusal};
use crate::error::{Code, EXIT_USAGE, Error};
use crate::output::Output;
use crate::store::Opened;

pub(super) async fn rename<S: Registry + Status>(
    opened: Opened<'_, S>,
    output: Output,
    args: &RenameArgs,
) -> Result<(), Error> {
    let who = args.by.who();
    let question = format!("rename {} to {}?", args.from, args.to);
    args.confirm.ask(output, &question)?;
    let request = Rename {
        from: &args.from,
        to: &args.to,
        by: args.by.actor(&who),
    };
    if let Err(error) = opened.store.rename(request).await {
        let error = kept(opened.url, &args.from, &error);
        return Err(of_name(opened, &args.from, error).await);
    }
    if output.is_json() {
        return output.json(&json!({ "subscription": args.to, "renamed_from": args.from }));
    }
    let to = &args.to;
    output.line(&format!(
        "{}: is called {to} now; start its processes under that name",
        args.from
    ))
}

/// Says what it is about, asks, ends the cases that are left one by one, and then all of it.
pub(super) async fn remove<S: Status + Cases + Operate + Registry>(
    opened: Opened<'_, S>,
    output: Output,
    args: &RemoveArgs,
) -> Result<(), Error> {
    let name = &args.subscription;
    let who = args.by.who();
    let by = args.by.actor(&who);
    by.check_reason()
        .map_err(|refusal| Error::new(Code::ActionRefused, format!("remove: {refusal} (--why)")))?;
    let names = opened.check(opened.store.subscriptions().await)?;
    if !names.contains(name) {
        return Err(no_subscription(name, &names));
    }
    let query = BacklogQuery {
        subscription: name,
        count_max: 100_000,
        before: None,
    };
    let backlog = opened.check(opened.store.backlog(query).await)?;
    let counts = backlog.deferred;
    let deferred = counts.retry + counts.held + counts.running + counts.operator;
    output.say(&format!(
        "{name}: {} lanes with their positions, {}{} messages waiting, {deferred} deferred, {} cases \
         that are not over; its ledger rows and its cases stay",
        backlog.lanes.len(),
        backlog.waiting,
        if backlog.waiting_is_lower_bound { "+" } else { "" },
        backlog.quarantined,
    ));
    let is_left = deferred > 0 || backlog.quarantined > 0;
    if is_left && !args.discard_open {
        let message = format!(
            "{name} has something left: decide about its cases, or say --discard-open to give it \
             all up"
        );
        return Err(Error::new(Code::ActionRefused, message));
    }
    if backlog.quarantined > u64::from(args.max) {
        let message = format!(
            "nothing was changed: these are more than {} cases; discard them first, or raise --max",
            args.max
        );
        return Err(Error::new(Code::Unconfirmed, message).with_exit(EXIT_USAGE));
    }
    args.confirm.ask(output, &format!("remove {name}?"))?;
    let query = CaseQuery {
        subscription: Some(name),
        states: &[
            CaseState::Open,
            CaseState::Acknowledged,
            CaseState::Corrected,
        ],
        rows_max: args.max,
        ..CaseQuery::default()
    };
    let mut discarded = Vec::new();
    for case in opened.check(opened.store.cases(query).await)? {
        let request = ActOnCase {
            case_id: case.case_id,
            action: CaseAction::Discard,
            expected: Some(case.standing.state),
            by,
        };
        let acted = opened.store.act_on_case(request).await;
        acted.map_err(|error| refusal(opened.url, &error))?;
        discarded.push(case.case_id);
        if !output.is_json() {
            output.line(&format!("case {}: discarded", case.case_id))?;
        }
    }
    let request = Remove {
        subscription: name,
        discards_deferred: args.discard_open,
        by,
    };
    let removed = opened.store.remove(request).await;
    let removed = removed.map_err(|error| kept(opened.url, name, &error))?;
    if output.is_json() {
        return output.json(&json!({
            "subscription": name,
            "lanes": removed.lanes,
            "deferred": removed.deferred,
            "discarded_cases": discarded,
        }));
    }
    output.line(&format!(
        "{name}: removed; {} deferred messages were given up",
        removed.deferred
    ))
}

/// A process that works on it keeps it as it is: that is no trouble of the store.
fn kept(url: &str, name: &str, error: &StoreError) -> Error {
    match error.kind() {
        StoreErrorKind::Conflict => {
            let message = format!(
                "{name} is in use: a process still works on it (`onceward subscription list` says \
                 which); stop it first, or wait until its lease has run out. Nothing was changed"
            );
            Error::new(Code::ActionRefused, message)
        }
        _ => refusal(url, error),
    }
}
