//! A poisoned key, released by the command under fire: order holds, and each message has one
//! effect. A worker is this test program again, told by its environment what to work on.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics where something is not as it should be"
)]

#[path = "../common/mod.rs"]
mod common;
mod replay;
mod worker;

use common::{on_both_stores, place};

use crate::worker::{Database, MESSAGES, Worker, bills, expected};

on_both_stores! {
    async fn a_released_poison_goes_first_and_everything_happens_once(place) {
        place.configure("");
        place.run(&["migrate"]).ended(0);
        let database = Database::open(&place).await;
        database.prepare(&bills()).await;
        let mut worker = Worker::start(&place);
        let case = place.until("the poison is a case", || {
            let listed = place.run(&["quarantine", "list", "--json"]).ended(0).json();
            listed["cases"][0]["case_id"].as_i64()
        });
        // Whatever waits behind it waits; the other keys are done.
        let others = MESSAGES as usize / 2;
        while database.effects().await.len() < others {
            tokio::task::yield_now().await;
        }
        database.mend().await;
        let number = case.to_string();
        let args = ["quarantine", "release", &number, "--yes", "--as", "ada", "--why", "mended"];
        let mut killed = 0;
        worker.kill();
        place.run(&args).ended(0);
        // Killed again and again, wherever it is then.
        loop {
            worker = Worker::start(&place);
            let seen = database.effects().await.len();
            if killed < 4 {
                let more = seen + 1 + killed * 3;
                while database.effects().await.len() < more.min(MESSAGES as usize) {
                    tokio::task::yield_now().await;
                }
                worker.kill();
                killed += 1;
                continue;
            }
            while database.effects().await.len() < MESSAGES as usize {
                tokio::task::yield_now().await;
            }
            break;
        }
        place.watch("k-1", 0);
        place.nothing_is_left();
        worker.kill();
        let effects = database.effects().await;
        for key in ["k", "o"] {
            let of_key: Vec<&String> = effects.iter().filter(|id| id.starts_with(key)).collect();
            assert_eq!(of_key, expected(key).iter().collect::<Vec<_>>(), "{effects:?}");
        }
        assert_eq!(effects.len(), MESSAGES as usize, "one effect each");
        let shown = place.run(&["quarantine", "show", &number, "--json"]).ended(0).json();
        assert_eq!(shown["state"], "replayed");
        assert_eq!(shown["history"][0]["who"], "ada");
        place.run(&args).ended(1).says(&["OW1040"]);
    }
}

#[tokio::test]
#[ignore = "only as a child of the other tests"]
async fn child() {
    worker::work().await;
}
