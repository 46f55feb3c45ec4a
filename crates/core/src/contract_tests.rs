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

#[test]
fn only_the_latest_of_what_may_be_left_out_is_merged() {
    let merging = |kind, change: fn(&mut SubscriptionContract)| {
        let mut contract = contract(kind, &["a"]);
        let s = contract.subscriptions.get_mut("a").unwrap();
        s.merge = Merge::Latest;
        change(s);
        contract.faults()
    };
    assert_eq!(merging(Kind::Event, |_| {}), []);
    let contradictions = [
        merging(Kind::Command, |_| {}),
        merging(Kind::Event, |s| s.versions = Some(VersionPolicy::default())),
        merging(Kind::Event, |s| s.order = Order::None),
        merging(Kind::Event, |s| s.identity = Some(Identity::Operation)),
    ];
    for faults in contradictions {
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(faults[0].kind, FaultKind::Contradiction);
        assert_eq!(faults[0].path, "subscription.a.merge");
    }
}

#[test]
fn what_is_shed_is_taken_and_has_a_time() {
    let shedding = |types: &[&str], after_ms| {
        let mut contract = contract(Kind::Event, &["a"]);
        let types = types.iter().map(|t| (*t).to_owned()).collect();
        contract.subscriptions.get_mut("a").unwrap().shed = Some(Shed { types, after_ms });
        let faults = contract.faults().into_iter();
        faults.map(|f| (f.kind, f.path)).collect::<Vec<_>>()
    };
    let path = |setting: &str| format!("subscription.a.shed.{setting}");
    assert_eq!(shedding(&["order.ship"], 1), []);
    assert_eq!(shedding(&[], 1), [(FaultKind::BadTypes, path("types"))]);
    assert_eq!(
        shedding(&["order.ship", "x", "order.ship"], 0),
        [
            (FaultKind::UnknownType, path("types[1]")),
            (FaultKind::BadTypes, path("types[2]")),
            (FaultKind::OutOfRange, path("after_ms")),
        ]
    );
}

#[test]
fn refusing_needs_a_promise() {
    let mut contract = contract(Kind::Event, &["a"]);
    let message = contract.messages.get_mut("order.ship").unwrap();
    message.throttle = Throttle::Refuse;
    let faults = contract.faults();
    assert_eq!(faults[0].kind, FaultKind::Contradiction);
    assert_eq!(faults[0].path, "message.\"order.ship\".throttle");
    let message = contract.messages.get_mut("order.ship").unwrap();
    message.promise.start_within_ms = Some(1_000);
    assert_eq!(contract.faults(), []);
}
