//! The list of cases, and what becomes of it.

/// Expands to one `#[tokio::test]` per case of the broker suite.
///
/// The argument is an expression, which may await, that gives a
/// [`Fixture`](crate::brokers::Fixture) on an empty queue. The calling crate needs tokio with the
/// features `macros` and `rt`.
#[macro_export]
macro_rules! broker_suite {
    ($fixture:expr) => {
        $crate::broker_suite_cases! { @tests ($fixture) }
    };
}

/// The list of cases: by topic, each a function in the module of the topic's name.
#[doc(hidden)]
#[macro_export]
macro_rules! broker_suite_cases {
    (@ $form:ident $argument:tt) => {
        $crate::suite_expand! {
            @ $form $argument [brokers]
            publishing {
                what_is_confirmed_arrives_as_it_was
                hostile_texts_arrive_as_they_were
                what_is_confirmed_outlives_the_broker
                each_message_has_its_own_outcome
                an_oversize_message_is_refused_with_its_size
                what_nothing_takes_is_told
                the_same_id_again_is_the_same_message
                a_key_keeps_its_order
                a_check_finds_what_is_there
            }
            receiving {
                an_empty_queue_answers_in_time
                messages_are_bounded
                bytes_are_bounded
                what_is_done_does_not_come_again
                what_is_to_come_again_comes_again
                it_does_not_come_before_its_delay
                it_is_counted_how_often_it_came
                what_is_handed_back_goes_to_another
                what_is_given_back_comes_in_its_order
                what_was_never_settled_comes_again
                more_time_keeps_others_away
                a_settlement_is_of_its_own_message
            }
            foreign {
                a_foreign_message_is_the_same_on_every_delivery
                what_cannot_be_read_comes_with_its_fault
            }
        }
    };
}
