//! `onceward send`: CloudEvents as JSON lines, into the store or to an HTTP endpoint.
//!
//! Every event is accepted under its source and id, so the same file can be sent again after any
//! interruption: what was accepted before is recognised, and nothing is sent twice.

mod endpoint;
mod lines;
mod progress;
mod sink;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use onceward_core::Envelope;
use serde::Serialize;
use serde_json::json;

use crate::cli::Global;
use crate::config::Config;
use crate::error::{Code, EXIT_PARTLY, Error};
use crate::output::{Output, plain};
use crate::store::Target;

#[doc(hidden)]
pub use lines::read_all;
use lines::{Line, Lines};
use progress::Progress;
use sink::{Refused, Sink, Taken};

/// Refused lines that are listed; beyond that they are only counted.
const REFUSED_LISTED_MAX: usize = 1_000;

/// Options of `send`.
#[derive(Debug, Args)]
pub struct SendArgs {
    /// The file, or - for standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Send to this HTTP endpoint (http://host:port) instead of into the store
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// File with the bearer token for --url
    #[arg(long, value_name = "FILE", requires = "url")]
    token_file: Option<PathBuf>,
    /// Most events in one transaction or request
    #[arg(long, value_name = "N", default_value_t = 500)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=5_000))]
    batch: u16,
}

/// A line that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct RefusedLine {
    line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pointer: Option<String>,
    message: String,
}

/// What became of the input.
#[derive(Debug, Default, Serialize)]
struct Summary {
    lines: u64,
    /// Acknowledged, now or before.
    accepted: u64,
    /// Of these, events of batches in which nothing was new.
    accepted_before_at_least: u64,
    refused: u64,
    refused_lines: Vec<RefusedLine>,
    seconds: f64,
}

impl Summary {
    fn refuse(&mut self, output: Output, line: u64, refused: Refused) {
        self.refused += 1;
        let Refused { pointer, message } = refused;
        if self.refused_lines.len() >= REFUSED_LISTED_MAX {
            return;
        }
        if !output.is_json() {
            // Empty, it is the whole line.
            let place = pointer.as_ref().filter(|pointer| !pointer.is_empty());
            let place = place.map(|pointer| format!(" {pointer}:"));
            let shown = format!("line {line}:{} {message}", place.unwrap_or_default());
            output.say(&plain(&shown));
        }
        self.refused_lines.push(RefusedLine {
            line,
            pointer,
            message,
        });
    }
}

/// Sends.
///
/// # Errors
/// When the input, the store or the endpoint fails; with exit status 5 when lines were refused.
pub async fn run(global: &Global, output: Output, args: &SendArgs) -> Result<(), Error> {
    let (lines, bytes) = Lines::open(&args.file).await?;
    let (sink, types) = match (&args.url, &global.store) {
        // The endpoint knows what is declared there.
        (Some(url), _) => (Sink::endpoint(url, args.token_file.as_deref())?, None),
        (None, Some(_)) => (Sink::store(&Target::of(global)?).await?, None),
        (None, None) => {
            let config = Config::load(&global.config)?;
            let sink = Sink::store(&Target::of_config(global, &config)?).await?;
            (sink, Some(config.contract.messages.into_keys().collect()))
        }
    };
    let lines = lines.of_types(types);
    let started = Instant::now();
    let mut summary = Summary::default();
    let sent = pump(
        lines,
        &sink,
        args,
        output,
        Progress::new(output, bytes),
        &mut summary,
    )
    .await;
    sink.close().await;
    summary.seconds = started.elapsed().as_secs_f64();
    report(output, &summary)?;
    sent?;
    match summary.refused {
        0 => Ok(()),
        n => {
            let message = format!("{n} of {} lines were refused", summary.lines);
            Err(Error::new(Code::Partly, message).with_exit(EXIT_PARTLY))
        }
    }
}

fn report(output: Output, summary: &Summary) -> Result<(), Error> {
    if output.is_json() {
        return output.json(&json!(summary));
    }
    let mut text = format!("accepted {}", summary.accepted);
    if summary.accepted_before_at_least > 0 {
        let known = summary.accepted_before_at_least;
        text.push_str(&format!(" (at least {known} of them known already)"));
    }
    text.push_str(&format!(
        ", refused {}, of {} lines in {:.1} s",
        summary.refused, summary.lines, summary.seconds
    ));
    output.line(&text)
}

/// Moves lines in batches from the input into the sink.
async fn pump(
    mut lines: Lines,
    sink: &Sink,
    args: &SendArgs,
    output: Output,
    progress: Progress,
    summary: &mut Summary,
) -> Result<(), Error> {
    let mut batch = Batch::default();
    loop {
        let line = lines.next().await?;
        let is_end = line.is_none();
        match line {
            Some(Line::Event {
                number,
                event,
                bytes,
            }) => {
                summary.lines += 1;
                batch.push(number, *event, bytes);
            }
            Some(Line::Refused { number, refused }) => {
                summary.lines += 1;
                progress.aside(|| summary.refuse(output, number, refused));
            }
            None => {}
        }
        let is_full =
            batch.events.len() >= usize::from(args.batch) || batch.bytes >= sink.bytes_max();
        if !batch.events.is_empty() && (is_full || is_end) {
            let full = std::mem::take(&mut batch);
            send_batch(full, sink, output, &progress, summary).await?;
            progress.at(lines.bytes_read(), summary.accepted);
        }
        if is_end {
            progress.finish();
            return Ok(());
        }
    }
}

/// Events with the numbers of their lines.
#[derive(Default)]
struct Batch {
    numbers: Vec<u64>,
    events: Vec<Envelope>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, number: u64, event: Envelope, bytes: usize) {
        self.numbers.push(number);
        self.events.push(event);
        self.bytes += bytes;
    }
}

/// Sends one batch; an event that is refused is taken out, and the rest is sent again.
async fn send_batch(
    mut batch: Batch,
    sink: &Sink,
    output: Output,
    progress: &Progress,
    summary: &mut Summary,
) -> Result<(), Error> {
    while !batch.events.is_empty() {
        let say = |text: &str| progress.aside(|| output.say(text));
        match sink.take(&batch.events, say).await? {
            Taken::All { is_replayed } => {
                let count = batch.events.len() as u64;
                summary.accepted += count;
                if is_replayed {
                    summary.accepted_before_at_least += count;
                }
                return Ok(());
            }
            Taken::Without { index, refused } => {
                let index = index.min(batch.events.len() - 1);
                batch.events.remove(index);
                let number = batch.numbers.remove(index);
                progress.aside(|| summary.refuse(output, number, refused));
            }
            Taken::Split => {
                let half = batch.events.len().div_ceil(2);
                let second = Batch {
                    numbers: batch.numbers.split_off(half),
                    events: batch.events.split_off(half),
                    bytes: 0,
                };
                Box::pin(send_batch(batch, sink, output, progress, summary)).await?;
                batch = second;
            }
        }
    }
    Ok(())
}
