//! What was put aside becomes cases, and goes on its way once somebody takes it.

use std::collections::BTreeSet;

use onceward_core::cloudevents::from_structured;
use onceward_core::store::Store;
use onceward_core::{Envelope, Failure, Row};

use super::sort::{Aside, WRONG};
use crate::context::Context;
use crate::handler::{Boxed, LocalHandler, Reply};

/// Handles what was put aside: a case until it is wanted.
pub(super) struct PutAside {
    /// Types that some subscription takes from here.
    pub(super) wanted: BTreeSet<String>,
}

impl<S: Store> LocalHandler<S> for PutAside {
    fn handle<'a>(
        &'a self,
        cx: &'a mut Context<S>,
        row: &Row,
    ) -> Boxed<'a, Result<Reply, Failure>> {
        let found = self.look_at(&row.envelope);
        Box::pin(async move {
            // As it came: this is the message itself and not one that follows from it.
            cx.outgoing.push(found?);
            Ok(None)
        })
    }
}

impl PutAside {
    /// The message as it came, where somebody takes it by now.
    fn look_at(&self, kept: &Envelope) -> Result<Envelope, Failure> {
        let wrong = kept.attributes.get(WRONG).map_or("", String::as_str);
        let code = match Aside::of_type(&kept.message_type) {
            Some(Aside::Unwanted) => {
                let came = from_structured(kept.payload.as_bytes()).map_err(|fault| {
                    Failure::permanent("intake_unreadable", "what was kept is no event")
                        .with_source(fault)
                })?;
                if self.wanted.contains(&came.message_type) {
                    return Ok(came);
                }
                "intake_unwanted"
            }
            Some(Aside::Conflicting) => "intake_conflicting",
            Some(Aside::Unreadable) | None => "intake_unreadable",
        };
        Err(Failure::permanent(code, wrong))
    }
}

#[cfg(test)]
mod tests {
    use onceward_core::Payload;
    use onceward_core::cloudevents::to_structured;

    use super::*;

    fn kept(aside: Aside) -> Envelope {
        let mut came = Envelope::new(
            "m",
            "order",
            "o",
            "order.shipped",
            Payload::Json("1".into()),
        );
        came.source = Some("/shop".into());
        let text = to_structured(&came, None).unwrap();
        let payload = Payload::Json(text.into());
        let mut kept = Envelope::new("m", "orders", "o", aside.type_of("orders"), payload);
        kept.attributes.insert(WRONG.into(), "why".into());
        kept
    }

    fn code(wanted: &[&str], aside: Aside) -> Result<String, String> {
        let wanted = wanted.iter().map(|one| (*one).to_owned()).collect();
        let found = PutAside { wanted }.look_at(&kept(aside));
        let found = found.map(|came| came.message_type);
        found.map_err(|failure| format!("{}: {}", failure.code(), failure.message()))
    }

    #[test]
    fn what_is_wanted_by_now_goes_on() {
        assert_eq!(
            code(&["order.accepted"], Aside::Unwanted),
            Err("intake_unwanted: why".into())
        );
        assert_eq!(
            code(&["order.shipped"], Aside::Unwanted),
            Ok("order.shipped".into())
        );
    }

    #[test]
    fn what_cannot_be_told_apart_or_read_never_does() {
        for (aside, expected) in [
            (Aside::Conflicting, "intake_conflicting: why"),
            (Aside::Unreadable, "intake_unreadable: why"),
        ] {
            assert_eq!(code(&["order.shipped"], aside), Err(expected.into()));
        }
    }
}
