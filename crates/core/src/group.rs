//! Lane groups: what of a subscription's messages goes on by itself, by business value and tenant.
//!
//! A group is a class and a share of the tenants. Each reads the log at its own pace, so that what
//! waits in one hides nothing of another, however much it is. Keys stay in order because one key has
//! one group.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::envelope::Row;
use crate::failure::Failure;
use crate::lane::{fnv1a, slot_of};

/// Most groups of one subscription. Each reads the log by itself where they are not together, and
/// looks at every row.
pub const GROUPS_MAX: usize = 32;

/// Code of a message whose key is one of another group.
pub const GROUP_CONFLICT: &str = "group_conflict";

/// Why a message is refused whose key is one of another group: nothing would keep it in order.
#[must_use]
pub fn conflict() -> Failure {
    Failure::permanent(
        GROUP_CONFLICT,
        "other messages of its key have another priority or tenant, and one key has one of each",
    )
}

/// The business value of a message type.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// Somebody waits for it.
    High,
    /// Most of it.
    #[default]
    Normal,
    /// May wait for as long as there is other work, but not for ever.
    Low,
}

impl Priority {
    /// All of them, the highest first.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// The name used in settings and positions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    /// Its share of what is started, relative to the others that have work. Steps of two and four:
    /// each class is plainly before the next, and of thirteen starts one is left for the lowest.
    #[must_use]
    pub const fn weight(self) -> u32 {
        match self {
            Self::High => 8,
            Self::Normal => 4,
            Self::Low => 1,
        }
    }
}

/// Whose messages they are, and into how many groups that is divided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenants {
    /// The CloudEvents extension attribute that names the tenant. A message without it is one of
    /// the tenant with the empty name.
    pub attribute: String,
    /// Groups of each class. Tenants whose names fall into one group share its window.
    pub groups: u8,
}

impl Tenants {
    /// The tenant of a message.
    #[must_use]
    pub fn of<'e>(&self, attributes: &'e BTreeMap<String, String>) -> &'e str {
        attributes.get(&self.attribute).map_or("", String::as_str)
    }

    /// The place of a tenant among the groups of a class.
    fn place(&self, tenant: &str) -> usize {
        usize::from(slot_of(tenant)) % usize::from(self.groups.max(1))
    }
}

/// By what a subscription's messages are divided.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Grouping {
    /// The types it takes, by class.
    pub types: BTreeMap<String, Priority>,
    /// Whose messages they are, where that matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<Tenants>,
}

impl Grouping {
    /// Types of no particular value, of nobody in particular.
    #[must_use]
    pub fn of_types<'t>(types: impl IntoIterator<Item = &'t str>) -> Self {
        let types = types.into_iter().map(|t| (t.to_owned(), Priority::Normal));
        Self {
            types: types.collect(),
            tenants: None,
        }
    }

    /// Classes that it has, the highest first.
    #[must_use]
    pub fn classes(&self) -> BTreeSet<Priority> {
        self.types.values().copied().collect()
    }

    /// How many groups that makes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.classes().len()
            * self
                .tenants
                .as_ref()
                .map_or(1, |t| usize::from(t.groups.max(1)))
    }
}

/// The groups of one subscription, by number.
#[derive(Clone, Debug)]
pub struct Groups {
    /// The first group of each type's class.
    first_of: BTreeMap<String, usize>,
    tenants: Option<Tenants>,
    names: Vec<String>,
    priorities: Vec<Priority>,
}

impl Groups {
    /// Numbers them: by class, the highest first, and there by tenants.
    #[must_use]
    pub fn new(grouping: &Grouping) -> Self {
        let mut groups = Self {
            first_of: BTreeMap::new(),
            tenants: grouping.tenants.clone(),
            names: Vec::new(),
            priorities: Vec::new(),
        };
        // Whoever takes nothing has a group of nothing.
        let no_class = grouping.types.is_empty().then_some(Priority::Normal);
        for class in grouping.classes().into_iter().chain(no_class) {
            let of_class = grouping.types.iter().filter(|(_, c)| **c == class);
            let types: Vec<&str> = of_class.map(|(t, _)| t.as_str()).collect();
            let first = groups.names.len();
            let first_of = types.iter().map(|t| ((*t).to_owned(), first));
            groups.first_of.extend(first_of);
            let shares = grouping.tenants.as_ref().map_or(1, |t| t.groups.max(1));
            for share in 0..shares {
                groups
                    .names
                    .push(name_of(class, &types, &groups.tenants, share));
                groups.priorities.push(class);
            }
        }
        groups
    }

    /// The group of a row, if it is of a type that is taken.
    #[must_use]
    pub fn of(&self, row: &Row) -> Option<usize> {
        self.of_message(&row.envelope.message_type, &row.envelope.attributes)
    }

    /// The same from the parts of a message that decide.
    #[must_use]
    pub fn of_message(
        &self,
        message_type: &str,
        attributes: &BTreeMap<String, String>,
    ) -> Option<usize> {
        let tenant = self.tenants.as_ref().map_or("", |t| t.of(attributes));
        self.of_tenant(message_type, tenant)
    }

    /// The same of a tenant; which one it is says nothing where they are not told apart.
    #[must_use]
    pub fn of_tenant(&self, message_type: &str, tenant: &str) -> Option<usize> {
        let first = *self.first_of.get(message_type)?;
        let place = self.tenants.as_ref().map_or(0, |t| t.place(tenant));
        Some(first + place)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// By what tenants are told apart, where they are.
    #[must_use]
    pub const fn tenants(&self) -> Option<&Tenants> {
        self.tenants.as_ref()
    }

    /// Their classes, by number.
    #[must_use]
    pub fn priorities(&self) -> &[Priority] {
        &self.priorities
    }

    /// Their names, by number.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Which of the tenants' groups of its class a group is, where tenants are told apart.
    #[must_use]
    pub fn share(&self, group: usize) -> Option<usize> {
        self.tenants.as_ref()?;
        let class = self.priorities[group];
        let first = self.priorities.iter().position(|other| *other == class)?;
        Some(group - first)
    }

    /// The types of a group's class.
    pub fn types(&self, group: usize) -> impl Iterator<Item = &str> {
        let first = group - self.share(group).unwrap_or(0);
        let of_class = self.first_of.iter().filter(move |(_, of)| **of == first);
        of_class.map(|(message_type, _)| message_type.as_str())
    }

    /// What a group is called in a position. The name says all that it takes: groups of one name
    /// take the same messages, whatever else was declared otherwise.
    #[must_use]
    pub fn name(&self, group: usize) -> &str {
        &self.names[group]
    }
}

/// `low.3.9ae16a3b2f90404f`: class, place among the tenants' groups, and a hash of everything that
/// decides what falls into it. It is kept with positions and must never change.
fn name_of(class: Priority, types: &[&str], tenants: &Option<Tenants>, share: u8) -> String {
    let mut takes = types.join(" ");
    if let Some(Tenants { attribute, groups }) = tenants {
        // A blank is in no name.
        takes.push_str(&format!("  {attribute} {groups}"));
    }
    format!(
        "{}.{share}.{:016x}",
        class.as_str(),
        fnv1a(takes.as_bytes())
    )
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
