use super::*;
use crate::contract::Order;
use crate::envelope::Envelope;
use crate::failure::Class;
use crate::ledger::{Identity, LedgerKey};

const BY: Actor<'_> = Actor {
    who: "ada",
    why: Some("the carrier says so"),
};
const WITHOUT_REASON: Actor<'_> = Actor {
    who: "ada",
    why: None,
};

fn standing(state: CaseState) -> Standing {
    Standing {
        state,
        ..Standing::default()
    }
}

const fn all(payload: &Payload) -> [CaseAction<'_>; 11] {
    [
        CaseAction::Assign { owner: Some("bo") },
        CaseAction::Acknowledge,
        CaseAction::Note,
        CaseAction::Reveal { is_permitted: true },
        CaseAction::Reveal {
            is_permitted: false,
        },
        CaseAction::SetDue { due_at: None },
        CaseAction::Correct { id: "c1", payload },
        CaseAction::Release,
        CaseAction::Discard,
        CaseAction::Waive,
        CaseAction::Purge,
    ]
}

fn json(text: &str) -> Payload {
    Payload::Json(text.into())
}

#[test]
fn what_is_over_takes_notes_and_nothing_else() {
    let payload = json("{}");
    for state in CaseState::ALL {
        for action in all(&payload) {
            let ended = act(action, BY, &standing(state), "permanent", None);
            let is_fine = match action {
                CaseAction::Purge => !state.is_live(),
                _ => state.is_live() || action.is_record(),
            };
            let is_again = action == CaseAction::Acknowledge && state != CaseState::Open;
            if is_fine && !is_again {
                assert!(ended.is_ok(), "{action:?} of {state:?}: {ended:?}");
            } else {
                let now = state.as_str();
                assert_eq!(ended, Err(Refusal::Moved { now }), "{action:?}");
            }
        }
    }
}

#[test]
fn a_state_that_is_not_the_expected_one_is_refused() {
    let open = standing(CaseState::Open);
    let expected = Some(CaseState::Acknowledged);
    let ended = act(CaseAction::Release, BY, &open, "permanent", expected);
    assert_eq!(ended, Err(Refusal::Moved { now: "open" }));
    let expected = Some(CaseState::Open);
    assert!(act(CaseAction::Release, BY, &open, "permanent", expected).is_ok());
}

#[test]
fn giving_up_needs_a_reason() {
    let open = standing(CaseState::Open);
    let payload = json("{}");
    let correct = CaseAction::Correct {
        id: "c1",
        payload: &payload,
    };
    for action in [
        CaseAction::Discard,
        CaseAction::Waive,
        CaseAction::Note,
        CaseAction::Reveal { is_permitted: true },
        correct,
    ] {
        for why in [None, Some(""), Some(" \n")] {
            let by = Actor { who: "ada", why };
            let ended = act(action, by, &open, "permanent", None);
            assert_eq!(ended, Err(Refusal::ReasonMissing), "{action:?}");
        }
    }
    assert!(
        act(
            CaseAction::Release,
            WITHOUT_REASON,
            &open,
            "permanent",
            None
        )
        .is_ok()
    );
}

#[test]
fn what_was_to_be_tried_once_is_not_released() {
    let open = standing(CaseState::Open);
    let ended = act(CaseAction::Release, BY, &open, AT_MOST_ONCE_FAILED, None);
    assert_eq!(ended, Err(Refusal::NeverTwice));
    assert!(act(CaseAction::Discard, BY, &open, AT_MOST_ONCE_FAILED, None).is_ok());
}

#[test]
fn acknowledging_gives_an_owner_where_there_is_none() {
    let mut case = standing(CaseState::Open);
    let after = act(CaseAction::Acknowledge, BY, &case, "", None).unwrap();
    assert_eq!(after.owner.as_deref(), Some("ada"));
    case.owner = Some("bo".to_owned());
    let after = act(CaseAction::Acknowledge, BY, &case, "", None).unwrap();
    assert_eq!(after.owner.as_deref(), Some("bo"));
}

#[test]
fn names_and_reasons_that_cannot_be_kept_are_refused() {
    let open = standing(CaseState::Open);
    let long = "x".repeat(WHO_BYTES_MAX + 1);
    for who in ["", " ", "a\nb", &long] {
        let by = Actor { who, why: None };
        let ended = act(CaseAction::Release, by, &open, "permanent", None);
        assert_eq!(ended, Err(Refusal::BadName), "{who:?}");
        let assign = CaseAction::Assign { owner: Some(who) };
        let ended = act(assign, BY, &open, "permanent", None);
        assert_eq!(ended, Err(Refusal::BadName), "{who:?}");
    }
    let long = "x".repeat(WHY_BYTES_MAX + 1);
    for why in ["\u{1b}[2J", "a\0b", &long] {
        let by = Actor {
            who: "ada",
            why: Some(why),
        };
        let ended = act(CaseAction::Discard, by, &open, "permanent", None);
        assert_eq!(ended, Err(Refusal::BadReason), "{why:?}");
    }
}

#[test]
fn only_what_was_over_comes_back() {
    for state in CaseState::ALL {
        let again = standing(state).opened_again();
        assert_eq!(again.regressions, u32::from(!state.is_live()));
        assert!(again.state.is_live());
    }
    for state in [CaseState::Acknowledged, CaseState::Corrected] {
        assert_eq!(standing(state).opened_again().state, state);
    }
}

#[test]
fn a_correction_is_the_same_effect_under_a_new_id() {
    let mut envelope = Envelope::new("m1", "order", "o1", "order.accepted", json("{\"a\":1}"));
    let correlated = ("correlationid".to_owned(), "r1".to_owned());
    envelope.attributes.extend([correlated]);
    let original = Row {
        xid: 7,
        seq: 8,
        slot: 9,
        recorded_at: Timestamp::from_micros(10),
        envelope,
        corrects: None,
    };
    let correction = Correction {
        id: "c1".to_owned(),
        payload: json("{\"a\":2}"),
    };
    let corrected = correction.of(&original);
    assert_eq!(corrected.effect_id(), original.effect_id());
    let envelope = &corrected.envelope;
    assert_eq!((envelope.id.as_str(), envelope.operation()), ("c1", "m1"));
    assert_eq!(envelope.key(), original.envelope.key());
    assert_eq!(envelope.attributes["causationid"], "m1");
    assert_eq!(envelope.attributes["correlationid"], "r1");
    assert_eq!(envelope.payload, correction.payload);
    let place = |row: &Row| (row.xid, row.seq, row.slot, row.recorded_at);
    assert_eq!(place(&corrected), place(&original));
    for identity in [Identity::Message, Identity::Operation, Identity::Seq] {
        let keys = [&original, &corrected].map(|row| LedgerKey::of(row, identity));
        assert_eq!(keys[0], keys[1]);
    }
    for order in [Order::Key, Order::None] {
        assert_eq!(order.key_of(&original), order.key_of(&corrected));
    }
}

#[test]
fn a_correction_has_a_new_id_that_can_be_kept() {
    let payload = json("{}");
    let before = standing(CaseState::Acknowledged);
    let correct = |before: &Standing, id: &str| {
        let action = CaseAction::Correct {
            id,
            payload: &payload,
        };
        act(action, BY, before, "permanent", None)
    };
    let after = correct(&before, "c1").unwrap();
    assert_eq!(after.state, CaseState::Corrected);
    assert_eq!(after.corrected_id.as_deref(), Some("c1"));
    let long = "x".repeat(ID_BYTES_MAX + 1);
    for id in ["", "a\nb", &long, "c1"] {
        assert_eq!(correct(&after, id), Err(Refusal::BadId), "{id:?}");
    }
    assert!(correct(&after, "c2").is_ok());
}

#[test]
fn states_have_names_of_their_own() {
    for state in CaseState::ALL {
        assert_eq!(CaseState::named(state.as_str()), Some(state));
    }
    assert_eq!(CaseState::named("closed"), None);
}

#[test]
fn fingerprints_go_by_the_cause_alone() {
    let failure = |code: &str, message: &str| FailureRecord {
        class: Class::Permanent,
        code: code.to_owned(),
        message: message.to_owned(),
        detail: Some(message.to_owned()),
    };
    let print = fingerprint("billing", "order.paid", &failure("refused", "for order 1"));
    assert_eq!(print, "943fb51109efa5f9");
    let same = fingerprint("billing", "order.paid", &failure("refused", "for order 2"));
    assert_eq!(print, same);
    let others = [
        fingerprint("billing", "order.sent", &failure("refused", "")),
        fingerprint("shipping", "order.paid", &failure("refused", "")),
        fingerprint("billing", "order.paid", &failure("unknown", "")),
        // The parts do not run into one another.
        fingerprint("billingo", "rder.paid", &failure("refused", "")),
    ];
    for other in others {
        assert_ne!(print, other);
    }
}

#[test]
fn an_account_has_what_the_case_had_used() {
    let spent = Spent {
        failures: 3,
        ..Spent::default()
    };
    let text = account(&standing(CaseState::Open), "permanent", spent);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["state"], "open");
    assert_eq!(json["reason"], "permanent");
    assert_eq!(json["spent"]["failures"], 3);
}
