//! The conformance suite: what every store does, written against the `Store` trait alone.
//!
//! Each function is one claim. [`conformance!`] makes a test of each for a store that brings a
//! [`bed::Bed`]; a store that passes them all keeps the rules. The suite earns its trust by mutation: see
//! tests/mutants.

mod across;
mod bed;
mod bulk;
mod claiming;
mod committing;
mod copying;
mod crowd;
mod damage;
mod doctor;
mod enqueueing;
mod keeping;
mod listing;
mod model;
mod offering;
mod operating;
mod progressing;
mod random;
mod redis_audit;
mod redis_bed;
mod redis_inside;
mod redis_wounds;
mod remembering;
mod retaining;
mod retaining_dead;
mod sessions;
mod settling;
mod sqlite_audit;
mod sqlite_bed;
mod sqlite_wounds;
mod waking;

/// Makes one test a claim, for one store.
macro_rules! conformance {
    ($store:ident, $bed:ty; $($area:ident: $($claim:ident)+;)+) => {
        mod $store {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $claim() {
                    super::$area::$claim(<$bed as super::bed::Bed>::start().await).await;
                }
            )+)+
        }
    };
    ($store:ident, $bed:ty) => {
        conformance! { $store, $bed;
            enqueueing:
                a_job_comes_back_as_it_went_in
                payloads_are_opaque_bytes
                a_payload_of_a_mebibyte_travels_alone
                a_batch_is_taken_whole_or_not_at_all
                what_passes_the_check_is_taken
                what_passes_the_check_is_taken_whatever_is_in_it
                instants_in_the_past_mean_now
                delays_of_a_millisecond_to_a_century_are_exact
                what_was_accepted_a_while_ago_is_due_by_its_acceptance
                an_id_that_exists_is_kept
                replace_takes_the_place_of_a_job_that_waits
                a_replaced_retry_starts_clean
                reschedule_on_conflict_changes_only_the_due_time
                conflicts_of_kind_and_of_refusal_change_nothing
                an_enqueue_that_changes_nothing_makes_no_lane
                what_a_call_does_to_a_job_twice_is_one_event
                one_id_twice_in_a_batch_is_one_job
                generated_ids_and_ids_that_look_like_them_never_collide
                a_queue_is_known_before_its_first_job_runs
                two_namespaces_never_meet;
            claiming:
                jobs_of_one_millisecond_are_claimed_in_the_order_of_their_enqueue
                a_claim_removes_exactly_what_it_returns
                nothing_is_claimed_before_its_due_time
                looking_ahead_holds_only_what_falls_due_within_reach
                priorities_are_strict_over_all_lanes
                a_retry_keeps_its_priority
                lanes_take_turns
                kinds_take_turns_whatever_their_queues
                a_lane_that_nobody_asks_for_is_left_alone
                a_kind_has_as_many_turns_as_its_weight
                of_a_bounded_kind_no_more_are_claimed_and_no_more_are_waited_for
                no_job_has_more_attempts_than_the_cap
                two_sessions_never_get_the_same_job
                the_jobs_own_attempts_count_before_the_handlers
                tokens_count_up_from_the_first
                a_claim_against_the_rules_is_refused
                sixty_four_lanes_fit_one_claim;
            settling:
                a_stale_token_changes_nothing
                a_token_from_before_a_retry_is_stale
                a_settle_whose_reply_was_lost_is_done_again
                a_held_job_given_back_twice_is_done_twice
                a_batch_of_settlements_is_answered_one_by_one
                a_completion_that_is_in_a_call_twice_counts_once
                a_settlement_of_another_lane_is_refused
                retries_snoozes_and_releases_keep_their_place
                a_snooze_and_a_release_use_no_attempt
                a_release_keeps_the_due_time
                a_retry_waits_its_delay
                the_record_tells_the_last_run
                messages_of_any_kind_survive
                history_keeps_the_first_ten_and_the_last_forty
                the_attempts_cap_is_told_to_whoever_asks
                logs_need_the_lease_and_belong_to_their_attempt;
            committing:
                children_come_with_the_completion
                children_of_any_other_outcome_are_dropped
                a_stale_lease_commits_nothing
                a_commit_whose_reply_was_lost_is_done_again
                one_completion_twice_in_a_batch_commits_once
                a_child_whose_id_exists_is_left_as_it_is
                a_child_with_an_id_like_a_made_one_never_collides
                children_are_claimed_in_their_order
                a_child_wakes_a_runner_that_waits
                a_child_in_a_paused_queue_waits
                two_thousand_children_are_one_step
                effects_against_the_rules_are_refused_and_nothing_is_settled
                a_batch_mixes_settlements_with_and_without_effects
                a_commit_of_another_lane_is_refused
                a_job_that_completes_before_its_cancel_commits
                foreign_data_stops_a_commit_before_it_writes
                one_run_that_is_at_fault_keeps_no_other_from_completing;
            remembering:
                state_comes_with_the_completion_and_totals_are_exact
                state_that_changed_since_it_was_read_is_a_conflict
                conflicts_in_a_row_wait_longer_each_time
                a_copy_of_a_job_in_conflict_counts_anew
                reads_alone_are_checked_too
                a_version_never_comes_back
                changes_in_a_row_have_versions_of_their_own
                additions_are_exact_to_64_bits
                additions_of_many_jobs_all_count
                changes_of_one_batch_follow_each_other
                state_of_any_other_outcome_or_a_stale_lease_is_dropped
                a_cancelled_job_in_conflict_does_not_come_back
                a_conflict_keeps_place_and_priority;
            keeping:
                operators_see_and_change_state
                buckets_of_two_namespaces_never_meet
                a_copy_brings_state_and_a_repeat_only_what_is_missing;
            progressing:
                progress_needs_the_lease_and_the_last_word_counts
                progress_of_an_older_attempt_is_not_shown
                progress_goes_with_its_job
                a_copy_brings_progress;
            sessions:
                a_heartbeat_shows_every_session
                a_heartbeat_tells_when_its_lanes_have_something_to_do
                a_session_is_known_by_its_leases_alone
                every_lease_is_listed
                a_crash_uses_an_attempt_and_keeps_the_place
                a_late_settle_counts_when_nobody_took_the_job_back
                a_reclaim_of_an_old_lease_changes_nothing
                the_third_crash_is_a_poison_pills_last
                a_crash_in_the_last_attempt_is_the_end
                a_job_that_was_only_held_is_given_back_unharmed
                one_suspect_at_a_time
                a_cancelled_job_does_not_come_back
                an_old_recall_does_not_touch_a_new_lease
                a_dead_letter_of_a_lost_runner_follows_retention;
            offering:
                a_beat_that_was_told_is_lost_only_when_the_store_went_back
                a_claim_takes_nothing_from_a_store_that_knows_less
                an_offer_to_a_store_that_has_lost_nothing_changes_nothing
                a_job_whose_lease_is_lost_is_leased_again
                a_lost_job_is_made_again_as_it_was
                a_lost_job_whose_number_is_anothers_gets_a_new_one
                each_job_that_is_made_again_has_a_place_of_its_own
                a_lease_that_is_put_back_brings_its_crashes
                what_is_somebody_elses_by_now_stays_as_it_is
                what_was_restored_ends_like_any_other
                one_job_offered_twice_in_a_batch_is_one
                offers_against_the_rules_are_refused
                a_full_batch_of_offers_is_one_step;
            retaining:
                an_age_of_zero_keeps_nothing
                a_count_keeps_the_newest
                a_limit_in_bytes_keeps_the_newest
                prune_removes_what_is_over_its_age_and_only_that
                prune_says_when_there_will_be_something_to_remove
                prune_leaves_other_namespaces_alone
                prune_never_touches_a_job_that_came_back
                a_finished_id_is_remembered_after_its_record
                ids_that_need_no_memory_take_none_of_others
                the_memory_of_ids_is_bounded_in_bytes
                dead_letters_without_a_cap_all_stay
                a_deleted_job_leaves_nothing_to_count;
            retaining_dead:
                of_ten_thousand_and_fifty_dead_letters_fifty_are_over_the_cap_and_counted
                dead_letters_that_a_limit_takes_are_counted_for_ever_and_no_others;
            operating:
                cancel_ends_what_has_not_ended
                requeue_brings_back_what_has_ended
                a_requeued_poison_pill_starts_clean
                requeued_jobs_are_due_in_the_order_of_the_request
                requeue_of_many_leaves_none_in_limbo
                reschedule_moves_what_waits
                a_rescheduled_retry_keeps_its_attempts
                delete_spares_what_runs
                a_paused_queue_is_left_alone
                pause_recalls_what_is_held
                purge_deletes_what_waits_and_nothing_else
                purge_recalls_what_is_held
                held_jobs_answer_to_operators;
            listing:
                every_job_is_listed_once_whatever_the_page
                filters_leave_out_what_does_not_fit
                waiting_jobs_are_listed_by_due_time_and_finished_ones_newest_first
                a_listing_misses_nothing_that_stays
                lanes_of_any_size_are_listed_in_one_order
                a_bad_cursor_or_limit_is_refused
                large_records_make_short_pages
                find_answers_for_every_queue
                hundreds_of_lanes_are_counted_and_listed
                counts_follow_every_step;
            damage:
                an_entry_without_a_record_goes_to_the_orphans
                an_impossible_due_time_is_quarantined_and_never_run
                foreign_data_under_our_names_stops_a_call_before_it_writes
                a_lost_record_under_a_lease_harms_nobody_else;
            doctor:
                a_store_in_use_has_no_findings
                an_examination_measures_and_changes_nothing
                what_moves_is_never_reported
                an_entry_without_a_record_is_found_and_mended
                a_record_lost_under_a_lease_is_found_and_mended
                what_an_operator_did_by_hand_is_no_damage;
            copying:
                a_copy_is_what_it_was
                a_copy_there_and_back_is_what_it_was
                a_repeated_copy_brings_only_what_is_missing
                what_a_complete_copy_brought_does_not_come_back
                a_copy_keeps_the_order_behind_what_is_there
                an_id_that_exists_is_left_alone
                what_a_lost_runner_had_is_taken_back
                an_import_against_the_rules_is_refused;
            waking:
                what_makes_a_job_claimable_earlier_wakes
                a_backlog_wakes_nobody
                a_recall_wakes_its_session;
            model:
                every_step_agrees_with_the_model_1
                every_step_agrees_with_the_model_2
                every_step_agrees_with_the_model_3
                every_step_agrees_with_the_model_4
                every_step_agrees_with_the_model_5
                every_step_agrees_with_the_model_6
                every_step_agrees_with_the_model_7
                every_step_agrees_with_the_model_8;
            bulk:
                a_hundred_thousand_due_jobs_are_taken_in_order
                operators_verbs_take_thousands_at_once
                a_lost_runner_with_thousands_of_jobs_is_no_burden;
        }
    };
}

conformance!(redis, crate::redis_bed::RedisBed);
conformance!(sqlite, crate::sqlite_bed::SqliteBed);

/// Runs of the model for as long as `make soak` asks.
mod soak {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "it takes as long as it is told to: make soak"]
    async fn redis() {
        super::model::soak::<crate::redis_bed::RedisBed>("redis").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "it takes as long as it is told to: make soak"]
    async fn sqlite() {
        super::model::soak::<crate::sqlite_bed::SqliteBed>("sqlite").await;
    }
}
