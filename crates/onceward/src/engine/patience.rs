//! Not taking others for dead who were only away, like oneself.

use std::time::Duration;

use tokio::time::Instant;

/// While the database is away nobody can renew a lease. The first that reaches it again finds the
/// leases of all others run out: it leaves them the time of a lease to come back as well. Those
/// that were not away take over from the dead as usual.
#[derive(Debug, Default)]
pub(super) struct Patience {
    reached_at: Option<Instant>,
    until: Option<Instant>,
}

impl Patience {
    /// The database was reached. Half a lease without it is as much as others may have lacked when
    /// it went away.
    pub(super) fn reached(&mut self, now: Instant, lease: Duration) {
        let before = self.reached_at.replace(now);
        if before.is_some_and(|before| now - before > lease / 2) {
            self.until = Some(now + lease);
        }
    }

    /// Whether it lasts.
    pub(super) fn lasts(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    #[test]
    fn it_begins_after_an_outage_and_lasts_for_a_lease() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut patience = Patience::default();
        patience.reached(at(0), LEASE);
        patience.reached(at(5), LEASE);
        assert!(
            !patience.lasts(at(5)),
            "a renewal that was late is no outage"
        );
        patience.reached(at(11), LEASE);
        assert!(patience.lasts(at(11)) && patience.lasts(at(20)));
        patience.reached(at(15), LEASE);
        assert!(!patience.lasts(at(21)), "it does not begin again by itself");
    }

    #[test]
    fn a_process_that_has_just_started_has_none() {
        let mut patience = Patience::default();
        patience.reached(Instant::now(), LEASE);
        assert!(!patience.lasts(Instant::now()));
    }
}
