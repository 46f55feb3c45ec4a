//! Replay campaigns by the command, over processes that die.

use serde_json::Value;

use crate::common::on_both_stores;
use crate::place::Place;
use crate::worker::{Database, Worker, poisons};

const POISONS: u32 = 40;

/// Options of a plan in these tests: in about two seconds, and without a failure.
const PACE: [&str; 10] = [
    "--canary",
    "2",
    "--rate",
    "20",
    "--ramp",
    "0s",
    "--failures",
    "0",
    "--why",
    "mended",
];

/// A place where every message is a case whose cause is mended, and one process works.
async fn all_mended(place: &Place) -> (Database, Worker) {
    place.configure("");
    place.run(&["migrate"]).ended(0);
    let database = Database::open(place).await;
    database.prepare(&poisons(POISONS)).await;
    let worker = Worker::start(place);
    place.until("all are cases", || {
        let args = ["quarantine", "list", "--json", "--limit", "1000"];
        let listed = place.run(&args).ended(0).json();
        let open = listed["cases"].as_array().map_or(0, Vec::len);
        (open == POISONS as usize).then_some(())
    });
    database.mend().await;
    (database, worker)
}

fn plan(place: &Place, more: &[&str]) -> Value {
    let mut args = vec![
        "replay",
        "plan",
        "--subscription",
        "hook",
        "--as",
        "ada",
        "--json",
    ];
    args.extend(PACE);
    args.extend(more);
    place.run(&args).ended(0).json()
}

fn show(place: &Place, number: &str) -> Value {
    let args = ["replay", "show", number, "--limit", "1000", "--json"];
    place.run(&args).ended(0).json()
}

fn number(campaign: &Value) -> String {
    campaign["campaign_id"].as_i64().unwrap().to_string()
}

/// Waits, without a pause of its own, until there are so many effects.
async fn until_effects(database: &Database, count: usize) {
    while database.effects().await.len() < count {
        tokio::task::yield_now().await;
    }
}

async fn each_once(database: &Database) {
    let mut effects = database.effects().await;
    effects.sort();
    let mut expected: Vec<String> = (1..=POISONS).map(|n| format!("p-{n}")).collect();
    expected.sort();
    assert_eq!(effects, expected);
}

on_both_stores! {
    /// Whoever drives it is killed in the middle, again and again; another one finishes it.
    async fn a_campaign_outlives_its_processes_and_each_effect_is_there_once(place) {
        let (database, mut worker) = all_mended(&place).await;
        let campaign = number(&plan(&place, &[]));
        let second = plan(&place, &[]);
        assert_eq!(second["counts"]["refused"], POISONS);
        assert_eq!(second["findings"]["in-campaign"], POISONS);
        place.run(&["replay", "start", &campaign, "--yes", "--as", "bo"]).ended(0);
        let mut other = Worker::start(&place);
        for more in [1, 8, 20] {
            until_effects(&database, more).await;
            worker.kill();
            worker = other;
            other = Worker::start(&place);
        }
        let watched = place.run(&["replay", "watch", &campaign, "--timeout", "60s"]).ended(0);
        assert!(watched.out.contains("done: 0 left"), "{}", watched.out);
        each_once(&database).await;
        let shown = show(&place, &campaign);
        assert_eq!(shown["state"], "done");
        assert_eq!(shown["counts"]["done"], POISONS);
        let items = shown["items"].as_array().unwrap();
        assert!(items.iter().all(|item| item["state"] == "done"), "{items:?}");
        let history = place.run(&["quarantine", "show", "1", "--json"]).ended(0).json();
        let last = history["history"].as_array().unwrap().last().unwrap();
        assert_eq!((&last["action"], &last["who"]), (&"release".into(), &"bo".into()));
        place.nothing_is_left();
        drop((worker, other));
    }

    /// A command of the user's looks at the canary; nothing more goes out when it says no.
    async fn a_command_verifies_the_canary(place) {
        let (database, _worker) = all_mended(&place).await;
        let first = number(&plan(&place, &["--verify", "person"]));
        let start = |campaign: &str, command: &str| {
            let args = [
                "replay", "start", campaign, "--yes", "--watch", "--verify-command", command,
            ];
            place.run(&args)
        };
        start(&first, "exit 3").ended(1).says(&["OW1052", "exit status: 3"]);
        until_effects(&database, 2).await;
        let shown = show(&place, &first);
        assert_eq!(shown["state"], "stopped");
        assert_eq!(shown["counts"]["left"], POISONS - 2);
        let rest = plan(&place, &["--verify", "person"]);
        assert_eq!(rest["counts"]["left"], POISONS - 2, "what is done is no case any more");
        // It gets what went out, and says yes where that is two messages.
        let command = r#"test "$(grep -o '"seq"' | wc -l)" -eq 2"#;
        start(&number(&rest), command).ended(0);
        each_once(&database).await;
    }

    /// What is done is not done again; on purpose it is, once more each.
    async fn a_rerun_is_on_purpose(place) {
        let (database, _worker) = all_mended(&place).await;
        let cases = number(&plan(&place, &[]));
        place.run(&["replay", "start", &cases, "--yes", "--watch"]).ended(0);
        each_once(&database).await;
        let all = ["--of", "log", "--key", "p-7"];
        let resend = plan(&place, &all);
        assert_eq!(resend["findings"]["done-already"], 1);
        place.run(&["replay", "start", &number(&resend), "--yes", "--watch"]).ended(0);
        each_once(&database).await;
        let rerun = plan(&place, &["--of", "log", "--key", "p-7", "--kind", "rerun"]);
        assert_eq!(rerun["generation"], 1);
        place.run(&["replay", "start", &number(&rerun), "--yes", "--watch"]).ended(0);
        let effects = database.effects().await;
        assert_eq!(effects.iter().filter(|name| *name == "p-7").count(), 2);
        assert_eq!(effects.len(), POISONS as usize + 1);
    }

    /// Paused, nothing more goes out; stopped, what is left stays a case.
    async fn people_pause_and_stop_it(place) {
        let (database, worker) = all_mended(&place).await;
        let campaign = number(&plan(&place, &[]));
        let own = ["replay", "start", &campaign, "--yes", "--approved-by", "ada"];
        place.run(&own).ended(1).says(&["OW1043"]);
        place.run(&["replay", "start", &campaign]).ended(2).says(&["OW1041"]);
        place.run(&["replay", "start", &campaign, "--yes", "--approved-by", "bo"]).ended(0);
        until_effects(&database, 3).await;
        place.run(&["replay", "pause", &campaign]).ended(0);
        place.run(&["replay", "pause", &campaign]).ended(1).says(&["OW1040"]);
        let paused = place.until("what is out has ended", || {
            let shown = show(&place, &campaign);
            (shown["counts"]["running"] == 0).then_some(shown)
        });
        assert_eq!(paused["state"], "paused");
        let done = database.effects().await.len();
        place.run(&["replay", "resume", &campaign]).ended(0);
        until_effects(&database, done + 1).await;
        place.run(&["replay", "stop", &campaign, "--yes"]).ended(1).says(&["OW1043"]);
        place.run(&["replay", "stop", &campaign, "--yes", "--why", "enough"]).ended(0);
        place.run(&["replay", "watch", &campaign]).ended(1).says(&["OW1050", "enough"]);
        let shown = show(&place, &campaign);
        let left = shown["counts"]["left"].as_u64().unwrap();
        let done = shown["counts"]["done"].as_u64().unwrap();
        assert_eq!(left + done, u64::from(POISONS));
        assert_eq!(database.effects().await.len() as u64, done);
        let args = ["replay", "show", &campaign, "--state", "left", "--json"];
        let shown = place.run(&args).ended(0).json();
        assert_eq!(shown["items"].as_array().unwrap().len() as u64, left.min(100));
        let listed = place.run(&["replay", "list", "--json"]).ended(0).json();
        assert_eq!(listed["campaigns"].as_array().unwrap().len(), 1);
        drop(worker);
    }
}
