//! Messages that wait together, of which only the latest is wanted. Pure decisions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::envelope::Row;

/// Code of a message in whose place a later one was handled.
pub const MERGED: &str = "merged";

/// What becomes of messages of one key and one type that wait together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Merge {
    /// Each is handled.
    #[default]
    None,
    /// Only the latest is handled; the ledger says of each other one what took its place.
    Latest,
}

/// How a message of a batch stands before anything of it is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// It is to be handled, and nothing was ever tried of it.
    Untried,
    /// It has had its end, or is a copy of one before it: as if it were not there.
    Ended,
    /// It was tried, somebody released it, or it ends in another way: nothing is merged over it.
    Apart,
}

/// A message of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting<'a> {
    /// Its key.
    pub key: &'a str,
    /// Its type.
    pub message_type: &'a str,
    /// How it stands.
    pub stand: Stand,
}

/// For each message of a batch, in order, the index of the one that takes its place: the last of
/// the run of untried messages of its key and type that it stands in. A message of the key of
/// another type, or one that stands apart, ends the run. `None`: it is handled itself, or ends in
/// another way.
#[must_use]
pub fn survivors(batch: &[Waiting<'_>]) -> Vec<Option<usize>> {
    let mut survivors = vec![None; batch.len()];
    // From the end on: the last of each key's run, while the run goes on.
    let mut last: BTreeMap<&str, Option<usize>> = BTreeMap::new();
    for (index, message) in batch.iter().enumerate().rev() {
        match message.stand {
            Stand::Ended => {}
            Stand::Apart => {
                last.insert(message.key, None);
            }
            Stand::Untried => {
                let run = last.entry(message.key).or_default();
                let same = |run: &usize| batch[*run].message_type == message.message_type;
                survivors[index] = run.filter(same);
                if survivors[index].is_none() {
                    *run = Some(index);
                }
            }
        }
    }
    survivors
}

/// What the ledger keeps of a message in whose place another was handled.
#[must_use]
pub fn merged_into(survivor: &Row) -> Box<str> {
    let kept = serde_json::json!({
        "code": MERGED,
        "message": "a later message of its key took its place",
        "merged_into": survivor.envelope.id,
    });
    kept.to_string().into()
}

/// The id of the message that took the place of a merged one, from what the ledger kept of it.
#[must_use]
pub fn survivor_in(result: &str) -> Option<String> {
    let kept: serde_json::Value = serde_json::from_str(result).ok()?;
    Some(kept.get("merged_into")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn waiting(batch: &[(&'static str, &'static str, Stand)]) -> Vec<Waiting<'static>> {
        let waiting = batch.iter().map(|(key, message_type, stand)| Waiting {
            key,
            message_type,
            stand: *stand,
        });
        waiting.collect()
    }

    use Stand::{Apart, Ended, Untried};

    #[test]
    fn the_last_of_a_run_takes_the_place_of_the_others() {
        let batch = [
            ("a", "t", Untried),
            ("b", "t", Untried),
            ("a", "t", Untried),
            ("a", "t", Untried),
        ];
        let merged = survivors(&waiting(&batch));
        assert_eq!(merged, [Some(3), None, Some(3), None]);
    }

    #[test]
    fn another_type_or_one_that_stands_apart_ends_the_run() {
        let batch = [
            ("a", "t", Untried),
            ("a", "u", Untried),
            ("a", "t", Untried),
            ("a", "t", Apart),
            ("a", "t", Untried),
        ];
        assert_eq!(survivors(&waiting(&batch)), [None; 5]);
    }

    #[test]
    fn what_has_ended_is_not_there() {
        let batch = [
            ("a", "t", Untried),
            ("a", "t", Ended),
            ("a", "t", Untried),
            ("a", "t", Ended),
        ];
        let merged = survivors(&waiting(&batch));
        assert_eq!(merged, [Some(2), None, None, None]);
    }

    #[test]
    fn the_survivor_is_found_in_what_is_kept() {
        let payload = crate::Payload::Json("1".into());
        let row = Row {
            xid: 1,
            seq: 1,
            slot: 0,
            recorded_at: crate::Timestamp::from_micros(0),
            envelope: crate::Envelope::new("m\"7", "a", "k", "t", payload),
            corrects: None,
        };
        assert_eq!(survivor_in(&merged_into(&row)).as_deref(), Some("m\"7"));
        assert_eq!(survivor_in("{}"), None);
        assert_eq!(survivor_in("no json"), None);
    }

    fn batches() -> impl Strategy<Value = Vec<(&'static str, &'static str, Stand)>> {
        let one = (
            prop::sample::select(vec!["a", "b", "c"]),
            prop::sample::select(vec!["t", "t", "t", "u"]),
            prop::sample::select(vec![Untried, Untried, Untried, Ended, Apart]),
        );
        prop::collection::vec(one, 0..24)
    }

    proptest! {
        #[test]
        fn nothing_is_merged_that_may_not_be_and_nothing_is_left_that_may(batch in batches()) {
            let batch = waiting(&batch);
            let merged = survivors(&batch);
            prop_assert_eq!(merged.len(), batch.len());
            for (index, survivor) in merged.iter().enumerate() {
                let this = batch[index];
                // The next of its key that is there.
                let mut after = (index + 1..batch.len())
                    .filter(|other| batch[*other].key == this.key && batch[*other].stand != Ended);
                let next = after.next();
                let joins = |other: &usize| batch[*other].stand == Untried
                    && batch[*other].message_type == this.message_type;
                let is_followed = this.stand == Untried && next.as_ref().is_some_and(joins);
                prop_assert_eq!(survivor.is_some(), is_followed, "at {}", index);
                if let Some(survivor) = *survivor {
                    prop_assert!(survivor > index);
                    // It is handled itself, so that one message of each run is left.
                    prop_assert_eq!(merged[survivor], None);
                    let next = next.unwrap_or(survivor);
                    prop_assert!(survivor == next || merged[next] == Some(survivor));
                }
            }
        }
    }
}
