//! The suite catches stores that are wrong: for every defect a case, named here, fails.

use std::collections::BTreeSet;

use onceward_testkit::memory::{Defect, MemoryFixture};

/// The case that exists because of a defect.
const fn case_against(defect: Defect) -> &'static str {
    match defect {
        Defect::NoFence => "takeover::an_open_transaction_of_the_dead_cannot_commit",
        Defect::LedgerWithoutSubscription => "ledger::subscriptions_do_not_suppress_each_other",
        Defect::CountsAsAsked => "ledger::two_at_once_are_one_effect",
        Defect::CursorOnSequence => "log_interleaved::interleaved_writers_lose_nothing",
        Defect::OrderByTransaction => "log_interleaved::a_key_keeps_the_order_of_its_commits",
        Defect::PageSkipsRow => "log::pages_cut_anywhere_go_on_exactly_there",
        Defect::ClearIgnored => "deferrals::clearing_removes_just_that",
        Defect::GoneUnseen => "deferrals::what_is_gone_is_told",
        Defect::FirstTimeForgotten => "deferrals::the_age_counts_from_the_first_time",
        Defect::HeldOverwrites => "deferrals::holding_overwrites_nothing",
        Defect::MarksStay => "deferrals::what_was_not_begun_after_all_is_held_again",
        Defect::DeferralsUnordered => "deferrals::a_keys_messages_come_in_their_order",
        Defect::OldEpochHonoured => "takeover::a_position_of_an_old_epoch_is_ignored",
        Defect::NeverSuspect => "takeover::only_the_lane_of_a_dead_owner_is_suspect",
        Defect::DeathsForgotten => "takeover::a_death_is_counted_for_what_was_running",
        Defect::DropCommits => "effects::dropping_a_transaction_leaves_no_trace",
        Defect::CallersShareKeys => "acceptance::callers_share_no_keys",
        Defect::TidyIgnoresPositions => "upkeep::nothing_a_position_still_needs_is_removed",
        Defect::TidyForgetsByAge => "upkeep::the_ledger_remembers_what_is_deferred",
        Defect::ActsTwice => "operate::what_is_refused_leaves_no_trace",
        Defect::RevisionStands => "operate_subscriptions::what_changes_work_raises_the_revision",
        Defect::ReleasedWithOldBudget => "operate::a_released_message_is_first_of_its_key_again",
        Defect::CopyForgotten => "operate_subscriptions::a_released_message_outlives_its_row",
        Defect::CorrectionForgotten => {
            "operate_corrections::a_correction_runs_in_the_originals_place"
        }
        Defect::OriginalOverwritten => {
            "operate_corrections::a_correction_that_fails_is_a_case_with_both"
        }
        Defect::PurgesWhatMayCome => "operate_corrections::a_case_goes_when_nothing_can_need_it",
        Defect::RemovesWhatIsLeft => "registry::what_is_left_keeps_a_subscription",
        Defect::PausesCount => "operate_subscriptions::no_age_counts_in_a_pause",
        Defect::BacklogLooksYoung => "status::the_backlog_counts_deferred_and_quarantined",
        Defect::StillCounts => "still::no_age_counts_while_something_stands_still",
        Defect::StillUncut => "still::an_operators_pause_takes_the_place_of_what_stands_still",
        Defect::PausesOverlap => "still::time_that_comes_twice_is_paused_once",
        Defect::FutureIsLate => "still::what_is_due_later_is_not_late",
        Defect::CampaignsShare => "replay::two_campaigns_never_have_one_message",
        Defect::RerunsUndeclared => "replay_log::a_rerun_needs_a_repeatable_subscription",
        Defect::StepsRepeat => "replay::what_went_out_is_not_sent_again",
        Defect::StoppedKeepsItems => "replay::two_campaigns_never_have_one_message",
        Defect::GenerationForgotten => "replay_log::a_rerun_comes_under_its_generation",
        Defect::TidyIgnoresCampaigns => "replay_log::what_is_to_go_out_stays_in_the_log",
        Defect::LastRecordedVersion => "versions::the_highest_version_is_the_last_one",
        Defect::VersionsNotAsked => "versions::a_key_gives_the_versions_asked_for",
        Defect::HoldLimitsIgnored => "status::keys_that_are_held_the_longest_are_named",
        Defect::GroupsForgotten => "groups::groups_are_handed_on_where_each_stood",
        Defect::FurthestGroupCounts => "groups::what_any_group_needs_stays",
        Defect::GroupsCountTogether => "groups::the_backlog_counts_by_group",
        Defect::DroppedPagesOverlap => "dropped::what_was_given_up_is_listed_from_the_latest_on",
        Defect::PausesForgotten => "dropped::pauses_are_told_as_far_back_as_they_matter",
        Defect::DropsCountForEver => "dropped::what_was_given_up_of_late_is_counted",
        Defect::BeforeCountsAll => "dropped::the_backlog_counts_apart_what_was_there_before",
        _ => "a case for a defect that is new here",
    }
}

/// The cases that fail on a store with a defect.
async fn failures(defect: Defect) -> BTreeSet<&'static str> {
    let cases =
        onceward_testkit::store_suite_cases! { @list (MemoryFixture::with_defect(defect).await?) };
    assert!(cases.len() > 100, "all cases are run: {}", cases.len());
    let mut failed = BTreeSet::new();
    for (name, case) in cases {
        // A panic ends the task and not the test.
        let ended = tokio::spawn(onceward_testkit::suite::guarded(name, case)).await;
        if !matches!(ended, Ok(Ok(()))) {
            failed.insert(name);
        }
    }
    failed
}

#[tokio::test]
async fn every_defect_fails_the_case_that_is_there_for_it() {
    // Hundreds of panics are expected here; they would bury the one that is not.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for defect in Defect::ALL {
        let failed = failures(defect).await;
        if !failed.contains(case_against(defect)) {
            missed.push((defect, failed));
        }
    }
    std::panic::set_hook(report);
    assert!(missed.is_empty(), "not caught by their case: {missed:#?}");
}

#[tokio::test]
async fn the_list_and_the_tests_are_the_same_cases() {
    let cases = onceward_testkit::store_suite_cases! { @list (MemoryFixture::new().await?) };
    let names: BTreeSet<&str> = cases.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), cases.len(), "no name twice");
    for (name, case) in cases {
        assert!(case.await.is_ok(), "{name} fails without a defect");
    }
}
