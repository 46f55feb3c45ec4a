//! The list of cases, and what becomes of it.

/// Expands to one `#[tokio::test]` per case of the store suite.
///
/// The argument is an expression, which may await, that gives a [`Fixture`](crate::suite::Fixture)
/// on an empty, migrated store. The calling crate needs tokio with the features `macros` and `rt`.
#[macro_export]
macro_rules! store_suite {
    ($fixture:expr) => {
        $crate::store_suite_cases! { @tests ($fixture) }
    };
}

/// The list of cases: by topic, each a function in the module of the topic's name.
#[doc(hidden)]
#[macro_export]
macro_rules! store_suite_cases {
    (@ $form:ident $argument:tt) => {
        $crate::suite_expand! {
            @ $form $argument [suite]
            log {
                a_message_comes_back_as_it_was_appended
                many_messages_come_back_as_they_were_appended
                payload_bytes_are_never_altered
                a_missing_source_becomes_the_stores_own
                rows_come_in_the_order_of_appending
                what_is_rolled_back_is_never_read
                pages_cut_anywhere_go_on_exactly_there
                a_tick_entered_at_its_beginning_has_only_its_own_rows
                a_position_survives_being_written_down
                pages_stop_at_their_bytes
                the_head_is_past_everything_committed
                an_empty_log_reads_as_empty
                rows_read_are_behind_the_position_and_no_others
                the_slot_follows_the_key
                another_handle_reads_the_same
                a_position_of_another_era_is_refused
            }
            log_interleaved {
                an_open_transaction_delays_only_its_own_rows
                a_commit_while_a_tick_is_read_comes_in_the_next
                late_rows_are_merged_by_sequence
                rows_appended_after_a_newer_commit_are_not_lost
                the_head_leaves_open_transactions_due
                the_newest_open_transaction_is_due_too
                a_late_rollback_leaves_a_gap_and_nothing_else
                interleaved_writers_lose_nothing
                a_key_keeps_the_order_of_its_commits
            }
            ledger {
                the_first_insert_counts_and_the_second_does_not
                what_was_stored_comes_back
                known_answers_in_the_order_asked
                a_batch_counts_only_what_is_new
                many_at_once_are_recorded_or_told
                one_key_twice_in_a_batch_is_one_effect
                subscriptions_do_not_suppress_each_other
                sources_types_and_generations_are_apart
                tables_of_different_identities_are_apart
                an_operation_is_known_whenever_it_comes_again
                a_sequence_is_an_identity
                two_at_once_are_one_effect
                every_ending_comes_back
                a_rollback_lets_the_other_have_it
            }
            effects {
                everything_commits_together
                a_rollback_leaves_no_trace
                dropping_a_transaction_leaves_no_trace
                a_savepoint_undoes_what_came_after
                a_released_savepoint_keeps_what_came_after
                appending_and_settling_share_the_transaction
                a_foreign_error_is_not_classified
            }
            lanes {
                members_have_fences_of_their_own
                a_lease_runs_out_unless_it_is_renewed
                a_lease_nobody_took_over_can_be_renewed_late
                a_lease_from_before_the_clock_was_set_back_has_run_out
                a_free_lane_is_taken_from_the_start
                a_living_owner_keeps_its_lane
                a_released_lane_goes_on_where_it_stood
                leaving_hands_over_the_saved_position
                who_has_left_can_do_nothing_more
                every_change_of_owner_counts_the_epoch
                lanes_of_one_member_stand_apart
                the_latest_saved_position_holds
                subscriptions_share_no_lane
                two_that_take_at_once_do_not_both_get_it
            }
            groups {
                groups_are_handed_on_where_each_stood
                what_any_group_needs_stays
                a_message_stands_with_its_group
                the_backlog_counts_by_group
            }
            takeover {
                the_new_owner_goes_on_at_the_saved_position
                the_old_owner_is_fenced
                only_the_lane_of_a_dead_owner_is_suspect
                a_position_of_an_old_epoch_is_ignored
                a_late_save_of_the_dead_moves_nothing
                one_takeover_ends_the_member_everywhere
                an_open_transaction_of_the_dead_cannot_commit
                a_death_is_counted_for_what_was_running
                a_clean_end_counts_no_death
            }
            deferrals {
                what_was_deferred_comes_back
                a_keys_messages_come_in_their_order
                due_times_follow_the_databases_clock
                the_age_counts_from_the_first_time
                holding_overwrites_nothing
                clearing_removes_just_that
                what_was_released_meanwhile_is_neither_overwritten_nor_cleared
                what_was_not_begun_after_all_is_held_again
                clearing_rolls_back_too
                what_is_gone_is_told
                pages_of_a_key_go_on_after_a_sequence
                held_keys_count_and_tell_when_the_first_is_due
                only_a_persons_turn_has_no_time
                held_keys_are_those_of_the_slots_asked
                keys_of_one_slot_do_not_mix
                deferrals_of_subscriptions_are_apart
            }
            cases {
                a_case_keeps_everything
                cases_are_listed_in_pages
                a_second_case_for_a_message_replaces_the_first
                the_first_deferral_is_remembered
                only_holding_cases_hold_their_key
            }
            operate {
                a_case_gets_an_owner_and_a_date
                notes_stay_in_their_order
                what_is_refused_leaves_no_trace
                two_at_once_act_once
                a_released_message_is_first_of_its_key_again
                a_released_message_waits_behind_what_it_waited_behind
                what_comes_back_is_a_regression
                giving_up_lets_the_key_go
            }
            operate_corrections {
                a_correction_runs_in_the_originals_place
                a_correction_that_fails_is_a_case_with_both
                a_correction_may_be_binary
                a_correction_that_is_refused_leaves_no_trace
                a_case_goes_when_nothing_can_need_it
                a_limit_is_seen_and_ends
                a_reveal_of_an_operation_is_on_record
            }
            operate_subscriptions {
                what_waits_for_a_person_is_due_again
                a_pause_is_seen_and_ends
                no_age_counts_in_a_pause
                what_changes_work_raises_the_revision
                the_history_is_asked_in_pages
                cases_are_found_by_what_they_are
                cases_are_grouped_by_their_cause
                a_released_message_outlives_its_row
                a_pause_goes_along_with_a_new_name
            }
            still {
                no_age_counts_while_something_stands_still
                an_operators_pause_takes_the_place_of_what_stands_still
                time_that_comes_twice_is_paused_once
                the_backlog_says_what_stands_still
                old_standstills_are_forgotten
                what_is_due_later_is_not_late
                a_limit_of_starts_is_seen_and_ends
            }
            registry {
                a_new_name_takes_everything_along
                a_subscription_ends_and_repeats_nothing
                what_is_left_keeps_a_subscription
            }
            replay {
                a_plan_freezes_what_it_finds
                a_plan_that_cannot_be_is_refused
                two_campaigns_never_have_one_message
                the_canary_goes_out_first_and_then_the_rest
                what_went_out_is_not_sent_again
                failures_stop_it
                what_waits_for_a_person_stops_it
                people_pause_verify_and_stop_it
                a_case_that_ended_meanwhile_is_refused
                campaigns_and_items_come_in_pages
            }
            replay_log {
                done_messages_are_found_by_what_they_are
                each_message_is_looked_at
                what_the_ledger_may_have_forgotten_is_told
                a_later_message_of_the_key_is_told
                a_rerun_needs_a_repeatable_subscription
                a_rerun_comes_under_its_generation
                a_resend_comes_under_the_first_generation
                what_is_to_go_out_stays_in_the_log
                a_campaign_goes_along_with_a_new_name
            }
            acceptance {
                the_first_does_the_work_and_the_next_gets_the_answer
                a_transaction_knows_what_it_accepted_itself
                many_keys_are_accepted_at_once
                a_rollback_forgets_the_claim
                another_body_under_the_key_is_refused
                callers_share_no_keys
                a_claim_in_another_transaction_is_in_flight
                the_memory_ends
            }
            schema {
                migrating_again_changes_nothing
                several_may_migrate_at_once
                a_subscription_is_new_once
                a_start_is_required_once_its_types_are_there
                starting_now_leaves_out_what_is_there
                starting_at_a_time_says_so
                a_renamed_subscription_keeps_what_it_had
                subscriptions_are_listed_in_order
                a_new_era_refuses_old_positions
                the_store_answers
            }
            dropped {
                what_was_given_up_is_listed_from_the_latest_on
                what_was_given_up_of_late_is_counted
                pauses_are_told_as_far_back_as_they_matter
                the_backlog_counts_apart_what_was_there_before
            }
            versions {
                the_highest_version_is_the_last_one
                versions_of_others_do_not_count
                a_transaction_sees_the_versions_that_it_recorded
                rows_without_an_aggregate_do_not_count
                a_key_gives_the_versions_asked_for
                versions_of_released_messages_are_found
                a_gap_counts_as_due_for_its_key_only
            }
            upkeep {
                nothing_a_position_still_needs_is_removed
                nothing_a_deferral_refers_to_is_removed
                a_case_outlives_its_row
                what_everybody_is_past_goes
                the_ledger_keeps_its_memory_and_no_longer
                the_ledger_remembers_what_a_position_will_read_again
                the_ledger_remembers_what_is_deferred
                the_ledger_remembers_what_has_an_open_case
                saved_positions_survive
                the_last_round_is_reported
            }
            status {
                an_operation_shows_where_each_subscription_stands
                a_message_is_its_own_operation
                past_the_position_is_delivered
                an_operations_messages_come_oldest_first
                the_backlog_counts_what_waits
                the_backlog_stops_counting_where_told
                the_backlog_counts_deferred_and_quarantined
                the_backlog_names_owners
                keys_that_are_held_the_longest_are_named
                the_time_is_the_databases
            }
        }
    };
}

/// Turns a list, of the cases in a room of this crate, into tests, or into a vector of names and futures.
#[doc(hidden)]
#[macro_export]
macro_rules! suite_expand {
    (@ tests ($fixture:expr) [$room:ident] $($topic:ident { $($case:ident)* })*) => {
        $(
            mod $topic {
                #[allow(unused_imports)]
                use super::*;
                $(
                    #[tokio::test]
                    async fn $case() -> $crate::suite::CaseResult {
                        let name = concat!(stringify!($topic), "::", stringify!($case));
                        let fixture = $fixture;
                        $crate::suite::guarded(name, $crate::$room::$topic::$case(&fixture)).await
                    }
                )*
            }
        )*
    };
    (@ list ($fixture:expr) [$room:ident] $($topic:ident { $($case:ident)* })*) => {{
        let cases: ::std::vec::Vec<(&'static str, $crate::suite::CaseFuture)> = ::std::vec![
            $($((
                concat!(stringify!($topic), "::", stringify!($case)),
                ::std::boxed::Box::pin(async move {
                    let fixture = $fixture;
                    $crate::$room::$topic::$case(&fixture).await
                }),
            ),)*)*
        ];
        cases
    }};
}
