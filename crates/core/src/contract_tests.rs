use super::*;

fn contract(kind: Kind, takers: &[&str]) -> Contract {
    let mut contract = Contract::default();
    contract.messages.insert(
        "order.ship".into(),
        MessageContract {
            kind,
            ..MessageContract::default()
        },
    );
    for taker in takers {
        let s = SubscriptionContract::new(*taker, &["order.ship"], Semantics::EffectOnce);
        contract.subscriptions.insert((*taker).into(), s);
    }
    contract
}

fn kinds(contract: &Contract) -> Vec<FaultKind> {
    contract.faults().into_iter().map(|f| f.kind).collect()
}

#[test]
fn a_command_has_exactly_one_owner() {
    assert_eq!(kinds(&contract(Kind::Command, &["a"])), []);
    assert_eq!(
        kinds(&contract(Kind::Command, &["a", "b"])),
        [FaultKind::TwoOwners]
    );
    assert_eq!(kinds(&contract(Kind::Command, &[])), [FaultKind::NoOwner]);
    assert_eq!(kinds(&contract(Kind::Event, &["a", "b"])), []);
    let mut twice = contract(Kind::Command, &["a"]);
    let owner = twice.subscriptions.get_mut("a").unwrap();
    owner.types.push("order.ship".into());
    assert_eq!(kinds(&twice), [FaultKind::BadTypes]);
}

#[test]
fn faults_carry_their_path() {
    let mut contract = contract(Kind::Event, &["a"]);
    let s = contract.subscriptions.get_mut("a").unwrap();
    s.types.push("order.lost".into());
    s.lanes = 0;
    let faults = contract.faults();
    assert_eq!(faults[0].path, "subscription.a.messages[1]");
    assert_eq!(faults[0].kind, FaultKind::UnknownType);
    assert_eq!(faults[1].path, "subscription.a.lanes");
}

#[test]
fn defaults_follow_the_kind() {
    let commands = contract(Kind::Command, &["a"]);
    let s = &commands.subscriptions["a"];
    assert_eq!(commands.identity_of(s), Identity::Operation);
    assert_eq!(commands.on_poison_of(s), OnPoison::HoldKey);
    let events = contract(Kind::Event, &["a"]);
    let s = &events.subscriptions["a"];
    assert_eq!(events.identity_of(s), Identity::Message);
    assert_eq!(events.on_poison_of(s), OnPoison::Skip);
}
