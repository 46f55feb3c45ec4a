use proptest::prelude::*;
use serde_json::json;

use super::*;

fn by_schema(schema: Value) -> Sensitivity {
    Sensitivity::of(vec![Arc::new(schema)], None)
}

fn by_pointers(pointers: &[&str]) -> Sensitivity {
    let pointers = pointers.iter().map(|text| text.parse().unwrap());
    Sensitivity::of(Vec::new(), Some(pointers.collect()))
}

fn text(value: &Value) -> Payload {
    Payload::Json(value.to_string().into())
}

#[test]
fn without_a_mark_nothing_is_shown() {
    let order = json!({ "city": "Ulm" });
    let unmarked = by_schema(json!({ "properties": { "city": { "type": "string" } } }));
    for sensitivity in [Sensitivity::default(), unmarked] {
        assert_eq!(sensitivity.redacted_value(&order), HIDDEN);
        assert_eq!(sensitivity.redacted(&text(&order)), None);
    }
    let binary = Payload::Binary(Box::from(*b"Ulm"));
    assert_eq!(
        by_pointers(&[]).redacted(&binary),
        None,
        "only JSON is shown"
    );
    assert_eq!(by_pointers(&[]).redacted(&text(&order)), Some(order));
}

#[test]
fn pointers_hide_what_they_point_to() {
    let order = json!({
        "customer": { "name": "Ada", "tier": 2 },
        "items": [{ "sku": "a", "card": 1 }, { "sku": "b", "card": 2 }],
        "a/b": { "~": "secret" },
    });
    let sensitivity = by_pointers(&["/customer/name", "/items/*/card", "/a~1b/~0", "/not/there"]);
    let expected = json!({
        "customer": { "name": HIDDEN, "tier": 2 },
        "items": [{ "sku": "a", "card": HIDDEN }, { "sku": "b", "card": HIDDEN }],
        "a/b": { "~": HIDDEN },
    });
    assert_eq!(sensitivity.redacted_value(&order), expected);
    assert_eq!(by_pointers(&[""]).redacted_value(&order), HIDDEN);
    for bad in ["customer", "/a~2", "/a~"] {
        assert!(bad.parse::<Pointer>().is_err(), "{bad}");
    }
    assert_eq!(
        "/a~1b/~0".parse::<Pointer>().unwrap().to_string(),
        "/a~1b/~0"
    );
}

#[test]
fn marks_of_a_schema_reach_nested_values_arrays_and_references() {
    let sensitivity = by_schema(json!({
        "$defs": {
            "card": { "$anchor": "card", "x-sensitive": true, "type": "string" },
            "party": { "properties": { "name": { "x-sensitive": true }, "tier": {} } },
            "tree": { "properties": { "leaf": { "$ref": "#card" },
                                      "next": { "$ref": "#/$defs/tree" } } },
        },
        "allOf": [{ "properties": { "buyer": { "$ref": "#/$defs/party" } } }],
        "properties": {
            "cards": { "items": { "$ref": "#/$defs/card" } },
            "pair": { "prefixItems": [{ "type": "string" }, { "x-sensitive": true }] },
            "tuple": { "items": [{ "type": "string" }, { "x-sensitive": true }] },
            "tree": { "$ref": "#/$defs/tree" },
            "either": { "oneOf": [{ "type": "string" }, { "x-sensitive": true }] },
            "elsewhere": { "$ref": "https://schemas.example/other.json" },
            "map": { "additionalProperties": { "type": "integer" } },
            "people": { "propertyNames": { "x-sensitive": true },
                        "additionalProperties": { "type": "integer" } },
        },
    }));
    let order = json!({
        "buyer": { "name": "Ada", "tier": 2 },
        "cards": ["4111", "5500"],
        "pair": ["a", "b", "c"],
        "tuple": ["a", "b"],
        "tree": { "leaf": "x", "next": { "leaf": "y", "next": {} } },
        "either": "z",
        "elsewhere": 1,
        "map": { "k": 1 },
        "people": { "ada@example.org": 1 },
        "unknown": "what nobody described",
    });
    let expected = json!({
        "buyer": { "name": HIDDEN, "tier": 2 },
        "cards": [HIDDEN, HIDDEN],
        "pair": ["a", HIDDEN, HIDDEN],
        "tuple": ["a", HIDDEN],
        "tree": { "leaf": HIDDEN, "next": { "leaf": HIDDEN, "next": {} } },
        "either": HIDDEN,
        "elsewhere": HIDDEN,
        "map": { "k": 1 },
        "people": { HIDDEN: 1 },
        HIDDEN: 1,
    });
    assert_eq!(sensitivity.redacted_value(&order), expected);
}

#[test]
fn versions_add_up() {
    let first = json!({ "properties": { "a": { "x-sensitive": true }, "b": {} } });
    let second = json!({ "properties": { "a": {}, "b": {}, "c": {} } });
    let both = Sensitivity::of(vec![Arc::new(first), Arc::new(second)], None);
    let shown = both.redacted_value(&json!({ "a": 1, "b": 2, "c": 3 }));
    assert_eq!(shown, json!({ "a": HIDDEN, "b": 2, "c": 3 }));
}

#[test]
fn references_that_turn_in_circles_end() {
    let schema = json!({ "x-sensitive": false, "$ref": "#/$defs/a",
        "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "anyOf": [{ "$ref": "#/$defs/a" }] } } });
    assert_eq!(by_schema(schema).redacted_value(&json!(1)), 1);
}

#[test]
fn differences_say_where_and_hide_what_is_sensitive() {
    let sensitivity = by_pointers(&["/card"]);
    let before = json!({ "card": "4111", "zip": 1, "tags": ["a", "b"], "old": {} });
    let after = json!({ "card": "5500", "zip": "1", "tags": ["a"], "new": [1] });
    let found = differences(&before, &after, &sensitivity);
    let shown: Vec<String> = found.iter().map(|d| json!(d).to_string()).collect();
    let expected = [
        json!({ "at": "/card", "change": "changed", "before": HIDDEN, "after": HIDDEN }),
        json!({ "at": "/old", "change": "removed", "before": {} }),
        json!({ "at": "/tags/1", "change": "removed", "before": "b" }),
        json!({ "at": "/zip", "change": "changed", "before": 1, "after": "1" }),
        json!({ "at": "/new", "change": "added", "after": [1] }),
    ];
    assert_eq!(shown, expected.map(|d| d.to_string()));
    assert!(differences(&before, &before, &sensitivity).is_empty());
    let whole = differences(&before, &after, &Sensitivity::All);
    assert_eq!(whole.len(), 1, "only that they differ: {whole:?}");
    assert_eq!(whole[0].at, "");
}

#[test]
fn where_something_changed_is_told_without_values_and_without_names_that_may_be_data() {
    let before = json!({ "card": "4111", "lines": [{ "sku": 1 }], "by": { "ada@example.org": 1 } });
    let after =
        json!({ "card": "5500", "lines": [{ "sku": 2 }, 7], "by": { "ada@example.org": 2 } });
    let at = changed_at(&before, &after);
    assert_eq!(at, ["/by", "/card", "/lines/0/sku", "/lines/1"]);
    let (number, other) = (
        json!({ "a": { "49151": 1 } }),
        json!({ "a": { "49151": 2 } }),
    );
    assert_eq!(changed_at(&number, &other), ["/a"]);
    assert_eq!(changed_at(&json!(1), &json!("1")), [""]);
    assert!(changed_at(&before, &before).is_empty());
}

#[test]
fn what_nobody_described_differs_without_its_name() {
    let sensitivity = by_schema(json!({ "properties": { "a": { "x-sensitive": false } } }));
    let before = json!({ "a": 1, "4111": 1 });
    let after = json!({ "a": 1, "4111": 2 });
    let found = differences(&before, &after, &sensitivity);
    assert_eq!(found.len(), 1);
    assert!(!json!(found).to_string().contains("4111"), "{found:?}");
}

#[test]
fn hidden_values_are_taken_out_of_texts() {
    let payload = text(&json!({
        "name": "Ada \"L\" Byron", "city": "Ulm", "card": 4111_2222, "id": "ord-731",
        "lines": ["first\nsecond"], "ada@example.org": true,
    }));
    let error = "no card 41112222 of Ada \"L\" Byron (\"Ada \\\"L\\\" Byron\") in Ulm for ord-731: \
                 first\\nsecond, ada@example.org";
    let scrubbed = Sensitivity::All.scrubbed(error, &payload, &["ord-731"]);
    assert_eq!(
        scrubbed,
        "no card <hidden> of <hidden> (\"<hidden>\") in Ulm for ord-731: <hidden>, <hidden>"
    );
    let marked = by_pointers(&["/card"]).scrubbed(error, &payload, &[]);
    assert!(
        marked.contains("Byron") && !marked.contains("4111"),
        "{marked}"
    );
    let inside = text(&json!({ "all": "41112222", "part": "4111" }));
    assert_eq!(
        Sensitivity::All.scrubbed("no 41112222", &inside, &[]),
        "no <hidden>"
    );
    let binary = Payload::Binary(Box::from(*b"card=41112222;x"));
    let scrubbed = Sensitivity::All.scrubbed("bad 41112222", &binary, &[]);
    assert_eq!(scrubbed, "bad <hidden>");
    let many: Vec<String> = (0..5_000).map(|i| format!("value-{i}")).collect();
    let scrubbed = Sensitivity::All.scrubbed("value-4999 is wrong", &text(&json!(many)), &[]);
    assert_eq!(scrubbed, HIDDEN);
}

/// Any JSON, with members a to d, so that schemas and pointers meet it.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (10_000_u32..).prop_map(Value::from),
        "[a-z]{6,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-d]", inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Any schema over the same members, some of it marked.
fn any_schema() -> impl Strategy<Value = Value> {
    let mark = prop_oneof![Just(json!({})), Just(json!({ "x-sensitive": true }))];
    mark.prop_recursive(4, 30, 4, |inner| {
        let members = prop::collection::btree_map("[a-d]", inner.clone(), 0..4);
        prop_oneof![
            members.prop_map(|members| json!({ "properties": members })),
            inner.clone().prop_map(|item| json!({ "items": item })),
            inner
                .clone()
                .prop_map(|other| json!({ "additionalProperties": other })),
            prop::collection::vec(inner, 1..3).prop_map(|all| json!({ "anyOf": all })),
        ]
    })
}

/// The values that a schema marks, found in another way: each place of the value by itself.
fn marked(value: &Value, schemas: &[&Value], found: &mut Vec<Value>) {
    let mut all: Vec<&Value> = schemas.to_vec();
    let mut next = 0;
    while next < all.len() {
        if let Some(more) = all[next]["anyOf"].as_array() {
            all.extend(more);
        }
        next += 1;
    }
    if all.iter().any(|schema| schema["x-sensitive"] == true) {
        found.push(value.clone());
    }
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let inside = all.iter().filter_map(|schema| {
                    let named = schema["properties"].get(name);
                    named.or_else(|| schema.get("additionalProperties"))
                });
                marked(member, &inside.collect::<Vec<_>>(), found);
            }
        }
        Value::Array(items) => {
            let inside: Vec<&Value> = all
                .iter()
                .filter_map(|schema| schema.get("items"))
                .collect();
            items.iter().for_each(|item| marked(item, &inside, found));
        }
        _ => {}
    }
}

proptest! {
    #[test]
    fn nothing_marked_is_shown_or_told(value in any_value(), schema in any_schema()) {
        let mut sensitive = Vec::new();
        marked(&value, &[&schema], &mut sensitive);
        let mut leaves = Vec::new();
        for part in &sensitive {
            each_leaf(part, &mut |leaf| leaves.push(leaf.clone()));
        }
        let sensitivity = by_schema(json!({ "allOf": [schema, { "x-sensitive": false }] }));
        let shown = sensitivity.redacted_value(&value);
        let error = format!("what was sent: {value}");
        let told = sensitivity.scrubbed(&error, &text(&value), &[]);
        let other = differences(&value, &json!({ "a": 1 }), &sensitivity);
        for leaf in leaves.iter().filter(|leaf| leaf.is_string() || leaf.is_number()) {
            // Only where it stands in no other place, which may be shown.
            let needle = leaf.to_string();
            if value.to_string().matches(&needle).count() > 1 {
                continue;
            }
            prop_assert!(!shown.to_string().contains(&needle), "{shown} shows {needle}");
            prop_assert!(!told.contains(needle.trim_matches('"')), "{told} tells {needle}");
            prop_assert!(!json!(other).to_string().contains(&needle), "{other:?} tells {needle}");
        }
    }

    #[test]
    fn pointers_are_written_as_they_are_read(steps in prop::collection::vec(".{0,4}", 0..4)) {
        let written: String = steps.iter().map(|s| format!("/{}", pointer::escaped(s))).collect();
        let pointer: Pointer = written.parse().unwrap();
        prop_assert_eq!(pointer.steps(), steps.as_slice());
        prop_assert_eq!(pointer.to_string(), written);
    }
}
