//! A push with a probe as an effect outside the database.

use onceward_core::store::Store;
use onceward_core::{Failure, Row};

use super::PushDeliverer;
use crate::context::Context;
use crate::handler::{AnyAnswer, Boxed, CallHandler, Probe, Reply};

impl<S: Store> CallHandler<S> for PushDeliverer {
    fn can_probe(&self) -> bool {
        Self::can_probe(self)
    }

    fn address(&self) -> Option<String> {
        Some(super::origin(&self.target))
    }

    fn call<'a>(&'a self, row: &'a Row) -> Boxed<'a, Result<AnyAnswer, Failure>> {
        Box::pin(async move {
            self.push(row).await?;
            Ok(Box::new(()) as AnyAnswer)
        })
    }

    fn probe<'a>(&'a self, row: &'a Row) -> Boxed<'a, Result<Probe<AnyAnswer>, Failure>> {
        Box::pin(async move {
            Ok(match Self::probe(self, row).await? {
                Probe::Happened(()) => Probe::Happened(Box::new(()) as AnyAnswer),
                Probe::DidNotHappen => Probe::DidNotHappen,
                Probe::Unsupported => Probe::Unsupported,
            })
        })
    }

    /// A push leaves nothing but its ledger row.
    fn outcome<'a>(
        &'a self,
        _: &'a mut Context<S>,
        _: &'a Row,
        _: AnyAnswer,
    ) -> Boxed<'a, Result<Reply, Failure>> {
        Box::pin(async { Ok(None) })
    }
}
