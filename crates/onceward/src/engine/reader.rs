//! Reads the log once for all subscriptions of the process.
//!
//! Pages form a chain: each starts where the last one ended. Whoever stands at the chain's end
//! reads on and adds a page; whoever stands inside it is served from memory; whoever is further
//! behind reads alone, up to a place where it meets the chain.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onceward_core::dispatcher::{PAGE_BYTES, PAGE_ROWS};
use onceward_core::store::{Page, ReadPage, Store, StoreError};
use onceward_core::{Position, Row};
use tokio::sync::watch;
use tokio::time::Instant;

use super::EngineOptions;
use super::surroundings::Surroundings;

/// Pages kept for those that follow.
const PAGES_KEPT: usize = 12;
/// Bytes kept for those that follow.
const BYTES_KEPT: usize = 8 << 20;
/// Shortest pause between looks at a log without news.
const DOZE_MIN_MS: u64 = 2;
/// Pause between looks while there was news lately.
const ALERT_MS: u64 = 2;
/// After this long without news, a reader passes its progress on all the same.
const REFRESH: Duration = Duration::from_secs(10);

/// Rows between two places.
#[derive(Debug)]
pub(super) struct SharedPage {
    pub(super) from: Position,
    pub(super) rows: Vec<Arc<Row>>,
    pub(super) next: Position,
    weight: usize,
}

impl SharedPage {
    fn new(from: Position, page: Page) -> Arc<Self> {
        let weight = page.rows.iter().map(|row| row.envelope.weight()).sum();
        let rows = page.rows.into_iter().map(Arc::new).collect();
        Arc::new(Self {
            from,
            rows,
            next: page.next,
            weight,
        })
    }
}

#[derive(Default)]
struct Chain {
    pages: VecDeque<Arc<SharedPage>>,
    weight: usize,
    /// Where the chain ends.
    head: Option<Position>,
}

impl Chain {
    fn find(&self, from: &Position) -> Option<Arc<SharedPage>> {
        self.pages
            .iter()
            .find(|page| page.from == *from)
            .map(Arc::clone)
    }

    fn add(&mut self, page: &Arc<SharedPage>) {
        self.head = Some(page.next.clone());
        self.weight += page.weight;
        self.pages.push_back(Arc::clone(page));
        while self.pages.len() > PAGES_KEPT || (self.weight > BYTES_KEPT && self.pages.len() > 1) {
            let Some(old) = self.pages.pop_front() else {
                break;
            };
            self.weight -= old.weight;
        }
    }

    /// The end of the tick in which a reader that is behind should meet the chain.
    fn meeting(&self, from: &Position) -> Option<Position> {
        let head = self.head.as_ref()?;
        if head.era != from.era || from.within.is_some() {
            return None;
        }
        let ends = [
            Some(&head.after),
            head.within.as_ref().map(|within| &within.until),
        ];
        let until = ends.into_iter().flatten();
        let mut until = until.filter(|until| **until != from.after && until.covers(&from.after));
        until.next().map(|until| from.reach(until, 0))
    }
}

/// How a page is come by.
enum Route {
    Shared(Arc<SharedPage>),
    Alone(Position),
    End(Position),
}

/// The shared reader of one store in one process.
pub(super) struct Reader<S> {
    store: S,
    chain: Mutex<Chain>,
    /// Held by whoever reads at the chain's end.
    end: tokio::sync::Mutex<End>,
    /// How long news lets the log be looked at without growing pauses.
    alert_for: Duration,
    doze_max_ms: u64,
}

/// What whoever reads at the chain's end goes by.
struct End {
    /// Rung by appends of this process.
    bell: watch::Receiver<u64>,
    /// When there was news for the last time.
    news: Option<Instant>,
}

impl<S: Store> Reader<S> {
    pub(super) fn new(store: S, options: &EngineOptions, surroundings: &Surroundings) -> Self {
        let end = End {
            bell: surroundings.listen(),
            news: None,
        };
        Self {
            store,
            chain: Mutex::default(),
            end: tokio::sync::Mutex::new(end),
            alert_for: Duration::from_millis(options.alert_for_ms),
            doze_max_ms: options.doze_max_ms.max(DOZE_MIN_MS),
        }
    }

    fn chain(&self) -> std::sync::MutexGuard<'_, Chain> {
        // Every change of the chain is complete before anything that could panic.
        self.chain.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The page after `from`; waits for news at the end of the log.
    pub(super) async fn read(&self, from: Position) -> Result<Arc<SharedPage>, StoreError> {
        match self.route(from) {
            Route::Shared(page) => Ok(page),
            Route::Alone(from) => self.read_alone(from).await,
            Route::End(from) => self.read_end(from).await,
        }
    }

    fn route(&self, from: Position) -> Route {
        let mut chain = self.chain();
        if let Some(page) = chain.find(&from) {
            return Route::Shared(page);
        }
        if *chain.head.get_or_insert_with(|| from.clone()) == from {
            return Route::End(from);
        }
        match chain.meeting(&from) {
            Some(behind) => Route::Alone(behind),
            None if from.within.is_some() => Route::Alone(from),
            // Nobody has read as far as this: the chain goes on from here.
            None => {
                *chain = Chain {
                    head: Some(from.clone()),
                    ..Chain::default()
                };
                Route::End(from)
            }
        }
    }

    async fn read_alone(&self, from: Position) -> Result<Arc<SharedPage>, StoreError> {
        let page = self.fetch(&from).await?;
        Ok(SharedPage::new(from, page))
    }

    async fn fetch(&self, from: &Position) -> Result<Page, StoreError> {
        self.store
            .read(ReadPage {
                from,
                rows_max: PAGE_ROWS,
                bytes_max: PAGE_BYTES,
            })
            .await
    }

    async fn read_end(&self, from: Position) -> Result<Arc<SharedPage>, StoreError> {
        let mut end = self.end.lock().await;
        let started = Instant::now();
        let mut doze_ms = DOZE_MIN_MS;
        loop {
            // Someone else may have read this page while we waited for our turn.
            if let Some(page) = self.chain().find(&from) {
                return Ok(page);
            }
            end.bell.mark_unchanged();
            let page = self.fetch(&from).await?;
            let is_news = !page.rows.is_empty() || !page.next.is_boundary();
            if is_news {
                end.news = Some(Instant::now());
            }
            if is_news || (page.next != from && started.elapsed() >= REFRESH) {
                let page = SharedPage::new(from.clone(), page);
                let mut chain = self.chain();
                if chain.head.as_ref() == Some(&from) {
                    chain.add(&page);
                }
                return Ok(page);
            }
            // Where something came lately, more is likely to come soon.
            let is_alert = end.news.is_some_and(|at| at.elapsed() < self.alert_for);
            let pause_ms = if is_alert { ALERT_MS } else { doze_ms };
            tokio::select! {
                biased;
                _ = end.bell.changed() => doze_ms = DOZE_MIN_MS,
                () = self.store.doze(pause_ms) => {
                    if !is_alert {
                        doze_ms = (doze_ms * 3 / 2).min(self.doze_max_ms);
                    }
                }
            }
        }
    }
}
