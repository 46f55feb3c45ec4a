//! What the simulated service does with its messages, as each message's conduct says.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use onceward::{
    Call, Class, Context, Deliver, Delivery, Envelope, Failure, Identity, Merge, Message as _,
    Priority, Probe, RetryPolicy, Semantics, Start, Subscription,
};
use onceward_core::contract::SubscriptionContract;
use serde::{Deserialize, Serialize};

use super::conduct::{Conduct, Trouble};
use super::defect::Defect;
use super::fault::Fault;
use super::history::{Event, Outcome};
use super::messages::{
    Body, Idled, Numbered, Pay, Placed, Rushed, SHIPPED, Shipped, WINDOW_BYTES, body_of, envelope,
};
use super::process::Process;
use super::setup::{Role, Setup};
use super::store::SimStore;
use super::world::World;

/// A subscription of the service, as every process declares it.
pub(super) fn subscription(
    setup: &Setup,
    role: Role,
    process: &Arc<Process>,
) -> Subscription<SimStore> {
    let semantics = match role {
        Role::Mail => Semantics::AtLeastOnce,
        Role::Notice => Semantics::AtMostOnce,
        _ => Semantics::EffectOnce,
    };
    let mut contract = SubscriptionContract::new(role.name(), &[], semantics);
    if setup.is_tight {
        contract.window_bytes = WINDOW_BYTES;
    }
    let subscription = Subscription::new(role.name(), semantics).contract(contract);
    let process = Arc::clone(process);
    let subscription = match role {
        Role::Ship => with_effects::<{ Role::Ship as usize }>(setup, subscription),
        Role::Notice => with_effects::<{ Role::Notice as usize }>(setup, subscription),
        Role::Track => subscription.on::<Shipped, _>(effect::<{ Role::Track as usize }, Shipped>),
        Role::Pay => subscription
            .on::<Pay, _>(effect::<{ Role::Pay as usize }, Pay>)
            .owns::<Pay>()
            .identity(Identity::Operation),
        Role::Stats if setup.classes => subscription
            .on_batch::<Placed, _>(count_many)
            .on_batch::<Rushed, _>(count_many)
            .on_batch::<Idled, _>(count_many),
        Role::Stats => subscription.on_batch::<Placed, _>(count_many),
        Role::Carrier if setup.classes => subscription
            .call(Carrier::<Placed>::of(&process))
            .call(Carrier::<Rushed>::of(&process))
            .call(Carrier::<Idled>::of(&process)),
        Role::Carrier => subscription.call(Carrier::<Placed>::of(&process)),
        Role::Mail => subscription.deliver(setup.types_of(role), Mail { process }),
    };
    let subscription = with_classes(setup, role, subscription);
    let subscription = subscription
        .retry(policy_of(setup))
        .concurrency(setup.concurrency)
        .lanes(setup.lanes)
        .order(setup.order(role))
        .timeout_ms(setup.timeout_ms)
        .batch_max(if setup.coalesce { 20 } else { 1 })
        .start(Start::Earliest);
    let subscription = match setup.tenants_of(role) {
        Some(tenants) => subscription.tenants(tenants),
        None => subscription,
    };
    let subscription = match setup.version_policy() {
        Some(policy) => subscription.versions(policy),
        None => subscription,
    };
    let subscription = match setup.has(Fault::Outage) {
        true => subscription.breaker(setup.breaker()),
        false => subscription,
    };
    let subscription = match setup.merges(role) {
        true => subscription.merge(Merge::Latest),
        false => subscription,
    };
    let subscription = match setup.sheds_after_ms(role) {
        Some(after_ms) => subscription.shed(setup.types_of(role), after_ms),
        None => subscription,
    };
    match setup.holds_key(role) {
        true => subscription.on_poison(onceward::OnPoison::HoldKey),
        false => subscription.on_poison(onceward::OnPoison::Skip),
    }
}

/// Routes every type that an effect takes.
fn with_effects<const ROLE: usize>(
    setup: &Setup,
    subscription: Subscription<SimStore>,
) -> Subscription<SimStore> {
    let subscription = subscription.on::<Placed, _>(effect::<ROLE, Placed>);
    if !setup.classes {
        return subscription;
    }
    subscription
        .on::<Rushed, _>(effect::<ROLE, Rushed>)
        .on::<Idled, _>(effect::<ROLE, Idled>)
}

/// Declares the classes of its types, or the other way round.
fn with_classes(
    setup: &Setup,
    role: Role,
    subscription: Subscription<SimStore>,
) -> Subscription<SimStore> {
    if !setup.classes || !role.has_classes() {
        return subscription;
    }
    let (rushed, idled) = match setup.defect {
        Some(Defect::ClassesTurned) => (Priority::Low, Priority::High),
        _ => (Priority::High, Priority::Low),
    };
    subscription
        .priority::<Rushed>(rushed)
        .priority::<Idled>(idled)
}

/// The budget as the engine is told it, which may be wrong on purpose.
fn policy_of(setup: &Setup) -> RetryPolicy {
    let mut policy = setup.policy();
    match setup.defect {
        Some(Defect::AgeUnlimited) => policy.age_max_ms = 86_400_000,
        Some(Defect::AgeCutShort) => policy.age_max_ms /= 2,
        _ => {}
    }
    policy
}

/// Nobody is there; a defect takes that for trouble of the message.
fn nobody(world: &World) -> Failure {
    match world.setup.defect {
        Some(Defect::OutageCounts) => Failure::transient("away", "simulated"),
        _ => Failure::unavailable("away", "simulated"),
    }
}

/// A failure of user code that nobody classified.
#[derive(Debug, thiserror::Error)]
#[error("something else went wrong")]
struct Unknown;

/// The failure of a trouble that is one.
fn failure_of(trouble: Trouble) -> Failure {
    match trouble {
        Trouble::RateLimited => Failure::rate_limited(150, "simulated"),
        Trouble::Permanent => Failure::permanent("simulated", "simulated"),
        Trouble::Schema => Failure::new(Class::Schema, "simulated", "simulated"),
        Trouble::Rejected => Failure::rejected("simulated", "simulated"),
        Trouble::Operator => Failure::operator("simulated", "simulated"),
        Trouble::Ambiguous => Failure::ambiguous("simulated", "simulated"),
        Trouble::Unclassified => Failure::from(Unknown),
        _ => Failure::transient("simulated", "simulated"),
    }
}

/// Runs into a trouble that is not a plain failure.
async fn run_into(process: &Process, trouble: Trouble, timeout_ms: u64) {
    match trouble {
        // Without the hook, which would print it.
        Trouble::Panic => std::panic::resume_unwind(Box::new("simulated panic")),
        Trouble::TimeOut => tokio::time::sleep(Duration::from_millis(2 * timeout_ms)).await,
        Trouble::Kill => {
            process.die("killed by a message");
            process.if_alive().await;
        }
        _ => {}
    }
}

/// Whether a run of a message fails.
fn fails(conduct: Conduct, attempt: u32, runs_before: u32) -> Option<Trouble> {
    let trouble = conduct.trouble?;
    let fails = match trouble {
        Trouble::RateLimited | Trouble::Kill => runs_before < conduct.times,
        trouble => trouble.is_final() || attempt <= conduct.times,
    };
    fails.then_some(trouble)
}

const fn role_of(number: usize) -> Role {
    Role::ALL[number]
}

async fn effect<const ROLE: usize, M: Numbered>(
    cx: &mut Context<SimStore>,
    message: M,
) -> Result<u64, Failure> {
    let role = role_of(ROLE);
    let (seq, attempt) = (cx.message().seq, cx.attempt());
    let process = Arc::clone(&cx.tx().process);
    let world = Arc::clone(&process.world);
    let number = message.number();
    let conduct = world.setup.conduct(role, number);
    let (run, before) = world.run(role, number);
    process.say(Event::Ran {
        role,
        seq,
        number,
        attempt,
        run,
    });
    write_effect(cx, role, run, seq)?;
    let follows = role == Role::Ship && conduct.follows;
    let failing = fails(conduct, attempt, before);
    if follows && world.setup.is_early {
        let envelope = follow_up(cx, &world.setup, number);
        if failing.is_some_and(|trouble| trouble != Trouble::Rejected) {
            world.keep(&process, &envelope);
        }
        cx.append_envelope(envelope);
    }
    process.step(conduct.work_ms).await;
    match failing {
        Some(Trouble::Refused) => {
            let key = format!("{}-{seq}", role.name());
            let connection = cx.tx().memory();
            connection.insert("unique", &key, "1").await?;
            connection.insert("unique", &key, "2").await?;
        }
        Some(trouble) => {
            run_into(&process, trouble, world.setup.timeout_ms).await;
            return Err(failure_of(trouble));
        }
        None => {}
    }
    if follows && !world.setup.is_early {
        let envelope = follow_up(cx, &world.setup, number);
        cx.append_envelope(envelope);
    }
    Ok(run)
}

/// What follows the message at hand.
fn follow_up(cx: &Context<SimStore>, setup: &Setup, number: u64) -> Envelope {
    let seq = cx.message().seq;
    let body = Body {
        number: number + 1_000_000,
        copy: 1_000_000 + seq,
        key: cx.message().envelope.key().to_owned(),
    };
    envelope(setup, Shipped::TYPE, format!("{SHIPPED}{seq}"), &body)
}

/// A business row of its own for each run: two that stay are two effects.
fn write_effect(cx: &mut Context<SimStore>, role: Role, run: u64, seq: u64) -> Result<(), Failure> {
    let (key, value) = (format!("{run:06}"), format!("{} {seq}", role.name()));
    cx.tx().memory().put("effects", &key, &value)?;
    Ok(())
}

async fn count_many<M: Numbered>(
    cx: &mut Context<SimStore>,
    messages: Vec<M>,
) -> Result<Vec<u64>, Failure> {
    let role = Role::Stats;
    let (first, attempt) = (cx.message().seq, cx.attempt());
    let process = Arc::clone(&cx.tx().process);
    let world = Arc::clone(&process.world);
    let is_alone = messages.len() == 1;
    let mut runs = Vec::new();
    let mut failing = None;
    for message in &messages {
        let number = message.number();
        let (run, before) = world.run(role, number);
        process.say(Event::Ran {
            role,
            seq: if is_alone { first } else { 0 },
            number,
            attempt,
            run,
        });
        let value = format!("{} copy {}", role.name(), message.copy());
        let key = format!("{run:06}");
        cx.tx().memory().put("effects", &key, &value)?;
        runs.push(run);
        let conduct = world.setup.conduct(role, number);
        process.step(conduct.work_ms).await;
        // How often each was tried is known only of one that is alone.
        let fails = match is_alone {
            true => fails(conduct, attempt, before),
            false => conduct
                .trouble
                .filter(|trouble| *trouble != Trouble::Kill || before < conduct.times),
        };
        failing = failing.or(fails);
    }
    match failing {
        Some(Trouble::Refused) => Err(Failure::permanent("database_refused", "simulated")),
        Some(trouble) => {
            run_into(&process, trouble, world.setup.timeout_ms).await;
            Err(failure_of(trouble))
        }
        None => Ok(runs),
    }
}

/// What the carrier answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Booking(u64);

/// A service outside, with a record of its own, that honours idempotency keys.
struct Carrier<M> {
    process: Arc<Process>,
    of: PhantomData<fn(M)>,
}

impl<M> Carrier<M> {
    fn of(process: &Arc<Process>) -> Self {
        let process = Arc::clone(process);
        Self {
            process,
            of: PhantomData,
        }
    }

    fn asked(&self, number: u64, operation: &str, outcome: Outcome) {
        self.process.say(Event::Outside {
            role: Role::Carrier,
            number,
            operation: operation.to_owned(),
            outcome,
        });
    }
}

impl<M: Numbered> Call<SimStore> for Carrier<M> {
    type Message = M;
    type Answer = Booking;
    type Reply = Booking;

    async fn call(&self, operation: &str, message: &M) -> Result<Booking, Failure> {
        let world = Arc::clone(&self.process.world);
        let number = message.number();
        let conduct = world.setup.conduct(Role::Carrier, number);
        self.process.step(1 + conduct.work_ms).await;
        if world.is_away() {
            self.asked(number, operation, Outcome::Away);
            return Err(nobody(&world));
        }
        let (_, before) = world.run(Role::Carrier, number);
        let trouble = conduct
            .trouble
            .filter(|trouble| trouble.is_final() || before < conduct.times);
        let is_done = matches!(
            trouble,
            None | Some(Trouble::Ambiguous | Trouble::TimeOut | Trouble::Panic | Trouble::Kill)
        );
        let outcome = match trouble {
            None => Outcome::Done,
            Some(_) if is_done => Outcome::DoneUnheard,
            Some(Trouble::Rejected) => Outcome::Rejected,
            Some(_) => Outcome::Failed,
        };
        let booking = is_done.then(|| world.book(operation));
        self.asked(number, operation, outcome);
        if let Some(trouble) = trouble {
            run_into(&self.process, trouble, world.setup.timeout_ms).await;
            return Err(failure_of(match trouble {
                Trouble::Refused => Trouble::Permanent,
                // Even where it is heard in time.
                _ if is_done => Trouble::Ambiguous,
                trouble => trouble,
            }));
        }
        self.process.step(world.random(8)).await;
        booking
            .map(Booking)
            .ok_or_else(|| Failure::permanent("no_booking", "without a booking there is no answer"))
    }

    async fn probe(&self, operation: &str, message: &M) -> Result<Probe<Booking>, Failure> {
        let world = Arc::clone(&self.process.world);
        self.process.step(1 + world.random(5)).await;
        if world.is_away() {
            self.process.say(Event::ProbedNobody {
                role: Role::Carrier,
                number: message.number(),
            });
            return Err(nobody(&world));
        }
        let booking = world.booking(operation);
        self.process.say(Event::Probed {
            operation: operation.to_owned(),
            is_done: booking.is_some(),
        });
        if !world.is_calm() && world.setup.has(Fault::Lost) && world.chance(20) {
            return Err(Failure::transient("probe_lost", "simulated"));
        }
        self.process.step(world.random(5)).await;
        Ok(booking.map_or(Probe::DidNotHappen, |booking| {
            Probe::Happened(Booking(booking))
        }))
    }

    async fn outcome(
        &self,
        cx: &mut Context<SimStore>,
        message: M,
        booking: Booking,
    ) -> Result<Booking, Failure> {
        let (seq, attempt) = (cx.message().seq, cx.attempt());
        let world = Arc::clone(&self.process.world);
        let (run, _) = world.run(Role::Carrier, 1_000_000_000 + seq);
        self.process.say(Event::Ran {
            role: Role::Carrier,
            seq,
            number: message.number(),
            attempt,
            run,
        });
        write_effect(cx, Role::Carrier, run, seq)?;
        Ok(booking)
    }
}

/// Somebody who takes messages as they are.
struct Mail {
    process: Arc<Process>,
}

impl Deliver for Mail {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        let world = Arc::clone(&self.process.world);
        let seq = delivery.row.seq;
        let body = body_of(&delivery.row.envelope.payload)
            .ok_or_else(|| Failure::new(Class::Schema, "unreadable", "unreadable"))?;
        let conduct = world.setup.conduct(Role::Mail, body.number);
        if world.is_away() {
            self.process.step(1 + conduct.work_ms).await;
            self.process.say(Event::Delivered {
                role: Role::Mail,
                seq,
                outcome: Outcome::Away,
            });
            return Err(nobody(&world));
        }
        let (run, before) = world.run(Role::Mail, body.number);
        self.process.say(Event::Ran {
            role: Role::Mail,
            seq,
            number: body.number,
            attempt: delivery.attempt,
            run,
        });
        self.process.step(1 + conduct.work_ms).await;
        // While the breaker is not closed an attempt is not counted, and a breaker stays open where
        // all fail.
        let trouble = match world.setup.has(Fault::Outage) {
            true => fails(conduct, before.saturating_add(1), before),
            false => fails(conduct, delivery.attempt, before),
        };
        let outcome = match trouble {
            None => Outcome::Done,
            Some(Trouble::Rejected) => Outcome::Rejected,
            Some(Trouble::TimeOut | Trouble::Kill | Trouble::Panic) => Outcome::DoneUnheard,
            Some(_) => Outcome::Failed,
        };
        self.process.say(Event::Delivered {
            role: Role::Mail,
            seq,
            outcome,
        });
        if let Some(trouble) = trouble {
            run_into(&self.process, trouble, world.setup.timeout_ms).await;
            return Err(failure_of(match trouble {
                Trouble::Refused => Trouble::Permanent,
                trouble => trouble,
            }));
        }
        self.process.step(world.random(5)).await;
        Ok(())
    }
}
