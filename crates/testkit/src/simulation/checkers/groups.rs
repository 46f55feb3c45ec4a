//! Classes and tenants, from the messages alone.

use onceward_core::Row;

use super::facts::Facts;
use crate::simulation::setup::Role;

/// What a message is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    Low,
    Normal,
    High,
}

impl Class {
    /// The word for it, here and in positions.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

/// The class of a message, by its type.
pub(super) fn class(row: &Row) -> Class {
    match row.envelope.message_type.as_str() {
        "order.rushed" => Class::High,
        "order.idled" => Class::Low,
        _ => Class::Normal,
    }
}

impl Facts {
    /// Whose messages a row's is one of, where a subscription tells tenants apart.
    pub(super) fn tenant<'r>(&self, role: Role, row: &'r Row) -> Option<&'r str> {
        let tenants = self.setup.tenants_of(role)?;
        let named = row.envelope.attributes.get(&tenants.attribute);
        Some(named.map_or("", String::as_str))
    }

    /// How the name of a row's group begins: its class, and the place of its tenant.
    pub(super) fn group(&self, role: Role, row: &Row) -> String {
        // A type has one class everywhere, once anybody has declared it.
        let mut roles = self.setup.roles.iter();
        let class = match role.types().len() > 1 && roles.any(|role| role.has_classes()) {
            true => class(row),
            false => Class::Normal,
        };
        let class = class.name();
        let shares = self.setup.tenants_of(role).map_or(1, |of| of.groups);
        let tenant = self.tenant(role, row).unwrap_or_default();
        // FNV-1a, folded to ten bits, as tenants are hashed for ever.
        let hash = tenant
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        let slot = (hash ^ hash >> 32) % 1024;
        let share = match self.tenant(role, row) {
            Some(_) => slot % u64::from(shares.max(1)),
            None => 0,
        };
        format!("{class}.{share}.")
    }
}
