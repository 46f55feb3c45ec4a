use onceward_core::{Class, FailureRecord, Spent, Timestamp};

use super::*;

fn message(states: Vec<MessageState>) -> MessageStatus {
    let named = states.into_iter().enumerate();
    MessageStatus {
        id: "m".into(),
        source: "/s".into(),
        message_type: "t".into(),
        operation: "o".into(),
        subject: "k".into(),
        recorded_at: Timestamp::from_micros(0),
        subscriptions: named.map(|(i, state)| (format!("s{i}"), state)).collect(),
    }
}

fn finished(ending: Ending) -> MessageState {
    let result = Some("{\"card\":\"4111\"}".into());
    MessageState::finished(ending, Timestamp::from_micros(0), result)
}

fn deferred() -> MessageState {
    MessageState::Deferred {
        kind: "retry".into(),
        due_at: None,
        spent: Spent {
            failures: 2,
            deaths: 1,
            ..Spent::default()
        },
        failure: Some(FailureRecord {
            class: Class::Transient,
            code: "timeout".into(),
            message: "no answer".into(),
            detail: Some("key (card)=(4111)".into()),
        }),
    }
}

#[test]
fn an_operation_goes_on_until_every_state_has_ended() {
    let of = |states| standing(&[message(states)]);
    assert_eq!(
        of(vec![finished(Ending::Done), MessageState::Pending]),
        Standing::Going
    );
    assert_eq!(
        of(vec![deferred(), finished(Ending::Rejected)]),
        Standing::Going
    );
    assert_eq!(
        of(vec![finished(Ending::Done), MessageState::Delivered]),
        Standing::Well
    );
    assert_eq!(
        of(vec![finished(Ending::Rejected), MessageState::Delivered]),
        Standing::Badly
    );
    let quarantined = MessageState::Quarantined {
        case_id: 1,
        reason: "x".into(),
    };
    assert_eq!(of(vec![quarantined]), Standing::Badly);
    assert_eq!(of(vec![]), Standing::Well);
}

#[test]
fn results_and_details_are_withheld() {
    for mut state in [finished(Ending::Done), deferred()] {
        assert!(describe(&state).contains("4111"));
        withhold(&mut state);
        assert!(!describe(&state).contains("4111"), "{}", describe(&state));
        assert!(!json!(state).to_string().contains("4111"));
    }
}

#[test]
fn a_deferral_says_how_often_and_why() {
    let text = describe(&deferred());
    assert!(
        text.starts_with("deferred (retry) after 3 attempts: timeout no answer"),
        "{text}"
    );
}

#[test]
fn growing_older_is_no_change_and_another_attempt_is() {
    let aged = |failures, age_ms| {
        let mut state = deferred();
        if let MessageState::Deferred { spent, .. } = &mut state {
            spent.failures = failures;
            spent.age_ms = age_ms;
        }
        ageless(&state)
    };
    assert_eq!(aged(2, 250), aged(2, 500));
    assert_ne!(aged(2, 250), aged(3, 250));
}

#[test]
fn what_is_held_is_not_said_to_be_due() {
    let held = MessageState::Deferred {
        kind: "held".into(),
        due_at: Some(Timestamp::from_micros(0)),
        spent: Spent::default(),
        failure: None,
    };
    let text = describe(&held);
    assert_eq!(
        text,
        "deferred (held), behind an earlier message of its key"
    );
}
