//! A progress bar, for people at a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Output;

/// How far the input has been read.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar over the bytes of the input, or a count where its size is not known. Invisible to
    /// programs.
    pub(super) fn new(output: Output, bytes: Option<u64>) -> Self {
        let target = if output.has_audience() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(bytes, target);
        let template = match bytes {
            Some(_) => "{bar:30} {percent:>3}%  {msg}  {eta} left",
            None => "{spinner} {msg}  {elapsed}",
        };
        // A template that does not parse costs the style, not the sending.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar }
    }

    pub(super) fn at(&self, bytes: u64, accepted: u64) {
        self.bar.set_position(bytes);
        self.bar.set_message(format!("{accepted} accepted"));
    }

    /// Says something without the bar in between.
    pub(super) fn aside(&self, say: impl FnOnce()) {
        self.bar.suspend(say);
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
