//! What every scenario works with: processes, what is accepted, commands as an operator types
//! them, and what the records say at the end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onceward::{Outbox, envelope_of};
use onceward_core::Envelope;
use onceward_core::ledger::Ending;
use onceward_core::store::{Backlog, BacklogQuery, Case, CaseQuery, MessageState, OperationQuery};
use onceward_orders::fulfilment::Broken;
use tokio::process::Command;
use tokio::time::Instant;

use super::Scenario;
use super::books::{Effect, Side, effects_of};
use super::depot::{Depot, Fault, Scan, set_fault};
use super::receiver::{Behaviour, Request, read_requests};
use crate::commands::demo::parts::{Kind, Part, Surroundings};
use crate::commands::demo::place::Place;
use crate::error::{Code, Error};
use crate::output::Output;
use crate::store::Opened;
use crate::store_url;

/// A process that is silent for longer loses its work to another one, in milliseconds.
const LEASE_MS: u32 = 1_500;
/// How often a process says that it is there, in milliseconds.
const RENEW_MS: u32 = 300;
/// How often it is looked whether something has come about.
const LOOK: Duration = Duration::from_millis(20);
/// How long anything is waited for.
const PATIENCE: Duration = Duration::from_secs(40);
const PATIENCE_AFTER_A_MISS: Duration = Duration::from_secs(2);
/// Lines of a command's output that are shown.
const SHOWN_LINES: usize = 6;
/// A place at which nothing is ever wrong, unless the run is broken on purpose.
pub(super) const GHENT: &str = "Ghent";

/// What a scenario works with.
pub(super) struct Stage<'a, S> {
    /// The store.
    pub(super) opened: Opened<'a, S>,
    /// Where the records are.
    pub(super) place: &'a Place,
    /// How the run is broken, if it is.
    pub(super) broken: Option<Broken>,
    /// What chance follows from.
    pub(super) seed: u64,
    scenario: Scenario,
    output: Output,
    around: Surroundings,
    missed: Mutex<Vec<String>>,
}

fn failed<E>(text: impl Into<String>) -> impl FnOnce(E) -> Error
where
    E: std::error::Error + Send + Sync + 'static,
{
    let text = text.into();
    |error| Error::new(Code::Demo, text).with_source(error)
}

impl<'a, S: Depot> Stage<'a, S> {
    /// Sets the stage: tables, and where it is.
    pub(super) async fn set(
        opened: Opened<'a, S>,
        place: &'a Place,
        output: Output,
        scenario: Scenario,
        (seed, broken): (u64, Option<Broken>),
    ) -> Result<Self, Error> {
        let prepared = onceward_orders::part::prepare(opened.store).await;
        prepared.map_err(failed("could not make the tables"))?;
        let made = opened.store.create_depot().await;
        made.map_err(failed("could not make the depot's tables"))?;
        let program = std::env::current_exe();
        let stage = Self {
            opened,
            place,
            broken,
            seed,
            scenario,
            output,
            around: Surroundings {
                program: program.map_err(failed("could not find this program's own file"))?,
                store_url: place.url.clone(),
                broker_url: None,
                folder: place.folder.clone(),
            },
            missed: Mutex::default(),
        };
        match broken {
            Some(Broken::Losing) => set_fault(opened.store, GHENT, Some(Fault::Lose)).await?,
            Some(Broken::Doubling) => set_fault(opened.store, GHENT, Some(Fault::Double)).await?,
            None => {}
        }
        Ok(stage)
    }

    /// Tells people what happens.
    pub(super) fn tell(&self, text: &str) {
        if !self.output.is_json() {
            self.output.say(text);
        }
    }

    /// A process that works for the depot.
    pub(super) fn depot(&self, push_to: Option<SocketAddr>) -> Part {
        let mut args: Vec<OsString> = vec![
            "--scenario".into(),
            self.scenario.name().into(),
            "--lease-ms".into(),
            LEASE_MS.to_string().into(),
            "--renew-ms".into(),
            RENEW_MS.to_string().into(),
        ];
        if let Some(address) = push_to {
            args.extend(["--push-to".into(), format!("http://{address}/hook").into()]);
        }
        self.part(Kind::Depot, args)
    }

    /// A receiver at an address, which behaves like that.
    pub(super) fn receiver(&self, at: SocketAddr, behaviour: &Behaviour) -> Result<Part, Error> {
        self.behave(behaviour)?;
        let args: Vec<OsString> = vec![
            "--listen".into(),
            at.to_string().into(),
            "--record".into(),
            self.record().into(),
            "--behaviour".into(),
            self.behaviour().into(),
        ];
        Ok(self.part(Kind::Receiver, args))
    }

    /// Tells the receiver how to behave from now on.
    pub(super) fn behave(&self, behaviour: &Behaviour) -> Result<(), Error> {
        let behaviour = Behaviour {
            loses: self.broken == Some(Broken::Losing),
            doubles: self.broken == Some(Broken::Doubling),
            ..behaviour.clone()
        };
        let told = behaviour.tell(&self.behaviour());
        told.map_err(failed("could not tell the receiver how to behave"))
    }

    fn behaviour(&self) -> PathBuf {
        self.place.folder.join("receiver.behaviour")
    }

    fn record(&self) -> PathBuf {
        self.place.folder.join("receiver.jsonl")
    }

    /// What the receiver has recorded so far.
    pub(super) fn requests(&self) -> Result<Vec<Request>, Error> {
        read_requests(&self.record())
    }

    /// A process of this run.
    pub(super) fn part(&self, kind: Kind, args: Vec<OsString>) -> Part {
        Part::new(kind, kind.name(), args, &self.around)
    }

    /// Accepts scans in one transaction, in this order.
    pub(super) async fn accept(&self, scans: &[Scan]) -> Result<(), Error> {
        let cannot = "could not accept the scans";
        let mut envelopes: Vec<Envelope> = Vec::new();
        for scan in scans {
            let mut envelope = envelope_of(scan).map_err(failed(cannot))?;
            envelope.id.clone_from(&scan.scan);
            envelopes.push(envelope);
        }
        let store = self.opened.store;
        let mut tx = store.begin_shop().await.map_err(failed(cannot))?;
        let outbox = Outbox::new(store.clone());
        let appended = outbox.append_envelopes(&mut tx, &envelopes).await;
        appended.map_err(failed(cannot))?;
        S::commit_shop(tx).await.map_err(failed(cannot))
    }

    /// Runs a command as an operator would, and shows both.
    pub(super) async fn command(&self, args: &[&str]) -> Result<(), Error> {
        let shown: Vec<String> = args.iter().map(|arg| quoted(arg)).collect();
        let shown = format!("onceward {}", shown.join(" "));
        self.tell(&format!("  $ {shown}"));
        let mut command = Command::new(&self.around.program);
        command
            .args(args)
            .arg("--no-color")
            .env("ONCEWARD_STORE", &self.around.store_url)
            .env_remove("ONCEWARD_CONFIG")
            .current_dir(&self.around.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let ran = command.output().await;
        let ran = ran.map_err(failed(format!("could not run {shown}")))?;
        let out = String::from_utf8_lossy(&ran.stdout);
        // Without the rules of tables.
        let is_text = |line: &&str| line.chars().any(char::is_alphanumeric);
        for line in out.lines().filter(is_text).take(SHOWN_LINES) {
            self.tell(&format!("    {}", line.trim_end()));
        }
        if !ran.status.success() {
            let said = String::from_utf8_lossy(&ran.stderr);
            let first = said.lines().next().unwrap_or_default();
            self.miss(format!("{shown} ended with {}: {first}", ran.status));
        }
        Ok(())
    }

    /// Something did not come about. The scenario goes on, so that its verdict can say what else
    /// does not hold.
    fn miss(&self, text: String) {
        self.tell(&format!("  {text}"));
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        missed.push(text);
    }

    /// What did not come about.
    pub(super) fn missed(&self) -> Vec<String> {
        let missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        missed.clone()
    }

    /// Waits until something has come about, for a while. Where something else did not come about
    /// before, hardly at all.
    pub(super) async fn until(
        &self,
        what: &str,
        mut has: impl AsyncFnMut() -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let patience = match self.missed().is_empty() {
            true => PATIENCE,
            false => PATIENCE_AFTER_A_MISS,
        };
        let give_up = Instant::now() + patience;
        while !has().await? {
            if Instant::now() > give_up {
                self.miss(format!("not within {} s: {what}", patience.as_secs()));
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until a subscription has done everything.
    pub(super) async fn until_idle(&self, subscription: &str) -> Result<(), Error> {
        self.until_left(subscription, 0).await
    }

    /// Waits until a subscription has done everything but so many messages that are put off.
    pub(super) async fn until_left(&self, subscription: &str, left: u64) -> Result<(), Error> {
        let what = format!("{subscription} has done all but {left}");
        let is_done = async || {
            let backlog = self.backlog(subscription).await?;
            let deferred = backlog.deferred;
            let deferred = deferred.retry
                + deferred.held
                + deferred.running
                + deferred.operator
                + deferred.gap;
            Ok(backlog.waiting == 0 && deferred == left)
        };
        self.until(&what, is_done).await
    }

    /// How a subscription stands.
    pub(super) async fn backlog(&self, subscription: &str) -> Result<Backlog, Error> {
        let query = BacklogQuery {
            subscription,
            count_max: 10_000,
            before: None,
        };
        self.opened.check(self.opened.store.backlog(query).await)
    }

    /// All cases of a subscription, oldest first.
    pub(super) async fn cases(&self, subscription: &str) -> Result<Vec<Case>, Error> {
        let query = CaseQuery {
            subscription: Some(subscription),
            rows_max: 1_000,
            ..CaseQuery::default()
        };
        self.opened.check(self.opened.store.cases(query).await)
    }

    /// How a scan stands in a subscription.
    pub(super) async fn state(
        &self,
        subscription: &str,
        scan: &str,
    ) -> Result<Option<MessageState>, Error> {
        let query = OperationQuery {
            operation: scan,
            rows_max: 1,
        };
        let found = self
            .opened
            .check(self.opened.store.operation(query).await)?;
        let states = found.into_iter().flat_map(|message| message.subscriptions);
        let mut states = states.filter(|(name, _)| name == subscription);
        Ok(states.next().map(|(_, state)| state))
    }

    /// What the depot has of a subscription, in its order.
    pub(super) async fn depot_rows(&self, subscription: &str) -> Result<Vec<Effect>, Error> {
        let rows = self.opened.store.scans().await;
        let rows = rows.map_err(failed("could not read the depot's tables"))?;
        let of = rows.into_iter().filter(|(name, _, _)| name == subscription);
        Ok(of.map(|(_, parcel, scan)| (parcel, scan)).collect())
    }

    /// What the receiver has, in its order.
    pub(super) fn received(&self) -> Result<Vec<Effect>, Error> {
        let requests = self.requests()?.into_iter();
        let effect = |request: Request| match request.outcome {
            super::receiver::Outcome::Taken { parcel } => Some((parcel, request.id)),
            _ => None,
        };
        Ok(requests.filter_map(effect).collect())
    }

    /// All records of a subscription whose effects are these, of which `expected` are to be.
    pub(super) async fn side<'s>(
        &self,
        subscription: &str,
        expected: impl IntoIterator<Item = &'s Scan>,
        effects: Vec<Effect>,
    ) -> Result<Side, Error> {
        let expected = effects_of(expected);
        let mut states = BTreeMap::new();
        for (_, scan) in &expected {
            let state = self.state(subscription, scan).await?;
            states.insert(scan.clone(), word(state.as_ref()));
        }
        Ok(Side {
            name: subscription.to_owned(),
            expected,
            effects,
            states,
        })
    }

    /// What a process has said so far.
    pub(super) fn said(&self, part: &Part) -> String {
        std::fs::read_to_string(part.log()).unwrap_or_default()
    }

    /// Where to look, for people.
    pub(super) fn store_shown(&self) -> String {
        store_url::redact(&self.place.url)
    }
}

/// How a message stands, in a word or two.
pub(super) fn word(state: Option<&MessageState>) -> String {
    match state {
        None => "not in the log".to_owned(),
        Some(MessageState::Pending) => "pending".to_owned(),
        Some(MessageState::Deferred { kind, .. }) => format!("deferred {kind}"),
        Some(MessageState::Finished {
            ending: Ending::Done,
            ..
        }) => "done".to_owned(),
        Some(MessageState::Finished { ending, .. }) => ending.as_str().to_owned(),
        Some(MessageState::Delivered) => "delivered".to_owned(),
        Some(MessageState::Quarantined { reason, .. }) => format!("case {reason}"),
        Some(MessageState::Resolved { resolution, .. }) => resolution.as_str().to_owned(),
    }
}

/// As it is typed in a shell.
fn quoted(arg: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    match !arg.is_empty() && arg.chars().all(is_plain) {
        true => arg.to_owned(),
        false => format!("'{}'", arg.replace('\'', "'\\''")),
    }
}
