//! How two JSON values differ, and what of it may be shown.

use serde::Serialize;
use serde_json::Value;

use super::pointer::escaped;
use super::{HIDDEN, Sensitivity, is_of_program};

/// What became of a value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
pub enum Change {
    /// It was not there.
    Added {
        /// What is there now.
        after: Value,
    },
    /// It is not there any more.
    Removed {
        /// What was there.
        before: Value,
    },
    /// It is another one.
    Changed {
        /// What was there.
        before: Value,
        /// What is there now.
        after: Value,
    },
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Where: a JSON Pointer, empty for the whole. Where a part is hidden, it ends there.
    pub at: String,
    /// What.
    #[serde(flatten)]
    pub change: Change,
}

/// How `after` differs from `before`. Of what is sensitive it is said that it differs, and not how.
#[must_use]
pub fn differences(before: &Value, after: &Value, sensitivity: &Sensitivity) -> Vec<Difference> {
    let shown = Shown {
        before: sensitivity.redacted_value(before),
        after: sensitivity.redacted_value(after),
    };
    let mut found = Vec::new();
    compare(
        String::new(),
        Some(before),
        Some(after),
        &mut |at, change| {
            let difference = shown.of(&at, &change);
            // Several of them may be under one that is hidden.
            if !found.contains(&difference) {
                found.push(difference);
            }
        },
    );
    found
}

/// Where `after` differs from `before`, as JSON Pointers and without any value: for somebody who
/// has both. Names of members that are none of a program's may be data: a pointer ends before one.
#[must_use]
pub fn changed_at(before: &Value, after: &Value) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    compare(String::new(), Some(before), Some(after), &mut |at, _| {
        let plain = |step: &&str| is_index(step) || is_of_program(step);
        let steps = at.split('/').skip(1).take_while(plain);
        let at: String = steps.map(|step| format!("/{step}")).collect();
        if !found.contains(&at) {
            found.push(at);
        }
    });
    found
}

fn is_index(step: &str) -> bool {
    // Longer ones are rather numbers of something.
    (1..=4).contains(&step.len()) && step.bytes().all(|byte| byte.is_ascii_digit())
}

/// Both values as they may be shown.
struct Shown {
    before: Value,
    after: Value,
}

impl Shown {
    fn of(&self, at: &str, change: &Change) -> Difference {
        let (before, after) = (self.before.pointer(at), self.after.pointer(at));
        let change = match (change, before, after) {
            (Change::Added { .. }, None, Some(after)) => Change::Added {
                after: after.clone(),
            },
            (Change::Removed { .. }, Some(before), None) => Change::Removed {
                before: before.clone(),
            },
            (Change::Changed { .. }, Some(before), Some(after)) => Change::Changed {
                before: before.clone(),
                after: after.clone(),
            },
            _ => return self.hidden(at),
        };
        let at = at.to_owned();
        Difference { at, change }
    }

    /// A difference of which only the part that it is in may be shown.
    fn hidden(&self, at: &str) -> Difference {
        let is_shown =
            |at: &str| self.before.pointer(at).is_some() && self.after.pointer(at).is_some();
        let mut at = at;
        while let Some(end) = at.rfind('/') {
            at = &at[..end];
            if is_shown(at) {
                break;
            }
        }
        let hidden = || Value::from(HIDDEN);
        Difference {
            at: at.to_owned(),
            change: Change::Changed {
                before: hidden(),
                after: hidden(),
            },
        }
    }
}

fn compare(
    at: String,
    before: Option<&Value>,
    after: Option<&Value>,
    each: &mut dyn FnMut(String, Change),
) {
    match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let added = after.keys().filter(|name| !before.contains_key(*name));
            for name in before.keys().chain(added) {
                let inside = format!("{at}/{}", escaped(name));
                compare(inside, before.get(name), after.get(name), each);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            for index in 0..before.len().max(after.len()) {
                let inside = format!("{at}/{index}");
                compare(inside, before.get(index), after.get(index), each);
            }
        }
        (Some(before), Some(after)) if before != after => each(
            at,
            Change::Changed {
                before: before.clone(),
                after: after.clone(),
            },
        ),
        (Some(before), None) => each(
            at,
            Change::Removed {
                before: before.clone(),
            },
        ),
        (None, Some(after)) => each(
            at,
            Change::Added {
                after: after.clone(),
            },
        ),
        _ => {}
    }
}
