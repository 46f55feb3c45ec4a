//! What a contract may say of lane groups.

use std::collections::BTreeMap;

use super::{Contract, ContractFault, FaultKind, Order, SubscriptionContract};
use crate::cloudevents::is_field;
use crate::group::{GROUPS_MAX, Priority};

impl Contract {
    /// One key has one group: nothing keeps order between two.
    pub(super) fn check_groups(
        &self,
        path: &str,
        s: &SubscriptionContract,
        faults: &mut Vec<ContractFault>,
    ) {
        let mut fault = |kind, setting: &str, message: String| {
            faults.push(ContractFault {
                kind,
                path: format!("{path}.{setting}"),
                message,
            });
        };
        if !(0.01..=0.99).contains(&s.catch_up_share) {
            let message = format!("{} is not between 0.01 and 0.99", s.catch_up_share);
            fault(FaultKind::OutOfRange, "catch_up_share", message);
        }
        let grouping = self.grouping_of(s);
        let classes = grouping.classes().len().max(1);
        if let Some(tenants) = &s.tenants {
            if let Err(problem) = check_attribute(&tenants.attribute) {
                fault(FaultKind::BadName, "tenants.attribute", problem);
            }
            let most = GROUPS_MAX / classes;
            if !(1..=most).contains(&usize::from(tenants.groups)) {
                let message = format!(
                    "{} is not between 1 and {most}: with {classes} priority class(es) that makes \
                     more than {GROUPS_MAX} lane groups",
                    tenants.groups
                );
                fault(FaultKind::OutOfRange, "tenants.groups", message);
            }
        }
        if s.order == Order::Key && classes > 1 {
            for (setting, message) in self.classes_that_meet(s) {
                fault(FaultKind::Contradiction, &setting, message);
            }
        }
    }

    /// Types of different classes that may be of one key.
    fn classes_that_meet(&self, s: &SubscriptionContract) -> Vec<(String, String)> {
        let mut class_of: BTreeMap<&str, (Priority, &str)> = BTreeMap::new();
        let mut problems = Vec::new();
        for (i, message_type) in s.types.iter().enumerate() {
            let Some(message) = self.messages.get(message_type) else {
                continue;
            };
            let setting = format!("messages[{i}]");
            let Some(aggregate) = &message.aggregate else {
                let text = format!(
                    "one key has one priority, and {message_type:?} is taken together with types \
                     of another one: declare its aggregate with the type"
                );
                problems.push((setting, text));
                continue;
            };
            let (class, first) = *class_of
                .entry(aggregate)
                .or_insert((message.priority, message_type));
            if class != message.priority {
                let text = format!(
                    "one key has one priority, but of the aggregate {aggregate:?} {first:?} is \
                     {} and {message_type:?} is {}",
                    class.as_str(),
                    message.priority.as_str()
                );
                problems.push((setting, text));
            }
        }
        problems
    }
}

/// Names of CloudEvents extension attributes: lower-case letters and digits. Those of the message's
/// own fields are not among its other attributes.
fn check_attribute(name: &str) -> Result<(), String> {
    let is_good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_good) {
        return Err(format!(
            "{name:?} is not the name of an extension attribute: 1 to 64 lower-case letters and \
             digits"
        ));
    }
    if is_field(name) {
        return Err(format!(
            "{name:?} is a field of the message and not one of its extension attributes"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{MessageContract, Semantics};
    use crate::group::Tenants;

    fn contract(types: &[(&str, Priority, Option<&str>)]) -> Contract {
        let mut contract = Contract::default();
        for (message_type, priority, aggregate) in types {
            let message = MessageContract {
                priority: *priority,
                aggregate: aggregate.map(str::to_owned),
                ..MessageContract::default()
            };
            contract
                .messages
                .insert((*message_type).to_owned(), message);
        }
        let names: Vec<&str> = types.iter().map(|(t, ..)| *t).collect();
        let s = SubscriptionContract::new("s", &names, Semantics::EffectOnce);
        contract.subscriptions.insert("s".into(), s);
        contract
    }

    fn subscription(contract: &mut Contract) -> &mut SubscriptionContract {
        contract.subscriptions.get_mut("s").unwrap()
    }

    fn paths(contract: &Contract) -> Vec<String> {
        contract.faults().into_iter().map(|f| f.path).collect()
    }

    #[test]
    fn one_aggregate_has_one_priority() {
        let (a, b) = (
            ("a", Priority::High, Some("x")),
            ("b", Priority::Low, Some("x")),
        );
        assert_eq!(paths(&contract(&[a, b])), ["subscription.s.messages[1]"]);
        let b = ("b", Priority::Low, Some("y"));
        assert_eq!(paths(&contract(&[a, b])), [""; 0]);
        let same = ("b", Priority::High, Some("x"));
        assert_eq!(paths(&contract(&[a, same])), [""; 0]);
    }

    #[test]
    fn types_of_different_priorities_say_their_aggregates() {
        let (a, b) = (("a", Priority::High, Some("x")), ("b", Priority::Low, None));
        assert_eq!(paths(&contract(&[a, b])), ["subscription.s.messages[1]"]);
        // Without order, and where all are of one priority, nothing can come before its time.
        let mut loose = contract(&[a, b]);
        subscription(&mut loose).order = Order::None;
        assert_eq!(paths(&loose), [""; 0]);
        let same = ("a", Priority::Low, None);
        assert_eq!(paths(&contract(&[same, b])), [""; 0]);
    }

    #[test]
    fn groups_are_few_and_their_attribute_is_one() {
        let tenants = |attribute: &str, groups| {
            let (a, b) = (
                ("a", Priority::High, Some("x")),
                ("b", Priority::Low, Some("y")),
            );
            let mut contract = contract(&[a, b]);
            subscription(&mut contract).tenants = Some(Tenants {
                attribute: attribute.to_owned(),
                groups,
            });
            paths(&contract)
        };
        assert_eq!(tenants("tenant", 16), [""; 0]);
        assert_eq!(tenants("tenant", 17), ["subscription.s.tenants.groups"]);
        assert_eq!(tenants("tenant", 0), ["subscription.s.tenants.groups"]);
        for bad in ["", "Tenant", "the-tenant", "subject"] {
            assert_eq!(
                tenants(bad, 4),
                ["subscription.s.tenants.attribute"],
                "{bad}"
            );
        }
    }

    #[test]
    fn both_of_what_is_new_and_what_comes_again_have_a_share() {
        for (share, is_good) in [(0.0, false), (0.01, true), (1.0, false), (f64::NAN, false)] {
            let mut contract = contract(&[("a", Priority::Normal, None)]);
            subscription(&mut contract).catch_up_share = share;
            assert_eq!(paths(&contract).is_empty(), is_good, "{share}");
        }
    }
}
