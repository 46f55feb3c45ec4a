use quote::quote;

use super::*;

/// The tokens of an expansion, blanks normalised.
fn expanded(input: TokenStream) -> String {
    expand(input).unwrap().to_string()
}

fn refusal(input: TokenStream) -> String {
    expand(input).unwrap_err().to_string()
}

#[test]
fn the_short_form_has_defaults() {
    let code = expanded(quote! {
        #[message(type = "order.accepted", key = order_id)]
        struct OrderAccepted { order_id: String }
    });
    assert!(
        code.contains(":: onceward :: core :: Message for OrderAccepted"),
        "{code}"
    );
    assert!(
        code.contains("const TYPE : & 'static str = \"order.accepted\""),
        "{code}"
    );
    assert!(code.contains("const VERSION : i32 = 1i32"), "{code}");
    assert!(
        code.contains("const AGGREGATE_TYPE : & 'static str = \"order\""),
        "{code}"
    );
    assert!(!code.contains("fn operation"), "{code}");
}

#[test]
fn every_setting_reaches_the_code() {
    let code = expanded(quote! {
        #[message(
            type = "order.accepted", version = 3, key = order.id, operation = checkout_id,
            partition_key = tenant, aggregate_version = revision, aggregate = "purchase",
            crate = "onceward_core",
        )]
        struct OrderAccepted<T> where T: Clone { order: Order<T>, checkout_id: u64, tenant: u32, revision: u32 }
    });
    for part in [
        "impl < T > onceward_core :: Message for OrderAccepted < T > where T : Clone",
        "const VERSION : i32 = 3i32",
        "\"purchase\"",
        "to_string (& self . order . id)",
        "to_string (& self . checkout_id)",
        "to_string (& self . tenant)",
        "From < _ >> :: from (self . revision)",
    ] {
        assert!(code.contains(part), "{part} is not in {code}");
    }
}

#[test]
fn what_is_missing_or_wrong_is_said() {
    let cases = [
        (quote! { struct M { id: String } }, "write #[message(type"),
        (
            quote! { #[message(key = id)] struct M { id: String } },
            "type = \"...\" is missing",
        ),
        (
            quote! { #[message(type = "a.b")] struct M { id: String } },
            "key = field (messages of one key keep their order) is missing",
        ),
        (
            quote! { #[message(type = "a.b", key = ID)] struct M { id: String } },
            "the struct has no field ID",
        ),
        (
            quote! { #[message(type = "a.b", key = id, key = id)] struct M { id: String } },
            "key is given twice",
        ),
        (
            quote! { #[message(type = "a.b", kee = id)] struct M { id: String } },
            "kee is not a setting: use type",
        ),
        (
            quote! { #[message(type = "a b", key = id)] struct M { id: String } },
            "not a name",
        ),
        (
            quote! { #[message(type = "a.b", version = 0, key = id)] struct M { id: String } },
            "versions count from 1",
        ),
        (
            quote! { #[message(type = "a.b", key = id)] enum M { A } },
            "structs with named fields",
        ),
        (
            quote! { #[message(type = "a.b")] #[message(key = id)] struct M { id: String } },
            "given twice",
        ),
    ];
    for (input, wanted) in cases {
        let shown = input.to_string();
        let text = refusal(input);
        assert!(text.contains(wanted), "{shown}: {text}");
    }
}
