//! Where messages come from, as far as a contract may say.

use std::collections::{BTreeMap, BTreeSet};

use super::{Contract, ContractFault, FaultKind, OUTBOX, SubscriptionContract};

impl SubscriptionContract {
    /// The brokers among its sources.
    pub fn brokers(&self) -> impl Iterator<Item = &str> {
        let sources = self.sources.iter().map(String::as_str);
        sources.filter(|source| *source != OUTBOX)
    }
}

impl Contract {
    /// The types that are taken from a source.
    #[must_use]
    pub fn types_from(&self, source: &str) -> BTreeSet<&str> {
        let subscriptions = self.subscriptions.values();
        let from = subscriptions.filter(|s| s.sources.iter().any(|one| one == source));
        from.flat_map(|s| s.types.iter().map(String::as_str))
            .collect()
    }

    /// A broker's messages are kept in the same log as one's own, by their type. Were a type taken
    /// from the outbox here and from a broker there, then a relay would publish what came from its
    /// own broker, for ever.
    pub(super) fn check_sources(&self, faults: &mut Vec<ContractFault>) {
        let mut first_of: BTreeMap<&str, (&str, BTreeSet<&str>)> = BTreeMap::new();
        for s in self.subscriptions.values() {
            let path = format!("subscription.{}.source", s.name);
            let mut fault = |message: String| {
                faults.push(ContractFault {
                    kind: FaultKind::Contradiction,
                    path: path.clone(),
                    message,
                });
            };
            if s.sources.is_empty() {
                fault("name where the messages come from".to_owned());
                continue;
            }
            let sources: BTreeSet<&str> = s.sources.iter().map(String::as_str).collect();
            for message_type in &s.types {
                let first = first_of.entry(message_type);
                let (other, theirs) = first.or_insert_with(|| (&s.name, sources.clone()));
                if *theirs != sources {
                    fault(format!(
                        "{message_type:?} comes from {} here and from {} in subscription \
                         {other:?}: all subscriptions of a type take it from the same sources",
                        list(&sources),
                        list(theirs),
                    ));
                }
            }
        }
    }
}

fn list(sources: &BTreeSet<&str>) -> String {
    let quoted = sources.iter().map(|source| format!("{source:?}"));
    quoted.collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{MessageContract, Semantics};

    fn contract(subscriptions: [(&str, &[&str]); 2]) -> Contract {
        let mut contract = Contract::default();
        let declared = MessageContract::default();
        contract.messages.insert("order.accepted".into(), declared);
        for (name, sources) in subscriptions {
            let types = ["order.accepted"];
            let mut s = SubscriptionContract::new(name, &types, Semantics::AtLeastOnce);
            s.sources = sources.iter().map(|s| (*s).to_owned()).collect();
            contract.subscriptions.insert(name.to_owned(), s);
        }
        contract
    }

    #[test]
    fn a_type_comes_from_the_same_sources_everywhere() {
        let same = contract([("a", &["orders", OUTBOX]), ("b", &[OUTBOX, "orders"])]);
        assert_eq!(same.faults(), []);
        let types: Vec<&str> = same.types_from("orders").into_iter().collect();
        assert_eq!(types, ["order.accepted"]);
        assert!(same.types_from("others").is_empty());
        let brokers: Vec<&str> = same.subscriptions["b"].brokers().collect();
        assert_eq!(brokers, ["orders"]);
    }

    #[test]
    fn what_comes_from_a_broker_is_not_relayed_to_it() {
        let looping = contract([("billing", &["orders"]), ("to-broker", &[OUTBOX])]);
        let faults = looping.faults();
        assert_eq!(faults.len(), 1, "{faults:?}");
        let text = faults[0].to_string();
        let wanted = "subscription.to-broker.source: \"order.accepted\" comes from \"outbox\" here";
        assert!(text.starts_with(wanted), "{text}");
        assert!(
            text.contains("\"orders\" in subscription \"billing\""),
            "{text}"
        );
    }

    #[test]
    fn there_is_a_source() {
        let none = contract([("a", &[]), ("b", &[OUTBOX])]);
        let faults = none.faults();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(faults[0].path, "subscription.a.source");
    }
}
