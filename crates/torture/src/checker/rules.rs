//! What must hold. Pure: facts in, findings out.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{Case, Deferral, Effect, Facts, Order};
use super::{Finding, Findings, Kind};
use crate::messages::{
    Deadly, EFFECTS, Followed, HELD, Mood, Ordered, PROMISES, Promise, Trace, Unit,
};
use crate::processes::carrier::{Asked, Entry};
use onceward::Message;

/// One effect that a subscription owes.
struct Owed {
    /// The message or the operation.
    unit: String,
    key: String,
    number: i64,
    mood: Mood,
    /// Messages that have this effect, with their place in the log.
    messages: Vec<(String, Option<i64>)>,
}

/// Compares all records.
#[must_use]
pub fn check(facts: &Facts) -> Findings {
    let mut findings = Findings {
        messages: facts.orders.len() as u64,
        ..Findings::default()
    };
    let index = Index::of(facts);
    acceptance(facts, &index, &mut findings);
    for promise in &PROMISES {
        let owed = owed(promise, facts, &index);
        for owed in &owed {
            state(promise, owed, &index, &mut findings);
        }
        strangers(promise, &owed, &index, &mut findings);
        merged(promise, &owed, &index, &mut findings);
        order(promise, &owed, facts, &mut findings);
    }
    carrier(&index, &mut findings);
    findings
}

/// Facts by what they are asked for.
struct Index<'f> {
    log: BTreeMap<&'f str, Vec<i64>>,
    effects: BTreeMap<(&'f str, &'f str), Vec<&'f Effect>>,
    ledger: BTreeMap<(&'f str, &'f str), Vec<&'f str>>,
    deferrals: BTreeMap<(&'f str, i64), &'f Deferral>,
    cases: BTreeMap<(&'f str, &'f str), Vec<&'f Case>>,
    handed: BTreeMap<&'f str, usize>,
    claimed: BTreeMap<&'f str, usize>,
    carrier: BTreeMap<&'f str, Vec<&'f Entry>>,
    /// Least number of each key behind which a subscription waits.
    held_from: BTreeMap<(&'f str, &'f str), i64>,
}

impl<'f> Index<'f> {
    fn of(facts: &'f Facts) -> Self {
        let mut index = Self {
            log: group(facts.log.iter().map(|(id, seq)| (id.as_str(), *seq))),
            effects: group(
                facts
                    .effects
                    .iter()
                    .map(|e| ((e.subscription.as_str(), e.id.as_str()), e)),
            ),
            ledger: group(facts.ledger.iter().map(|(subscription, identity, ending)| {
                ((subscription.as_str(), identity.as_str()), ending.as_str())
            })),
            deferrals: facts
                .deferrals
                .iter()
                .map(|d| ((d.subscription.as_str(), d.seq), d))
                .collect(),
            cases: group(
                facts
                    .cases
                    .iter()
                    .map(|c| ((c.subscription.as_str(), c.id.as_str()), c)),
            ),
            handed: count(&facts.handed),
            claimed: count(&facts.claimed),
            carrier: group(facts.carrier.iter().map(|e| (e.operation.as_str(), e))),
            held_from: BTreeMap::new(),
        };
        index.find_holders(facts);
        index
    }

    /// A case that holds its key, or a message that waits for a person.
    fn find_holders(&mut self, facts: &'f Facts) {
        for order in &facts.orders {
            let seq = self
                .log
                .get(order.id.as_str())
                .and_then(|seqs| seqs.first().copied());
            for promise in &PROMISES {
                let cases = self.cases.get(&(promise.name, order.id.as_str()));
                let has_case = cases.is_some_and(|cases| cases.iter().any(|c| c.holds_key));
                let deferral = seq.and_then(|seq| self.deferrals.get(&(promise.name, seq)));
                let waits = deferral.is_some_and(|d| d.kind == "operator");
                if has_case || waits {
                    let key = (promise.name, order.key.as_str());
                    let from = self.held_from.entry(key).or_insert(order.number);
                    *from = order.number.min(*from);
                }
            }
        }
    }
}

fn group<K: Ord, V>(pairs: impl Iterator<Item = (K, V)>) -> BTreeMap<K, Vec<V>> {
    let mut groups: BTreeMap<K, Vec<V>> = BTreeMap::new();
    for (key, value) in pairs {
        groups.entry(key).or_default().push(value);
    }
    groups
}

fn count(ids: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for id in ids {
        *counts.entry(id.as_str()).or_insert(0) += 1;
    }
    counts
}

fn finding(kind: Kind, place: &'static str, of: &str, text: impl Into<String>) -> Finding {
    Finding {
        kind,
        place,
        of: of.to_owned(),
        text: text.into(),
    }
}

/// What was acknowledged is there; business row and message exist together or not at all.
fn acceptance(facts: &Facts, index: &Index<'_>, findings: &mut Findings) {
    let orders: BTreeSet<&str> = facts.orders.iter().map(|order| order.id.as_str()).collect();
    for id in &facts.acknowledged {
        if !orders.contains(id.as_str()) {
            let text = "acknowledged, and the order is not there";
            findings.wrong.push(finding(Kind::Lost, "orders", id, text));
        }
    }
    for order in &facts.orders {
        match index.log.get(order.id.as_str()).map_or(0, Vec::len) {
            1 => {}
            0 => {
                let text = "the order is there and its message is not";
                findings
                    .wrong
                    .push(finding(Kind::Lost, "log", &order.id, text));
            }
            n => {
                let text = format!("{n} messages of one order");
                findings
                    .wrong
                    .push(finding(Kind::Doubled, "log", &order.id, text));
            }
        }
    }
    for id in index.log.keys() {
        let of = id.strip_prefix("f-").unwrap_or(id);
        if !orders.contains(of) {
            let text = "a message without its order";
            findings.wrong.push(finding(Kind::Wrong, "log", id, text));
        }
    }
}

/// The kind of key says which type a message has.
fn message_type(order: &Order) -> &'static str {
    if order.key.contains("-d") {
        Deadly::TYPE
    } else {
        Ordered::TYPE
    }
}

/// Every effect that a subscription owes for what was accepted.
fn owed(promise: &Promise, facts: &Facts, index: &Index<'_>) -> Vec<Owed> {
    let mut owed: BTreeMap<String, Owed> = BTreeMap::new();
    for order in &facts.orders {
        let is_followed = promise.message_type == Followed::TYPE;
        let (unit, id) = match promise.unit {
            // What follows exists exactly if the effect does.
            _ if is_followed => {
                if !index
                    .effects
                    .contains_key(&(EFFECTS.name, order.id.as_str()))
                {
                    continue;
                }
                let id = format!("f-{}", order.id);
                (id.clone(), id)
            }
            _ if promise.message_type != message_type(order) => continue,
            Unit::Message => (order.id.clone(), order.id.clone()),
            Unit::Operation => (order.operation.clone(), order.id.clone()),
        };
        let seq = index
            .log
            .get(id.as_str())
            .and_then(|seqs| seqs.first().copied());
        let one = owed.entry(unit.clone()).or_insert_with(|| Owed {
            unit,
            key: order.key.clone(),
            number: order.number,
            mood: if is_followed { Mood::Well } else { order.mood },
            messages: Vec::new(),
        });
        one.number = one.number.min(order.number);
        one.messages.push((id, seq));
    }
    owed.into_values().collect()
}

/// What a message may come to.
enum Expected {
    Done,
    Rejected,
    Case(&'static str),
    Operator,
}

fn expected(promise: &Promise, mood: Mood) -> Expected {
    match (promise.trace, mood) {
        (Trace::Claimed, _)
        | (Trace::Handed, Mood::Unreadable | Mood::Operator)
        | (Trace::Booking, Mood::Operator) => Expected::Done,
        (_, Mood::Rejected) => Expected::Rejected,
        (_, Mood::Poison) => Expected::Case("permanent"),
        (_, Mood::Unreadable) => Expected::Case("schema"),
        (_, Mood::Killer) => Expected::Case("worker_died"),
        (_, Mood::Operator) => Expected::Operator,
        _ => Expected::Done,
    }
}

/// What is recorded of one effect.
struct Recorded<'f> {
    effects: usize,
    outcome: Option<&'f str>,
    endings: Vec<&'f str>,
    cases: Vec<&'f Case>,
    deferrals: Vec<&'f Deferral>,
}

fn recorded<'f>(promise: &Promise, owed: &Owed, index: &Index<'f>) -> Recorded<'f> {
    let at = (promise.name, owed.unit.as_str());
    let rows = index.effects.get(&at).map_or(&[][..], Vec::as_slice);
    let ids = owed.messages.iter().map(|(id, _)| id.as_str());
    let cases = ids
        .clone()
        .filter_map(|id| index.cases.get(&(promise.name, id)));
    let seqs = owed.messages.iter().filter_map(|(_, seq)| *seq);
    Recorded {
        effects: match promise.trace {
            Trace::Row | Trace::Booking => rows.len(),
            Trace::Handed => ids.filter_map(|id| index.handed.get(id)).sum(),
            Trace::Claimed => ids.filter_map(|id| index.claimed.get(id)).sum(),
        },
        outcome: rows.first().map(|effect| effect.outcome.as_str()),
        endings: index.ledger.get(&at).cloned().unwrap_or_default(),
        cases: cases.flatten().copied().collect(),
        deferrals: seqs
            .filter_map(|seq| index.deferrals.get(&(promise.name, seq)).copied())
            .collect(),
    }
}

/// Exactly one final state, and the right one.
fn state(promise: &Promise, owed: &Owed, index: &Index<'_>, findings: &mut Findings) {
    let found = recorded(promise, owed, index);
    findings.states += 1;
    let mut wrong = |kind, text: String| {
        findings
            .wrong
            .push(finding(kind, promise.name, &owed.unit, text));
    };
    if found.effects > 1 && promise.trace != Trace::Handed {
        wrong(Kind::Doubled, format!("{} effects", found.effects));
    }
    if found.endings.len() > 1 {
        wrong(
            Kind::Doubled,
            format!("{} ledger rows", found.endings.len()),
        );
    }
    let has_row = !found.endings.is_empty();
    if has_row && !found.cases.is_empty() {
        wrong(Kind::Doubled, "a ledger row and a case".to_owned());
    }
    let is_in_ledger = !matches!(promise.trace, Trace::Handed | Trace::Claimed);
    if is_in_ledger && found.effects > 0 && !has_row {
        wrong(Kind::Wrong, "an effect without a ledger row".to_owned());
    }
    if is_in_ledger && found.effects == 0 && found.endings.contains(&"done") {
        wrong(Kind::Lost, "a ledger row without its effect".to_owned());
    }
    for case in &found.cases {
        budget(promise, owed, case, findings);
    }
    let is_final =
        has_row || !found.cases.is_empty() || promise.trace == Trace::Handed && found.effects > 0;
    if !is_final || !found.deferrals.is_empty() {
        open(promise, owed, &found, index, findings);
    } else {
        ending(promise, owed, &found, findings);
    }
}

/// What is not final: waits for something that will not come by itself, or is pending.
fn open(
    promise: &Promise,
    owed: &Owed,
    found: &Recorded<'_>,
    index: &Index<'_>,
    findings: &mut Findings,
) {
    let holder = index.held_from.get(&(promise.name, owed.key.as_str()));
    let is_behind = holder.is_some_and(|from| *from < owed.number);
    let waits_for_person = matches!(expected(promise, owed.mood), Expected::Operator);
    let are = |kinds: &[&str]| {
        let mut deferrals = found.deferrals.iter();
        deferrals.all(|deferral| kinds.contains(&deferral.kind.as_str()))
    };
    // One that ran with others when a process ended is due, and waits behind the holder as well.
    let is_at_rest = !found.deferrals.is_empty()
        && (is_behind && are(&["held", "retry"]) || waits_for_person && are(&["operator"]));
    if is_at_rest && found.effects == 0 && found.endings.is_empty() && found.cases.is_empty() {
        return;
    }
    let kinds: Vec<&str> = found.deferrals.iter().map(|d| d.kind.as_str()).collect();
    let text = format!(
        "no final state: {} effects, ledger {:?}, {} cases, deferrals {kinds:?}, behind a holder: \
         {is_behind}",
        found.effects,
        found.endings,
        found.cases.len()
    );
    findings
        .pending
        .push(finding(Kind::Lost, promise.name, &owed.unit, text));
}

fn ending(promise: &Promise, owed: &Owed, found: &Recorded<'_>, findings: &mut Findings) {
    let case = found.cases.first().map(|case| case.reason.as_str());
    let died = case == Some("worker_died");
    let is_right = match expected(promise, owed.mood) {
        // Whatever it would have come to: nobody tried. What took its place is looked at elsewhere.
        _ if found.endings == ["merged"] => {
            promise.merges && found.effects == 0 && found.cases.is_empty()
        }
        // Whoever was at work when its process was ended may have run out of attempts.
        _ if died => true,
        Expected::Done => case.is_none() && !found.endings.contains(&"rejected"),
        Expected::Rejected => {
            let row = promise.trace != Trace::Row || found.outcome == Some("rejected");
            found.endings == ["rejected"] && row
        }
        Expected::Case(reason) => case == Some(reason),
        Expected::Operator => false,
    };
    if !is_right {
        let text = format!(
            "{} came to: ledger {:?}, case {case:?}, {} effects",
            owed.mood.as_str(),
            found.endings,
            found.effects
        );
        findings
            .wrong
            .push(finding(Kind::Wrong, promise.name, &owed.unit, text));
    }
}

/// The arithmetic of a case.
fn budget(promise: &Promise, owed: &Owed, case: &Case, findings: &mut Findings) {
    let spent = case.failures + case.deaths;
    let all = i64::from(promise.attempts);
    let is_right = match case.reason.as_str() {
        "permanent" | "schema" => case.failures >= 1 && spent <= all,
        "worker_died" => case.deaths >= 1 && spent >= all && spent <= all + 1,
        "attempts_exhausted" => case.failures >= 1 && spent == all,
        _ => false,
    };
    if !is_right || case.holds_key != promise.holds_key {
        let Case {
            reason,
            failures,
            deaths,
            holds_key,
            ..
        } = case;
        let text = format!(
            "a case {reason} after {failures} failures and {deaths} deaths of {all} attempts, \
             holds its key: {holds_key}"
        );
        findings
            .wrong
            .push(finding(Kind::Wrong, promise.name, &owed.unit, text));
    }
}

/// Effects and ledger rows of what nobody owes.
fn strangers(promise: &Promise, owed: &[Owed], index: &Index<'_>, findings: &mut Findings) {
    let units: BTreeSet<&str> = owed.iter().map(|owed| owed.unit.as_str()).collect();
    let own = |place: &(&str, &str)| place.0 == promise.name && !units.contains(place.1);
    let effects = index.effects.keys().filter(|place| own(place));
    let rows = index.ledger.keys().filter(|place| own(place));
    for (_, unit) in effects.chain(rows) {
        let text = "an effect of what was not accepted";
        findings
            .wrong
            .push(finding(Kind::Wrong, promise.name, unit, text));
    }
}

/// What was merged has a later one of its key that came to something, or waits.
fn merged(promise: &Promise, owed: &[Owed], index: &Index<'_>, findings: &mut Findings) {
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    let is_merged = |owed: &Owed| {
        let endings = index.ledger.get(&(promise.name, owed.unit.as_str()));
        endings.is_some_and(|endings| endings.contains(&"merged"))
    };
    for survivor in owed.iter().filter(|owed| !is_merged(owed)) {
        let last = last.entry(&survivor.key).or_insert(survivor.number);
        *last = survivor.number.max(*last);
    }
    for one in owed.iter().filter(|owed| is_merged(owed)) {
        if last
            .get(one.key.as_str())
            .is_none_or(|last| *last < one.number)
        {
            let text = "merged, and nothing of its key came later";
            findings
                .wrong
                .push(finding(Kind::Lost, promise.name, &one.unit, text));
        }
    }
}

/// Effects of a key come in the order in which its messages were accepted; none comes behind a
/// case that holds the key.
fn order(promise: &Promise, owed: &[Owed], facts: &Facts, findings: &mut Findings) {
    let places: BTreeMap<&str, (&str, i64)> = owed
        .iter()
        .map(|o| (o.unit.as_str(), (o.key.as_str(), o.number)))
        .collect();
    let rows = facts
        .effects
        .iter()
        .filter(|effect| effect.subscription == promise.name);
    let units: Vec<&str> = match promise.trace {
        Trace::Row | Trace::Booking => rows.map(|effect| effect.id.as_str()).collect(),
        Trace::Handed => facts.handed.iter().map(String::as_str).collect(),
        // What is outside cannot be fenced: a frozen process may come late with its only attempt.
        Trace::Claimed => return,
    };
    let mut highest: BTreeMap<&str, (i64, &str)> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for unit in units {
        let Some((key, number)) = places.get(unit) else {
            continue;
        };
        // Doubles are found elsewhere; what is handed on again may come again.
        if !seen.insert(unit) {
            continue;
        }
        if let Some((before, earlier)) = highest.get(key)
            && before > number
        {
            let text = format!("after {earlier}");
            findings
                .wrong
                .push(finding(Kind::OutOfOrder, promise.name, unit, text));
        }
        let last = highest.entry(key).or_insert((*number, unit));
        if last.0 < *number {
            *last = (*number, unit);
        }
    }
    if promise.name == HELD.name {
        behind_cases(promise, &places, &seen, facts, findings);
    }
}

fn behind_cases(
    promise: &Promise,
    places: &BTreeMap<&str, (&str, i64)>,
    seen: &BTreeSet<&str>,
    facts: &Facts,
    findings: &mut Findings,
) {
    let cases = facts
        .cases
        .iter()
        .filter(|c| c.subscription == promise.name && c.holds_key);
    let cases = cases.filter_map(|case| places.get(case.id.as_str()));
    let holders: BTreeMap<&str, i64> = cases.map(|(key, number)| (*key, *number)).collect();
    for unit in seen {
        let Some((key, number)) = places.get(unit) else {
            continue;
        };
        if holders.get(key).is_some_and(|holder| holder < number) {
            let text = "an effect behind a case that holds its key";
            findings
                .wrong
                .push(finding(Kind::OutOfOrder, promise.name, unit, text));
        }
    }
}

/// The carrier's own record: each outcome has its booking, no operation has two, and nobody asks
/// it to book what was asked before without having looked first. Only the process that wrote the
/// intent may begin without a look; all others have seen the intent.
fn carrier(index: &Index<'_>, findings: &mut Findings) {
    let outcomes = index
        .effects
        .keys()
        .filter(|(subscription, _)| *subscription == "carried");
    for (_, operation) in outcomes {
        let entries = index.carrier.get(operation).map_or(&[][..], Vec::as_slice);
        if !entries.iter().any(|entry| entry.booked.is_some()) {
            let text = "an outcome without a booking";
            findings
                .wrong
                .push(finding(Kind::Lost, "carrier", operation, text));
        }
    }
    for (operation, entries) in &index.carrier {
        let bookings = entries
            .iter()
            .filter(|entry| entry.booked.is_some())
            .count();
        if bookings > 1 {
            let text = format!("{bookings} bookings");
            findings
                .wrong
                .push(finding(Kind::Doubled, "carrier", operation, text));
        }
        let books = entries
            .iter()
            .filter(|entry| entry.asked == Asked::Book)
            .count();
        findings.asked_again += books.saturating_sub(1) as u64;
        let blind = blind(entries);
        if blind > 1 {
            let text = format!("asked to book {blind} times without a look before");
            findings
                .wrong
                .push(finding(Kind::Doubled, "carrier", operation, text));
        }
    }
}

/// Requests to book that no look of the same process came before.
fn blind(entries: &[&Entry]) -> usize {
    let mut has_looked: BTreeSet<u32> = BTreeSet::new();
    let mut blind = 0;
    for entry in entries {
        match entry.asked {
            Asked::Find => {
                has_looked.insert(entry.worker);
            }
            Asked::Book if has_looked.remove(&entry.worker) => {}
            Asked::Book => blind += 1,
        }
    }
    blind
}
