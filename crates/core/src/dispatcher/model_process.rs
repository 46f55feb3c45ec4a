//! A process around a dispatcher, which carries its commands out on the model of the store.

use std::collections::{BTreeSet, VecDeque};

use super::model::{Chance, Model, Stored, contract};
use super::*;

/// One process: a dispatcher and what is under way around it.
pub(super) struct Process {
    pub(super) dispatcher: Dispatcher,
    pub(super) underway: VecDeque<Command>,
    pub(super) released: BTreeSet<u16>,
    /// What was done or read, and is not known here yet.
    pub(super) answers: Vec<Event>,
    /// Whether answers may take a while.
    pub(super) is_slow: bool,
}

impl Process {
    pub(super) fn new(now_ms: u64) -> Self {
        Self::with(Dispatcher::new(&contract(), 8, now_ms).grouped(&Grouping::of_types(["t"])))
    }

    /// One that works on what a model has.
    pub(super) fn on(model: &Model, now_ms: u64) -> Self {
        let mut dispatcher = Dispatcher::new(&contract(), 8, now_ms).grouped(&model.grouping);
        if let Some(window) = model.window.filter(|_| model.grouping.count() > 1) {
            dispatcher.rows = Room::new(window, model.grouping.count());
            dispatcher.divide();
        }
        Self::with(dispatcher)
    }

    pub(super) fn with(dispatcher: Dispatcher) -> Self {
        Self {
            dispatcher,
            underway: VecDeque::new(),
            released: BTreeSet::new(),
            answers: Vec::new(),
            is_slow: false,
        }
    }

    pub(super) fn handle(&mut self, model: &mut Model, now_ms: u64, event: Event) {
        for command in self.dispatcher.handle(now_ms, event) {
            match command {
                Command::Save(spans) => {
                    for span in spans {
                        for (lane, epoch) in span.lanes {
                            assert_eq!(model.epochs[&lane], epoch);
                            model.check_stand(lane, &span.stand);
                            model.stands.insert(lane, span.stand.clone());
                        }
                    }
                }
                Command::Released(lane) => {
                    model.check_stand(lane.lane, &lane.stand);
                    model.stands.insert(lane.lane, lane.stand);
                    self.released.insert(lane.lane);
                }
                command => self.underway.push_back(command),
            }
        }
    }

    /// Carries out one command that is under way, any of them.
    pub(super) fn step(&mut self, model: &mut Model, chance: &mut Chance, now_ms: u64) {
        let count = self.underway.len() + self.answers.len();
        let index = chance.below(count as u64) as usize;
        let Some(command) = self.underway.remove(index) else {
            let index = index - self.underway.len();
            let answer = self.answers.remove(index);
            return self.handle(model, now_ms, answer);
        };
        let event = match command {
            Command::Read { feed, .. } if chance.one_in(20) => Event::ReadFailed { feed },
            Command::Read { feed, from } => {
                let (mut rows, next) = model.read(&from);
                // What has a case already is not handed in again: the runner sees to that.
                rows.retain(|row| {
                    !model.cases.contains(&row.seq) && !model.replayed.contains(&row.seq)
                });
                Event::Page {
                    feed,
                    from,
                    rows,
                    next,
                }
            }
            Command::Load {
                load,
                key,
                after_seq,
                versions_to,
                rows_max,
                ..
            } => {
                let versions_to = versions_to.as_ref().map(|(row, to)| (&**row, *to));
                let rows = model.load(&key, after_seq, versions_to, rows_max, now_ms);
                Event::Loaded { load, key, rows }
            }
            Command::Look { look, lane } => Event::Looked {
                look,
                lane,
                held: model.held_keys(lane, now_ms),
                cases: model.held_cases(lane),
            },
            Command::Run(batch) => model.run(&batch, chance, now_ms),
            Command::Store { tokens, deferrals } => {
                for deferral in &deferrals {
                    model.defer(deferral, now_ms);
                }
                Event::Stored { tokens }
            }
            Command::Clear { tokens, seqs } => {
                let is_running = |s: &Stored| s.deferral.kind == DeferralKind::Running;
                for seq in seqs {
                    model
                        .deferred
                        .extract_if(seq..=seq, |_, s| is_running(s))
                        .count();
                }
                Event::Stored { tokens }
            }
            Command::Save(_) | Command::Released(_) => return,
        };
        if self.is_slow && chance.one_in(2) {
            self.answers.push(event);
        } else {
            self.handle(model, now_ms, event);
        }
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.underway.is_empty() && self.answers.is_empty()
    }
}
