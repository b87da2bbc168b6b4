-- [finding.unpaired_events]
-- doc = "Begins without an end and ends without a begin."
-- count = "events"
-- reports = "all"
-- [finding.cut_file]
-- doc = "PyTorch trace without the events that the profiler writes last."
-- count = "1"
-- reports = "all"
-- [finding.import_losses]
-- doc = "Events that ingest could not keep."
-- count = "events"
-- reports = "all"
-- [finding.untimed_tasks]
-- doc = "Tasks with a duration, but no start, as in tables of Nsight Compute, which runs kernels one at a time."
-- count = "tasks"
-- reports = "breakdown, idle-gaps, launch, stream-utilisation, step-breakdown (no rows), exports of timelines"
SELECT run_id, 'untimed_tasks', NULL, sum(event_count), NULL, NULL
FROM import_log
WHERE code = 'no_start' AND {{selected(run_id)}}
GROUP BY run_id
UNION ALL
SELECT run_id, 'unpaired_events', NULL, sum(event_count), NULL, NULL
FROM import_log
WHERE code IN ('end_without_begin', 'unfinished') AND run_id IN (SELECT run_id FROM tested)
GROUP BY run_id
UNION ALL
SELECT r.run_id, 'cut_file', NULL, 1, NULL, NULL
FROM run AS r
WHERE r.writer LIKE 'PyTorch%' AND r.source_format = 'chrome_json' AND {{selected(r.run_id)}}
  AND r.run_id NOT IN (SELECT run_id FROM "range" WHERE kind = 'summary')
UNION ALL
SELECT run_id, 'import_losses', NULL, sum(coalesce(event_count, 1)), NULL, NULL
FROM import_log
WHERE severity = 'data_loss' AND {{selected(run_id)}}
GROUP BY run_id
