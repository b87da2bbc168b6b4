"""Tests with many variants, of which `make test` runs some, spread evenly; `make test-long` runs the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest

#: Test → how many of its variants are run by `make test`.
KEPT = {
    "conformance/test_advice.py::test_savings_by_plain_recount": 2,
    "conformance/test_collectives_recount.py::test_communication_files_may_be_anything": 3,
    "conformance/test_compare_runs.py::test_recordings_of_one_workload_pair": 1,
    "conformance/test_compare_runs.py::test_times_of_steps_equal_a_recount_of_the_trace": 2,
    "conformance/test_every_view.py::test_top_is_the_largest_over_all_devices_and_runs": 4,
    "conformance/test_every_view.py::test_views_of_an_attached_store_and_macros_after_use": 1,
    "conformance/test_malformed.py::test_intact_content_of_a_variant_is_ingested": 6,
    "conformance/test_msprof_folder.py::test_no_cell_differs_and_every_row_comes_back": 1,
    "conformance/test_oldest_package.py::test_a_store_is_closed_while_other_threads_read_it": 1,
    "conformance/test_perfetto_json.py::test_rows_are_equal_to_perfettos": 4,
    "conformance/test_references.py::test_real_files": 1,
    "conformance/test_round_trip.py::test_a_capture": 1,
    "conformance/test_round_trip.py::test_real_traces_of_a_writer": 1,
    "conformance/test_seed_traces.py::test_facts_of_a_table_of_spans": 3,
    "conformance/test_seed_traces.py::test_facts_of_a_timeline": 5,
    "conformance/test_tools_agree.py::test_kernel_time_by_kind_and_name": 2,
    "conformance/test_trace_processor.py::test_every_difference_is_on_the_page": 5,
    "conformance/test_trace_processor_queries.py::test_rows_are_equal_to_perfettos": 4,
    "conformance/test_trace_rules.py::test_kineto": 2,
    "conformance/test_why_real_files.py::test_rows_can_be_traced_to_their_bytes": 3,
    "docs/test_contributing.py::test_walk_through_works_as_written": 2,
    "faults/test_ingest_damage.py::test_files_truncated_anywhere_keep_everything_before": 2,
    "faults/test_ingest_damage.py::test_other_schemas_in_the_headers_stop_no_command": 1,
    "faults/test_killed_run_changes.py::test_a_kill_leaves_the_old_or_the_new_store": 2,
    "faults/test_lake_faults.py::test_a_killed_export": 1,
    "faults/test_large_texts.py::test_a_text_of_50_mb_is_stored_and_does_not_stop_other_files": 1,
    "faults/test_large_texts.py::test_memory_is_bounded_for_any_unterminated_value": 1,
    "faults/test_many_files.py::test_ctrl_c_at_any_moment_leaves_the_store_unchanged": 2,
    "faults/test_many_files.py::test_one_unusable_file_among_good_ones": 2,
    "faults/test_memory_budget.py::test_what_is_kept_in_memory_does_not_grow": 3,
    "faults/test_reading_processes.py::test_the_store_is_the_same_with_any_number_of_processes": 1,
    "faults/test_repeated_blocks.py::test_any_damage_keeps_intact_records_and_counts_missing_ones": 3,
    "faults/test_standard_streams.py::test_an_ingest_does_not_depend_on_its_standard_streams": 2,
    "faults/test_standard_streams.py::test_results_that_cannot_be_written_are_a_one_line_error": 3,
    "faults/test_unclosed_files.py::test_info_and_ingest_report_a_file_that_is_not_closed": 2,
    "faults/test_unexpected_values.py::test_some_values_are_unexpected": 3,
    "faults/test_vendor_csv_damage.py::test_intact_records_are_kept_and_damaged_ones_are_counted": 3,
    "golden/test_collectives.py::test_bandwidths_are_those_of_nccl_tests": 3,
    "golden/test_collectives.py::test_kinds_by_the_names_of_kernels": 6,
    "golden/test_perfetto_rows.py::test_compressed_traces_are_equal": 1,
    "golden/test_trust_report.py::test_real_traces_have_only_explained_findings": 2,
    "property/test_busy_points.py::test_reports_equal_a_count_of_nanoseconds": 1,
    "property/test_distinct_operators.py::test_operators_are_numbered_in_order": 6,
    "property/test_idle_gaps.py::test_causes_equal_a_recount": 2,
    "property/test_interleaved_calls.py::test_calls_in_random_turns": 1,
    "property/test_launch_queues.py::test_queue_lengths": 3,
    "property/test_memory_points.py::test_reports_equal_a_count_of_blocks": 2,
    "property/test_path_sums.py::test_sums_of_chains": 3,
    "property/test_recount_random.py::test_msprof_folders": 3,
    "property/test_recount_random.py::test_torch_npu_folders": 3,
    "property/test_span_programs.py::test_profiles_that_pause_and_overlap": 1,
    "property/test_time_windows.py::test_sums_count_what_starts_in_the_window": 6,
    "property/test_what_if_oracle.py::test_random_programs": 1,
    "unit/test_api.py::test_after_each_use_the_next_call_works": 3,
    "unit/test_containers.py::test_other_encodings_are_named_and_read": 6,
    "unit/test_export_chrome.py::test_many_rows_are_sorted_from_any_order": 1,
    "unit/test_extreme_times.py::test_times_of_all_sizes": 3,
    "unit/test_first_answers.py::test_an_exact_answer_has_the_values_of_the_report": 1,
    "unit/test_fuzz_findings.py::test_sort_indexes_that_are_not_integers_are_null": 5,
    "unit/test_lake.py::test_folders_with_special_names": 3,
    "unit/test_lake.py::test_hostile_labels": 3,
    "unit/test_linear_work.py::test_twice_the_text_takes_twice_the_work": 1,
    "unit/test_migrate.py::test_a_failure_leaves_the_store_unchanged": 1,
    "unit/test_report_command.py::test_all_rows_are_written_however_they_are_read": 2,
    "unit/test_report_command.py::test_top_returns_the_first_rows_of_the_report": 3,
    "unit/test_row_order.py::test_slices_without_overlaps": 6,
    "unit/test_runs_command.py::test_labels_that_can_not_select_a_run_are_refused": 5,
    "unit/test_runtime_answers.py::test_networks_with_seeded_weights_agree_op_by_op": 3,
    "unit/test_runtime_models.py::test_every_named_model_is_lowered_completely": 6,
    "unit/test_sampling_intervals.py::test_intervals_contain_the_exact_value": 3,
    "unit/test_static_profile.py::test_memory_is_that_of_a_recorded_run": 2,
    "unit/test_step_slices.py::test_slices_of_an_iteration_define_the_times_of_its_step": 5,
    "unit/test_store_database.py::test_a_hostile_store_is_refused_in_one_line": 6,
    "unit/test_op_summary_waits.py::test_waits_of_each_device_depend_neither_on_the_order_nor_on_the_batches": 3,
    "unit/test_template_cache.py::test_damage_in_the_cache_does_no_harm": 1,
    "unit/test_trace_damage.py::test_characters_between_events_lose_no_event": 8,
    "unit/test_trace_damage.py::test_malformed_text_is_read_and_reported": 8,
    "unit/test_trace_phases.py::test_markers_from_other_events_than_instants_record_their_phase": 8,
    "unit/test_training_fusion.py::test_a_recorded_training_has_its_fused_ops_in_the_report": 1,
    "unit/test_vendor_levels.py::test_a_row_that_only_one_file_has_is_one_task": 2,
    "unit/test_vendor_levels.py::test_each_kernel_is_one_task": 2,
    "unit/test_vendor_levels.py::test_kernels_that_begin_at_once_are_distinguished_by_other_columns": 3,
    "unit/test_vendor_levels.py::test_verify_agrees_with_a_sound_folder": 2,
    "unit/test_vendor_levels.py::test_verify_finds_a_cell_that_is_wrong": 4,
    "unit/test_vendor_memory.py::test_memory_allocated_before_the_recording_counts": 4,
    "unit/test_why_command.py::test_unknown_row_is_an_error_that_names_the_nearest": 4,
    "unit/test_why_rows.py::test_rows_of_every_table_are_traced_to_their_bytes": 4,
}


def mark_others(items: Iterable[pytest.Item]) -> None:
    """Mark the variants that `make test` doesn't run as long."""
    variants: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        variants[item.nodeid.partition("[")[0].removeprefix("tests/")].append(item)
    for test, kept in KEPT.items():
        found = [item for item in variants.get(test, ()) if item.get_closest_marker("long") is None]
        spread = {number * len(found) // kept for number in range(kept)}
        for number, item in enumerate(found):
            if number not in spread:
                item.add_marker("long")
