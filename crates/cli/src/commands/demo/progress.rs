//! Progress bars, for people at a terminal.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Output;

/// How far the clients and the orders are.
pub(super) struct Progress {
    accepted: ProgressBar,
    finished: ProgressBar,
}

impl Progress {
    /// Bars over this many orders; invisible to programs.
    pub(super) fn new(output: Output, orders: u64) -> Self {
        let target = match output.has_audience() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bars = MultiProgress::with_draw_target(target);
        let bar = |name: &'static str| {
            let bar = bars.add(ProgressBar::new(orders));
            // A template that does not parse costs the style, not the demo.
            if let Ok(style) =
                ProgressStyle::with_template("{prefix:>8} {bar:30} {pos}/{len} {msg}")
            {
                bar.set_style(style);
            }
            bar.set_prefix(name);
            bar
        };
        Self {
            accepted: bar("accepted"),
            finished: bar("finished"),
        }
    }

    pub(super) fn at(&self, accepted: u64, finished: u64) {
        self.accepted.set_position(accepted);
        self.finished.set_position(finished);
    }

    pub(super) fn killed(&self, name: &str, kills: u32) {
        self.finished
            .set_message(format!("{kills} killed, last the {name}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.accepted.finish_and_clear();
        self.finished.finish_and_clear();
    }
}
