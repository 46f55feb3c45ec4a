//! Says in the log that a case was opened, and of a flood of them how many.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onceward_core::case::CaseState;
use onceward_core::store::{CaseQuery, NewCase, Store};
use tokio::time::Instant;

use super::execute::Executor;

/// How long cases are counted together.
const WINDOW: Duration = Duration::from_secs(60);
/// Cases that are told of one by one in such a time.
const LINES_MAX: u32 = 10;

/// Cases of one subscription in this process that were told of lately.
#[derive(Debug, Default)]
pub(super) struct ToldCases(Mutex<Option<Window>>);

/// A time in which cases are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    began: Instant,
    cases: u32,
}

/// How a case is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Telling {
    /// By itself.
    Alone,
    /// Too many came: it is the first of those that are only counted.
    CountFrom,
    /// It is counted.
    Counted,
}

impl ToldCases {
    fn window(&self) -> std::sync::MutexGuard<'_, Option<Window>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more was opened.
    fn opened(&self, now: Instant) -> Telling {
        let mut window = self.window();
        let is_over = window.is_none_or(|window| now >= window.began + WINDOW);
        // One that only counts ends with its summary.
        if is_over && window.is_none_or(|window| window.cases <= LINES_MAX) {
            *window = None;
        }
        let window = window.get_or_insert(Window {
            began: now,
            cases: 0,
        });
        window.cases = window.cases.saturating_add(1);
        match window.cases {
            1..=LINES_MAX => Telling::Alone,
            many if many == LINES_MAX + 1 => Telling::CountFrom,
            _ => Telling::Counted,
        }
    }

    /// How many were only counted, at the end of a time in which they were.
    fn counted(&self) -> u32 {
        let window = self.window().take();
        window.map_or(0, |window| window.cases.saturating_sub(LINES_MAX))
    }
}

impl<S: Store> Executor<S> {
    /// Tells of cases that are committed: nothing of their messages but their ids.
    pub(super) async fn tell_cases(&self, cases: &[NewCase]) {
        // Nobody listens: then nothing is looked up for it.
        if cases.is_empty() || !tracing::enabled!(tracing::Level::WARN) {
            return;
        }
        let subscription = self.runtime.contract.name.as_str();
        for case in cases {
            match self.runtime.told_cases.opened(Instant::now()) {
                Telling::Alone => {
                    let case_id = self.case_id(case).await;
                    tracing::warn!(
                        subscription,
                        case_id,
                        message = case.row.envelope.id,
                        class = case.failure.class.as_str(),
                        code = case.failure.code,
                        reason = case.reason,
                        "a message cannot go on: a case was opened"
                    );
                }
                Telling::CountFrom => {
                    tracing::warn!(
                        subscription,
                        "cases are opened one after another: for a minute they are only counted; \
                         onceward quarantine groups shows their causes"
                    );
                    let runtime = std::sync::Arc::clone(&self.runtime);
                    tokio::spawn(async move {
                        tokio::time::sleep(WINDOW).await;
                        tracing::warn!(
                            subscription = runtime.contract.name,
                            cases = runtime.told_cases.counted(),
                            "more cases were opened in the last minute"
                        );
                    });
                }
                Telling::Counted => {}
            }
        }
    }

    /// The number of a case that was just opened; none when the store does not say it now.
    async fn case_id(&self, case: &NewCase) -> Option<i64> {
        let query = CaseQuery {
            subscription: Some(&self.runtime.contract.name),
            key: Some(&case.key),
            states: &[CaseState::Open],
            rows_max: 100,
            ..CaseQuery::default()
        };
        let found = self.store.cases(query).await.ok()?.into_iter();
        let mut found = found.filter(|found| found.row.seq == case.row.seq);
        found.next().map(|found| found.case_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_told_one_by_one_and_a_flood_is_counted() {
        let told = ToldCases::default();
        let began = Instant::now();
        for _ in 0..LINES_MAX {
            assert_eq!(told.opened(began), Telling::Alone);
        }
        assert_eq!(told.opened(began), Telling::CountFrom);
        assert_eq!(told.opened(began), Telling::Counted);
        // Late, and before the summary: it is part of it.
        assert_eq!(told.opened(began + WINDOW), Telling::Counted);
        assert_eq!(told.counted(), 3);
        assert_eq!(told.counted(), 0);
        assert_eq!(told.opened(began + WINDOW), Telling::Alone);
    }

    #[test]
    fn a_time_with_few_of_them_ends_by_itself() {
        let told = ToldCases::default();
        let began = Instant::now();
        for minute in 0..3 {
            for _ in 0..LINES_MAX {
                assert_eq!(told.opened(began + WINDOW * minute), Telling::Alone);
            }
        }
    }
}
