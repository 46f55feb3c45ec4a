use super::*;
use crate::envelope::{Envelope, Payload};
use crate::timestamp::Timestamp;

fn grouping(types: &[(&str, Priority)], tenants: Option<(&str, u8)>) -> Grouping {
    Grouping {
        types: types.iter().map(|(t, c)| ((*t).to_owned(), *c)).collect(),
        tenants: tenants.map(|(attribute, groups)| Tenants {
            attribute: attribute.to_owned(),
            groups,
        }),
    }
}

fn row(message_type: &str, tenant: Option<&str>) -> Row {
    let mut envelope = Envelope::new("1", "a", "k", message_type, Payload::Json("1".into()));
    if let Some(tenant) = tenant {
        let attribute = ("tenant".to_owned(), tenant.to_owned());
        envelope.attributes.extend([attribute]);
    }
    Row {
        xid: 1,
        seq: 1,
        slot: 0,
        recorded_at: Timestamp::from_micros(0),
        envelope,
        corrects: None,
    }
}

#[test]
fn where_nothing_is_declared_there_is_one_group() {
    let groups = Groups::new(&Grouping::of_types(["a", "b"]));
    assert_eq!(groups.count(), 1);
    assert_eq!(groups.of(&row("b", None)), Some(0));
    assert_eq!(groups.of(&row("c", None)), None);
}

#[test]
fn class_and_tenant_choose_the_group() {
    let types = [("a", Priority::Low), ("b", Priority::High)];
    let groups = Groups::new(&grouping(&types, Some(("tenant", 4))));
    assert_eq!(groups.count(), 8);
    let high = groups.of(&row("b", Some("acme"))).unwrap();
    let low = groups.of(&row("a", Some("acme"))).unwrap();
    assert!(high < 4 && low == high + 4, "{high} {low}");
    assert_eq!(groups.priorities()[low], Priority::Low);
    // Without the attribute it is one of the tenant with the empty name.
    assert_eq!(groups.of(&row("b", None)), groups.of(&row("b", Some(""))));
    let others = ["b", "c", "d", "e", "f"].map(|t| groups.of(&row("b", Some(t))));
    assert!(others.iter().any(|group| *group != Some(high)));
}

#[test]
fn a_name_says_all_that_a_group_takes() {
    let name = |types: &[(&str, Priority)], tenants, group| {
        Groups::new(&grouping(types, tenants))
            .name(group)
            .to_owned()
    };
    let (a, b) = (("a", Priority::High), ("b", Priority::Low));
    assert_eq!(name(&[b], None, 0), name(&[a, b], None, 1));
    assert_ne!(
        name(&[a, b], None, 0),
        name(&[a, ("b", Priority::High)], None, 0)
    );
    assert_ne!(name(&[a], None, 0), name(&[a], Some(("tenant", 1)), 0));
    assert_ne!(
        name(&[a], Some(("tenant", 4)), 0),
        name(&[a], Some(("tenant", 4)), 1)
    );
    assert_ne!(
        name(&[a], Some(("tenant", 4)), 1),
        name(&[a], Some(("tenant", 8)), 1)
    );
    assert_ne!(
        name(&[a], Some(("tenant", 4)), 1),
        name(&[a], Some(("customer", 4)), 1)
    );
    // Kept with positions: it never changes.
    assert_eq!(
        name(&[a], Some(("tenant", 4)), 1),
        "high.1.41892245c8a3ce00"
    );
}
