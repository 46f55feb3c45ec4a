//! What of a batch goes on after a message of its key was put aside.

use std::collections::BTreeMap;

use super::Fate;
use crate::envelope::Row;
use crate::store::DeferralKind;
use crate::version::is_earlier;

/// Keys of a batch of which a message was deferred or quarantined: what follows goes back to its
/// place, unless it is what the message waits for.
#[derive(Clone, Debug, Default)]
pub struct Blocked<'w> {
    keys: BTreeMap<&'w str, Option<&'w Row>>,
}

impl<'w> Blocked<'w> {
    /// Takes in what became of a message of the key.
    pub fn ended(&mut self, key: &'w str, row: &'w Row, fate: &Fate) {
        match fate {
            Fate::Deferred(deferral) if deferral.kind == DeferralKind::Gap => {
                self.keys.insert(key, Some(row));
            }
            Fate::Deferred(_) | Fate::Quarantined { .. } | Fate::Returned => {
                self.keys.insert(key, None);
            }
            Fate::Finished | Fate::Uncertain => {}
        }
    }

    /// Whether a message of the key has to go back.
    #[must_use]
    pub fn holds(&self, key: &str, row: &Row) -> bool {
        self.keys.get(key).is_some_and(|waiting| {
            waiting.is_none_or(|waiting| !is_earlier(&row.envelope, &waiting.envelope))
        })
    }
}
