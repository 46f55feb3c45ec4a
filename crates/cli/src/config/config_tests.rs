use onceward_core::contract::{OnPoison, Order, Semantics};
use onceward_core::group::{Priority, Tenants};
use onceward_core::merge::Merge;
use onceward_core::shed::Shed;
use onceward_core::store::Start;
use onceward_core::throttle::Throttle;
use onceward_core::{Identity, KeyField};

use super::*;

const GOOD: &str = r#"
[store]
url = "sqlite:orders.db"

[message."order.ship"]
kind = "command"
key = "partitionkey"
promise = { finish_within = "2m", useful_for_ms = 86400000 }

[message."order.accepted"]

[subscription.fulfilment]
messages = ["order.ship"]

[subscription.hook]
messages = ["order.accepted"]
push = { url = "http://127.0.0.1:9000/hook", timeout = "3s" }
order = "none"
identity = "operation"
start = 2026-01-31T09:00:00Z
retry = { base_ms = 50, cap = "1m", factor = 3, attempts_max = 4 }
"#;

#[test]
fn priorities_and_tenants_are_read_and_checked() {
    let text = GOOD.replace(
        "[message.\"order.accepted\"]\n",
        "[message.\"order.accepted\"]\npriority = \"low\"\n",
    );
    let text = text.replace(
        "order = \"none\"",
        "order = \"none\"\ntenants = { attribute = \"customer\" }\ncatch_up_share = 0.25",
    );
    let config = parse(&text).unwrap();
    let message = &config.contract.messages["order.accepted"];
    assert_eq!(message.priority, Priority::Low);
    let hook = &config.contract.subscriptions["hook"];
    let tenants = Tenants {
        attribute: "customer".to_owned(),
        groups: 8,
    };
    assert_eq!(hook.tenants, Some(tenants));
    assert!((hook.catch_up_share - 0.25).abs() < f64::EPSILON);
    let place = "customer\" }";
    let many = text.replace(place, "customer\", groups = 40 }");
    let at = |text: &str, part: &str| {
        let line = text.lines().position(|line| line.starts_with(part));
        format!("{}:", line.unwrap() + 1)
    };
    let start = at(&many, "tenants");
    one_fault(&many, &start, "not between 1 and 32", "OW1014");
    let nameless = text.replace("attribute = \"customer\"", "groups = 4");
    let start = at(&nameless, "tenants");
    one_fault(&nameless, &start, "attribute", "OW1013");
}

fn parse(text: &str) -> Result<Config, Vec<Fault>> {
    Config::parse(Path::new("shop/onceward.toml"), text)
}

/// The faults of a text as they are shown, the file's name left out.
fn faults(text: &str) -> Vec<String> {
    let faults = parse(text).expect_err("the text has faults");
    let shown = faults.iter().map(ToString::to_string);
    shown
        .map(|fault| fault.replace("shop/onceward.toml:", ""))
        .collect()
}

/// The good text with `from` replaced, which must be there.
fn with(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    GOOD.replace(from, to)
}

/// Asserts that a text has one fault, which starts and ends as given.
fn one_fault(text: &str, start: &str, part: &str, code: &str) {
    let faults = faults(text);
    assert_eq!(faults.len(), 1, "{faults:#?}");
    let fault = &faults[0];
    assert!(
        fault.starts_with(start),
        "{fault} does not start with {start}"
    );
    assert!(fault.contains(part), "{fault} does not say {part}");
    assert!(
        fault.ends_with(&format!("[{code}]")),
        "{fault} is not {code}"
    );
}

#[test]
fn a_good_file_is_read_whole() {
    let config = parse(GOOD).unwrap();
    let store = StoreUrl::Plain("sqlite://shop/orders.db".into());
    assert_eq!(config.store.url, store);
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:8455");
    let ship = &config.contract.messages["order.ship"];
    assert_eq!(ship.key, KeyField::PartitionKey);
    assert_eq!(ship.promise.finish_within_ms, Some(120_000));
    assert_eq!(ship.promise.useful_for_ms, Some(86_400_000));
    let fulfilment = &config.contract.subscriptions["fulfilment"];
    assert_eq!(fulfilment.semantics, Semantics::EffectOnce);
    assert_eq!(config.contract.on_poison_of(fulfilment), OnPoison::HoldKey);
    let hook = &config.contract.subscriptions["hook"];
    assert_eq!(hook.semantics, Semantics::AtLeastOnce);
    assert_eq!(
        (hook.order, hook.identity),
        (Order::None, Some(Identity::Operation))
    );
    assert_eq!(
        hook.start,
        Some(Start::At("2026-01-31T09:00:00Z".parse().unwrap()))
    );
    assert_eq!((hook.retry.base_ms, hook.retry.cap_ms), (50, 60_000));
    assert_eq!((hook.retry.factor, hook.retry.attempts_max), (3.0, 4));
    assert_eq!(config.pushes.len(), 1);
    let push = &config.pushes["hook"];
    assert_eq!(push.timeout_ms, 3_000);
    let made = SecretSource::Made("shop/.onceward/push-hook.secret".into());
    assert_eq!(push.secret, made);
}

#[test]
fn the_reference_file_in_the_docs_is_good_and_shows_every_section() {
    let text = include_str!("../../../../docs/reference/onceward.toml");
    let config = Config::parse(Path::new("onceward.toml"), text);
    let config = config.unwrap_or_else(|faults| panic!("{faults:#?}"));
    assert!(!config.tokens.is_empty() && !config.pushes.is_empty());
    assert!(config.contract.subscriptions.len() > config.pushes.len());
}

#[test]
fn unknown_keys_are_refused_with_the_nearest() {
    let text = with("order = \"none\"", "ordr = \"none\"");
    one_fault(
        &text,
        "18:1:",
        "no setting is called \"ordr\" in [subscription.hook]; did you mean \"order\"?",
        "OW1011",
    );
    let text = with("base_ms = 50", "bas_ms = 50");
    one_fault(&text, "21:11:", "did you mean \"base_ms\"?", "OW1011");
    let text = with("[store]", "[stor]\n[store]");
    one_fault(
        &text,
        "2:2:",
        "at the top of the file; did you mean \"store\"?",
        "OW1011",
    );
    let text = with("order = \"none\"", "xyzzyxyzzy = 1");
    let shown = faults(&text);
    assert!(!shown[0].contains("did you mean"), "{shown:?}");
}

#[test]
fn wrong_types_and_words_are_refused_where_they_stand() {
    let text = with("\"sqlite:orders.db\"", "7");
    one_fault(
        &text,
        "3:7:",
        "url must be a string, but this is a whole number",
        "OW1012",
    );
    let text = with("\"command\"", "\"comand\"");
    // Not a command any more, so nothing else is wrong.
    one_fault(&text, "6:8:", "did you mean \"command\"?", "OW1012");
    let text = with("attempts_max = 4", "attempts_max = -4");
    one_fault(
        &text,
        "21:64:",
        "attempts_max = -4 is out of range",
        "OW1012",
    );
    let text = with("\"3s\"", "3");
    one_fault(
        &text,
        "17:56:",
        "timeout = \"3s\", or timeout_ms = 3",
        "OW1012",
    );
    let text = with("useful_for_ms = 86400000", "useful_for_ms = \"1d\"");
    one_fault(&text, "8:51:", "useful_for = \"1d\"", "OW1012");
    let text = with("2026-01-31T09:00:00Z", "2026-01-31T09:00:00");
    one_fault(&text, "20:9:", "a time with an offset", "OW1012");
    let text = with("\"2m\"", "\"2 fortnights\"");
    one_fault(&text, "8:29:", "is no duration", "OW1012");
}

#[test]
fn columns_count_characters() {
    let text = with("order = \"none\"", "\"é\" = 1");
    one_fault(&text, "18:1:", "\"é\"", "OW1011");
    let text = with(
        "url = \"http://127.0.0.1:9000/hook\"",
        "\"ééé\" = 1, url = \"http://127.0.0.1:9000/hook\", x = 1",
    );
    let shown = faults(&text);
    assert!(
        shown[0].starts_with("17:10:") && shown[1].starts_with("17:57:"),
        "{shown:#?}"
    );
}

#[test]
fn a_command_with_two_owners_is_refused_at_its_kind() {
    let text = with(
        "messages = [\"order.accepted\"]",
        "messages = [\"order.accepted\", \"order.ship\"]",
    );
    one_fault(&text, "6:1:", "fulfilment, hook all take it", "OW1014");
    let text = with(
        "messages = [\"order.ship\"]",
        "messages = [\"order.accepted\"]",
    );
    one_fault(&text, "6:1:", "no subscription takes it", "OW1014");
}

#[test]
fn a_subscription_to_an_unknown_type_is_refused_at_the_type() {
    let text = with(
        "[\"order.accepted\"]",
        "[\"order.accepted\", \"order.acepted\"]",
    );
    one_fault(
        &text,
        "16:31:",
        "no message type is called \"order.acepted\"; did you mean \"order.accepted\"?",
        "OW1014",
    );
}

#[test]
fn contract_faults_of_settings_written_in_words_have_their_place() {
    let text = with("order = \"none\"", "timeout = \"2d\"");
    one_fault(&text, "18:1:", "172800000 is not between 1 and", "OW1014");
    let text = with("factor = 3", "factor = 0.5");
    one_fault(&text, "21:37:", "must be at least 1", "OW1014");
    let text = with("messages = [\"order.accepted\"]\n", "");
    one_fault(&text, "15:15:", "name at least one message type", "OW1014");
}

#[test]
fn a_push_has_time_to_end_by_itself() {
    let text = with("timeout = \"3s\"", "timeout = \"2m\"");
    let config = parse(&text).unwrap();
    assert_eq!(config.contract.subscriptions["hook"].timeout_ms, 125_000);
    let text = text.replace("order = \"none\"", "timeout = \"2m\"");
    one_fault(&text, "18:1:", "a push may take 120000 ms", "OW1014");
}

#[test]
fn effect_once_with_a_push_needs_a_probe() {
    let text = with("order = \"none\"", "semantics = \"effect-once\"");
    one_fault(&text, "18:1:", "set push.probe", "OW1014");
    let probed = text.replace(
        "timeout = \"3s\"",
        "probe = \"http://127.0.0.1:9000/probe\"",
    );
    assert_eq!(
        parse(&probed).unwrap().contract.subscriptions["hook"].semantics,
        Semantics::EffectOnce
    );
}

#[test]
fn a_push_that_leaves_the_machine_needs_a_secret() {
    let text = with("http://127.0.0.1:9000/hook", "https://example.com/hook");
    one_fault(&text, "17:16:", "must be signed", "OW1015");
    let named = text.replace("timeout = \"3s\"", "secret_file = \"hook.secret\"");
    let config = parse(&named).unwrap();
    assert_eq!(
        config.pushes["hook"].secret,
        SecretSource::File("shop/hook.secret".into())
    );
}

#[test]
fn secrets_are_never_taken_from_the_file_and_never_repeated() {
    let text = with("sqlite:orders.db", "postgres://app:hunter2@db/app");
    one_fault(&text, "3:7:", "url_file", "OW1017");
    assert!(!faults(&text)[0].contains("hunter2"));
    let text = with("timeout = \"3s\"", "secret = \"whsec_hunter2\"");
    one_fault(&text, "17:55:", "secret_file or secret_env", "OW1017");
    assert!(!faults(&text)[0].contains("hunter2"));
}

#[test]
fn listening_to_others_needs_a_token() {
    let open = format!("{GOOD}\n[http]\nlisten = \"0.0.0.0:80\"\n");
    one_fault(&open, "24:10:", "no token is configured", "OW1015");
    let token =
        "[[access.tokens]]\nname = \"ci\"\ntoken_file = \"ci.token\"\nscopes = [\"publish\"]\n";
    let config = parse(&format!("{open}{token}")).unwrap();
    assert_eq!(config.tokens[0].scopes, [Scope::Publish]);
    assert_eq!(config.http.listen.port(), 80);
}

#[test]
fn tokens_say_who_where_and_what() {
    let text = format!("{GOOD}\n[[access.tokens]]\nscopes = [\"publsh\"]\n");
    let shown = faults(&text);
    assert_eq!(shown.len(), 3, "{shown:#?}");
    assert!(
        shown[0].contains("name is missing in [access.tokens[0]]"),
        "{shown:#?}"
    );
    assert!(shown[1].contains("token_file is missing"), "{shown:#?}");
    assert!(shown[2].starts_with("24:11:") && shown[2].contains("did you mean \"publish\"?"));
}

#[test]
fn a_ledger_that_forgets_too_early_is_refused() {
    let text = format!("{GOOD}\n[retention]\nledger = \"10d\"\n");
    one_fault(
        &text,
        "24:1:",
        "ledger keeps 10days, but a message may come again for 21days",
        "OW1016",
    );
    let text = format!("{GOOD}\n[retention]\nlog = \"60d\"\n");
    one_fault(&text, "24:1:", "ledger keeps 30days", "OW1016");
}

#[test]
fn parts_of_later_builds_are_refused_as_such() {
    let text = format!("{GOOD}\n[reconcile.daily]\nx = 1\n\n[alert]\n");
    let shown = faults(&text);
    assert_eq!(shown.len(), 2, "{shown:#?}");
    assert!(
        shown[0].starts_with("23:2:") && shown[0].ends_with("[OW1018]"),
        "{shown:#?}"
    );
}

#[test]
fn all_faults_come_at_once_in_the_order_of_their_places() {
    let text = "[store]\nurl = 1\nsouce = \"x\"\n[subscription.a]\nmessages = [\"t\"]\nlanes = 0\n";
    let shown = faults(text);
    let places: Vec<&str> = shown.iter().map(|f| &f[..f.find(": ").unwrap()]).collect();
    assert_eq!(places, ["2:7", "3:1", "5:13", "6:1"], "{shown:#?}");
}

#[test]
fn text_that_is_no_toml_is_refused_where_it_stops_being() {
    let shown = faults("[store]\nurl = \"sqlite:a.db\nx = 1\n");
    assert!(
        shown[0].starts_with("2:") && shown[0].ends_with("[OW1010]"),
        "{shown:#?}"
    );
    let shown = faults(&format!("{GOOD}\n[store]\nurl = \"sqlite:b.db\"\n"));
    assert!(shown.iter().any(|f| f.starts_with("23:")), "{shown:#?}");
    let shown = faults("");
    assert!(shown[0].contains("[store] is missing"), "{shown:#?}");
}

/// Names are part of what is shown on a terminal.
#[test]
fn names_with_control_characters_are_shown_escaped() {
    let text = with(
        "[subscription.hook]",
        "[subscription.\"a\\u001b[31m\\n\"]\nnothing = 1",
    );
    let faults = faults(&text);
    assert!(
        faults.iter().all(|fault| !fault.contains(char::is_control)),
        "{faults:?}"
    );
    assert!(
        faults.iter().any(|fault| fault.contains(r"\u{1b}[31m\n]")),
        "{faults:?}"
    );
}

/// To compare such words would take more memory than there is.
#[test]
fn long_words_are_refused_without_a_suggestion() {
    let long = "x".repeat(200_000);
    let text = with("[message.\"order.accepted\"]", &format!("[message.{long}]"));
    let text = format!("{text}\n[subscription.long]\nmessages = [\"y{long}\"]\n{long} = 1");
    let faults = parse(&text).unwrap_err();
    assert!(
        faults
            .iter()
            .any(|fault| fault.code == FaultCode::UnknownKey)
    );
    assert!(faults.iter().any(|fault| fault.code == FaultCode::Contract));
    assert!(
        faults
            .iter()
            .all(|fault| !fault.message.contains("did you mean \"xxx"))
    );
}

#[test]
fn what_is_merged_shed_and_refused_is_read() {
    let promise = "promise = { finish_within = \"2m\", useful_for_ms = 86400000 }";
    let text = with(promise, &format!("{promise}\nthrottle = \"refuse\"")).replace(
        "order = \"none\"\nidentity = \"operation\"",
        "merge = \"latest\"\nshed = { types = [\"order.accepted\"], after = \"2m\" }",
    );
    let config = parse(&text).unwrap();
    let ship = &config.contract.messages["order.ship"];
    assert_eq!(ship.throttle, Throttle::Refuse);
    let hook = &config.contract.subscriptions["hook"];
    assert_eq!(hook.merge, Merge::Latest);
    let shed = Shed {
        types: vec!["order.accepted".into()],
        after_ms: 120_000,
    };
    assert_eq!(hook.shed, Some(shed));
}

#[test]
fn what_contradicts_merging_and_shedding_is_refused_where_it_stands() {
    let merged = with("order = \"none\"", "order = \"none\"\nmerge = \"latest\"");
    let faults = faults(&merged);
    assert_eq!(faults.len(), 2, "{faults:#?}");
    assert!(
        faults.iter().all(|fault| fault.starts_with("19:")),
        "{faults:#?}"
    );
    let shed = with(
        "start = 2026-01-31T09:00:00Z",
        "shed = { types = [\"order.lost\"], after = \"2m\" }",
    );
    one_fault(&shed, "20:", "\"order.lost\" is not taken", "OW1014");
    let without = with("start = 2026-01-31T09:00:00Z", "shed = { after = \"2m\" }");
    one_fault(&without, "20:", "types", "OW1013");
    let no_promise = with(
        "[message.\"order.accepted\"]",
        "[message.\"order.accepted\"]\nthrottle = \"refuse\"",
    );
    one_fault(&no_promise, "11:", "finish_within", "OW1014");
}
