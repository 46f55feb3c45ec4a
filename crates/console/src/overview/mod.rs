//! How every subscription stands, with what is known beside it: gathered once for the command line
//! and for the API.

mod held;
mod old_cases;

use std::collections::BTreeMap;

use onceward_core::Timestamp;
use onceward_core::hold::HoldLimits;
use onceward_core::store::{
    Backlog, BacklogQuery, Campaign, CampaignQuery, Cases, DropCount, DropCountQuery, HeldQuery,
    Replay, Status, StoreError, Upkeep, UpkeepReport,
};
use onceward_core::throttle::Judged;
use serde_json::{Value, json};

use crate::view::campaign_json;

pub use held::HeldHere;
pub use old_cases::OldCases;

/// Where counting what was given up of late stops, for each way and time.
pub const DROPS_COUNTED_MAX: u64 = 10_000;
/// Where counting what waits of a subscription stops where nothing else is said.
pub const WAITING_COUNTED_MAX: u64 = 100_000;
/// Keys that are named of each subscription where nothing else is said.
pub const KEYS_MAX_DEFAULT: u32 = 10;
/// How long cases are kept without a word where nothing else is said: 90 days, in milliseconds.
pub const CASES_MS_DEFAULT: u64 = 90 * 86_400_000;

/// What a configuration says that is looked at beside the store.
#[derive(Clone, Debug)]
pub struct Standards {
    /// The limits of what is held behind a key, by subscription.
    pub holds: BTreeMap<String, HoldLimits>,
    /// Cases older than this are told of, in milliseconds.
    pub cases_ms: u64,
}

impl Default for Standards {
    fn default() -> Self {
        Self {
            holds: BTreeMap::new(),
            cases_ms: CASES_MS_DEFAULT,
        }
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct OverviewQuery<'a> {
    /// Only this subscription.
    pub subscription: Option<&'a str>,
    /// Where counting what waits of each subscription stops.
    pub count_max: u64,
    /// Keys to name of each subscription behind which messages have waited the longest.
    pub keys_max: u32,
}

impl Default for OverviewQuery<'_> {
    fn default() -> Self {
        Self {
            subscription: None,
            count_max: WAITING_COUNTED_MAX,
            keys_max: KEYS_MAX_DEFAULT,
        }
    }
}

/// One subscription.
#[derive(Debug)]
pub struct SubscriptionNow {
    /// What waits, and who works.
    pub backlog: Backlog,
    /// What waits behind which key.
    pub held: HeldHere,
    /// What policies gave up of late.
    pub drops: Vec<DropCount>,
}

/// How everything stands.
#[derive(Debug)]
pub struct Overview {
    /// By name.
    pub subscriptions: Vec<SubscriptionNow>,
    /// Campaigns that are not over: what they refer to is kept.
    pub campaigns: Vec<Campaign>,
    /// Types whose new messages may be refused; filled by whoever judges them.
    pub judged: Vec<Judged>,
    /// When retention ran, and what it saw.
    pub tidied: Option<(Timestamp, UpkeepReport)>,
    /// Cases beyond their retention.
    pub old_cases: Option<OldCases>,
}

impl Overview {
    /// Asks a store. A subscription that is named and not registered is not among the answer's.
    ///
    /// # Errors
    /// Of the store.
    pub async fn of<S: Status + Upkeep + Cases + Replay>(
        store: &S,
        query: OverviewQuery<'_>,
        standards: &Standards,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let names = store.subscriptions().await?;
        let is_wanted = |name: &&String| {
            query
                .subscription
                .is_none_or(|wanted| wanted == name.as_str())
        };
        let mut subscriptions = Vec::new();
        for name in names.iter().filter(is_wanted) {
            let limits = standards.holds.get(name).copied().unwrap_or_default();
            subscriptions.push(SubscriptionNow::of(store, name, query, limits).await?);
        }
        Ok(Self {
            subscriptions,
            campaigns: campaigns(store, query.subscription).await?,
            judged: Vec::new(),
            tidied: store.last_tidy().await?,
            old_cases: OldCases::find(store, standards.cases_ms, now).await?,
        })
    }

    /// For programs. Members are added and never changed.
    #[must_use]
    pub fn json(&self, now: Timestamp) -> Value {
        let tidied = self.tidied.as_ref().map(|(at, report)| {
            let mut value = json!(report);
            value["tidied_at"] = json!(at);
            value["tidied_age_ms"] = json!(now.millis_since(*at).max(0));
            value
        });
        let subscriptions = self.subscriptions.iter().map(SubscriptionNow::json);
        json!({
            "campaigns": self.campaigns.iter().map(campaign_json).collect::<Vec<Value>>(),
            "subscriptions": subscriptions.collect::<Vec<Value>>(),
            "refusing": self.judged,
            "retention": tidied,
            "cases_past_retention": self.old_cases,
        })
    }
}

impl SubscriptionNow {
    async fn of<S: Status>(
        store: &S,
        name: &str,
        query: OverviewQuery<'_>,
        limits: HoldLimits,
    ) -> Result<Self, StoreError> {
        let backlog = store.backlog(BacklogQuery::new(name, query.count_max));
        let backlog = backlog.await?;
        let held = HeldQuery {
            subscription: name,
            beyond: None,
            keys_max: query.keys_max,
        };
        let longest = store.longest_held(held).await?;
        // One that is deep and young would not be among those that have waited the longest.
        let held = HeldQuery {
            beyond: Some(limits),
            ..held
        };
        let beyond = store.longest_held(held).await?;
        let drops = DropCountQuery {
            subscription: name,
            count_max: DROPS_COUNTED_MAX,
        };
        Ok(Self {
            backlog,
            held: HeldHere::of(limits, longest, beyond),
            drops: store.drop_counts(drops).await?,
        })
    }

    /// For programs.
    fn json(&self) -> Value {
        let backlog = &self.backlog;
        let age_ms =
            |then: Option<Timestamp>| then.map(|then| backlog.now.millis_since(then).max(0));
        let mut value = json!(backlog);
        value["oldest_waiting_age_ms"] = json!(age_ms(backlog.oldest_waiting_at));
        value["oldest_deferred_age_ms"] = json!(age_ms(backlog.oldest_deferred_at));
        let shown = value.get_mut("groups").and_then(Value::as_array_mut);
        for (group, shown) in backlog.groups.iter().zip(shown.into_iter().flatten()) {
            shown["oldest_waiting_age_ms"] = json!(age_ms(group.oldest_waiting_at));
        }
        value["dropped"] = json!(self.drops);
        value["ready_age_ms"] = json!(backlog.ready_age_ms());
        value["held_limits"] = json!(self.held.limits);
        value["held_longest"] = self.held.json();
        value
    }
}

async fn campaigns<S: Replay>(
    store: &S,
    subscription: Option<&str>,
) -> Result<Vec<Campaign>, StoreError> {
    let mut found = Vec::new();
    let mut query = CampaignQuery {
        subscription,
        rows_max: 1_000,
        ..CampaignQuery::default()
    };
    loop {
        let page = store.campaigns(query).await?;
        let Some(last) = page.last() else {
            return Ok(found);
        };
        query.after_campaign_id = last.campaign_id;
        let is_on = |campaign: &Campaign| !campaign.standing.state.is_over();
        found.extend(page.into_iter().filter(is_on));
    }
}
