//! Replay campaigns, taken on step by step by whoever works on the subscription.
//!
//! The owner of a subscription's first lane does it, so that not every process of a fleet asks. It
//! is no right: a step is one transaction on the campaign's row, and two that make it send nothing
//! twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::store::{
    CampaignQuery, Lease, StepCampaign, Store, StoreError, StoreErrorKind, Survey,
};
use tokio::sync::{Notify, watch};

/// Between two looks where a campaign does not say when.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The same when this role may not.
const WHEN_DENIED: Duration = Duration::from_secs(60);

/// What the fleet's task and the driver of campaigns tell each other.
#[derive(Clone)]
pub(super) struct Campaigns {
    /// Subscriptions with a campaign that is this process's to take on.
    mine: watch::Sender<BTreeSet<String>>,
    /// Messages went out: the next survey need not wait.
    went_out: Arc<Notify>,
}

impl Default for Campaigns {
    fn default() -> Self {
        Self {
            mine: watch::channel(BTreeSet::new()).0,
            went_out: Arc::default(),
        }
    }
}

impl Campaigns {
    /// Takes in what a survey says.
    pub(super) fn surveyed(&self, lease: &Lease, survey: &Survey) {
        let mine = mine(lease, survey);
        self.mine.send_if_modified(|before| {
            let has_changed = *before != mine;
            *before = mine;
            has_changed
        });
    }

    /// Without a lease there is nothing to take on.
    pub(super) fn let_go(&self) {
        self.mine.send_replace(BTreeSet::new());
    }

    /// Waits until messages went out.
    pub(super) async fn went_out(&self) {
        self.went_out.notified().await;
    }

    /// Takes campaigns on until it is dropped.
    pub(super) async fn take_on<S: Store>(&self, store: S) {
        let mut mine = self.mine.subscribe();
        loop {
            let names = mine.borrow_and_update().clone();
            let wait = match names.is_empty() {
                true => None,
                false => Some(self.round(&store, &names).await),
            };
            tokio::select! {
                biased;
                _ = mine.changed() => {}
                () = async {
                    match wait {
                        Some(wait) => tokio::time::sleep(wait).await,
                        None => std::future::pending().await,
                    }
                } => {}
            }
        }
    }

    /// A step of each; returns when to make the next.
    async fn round<S: Store>(&self, store: &S, names: &BTreeSet<String>) -> Duration {
        let mut wait = LOOK_AGAIN;
        for name in names {
            match self.steps(store, name).await {
                Ok(next) => wait = wait.min(next),
                Err(error) => {
                    tracing::warn!(
                        subscription = name,
                        error = &error as &(dyn std::error::Error + 'static),
                        "a replay campaign cannot be taken on; it waits"
                    );
                    if error.kind() == StoreErrorKind::Denied {
                        return WHEN_DENIED;
                    }
                }
            }
        }
        wait
    }

    async fn steps<S: Store>(&self, store: &S, name: &str) -> Result<Duration, StoreError> {
        let query = CampaignQuery {
            subscription: Some(name),
            is_active: true,
            ..CampaignQuery::default()
        };
        let mut wait = LOOK_AGAIN;
        for campaign in store.campaigns(query).await? {
            let request = StepCampaign {
                campaign_id: campaign.campaign_id,
            };
            let stepped = store.step_campaign(request).await?;
            if stepped.started > 0 {
                self.went_out.notify_one();
            }
            let before = campaign.standing.state;
            let after = &stepped.campaign.standing;
            if after.state != before {
                tracing::info!(
                    subscription = name,
                    campaign = campaign.campaign_id,
                    state = after.state.as_str(),
                    stopped_by = after.stopped_by,
                    "a replay campaign moved on"
                );
            }
            if let Some(wait_ms) = stepped.wait_ms {
                wait = wait.min(Duration::from_millis(wait_ms));
            }
        }
        Ok(wait)
    }
}

/// Subscriptions with a campaign whose first lane is the member's. A paused one waits.
fn mine(lease: &Lease, survey: &Survey) -> BTreeSet<String> {
    let with_campaign = survey
        .subscriptions
        .iter()
        .filter(|state| state.has_campaign && !state.is_paused);
    let owns_first = |name: &str| {
        let of_subscription = survey.lanes.iter().filter(|lane| lane.subscription == name);
        let first = of_subscription.min_by_key(|lane| lane.lane);
        first.is_some_and(|lane| lane.owner.as_ref() == Some(&lease.member))
    };
    with_campaign
        .map(|state| state.subscription.clone())
        .filter(|name| owns_first(name))
        .collect()
}
