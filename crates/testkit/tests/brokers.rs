//! The suite of brokers on a broker in memory, and that it catches brokers that are wrong.

use std::collections::BTreeSet;

use onceward_testkit::brokers::{BrokerDefect, MemoryFixture};

onceward_testkit::broker_suite!(MemoryFixture::new());

/// The case that exists because of a defect.
const fn case_against(defect: BrokerDefect) -> &'static str {
    match defect {
        BrokerDefect::ConfirmsBeforeStoring => "publishing::what_is_confirmed_outlives_the_broker",
        BrokerDefect::OutcomesShifted | BrokerDefect::OversizeStopsBatch => {
            "publishing::each_message_has_its_own_outcome"
        }
        BrokerDefect::SwallowsOversize => {
            "publishing::an_oversize_message_is_refused_with_its_size"
        }
        BrokerDefect::SwallowsUnroutable => "publishing::what_nothing_takes_is_told",
        BrokerDefect::DedupeForgotten => "publishing::the_same_id_again_is_the_same_message",
        BrokerDefect::ReordersKey => "publishing::a_key_keeps_its_order",
        BrokerDefect::AltersAttributes => "publishing::what_is_confirmed_arrives_as_it_was",
        BrokerDefect::DoneComesAgain => "receiving::what_is_done_does_not_come_again",
        BrokerDefect::LosesAgain => "receiving::what_is_to_come_again_comes_again",
        BrokerDefect::IgnoresDelay => "receiving::it_does_not_come_before_its_delay",
        BrokerDefect::ForgetsCount => "receiving::it_is_counted_how_often_it_came",
        BrokerDefect::GivesNothingBack => "receiving::what_is_given_back_comes_in_its_order",
        BrokerDefect::KeepsHandedBack => "receiving::what_is_handed_back_goes_to_another",
        BrokerDefect::LosesUnsettled => "receiving::what_was_never_settled_comes_again",
        BrokerDefect::IgnoresMessagesMax => "receiving::messages_are_bounded",
        BrokerDefect::IgnoresBytesMax => "receiving::bytes_are_bounded",
        BrokerDefect::ExtendsNothing => "receiving::more_time_keeps_others_away",
        BrokerDefect::SettlesAnother => "receiving::a_settlement_is_of_its_own_message",
        BrokerDefect::PlacePerDelivery => {
            "foreign::a_foreign_message_is_the_same_on_every_delivery"
        }
        _ => "a case for a defect that is new here",
    }
}

/// The cases that fail with a defect; in time that does not pass while they wait.
async fn failures(defect: BrokerDefect) -> BTreeSet<&'static str> {
    let cases = onceward_testkit::broker_suite_cases! {
        @list (MemoryFixture::with_defect(defect))
    };
    assert!(cases.len() > 20, "all cases are run: {}", cases.len());
    let mut failed = BTreeSet::new();
    for (name, case) in cases {
        // A panic ends the task and not the test.
        let ended = tokio::spawn(onceward_testkit::brokers::guarded(name, case)).await;
        if !matches!(ended, Ok(Ok(()))) {
            failed.insert(name);
        }
    }
    failed
}

#[tokio::test(start_paused = true)]
async fn every_defect_fails_the_case_that_is_there_for_it() {
    // Many panics are expected here; they would bury the one that is not.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for defect in BrokerDefect::ALL {
        let failed = failures(defect).await;
        if !failed.contains(case_against(defect)) {
            missed.push((defect, failed));
        }
    }
    std::panic::set_hook(report);
    assert!(missed.is_empty(), "not caught by their case: {missed:#?}");
}
