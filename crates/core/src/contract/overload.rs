//! What may be declared of merging, shedding and refusing.

use super::{Contract, ContractFault, FaultKind, Order, SubscriptionContract};
use crate::ledger::Identity;
use crate::merge::Merge;
use crate::throttle::{Throttle, promised_ms};

/// Longest wait before work is given up: 30 days.
const SHED_AFTER_MS_MAX: u64 = 30 * 86_400_000;

impl Contract {
    /// Only where the latest message says all that the earlier ones did.
    pub(super) fn check_merge(
        &self,
        path: &str,
        s: &SubscriptionContract,
        faults: &mut Vec<ContractFault>,
    ) {
        if s.merge == Merge::None {
            return;
        }
        let mut fault = |message: &str| {
            faults.push(ContractFault {
                kind: FaultKind::Contradiction,
                path: format!("{path}.merge"),
                message: message.to_owned(),
            });
        };
        if self.takes_commands(s) {
            fault(
                "each command is something that somebody asked for and waits for: none takes the \
                 place of another",
            );
        }
        if s.versions.is_some() {
            fault(
                "versions = \"check\" applies the versions of an aggregate one by one, and what is \
                 merged would be missing",
            );
        }
        if s.order == Order::None {
            fault("order = \"none\" does not say which message of a key is the latest");
        }
        if self.identity_of(s) == Identity::Operation && !self.takes_commands(s) {
            fault(
                "identity = \"operation\" makes two messages of one operation one effect, whichever \
                 comes first: the latest might be none",
            );
        }
    }

    /// Nothing can be measured without a promise.
    pub(super) fn check_throttles(&self, faults: &mut Vec<ContractFault>) {
        for (name, message) in &self.messages {
            if message.throttle == Throttle::Refuse && promised_ms(&message.promise).is_none() {
                faults.push(ContractFault {
                    kind: FaultKind::Contradiction,
                    path: format!("message.{name:?}.throttle"),
                    message: "refuses what would break the promise, and there is none: set \
                              finish_within or start_within in its promise"
                        .to_owned(),
                });
            }
        }
    }
}

pub(super) fn check_shed(path: &str, s: &SubscriptionContract, faults: &mut Vec<ContractFault>) {
    let Some(shed) = &s.shed else {
        return;
    };
    let mut fault = |kind, setting: &str, message: String| {
        faults.push(ContractFault {
            kind,
            path: format!("{path}.shed.{setting}"),
            message,
        });
    };
    if shed.types.is_empty() {
        let message = "name at least one message type".to_owned();
        fault(FaultKind::BadTypes, "types", message);
    }
    for (i, message_type) in shed.types.iter().enumerate() {
        let setting = format!("types[{i}]");
        if !s.types.contains(message_type) {
            let message = format!("{message_type:?} is not taken by this subscription");
            fault(FaultKind::UnknownType, &setting, message);
        }
        if shed.types[..i].contains(message_type) {
            let message = format!("{message_type:?} is named twice");
            fault(FaultKind::BadTypes, &setting, message);
        }
    }
    if !(1..=SHED_AFTER_MS_MAX).contains(&shed.after_ms) {
        let message = format!("{} is not between 1 and {SHED_AFTER_MS_MAX}", shed.after_ms);
        fault(FaultKind::OutOfRange, "after_ms", message);
    }
}
