//! The checker notices: records that are right pass, and each way of breaking them is named.

#![allow(clippy::unwrap_used, reason = "an error here is a failed test")]

use onceward_torture::checker::{Case, Deferral, Effect, Facts, Finding, Kind, Order, check};
use onceward_torture::messages::{Mood, PROMISES, Promise, Trace, Unit};
use onceward_torture::{Asked, Entry};

const KEY: &str = "e00001-c01";
const OF_CALLS: &str = "carried";

fn id(number: i64) -> String {
    format!("{KEY}-{number:05}")
}

fn operation(number: i64) -> String {
    format!("o-{}", id(number))
}

fn unit(promise: &Promise, number: i64) -> String {
    match (promise.name, promise.unit) {
        ("followed", _) => format!("f-{}", id(number)),
        (_, Unit::Message) => id(number),
        (_, Unit::Operation) => operation(number),
    }
}

fn add_effect(facts: &mut Facts, promise: &Promise, number: i64) {
    let effect = Effect {
        n: facts.effects.len() as i64 + 1,
        subscription: promise.name.to_owned(),
        id: unit(promise, number),
        outcome: "done".to_owned(),
    };
    facts.effects.push(effect);
}

/// Everything that is recorded of an order that went well everywhere.
fn add_order(facts: &mut Facts, number: i64) {
    let seq = number * 2;
    facts.orders.push(Order {
        id: id(number),
        key: KEY.to_owned(),
        number,
        mood: Mood::Well,
        operation: operation(number),
    });
    facts.acknowledged.insert(id(number));
    facts.log.push((id(number), seq));
    facts.log.push((format!("f-{}", id(number)), seq + 1));
    for promise in PROMISES.iter().filter(|p| p.name != "deadly") {
        match promise.trace {
            Trace::Handed => {
                facts.handed.push(id(number));
                continue;
            }
            Trace::Claimed => facts.claimed.push(id(number)),
            Trace::Row | Trace::Booking => add_effect(facts, promise, number),
        }
        let row = (
            promise.name.to_owned(),
            unit(promise, number),
            "done".to_owned(),
        );
        facts.ledger.push(row);
    }
    facts.carrier.push(Entry {
        asked: Asked::Book,
        operation: operation(number),
        worker: 1,
        booked: Some(format!("booking-{number}")),
    });
}

fn clean() -> Facts {
    let mut facts = Facts::default();
    for number in 1..=3 {
        add_order(&mut facts, number);
    }
    facts
}

/// What is found when the records are broken so.
fn found(damage: impl FnOnce(&mut Facts)) -> Vec<Finding> {
    let mut facts = clean();
    damage(&mut facts);
    check(&facts).closed().wrong
}

fn assert_found(found: &[Finding], kind: Kind, place: &str, of: &str) {
    let is_it = |f: &Finding| f.kind == kind && f.place == place && f.of == of;
    assert!(
        found.iter().any(is_it),
        "no {kind:?} in {place} of {of}: {found:#?}"
    );
}

fn is_effect(effect: &Effect, subscription: &str, id: &str) -> bool {
    effect.subscription == subscription && effect.id == id
}

#[test]
fn what_is_right_passes() {
    let findings = check(&clean());
    assert_eq!(findings.wrong, []);
    assert_eq!(findings.pending, []);
    assert_eq!(findings.messages, 3);
    assert_eq!(findings.states, 3 * 8);
}

#[test]
fn an_effect_that_is_gone_is_lost() {
    for (place, of) in [
        ("effects", id(2)),
        ("held", id(2)),
        ("batches", operation(2)),
    ] {
        let found = found(|facts| facts.effects.retain(|e| !is_effect(e, place, &of)));
        assert_found(&found, Kind::Lost, place, &of);
    }
}

#[test]
fn an_effect_that_is_there_twice_is_doubled() {
    for promise in PROMISES
        .iter()
        .filter(|p| p.trace == Trace::Row && p.name != "deadly")
    {
        let found = found(|facts| add_effect(facts, promise, 3));
        assert_found(&found, Kind::Doubled, promise.name, &unit(promise, 3));
    }
}

#[test]
fn a_second_ledger_row_is_doubled() {
    let found = found(|facts| {
        let row = facts.ledger[0].clone();
        facts.ledger.push(row);
    });
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].kind, Kind::Doubled);
}

#[test]
fn effects_that_changed_places_are_out_of_order() {
    for place in ["effects", "held", "followed", "batches", "carried"] {
        let found = found(|facts| {
            let of = facts
                .effects
                .iter()
                .enumerate()
                .filter(|(_, e)| e.subscription == place);
            let places: Vec<usize> = of.map(|(index, _)| index).collect();
            let (first, second) = (facts.effects[places[0]].id.clone(), places[1]);
            facts.effects[places[0]].id = facts.effects[second].id.clone();
            facts.effects[second].id = first;
        });
        assert!(
            found.iter().all(|f| f.kind == Kind::OutOfOrder),
            "{found:#?}"
        );
        assert!(found.iter().any(|f| f.place == place), "{found:#?}");
    }
    let found = found(|facts| facts.handed.swap(0, 1));
    assert_found(&found, Kind::OutOfOrder, "handed", &id(1));
}

#[test]
fn what_was_acknowledged_and_is_not_there_is_lost() {
    let found = found(|facts| {
        facts.acknowledged.insert(id(9));
    });
    assert_found(&found, Kind::Lost, "orders", &id(9));
}

#[test]
fn an_order_and_its_message_exist_together() {
    let lost = found(|facts| facts.log.retain(|(id_, _)| *id_ != id(1)));
    assert_found(&lost, Kind::Lost, "log", &id(1));
    let doubled = found(|facts| facts.log.push((id(1), 99)));
    assert_found(&doubled, Kind::Doubled, "log", &id(1));
    let wrong = found(|facts| facts.log.push((id(7), 99)));
    assert_found(&wrong, Kind::Wrong, "log", &id(7));
}

/// Its effect is gone, and its ledger row says that another took its place.
fn merge(facts: &mut Facts, place: &str, number: i64) {
    let its = |of: &str, unit: &str| of == place && unit == id(number);
    facts.effects.retain(|e| !its(&e.subscription, &e.id));
    for row in &mut facts.ledger {
        if its(&row.0, &row.1) {
            row.2 = "merged".to_owned();
        }
    }
}

#[test]
fn what_was_merged_needs_a_later_one_of_its_key_and_a_subscription_that_merges() {
    assert_eq!(found(|facts| merge(facts, "latest", 1)), []);
    let last = found(|facts| (1..=3).for_each(|number| merge(facts, "latest", number)));
    assert_found(&last, Kind::Lost, "latest", &id(3));
    let elsewhere = found(|facts| merge(facts, "held", 1));
    assert_found(&elsewhere, Kind::Wrong, "held", &id(1));
    let with_effect = found(|facts| {
        let row = facts.ledger.iter_mut().find(|r| r.0 == "latest").unwrap();
        row.2 = "merged".to_owned();
    });
    assert_found(&with_effect, Kind::Wrong, "latest", &id(1));
}

#[test]
fn an_effect_without_its_ledger_row_is_wrong() {
    let found = found(|facts| facts.ledger.retain(|(name, _, _)| name != "effects"));
    assert_found(&found, Kind::Wrong, "effects", &id(1));
}

#[test]
fn an_effect_of_what_was_not_accepted_is_wrong() {
    let found = found(|facts| add_effect(facts, &PROMISES[0], 9));
    assert_found(&found, Kind::Wrong, "effects", &id(9));
}

#[test]
fn what_was_never_handed_on_is_lost_and_what_was_claimed_twice_is_doubled() {
    let lost = found(|facts| facts.handed.retain(|handed| *handed != id(2)));
    assert_found(&lost, Kind::Lost, "handed", &id(2));
    let again = found(|facts| facts.handed.push(id(2)));
    assert_eq!(again, [], "at least once is once or more");
    let doubled = found(|facts| facts.claimed.push(id(2)));
    assert_found(&doubled, Kind::Doubled, "claimed", &id(2));
}

#[test]
fn an_outcome_that_the_carrier_does_not_know_is_lost() {
    let found = found(|facts| {
        facts.carrier.remove(1);
    });
    assert_found(&found, Kind::Lost, "carrier", &operation(2));
}

fn asked(asked: Asked, worker: u32) -> Entry {
    Entry {
        asked,
        operation: operation(2),
        worker,
        booked: None,
    }
}

#[test]
fn a_second_request_needs_a_look_before_it() {
    let blind = found(|facts| facts.carrier.push(asked(Asked::Book, 1)));
    assert_found(&blind, Kind::Doubled, "carrier", &operation(2));
    let by_another = found(|facts| facts.carrier.push(asked(Asked::Book, 2)));
    assert_found(&by_another, Kind::Doubled, "carrier", &operation(2));
    let looked = found(|facts| {
        facts.carrier.push(asked(Asked::Find, 2));
        facts.carrier.push(asked(Asked::Book, 2));
    });
    assert_eq!(looked, []);
    // Looked before the first one arrived: that one was on its way from a frozen process.
    let late = found(|facts| {
        facts.carrier.insert(0, asked(Asked::Find, 2));
        facts.carrier.insert(1, asked(Asked::Book, 2));
    });
    assert_eq!(late, []);
}

#[test]
fn two_bookings_of_an_operation_are_doubled() {
    let found = found(|facts| {
        facts.carrier.push(asked(Asked::Find, 1));
        let mut again = asked(Asked::Book, 1);
        again.booked = Some("another".to_owned());
        facts.carrier.push(again);
    });
    assert_found(&found, Kind::Doubled, "carrier", &operation(2));
}

/// A case instead of the effect in a subscription.
fn quarantine(facts: &mut Facts, place: &str, number: i64, mood: Mood, case: Case) {
    let order = facts.orders.iter_mut().find(|order| order.number == number);
    order.unwrap().mood = mood;
    facts.effects.retain(|e| !is_effect(e, place, &id(number)));
    let is_its = |(name, unit, _): &(String, String, String)| name == place && *unit == id(number);
    facts.ledger.retain(|row| !is_its(row));
    facts.cases.push(case);
}

fn case(place: &str, number: i64, reason: &str, failures: i64, deaths: i64) -> Case {
    Case {
        subscription: place.to_owned(),
        id: id(number),
        reason: reason.to_owned(),
        failures,
        deaths,
        holds_key: place == "held",
    }
}

/// Findings of one subscription: the mood of the order is also that of all others.
fn of_place(found: Vec<Finding>, place: &str) -> Vec<Finding> {
    found
        .into_iter()
        .filter(|finding| finding.place == place)
        .collect()
}

#[test]
fn the_budget_of_a_case_adds_up() {
    let with = |case: Case| {
        of_place(
            found(|facts| quarantine(facts, "held", 3, Mood::Poison, case)),
            "held",
        )
    };
    assert_eq!(with(case("held", 3, "permanent", 1, 0)), []);
    for wrong in [
        case("held", 3, "permanent", 0, 1),
        case("held", 3, "attempts_exhausted", 3, 0),
        case("held", 3, "worker_died", 1, 1),
        case("held", 3, "nothing known", 1, 0),
        Case {
            holds_key: false,
            ..case("held", 3, "permanent", 1, 0)
        },
    ] {
        assert_found(&with(wrong), Kind::Wrong, "held", &id(3));
    }
}

#[test]
fn nothing_of_a_key_comes_behind_its_case() {
    let of_held = |number| {
        let case = case("held", number, "permanent", 1, 0);
        found(|facts| quarantine(facts, "held", number, Mood::Poison, case))
    };
    assert_found(&of_held(2), Kind::OutOfOrder, "held", &id(3));
    assert_eq!(of_place(of_held(3), "held"), []);
}

#[test]
fn a_case_and_an_effect_are_two_final_states() {
    let found = found(|facts| facts.cases.push(case("effects", 2, "permanent", 1, 0)));
    assert_found(&found, Kind::Doubled, "effects", &id(2));
}

fn deferral(place: &str, number: i64, kind: &str) -> Deferral {
    Deferral {
        subscription: place.to_owned(),
        seq: number * 2,
        kind: kind.to_owned(),
        failures: 0,
        deaths: 0,
    }
}

#[test]
fn what_waits_behind_a_case_waits_rightly_and_nothing_else_does() {
    let waiting = |kind: &str| {
        of_place(
            found(|facts| {
                let poison = case("held", 2, "permanent", 1, 0);
                quarantine(facts, "held", 2, Mood::Poison, poison);
                facts.effects.retain(|e| !is_effect(e, "held", &id(3)));
                facts
                    .ledger
                    .retain(|row| !(row.0 == "held" && row.1 == id(3)));
                facts.deferrals.push(deferral("held", 3, kind));
            }),
            "held",
        )
    };
    assert_eq!(waiting("held"), []);
    assert_found(&waiting("running"), Kind::Lost, "held", &id(3));
    let unheld = found(|facts| {
        facts.effects.retain(|e| !is_effect(e, "effects", &id(3)));
        facts
            .ledger
            .retain(|row| !(row.0 == "effects" && row.1 == id(3)));
        facts.deferrals.push(deferral("effects", 3, "held"));
    });
    assert_found(&unheld, Kind::Lost, "effects", &id(3));
}

#[test]
fn a_deferral_of_what_is_finished_is_noticed() {
    let found = found(|facts| facts.deferrals.push(deferral(OF_CALLS, 3, "running")));
    assert_found(&found, Kind::Lost, OF_CALLS, &operation(3));
}
