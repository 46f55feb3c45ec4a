//! From one process to the next: who follows starts when nothing is held by who was before.

use std::sync::Mutex;

use onceward::Surroundings;

use super::*;

/// What two receivers did, in its order.
#[derive(Clone)]
pub(crate) struct Notes {
    who: &'static str,
    all: Arc<Mutex<Vec<(&'static str, &'static str)>>>,
    gives_back_in: Duration,
}

impl Notes {
    pub(crate) fn note(&self, what: &'static str) {
        self.all.lock().unwrap().push((self.who, what));
    }

    /// As a broker that answers late.
    pub(crate) async fn take_long(&self) {
        tokio::time::sleep(self.gives_back_in).await;
    }

    fn found(&self) -> Vec<(&'static str, &'static str)> {
        let mut found = self.all.lock().unwrap().clone();
        found.dedup();
        found
    }
}

async fn noting(fixture: &MemoryFixture, notes: &Notes, who: &'static str) -> Arc<Troubled> {
    let mut subscriber = Troubled::new(fixture).await;
    let one = Arc::get_mut(&mut subscriber).unwrap();
    one.notes = Some(Notes {
        who,
        ..notes.clone()
    });
    subscriber
}

async fn start_as(
    member: &'static str,
    store: &Sqlite,
    subscriber: Arc<Troubled>,
) -> Running<Sqlite> {
    let count = AtomicU32::new(0);
    let next = move || format!("{member}{}", count.fetch_add(1, Ordering::SeqCst));
    let engine = Engine::builder(store.clone()).options(options());
    let engine = engine.surroundings(Surroundings::apart(next));
    let engine = engine
        .intake(intake(subscriber, |_| ()))
        .subscribe(things());
    engine.start().await.unwrap()
}

fn notes(gives_back_in: Duration) -> Notes {
    Notes {
        who: "",
        all: Arc::default(),
        gives_back_in,
    }
}

const IN_TURN: [(&str, &str); 3] = [("m", "asks"), ("m", "gave back"), ("other", "asks")];

/// A member that sorts before the owner, as one whose clock is behind, gets the lane; for longer
/// than a lease the owner cannot give back what it had.
#[tokio::test]
async fn who_gets_the_lane_waits_until_what_was_received_has_gone_back() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let notes = notes(Duration::from_millis(2_500));
    let one = start_as("m", &store, noting(&fixture, &notes, "m").await).await;
    until("the first takes in", || async { state(&one).is_taking }).await;
    publish(&fixture, &many(60)).await;
    let other = start_as("a", &store, noting(&fixture, &notes, "other").await).await;
    until("the other takes in", || async { state(&other).is_taking }).await;
    until("it has asked", || async {
        notes.found().contains(&("other", "asks"))
    })
    .await;
    assert_eq!(notes.found(), IN_TURN);
    assert_eq!(one.state().leases_lost, 0);
    until("all have had their effect", || async {
        effects(&store).await.len() >= 60
    })
    .await;
    idle(&store, "things").await;
    assert_each_once(&effects(&store).await, 60);
    drop(other);
    drop(one);
}

/// For longer than a lease: who stops keeps it until it has given back.
#[tokio::test]
async fn who_follows_one_that_stops_waits_until_all_has_gone_back() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let notes = notes(Duration::from_millis(2_500));
    let one = start_as("m", &store, noting(&fixture, &notes, "m").await).await;
    until("the first takes in", || async { state(&one).is_taking }).await;
    let other = start_as("n", &store, noting(&fixture, &notes, "other").await).await;
    until("the other is there", || async { other.state().is_member }).await;
    one.shutdown(Duration::from_secs(20)).await;
    until("it has asked", || async {
        notes.found().contains(&("other", "asks"))
    })
    .await;
    assert_eq!(notes.found(), IN_TURN);
    drop(other);
}
