//! What the API needs of the world behind it to say how everything stands.

use std::sync::Arc;
use std::time::SystemTime;

use onceward_core::Timestamp;
use onceward_core::store::{
    Campaign, CampaignItem, CampaignQuery, Cases, ItemQuery, Replay, Status, StoreError, Upkeep,
};
use onceward_core::throttle::Judged;

use crate::gate::BoxFuture;
use crate::overview::{Overview, OverviewQuery, Standards};

/// How everything stands, and replay campaigns: an object-safe seam that only reads.
pub trait Board: Send + Sync + 'static {
    /// How subscriptions stand.
    fn overview<'a>(
        &'a self,
        query: OverviewQuery<'a>,
    ) -> BoxFuture<'a, Result<Overview, StoreError>>;

    /// Campaigns by number.
    fn campaigns<'a>(
        &'a self,
        query: CampaignQuery<'a>,
    ) -> BoxFuture<'a, Result<Vec<Campaign>, StoreError>>;

    /// The messages of a campaign.
    fn items<'a>(
        &'a self,
        query: ItemQuery<'a>,
    ) -> BoxFuture<'a, Result<Vec<CampaignItem>, StoreError>>;
}

type Judges = dyn Fn() -> Vec<Judged> + Send + Sync;

/// A board at any store.
#[derive(Clone)]
pub struct StoreBoard<S> {
    store: S,
    standards: Standards,
    judges: Option<Arc<Judges>>,
}

impl<S> StoreBoard<S> {
    /// What a store says, by every default.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self {
            store,
            standards: Standards::default(),
            judges: None,
        }
    }

    /// What a configuration says beside it.
    #[must_use]
    pub fn standards(mut self, standards: Standards) -> Self {
        self.standards = standards;
        self
    }

    /// How to ask which types' new messages are refused now. Must not wait.
    #[must_use]
    pub fn judged(mut self, judges: impl Fn() -> Vec<Judged> + Send + Sync + 'static) -> Self {
        self.judges = Some(Arc::new(judges));
        self
    }
}

impl<S: Status + Upkeep + Cases + Replay> Board for StoreBoard<S> {
    fn overview<'a>(
        &'a self,
        query: OverviewQuery<'a>,
    ) -> BoxFuture<'a, Result<Overview, StoreError>> {
        Box::pin(async move {
            let overview = Overview::of(&self.store, query, &self.standards, now());
            let mut overview = overview.await?;
            overview.judged = self
                .judges
                .as_ref()
                .map(|judges| judges())
                .unwrap_or_default();
            Ok(overview)
        })
    }

    fn campaigns<'a>(
        &'a self,
        query: CampaignQuery<'a>,
    ) -> BoxFuture<'a, Result<Vec<Campaign>, StoreError>> {
        Box::pin(self.store.campaigns(query))
    }

    fn items<'a>(
        &'a self,
        query: ItemQuery<'a>,
    ) -> BoxFuture<'a, Result<Vec<CampaignItem>, StoreError>> {
        Box::pin(self.store.campaign_items(query))
    }
}

/// Only ages that are shown, and which cases are told of as old, go by it.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let micros = since.map_or(0, |since| since.as_micros());
    Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}
