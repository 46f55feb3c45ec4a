//! `[subscription.NAME]`.

use std::path::Path;

use onceward_core::Identity;
use onceward_core::contract::{OnPoison, Order, Semantics, SubscriptionContract};
use onceward_core::expiry::Expired;
use onceward_core::group::Tenants;
use onceward_core::merge::Merge;
use onceward_core::shed::Shed;
use onceward_core::store::Start;
use onceward_core::version::{Gaps, VersionPolicy};

use super::broker::{self, Brokers};
use super::fault::FaultCode;
use super::reader::Section;
use super::{PushConfig, RelayConfig, SecretSource, secret, sections};
use crate::target;

/// How long an answer to a push may take when nothing else is said, in milliseconds.
const PUSH_TIMEOUT_MS_DEFAULT: u64 = 15_000;

/// What a subscription does outside the database.
pub(super) enum Outside {
    /// A request.
    Push(PushConfig),
    /// A confirmed publish.
    Relay(RelayConfig),
}

/// How much longer a subscription's own limit is than its push's or relay's, in milliseconds.
const PUSH_MARGIN_MS: u64 = 5_000;

/// Into how many groups tenants fall when nothing else is said.
const TENANT_GROUPS_DEFAULT: u8 = 8;

/// Reads one subscription, and its push or relay where it has one.
pub(super) fn read(
    name: &str,
    section: Section<'_>,
    folder: &Path,
    brokers: &Brokers,
) -> (SubscriptionContract, Option<Outside>) {
    let push = push(name, &section, folder);
    let relay = broker::relay(&section, brokers);
    let semantics = semantics(&section, push.as_ref());
    let mut contract = SubscriptionContract::new(name, &[], semantics);
    // Where there are none, the check of the whole contract says so.
    if let Some(types) = section.texts("messages") {
        contract.types = types.value.into_iter().map(|t| t.value).collect();
    }
    if let Some(sources) = broker::sources(&section, brokers) {
        contract.sources = sources;
    }
    choices(&section, &mut contract);
    limits(&section, &mut contract);
    if let Some(push) = &push {
        leave_time(&section, &mut contract, "a push", push.timeout_ms);
    } else if let Some(relay) = &relay {
        leave_time(&section, &mut contract, "a confirmation", relay.timeout_ms);
    }
    contract.versions = versions(&section);
    contract.expired = expired(&section);
    contract.useful_for_ms = section.duration_ms("useful_for", "useful_for_ms");
    let merges = [("none", Merge::None), ("latest", Merge::Latest)];
    contract.merge = section.choice("merge", &merges).unwrap_or_default();
    contract.shed = shed(&section);
    hold(&section, &mut contract);
    contract.tenants = tenants(&section);
    if let Some(share) = section.number("catch_up_share") {
        contract.catch_up_share = share;
    }
    retry(&section, &mut contract);
    breaker(&section, &mut contract);
    contract.start = start(&section);
    contract.renamed_from = section.text("renamed_from").map(|former| former.value);
    contract.is_repeatable = section.flag("repeatable").unwrap_or_default();
    section.finish();
    let outside = push.map(Outside::Push).or(relay.map(Outside::Relay));
    (contract, outside)
}

fn semantics(section: &Section<'_>, push: Option<&PushConfig>) -> Semantics {
    let choices = [
        ("at-most-once", Semantics::AtMostOnce),
        ("at-least-once", Semantics::AtLeastOnce),
        ("effect-once", Semantics::EffectOnce),
    ];
    let has_push = push.is_some() || section.has("push");
    let default = if has_push || section.has("broker") {
        Semantics::AtLeastOnce
    } else {
        Semantics::EffectOnce
    };
    let semantics = section.choice("semantics", &choices).unwrap_or(default);
    if section.has("broker") && semantics == Semantics::EffectOnce {
        let place = section.findings.place_of(&section.path_of("semantics"));
        let message = "a relay cannot promise effect-once by itself, because a lost confirmation \
                       leaves open whether the message arrived: take semantics = \
                       \"at-least-once\"; consumers know a repetition by its id";
        section.fault(FaultCode::Contract, &place, message);
    }
    let has_probe = push.is_none_or(|push| push.probe.is_some());
    if has_push && semantics == Semantics::EffectOnce && !has_probe {
        let place = section.findings.place_of(&section.path_of("semantics"));
        let message = "a push cannot promise effect-once by itself, because a lost answer leaves \
                       open whether the effect happened: set push.probe, an address that answers \
                       that, or take semantics = \"at-least-once\"";
        section.fault(FaultCode::Contract, &place, message);
    }
    semantics
}

fn choices(section: &Section<'_>, contract: &mut SubscriptionContract) {
    let identities = [
        ("message", Identity::Message),
        ("operation", Identity::Operation),
        ("seq", Identity::Seq),
    ];
    let orders = [("key", Order::Key), ("none", Order::None)];
    let on_poison = [("skip", OnPoison::Skip), ("hold-key", OnPoison::HoldKey)];
    contract.identity = section.choice("identity", &identities);
    contract.order = section.choice("order", &orders).unwrap_or_default();
    contract.on_poison = section.choice("on_poison", &on_poison);
}

fn limits(section: &Section<'_>, contract: &mut SubscriptionContract) {
    fn set<T: TryFrom<u64>>(section: &Section<'_>, key: &'static str, setting: &mut T) {
        if let Some(value) = section.whole(key) {
            *setting = value;
        }
    }
    set(section, "concurrency", &mut contract.concurrency);
    set(section, "concurrency_min", &mut contract.concurrency_min);
    set(section, "lanes", &mut contract.lanes);
    set(section, "batch_max", &mut contract.batch_max);
    set(section, "window_rows", &mut contract.window_rows);
    set(section, "window_bytes", &mut contract.window_bytes);
    if let Some(ms) = section.duration_ms("timeout", "timeout_ms") {
        contract.timeout_ms = ms;
    }
}

/// A push or publish must be able to end by itself: cut off by the subscription's own limit, its end
/// would not be known.
fn leave_time(
    section: &Section<'_>,
    contract: &mut SubscriptionContract,
    what: &str,
    timeout_ms: u64,
) {
    let needed_ms = timeout_ms.saturating_add(PUSH_MARGIN_MS);
    if contract.timeout_ms >= needed_ms {
        return;
    }
    if section.has("timeout") || section.has("timeout_ms") {
        let place = section.findings.place_of(&section.path_of("timeout_ms"));
        let message = format!(
            "timeout is {} ms, but {what} may take {timeout_ms} ms: leave at least \
             {PUSH_MARGIN_MS} ms more",
            contract.timeout_ms
        );
        section.fault(FaultCode::Contract, &place, message);
    }
    contract.timeout_ms = needed_ms;
}

/// Versions of aggregates. What follows a gap is said only where they are checked.
fn versions(section: &Section<'_>) -> Option<VersionPolicy> {
    let checks = section.choice("versions", &[("check", true), ("ignore", false)]);
    let gaps = section.choice("gaps", &[("pass", Gaps::Pass), ("wait", Gaps::Wait)]);
    let limit_ms = section.duration_ms("gap_limit", "gap_limit_ms");
    if checks == Some(true) {
        let default = VersionPolicy::default();
        return Some(VersionPolicy {
            gaps: gaps.unwrap_or(default.gaps),
            gap_limit_ms: limit_ms.unwrap_or(default.gap_limit_ms),
        });
    }
    let unused = ["gaps", "gap_limit", "gap_limit_ms"];
    if let Some(key) = unused.into_iter().find(|key| section.has(key)) {
        let place = section.findings.place_of(&section.path_of(key));
        let message = format!("{key} says nothing without versions = \"check\"");
        section.fault(FaultCode::Contract, &place, message);
    }
    None
}

/// What becomes of work whose time is over, and who gets it.
fn expired(section: &Section<'_>) -> Expired {
    let choices = [
        ("keep", Expired::Keep),
        ("quarantine", Expired::Quarantine),
        ("drop", Expired::Drop),
        ("fallback", Expired::Fallback(String::new())),
    ];
    let expired = section.choice("expired", &choices).unwrap_or_default();
    let fallback = section.text("fallback");
    match (expired, fallback) {
        (Expired::Fallback(_), Some(name)) => Expired::Fallback(name.value),
        (Expired::Fallback(_), None) => {
            if !section.has("fallback") {
                section.missing("fallback", "the subscription that gets what is over");
            }
            Expired::Keep
        }
        (other, None) => other,
        (other, Some(name)) => {
            let message = "fallback says nothing without expired = \"fallback\"";
            section.fault(FaultCode::Contract, &name.place, message);
            other
        }
    }
}

/// What is given up when its turn comes late.
fn shed(section: &Section<'_>) -> Option<Shed> {
    let section = section.section("shed")?;
    let types = section.texts("types");
    if types.is_none() && !section.has("types") {
        section.missing("types", "the message types that are given up");
    }
    let after_ms = section.duration_ms("after", "after_ms");
    if after_ms.is_none() && !section.has("after") && !section.has("after_ms") {
        section.missing("after", "how long they may wait before that");
    }
    section.finish();
    Some(Shed {
        types: types?.value.into_iter().map(|t| t.value).collect(),
        after_ms: after_ms?,
    })
}

/// Whose its messages are.
fn tenants(section: &Section<'_>) -> Option<Tenants> {
    let section = section.section("tenants")?;
    let attribute = section.text("attribute");
    if attribute.is_none() && !section.has("attribute") {
        section.missing("attribute", "the extension attribute that names the tenant");
    }
    let groups = section.whole("groups").unwrap_or(TENANT_GROUPS_DEFAULT);
    section.finish();
    Some(Tenants {
        attribute: attribute?.value,
        groups,
    })
}

fn hold(section: &Section<'_>, contract: &mut SubscriptionContract) {
    if let Some(depth) = section.whole("hold_depth") {
        contract.hold.depth = depth;
    }
    if let Some(ms) = section.duration_ms("hold_age", "hold_age_ms") {
        contract.hold.age_ms = ms;
    }
}

fn retry(section: &Section<'_>, contract: &mut SubscriptionContract) {
    let Some(section) = section.section("retry") else {
        return;
    };
    let policy = &mut contract.retry;
    let durations = [
        ("base", "base_ms", &mut policy.base_ms),
        ("cap", "cap_ms", &mut policy.cap_ms),
        ("age_max", "age_max_ms", &mut policy.age_max_ms),
    ];
    for (in_words, in_ms, setting) in durations {
        if let Some(ms) = section.duration_ms(in_words, in_ms) {
            *setting = ms;
        }
    }
    if let Some(factor) = section.number("factor") {
        policy.factor = factor;
    }
    if let Some(attempts) = section.whole("attempts_max") {
        policy.attempts_max = attempts;
    }
    section.finish();
}

fn breaker(section: &Section<'_>, contract: &mut SubscriptionContract) {
    let Some(section) = section.section("breaker") else {
        return;
    };
    let policy = &mut contract.breaker;
    if let Some(messages) = section.whole("messages_min") {
        policy.messages_min = messages;
    }
    if let Some(ms) = section.duration_ms("pause", "pause_ms") {
        policy.pause_ms = ms;
    }
    if let Some(ms) = section.duration_ms("pause_max", "pause_max_ms") {
        policy.pause_max_ms = ms;
    }
    section.finish();
}

fn start(section: &Section<'_>) -> Option<Start> {
    let start = section.text_or_time("start")?;
    match start.value.as_str() {
        "now" => Some(Start::Now),
        "earliest" => Some(Start::Earliest),
        time => match time.parse() {
            Ok(time) => Some(Start::At(time)),
            Err(_) => {
                let message = format!(
                    "start = {time:?} is neither \"now\" nor \"earliest\" nor a time with an \
                     offset, such as \"2026-01-31T09:00:00Z\""
                );
                section.fault(FaultCode::BadValue, &start.place, message);
                None
            }
        },
    }
}

fn push(name: &str, subscription: &Section<'_>, folder: &Path) -> Option<PushConfig> {
    let section = subscription.section("push")?;
    let url = section.text("url");
    if url.is_none() && !section.has("url") {
        section.missing("url", "where the messages are sent");
    }
    sections::refuse_inline(&section, "secret", "secret_file or secret_env");
    let named = sections::secret(&section, "secret_file", "secret_env", folder);
    let timeout_ms = section.duration_ms("timeout", "timeout_ms");
    let probe = section.text("probe");
    if let Some(probe) = &probe
        && let Err(problem) = target::check(&probe.value)
    {
        section.fault(FaultCode::BadValue, &probe.place, problem);
    }
    let made = folder.join(".onceward").join(secret::made_file_name(name));
    let is_open = match &url {
        None => false,
        Some(url) => match target::check(&url.value) {
            Ok(target) => !target::is_loopback(&target),
            Err(problem) => {
                section.fault(FaultCode::BadValue, &url.place, problem);
                false
            }
        },
    };
    if is_open && named.is_none() {
        let message = "a push that leaves this machine must be signed: name its secret with \
                       secret_file or secret_env";
        let place = url.as_ref().map_or(&section.place, |url| &url.place);
        section.fault(FaultCode::Insecure, place, message);
    }
    section.finish();
    Some(PushConfig {
        url: url?.value,
        secret: named.map_or(SecretSource::Made(made), |named| named.value),
        timeout_ms: timeout_ms.unwrap_or(PUSH_TIMEOUT_MS_DEFAULT),
        probe: probe.map(|probe| probe.value),
    })
}
