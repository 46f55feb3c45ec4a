//! What of a payload may be shown: pure functions of a JSON value and of marks.
//!
//! Marks come from a type's JSON Schemas (`x-sensitive`) and from its configuration (pointers).
//! Where nobody marked anything, nobody has said what may be seen, and all of it stays hidden.

mod diff;
mod pointer;
mod schema;
mod scrub;

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::envelope::Payload;

pub use diff::{Change, Difference, changed_at, differences};
pub use pointer::{BadPointer, Pointer};

use schema::{Described, Nodes};

/// What stands in the place of a value that is not shown.
pub const HIDDEN: &str = "<hidden>";

/// What of a type's payloads may be shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Sensitivity {
    /// Nothing: nobody has said what may.
    #[default]
    All,
    /// What the marks leave.
    Marked(Marks),
}

/// Marks of a type.
#[derive(Clone, Debug, PartialEq)]
pub struct Marks {
    schemas: Vec<Arc<Value>>,
    pointers: Vec<Pointer>,
}

impl Sensitivity {
    /// From a type's schemas, all its versions, and its configured pointers, if there are any.
    ///
    /// A schema without a mark in it says nothing about what may be seen. One with a mark, be it
    /// `"x-sensitive": false`, does: then what it describes and does not mark is shown. With
    /// configured pointers and no schema, all but what they point to is shown.
    #[must_use]
    pub fn of(schemas: Vec<Arc<Value>>, pointers: Option<Vec<Pointer>>) -> Self {
        let is_marked = schemas.iter().any(|schema| schema::has_mark(schema));
        if pointers.is_none() && !is_marked {
            return Self::All;
        }
        Self::Marked(Marks {
            schemas,
            pointers: pointers.unwrap_or_default(),
        })
    }

    /// What may be shown of a payload: hidden values are replaced by [`HIDDEN`]. `None` when that
    /// is nothing, as for all that is not JSON.
    #[must_use]
    pub fn redacted(&self, payload: &Payload) -> Option<Value> {
        let Payload::Json(text) = payload else {
            return None;
        };
        let value: Value = serde_json::from_str(text).ok()?;
        let shown = self.redacted_value(&value);
        (shown != HIDDEN).then_some(shown)
    }

    /// The same of a value.
    #[must_use]
    pub fn redacted_value(&self, value: &Value) -> Value {
        match self {
            Self::All => Value::from(HIDDEN),
            Self::Marked(marks) => {
                let mut hidden = |_: &Value| {};
                marks.walk(value, &marks.start(), &mut hidden)
            }
        }
    }

    /// Takes hidden values out of a text that may quote them, such as the words of an error.
    /// `open` are values that may be seen anyway: ids, keys. What is shorter than four characters
    /// is too common to be told from other words and stays. A payload with more than a few
    /// thousand values to look for hides the whole text.
    #[must_use]
    pub fn scrubbed(&self, text: &str, payload: &Payload, open: &[&str]) -> String {
        scrub::scrub(self, text, payload, open)
    }

    /// Calls `each` with every hidden scalar and with every hidden name.
    fn each_hidden(&self, value: &Value, each: &mut dyn FnMut(&Value)) {
        match self {
            Self::All => each_leaf(value, each),
            Self::Marked(marks) => {
                marks.walk(value, &marks.start(), &mut |hidden| each_leaf(hidden, each));
            }
        }
    }
}

/// Whether the name of a member is one that a program gives; any other may be data.
fn is_of_program(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_plain)
}

/// Every scalar in a value, and names of members that are none of a program's: they may be data.
fn each_leaf(value: &Value, each: &mut dyn FnMut(&Value)) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if !is_of_program(name) {
                    each(&Value::from(name.as_str()));
                }
                each_leaf(member, each);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| each_leaf(item, each)),
        scalar => each(scalar),
    }
}

/// What applies to one value of a payload.
struct Place<'m> {
    nodes: Nodes<'m>,
    /// What is left of the pointers that lead here.
    pointers: Vec<&'m [String]>,
}

impl Marks {
    fn start(&self) -> Place<'_> {
        Place {
            nodes: Nodes::roots(&self.schemas),
            pointers: self.pointers.iter().map(Pointer::steps).collect(),
        }
    }

    /// A value as it may be shown; what is hidden of it is handed to `hidden`.
    fn walk(&self, value: &Value, place: &Place<'_>, hidden: &mut dyn FnMut(&Value)) -> Value {
        let is_pointed_to = place.pointers.iter().any(|rest| rest.is_empty());
        let is_shown = self.schemas.is_empty() || place.nodes.are_described();
        if is_pointed_to || place.nodes.are_sensitive() || !is_shown {
            hidden(value);
            return Value::from(HIDDEN);
        }
        match value {
            Value::Object(members) => self.walk_object(members, place, hidden),
            Value::Array(items) => {
                let items = items.iter().enumerate().map(|(index, item)| {
                    let inside = Place {
                        nodes: place.nodes.item(index),
                        pointers: steps(&place.pointers, &index.to_string()),
                    };
                    self.walk(item, &inside, hidden)
                });
                Value::Array(items.collect())
            }
            scalar => scalar.clone(),
        }
    }

    fn walk_object(
        &self,
        members: &Map<String, Value>,
        place: &Place<'_>,
        hidden: &mut dyn FnMut(&Value),
    ) -> Value {
        let mut shown = Map::new();
        let mut nameless = 0_u64;
        for (name, member) in members {
            let (nodes, described) = place.nodes.member(name);
            // Where no schema names it, its name may be data as well.
            if !self.schemas.is_empty() && described == Described::No {
                nameless += 1;
                hidden(&Value::from(name.as_str()));
                hidden(member);
                continue;
            }
            let inside = Place {
                nodes,
                pointers: steps(&place.pointers, name),
            };
            shown.insert(name.clone(), self.walk(member, &inside, hidden));
        }
        if nameless > 0 {
            shown.insert(HIDDEN.to_owned(), Value::from(nameless));
        }
        Value::Object(shown)
    }
}

/// What is left of pointers one step further.
fn steps<'m>(pointers: &[&'m [String]], name: &str) -> Vec<&'m [String]> {
    let further = pointers.iter().filter_map(|rest| {
        let (first, rest) = rest.split_first()?;
        (first == "*" || first == name).then_some(rest)
    });
    further.collect()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
