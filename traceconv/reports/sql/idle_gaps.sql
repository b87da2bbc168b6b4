-- title = "Idle gaps of devices and their causes"
-- doc = "Why does a device run nothing? One row per gap of 10 µs or more between its tasks, with its cause by these rules, of which the first that applies is taken. The next task is the one that ends the gap. dependency: it was launched before the gap, and the task before it on its stream is not the one after which the gap began, so it waited for another stream, an event or another device; where streams wait in tasks of type EVENT_WAIT, as on an NPU, something was on its stream for at least half of the gap, too. launch: it was launched before the gap, or most of the gap passed between its launch and its start. The other causes are what the thread that launched it did from the start of the gap to the launch. data_loading: at least half of that time, it was inside a data loader; or, in a gap of 1 ms or more, it did nothing and another thread that calls the runtime was. synchronisation: at the start or at least half of that time, it was inside a synchronising call. host: it did anything else (host_name). Ranges and calls shorter than 2.5 µs are ignored, and those around a time beyond the 512 innermost. A heuristic: causes are unknown if the launch is."
-- needs = ["task"]
-- when_empty = "Gaps are idle times of 10 µs or more between the tasks of a device."
-- order = ["run_id", "device_id", "start_ns"]
-- measure = "gap_ns"
-- shown = ["device_id", "start_ns", "gap_ns", "cause", "host_wait_ns", "launch_delay_ns", "host_name", "task_name"]
-- selects = { run = true, device = true, steps = "gaps before tasks", time = "gaps that start" }
-- [columns]
-- device_id = { type = "BIGINT", unit = "id", doc = "Device; NULL if unknown." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start of the gap: latest end of the tasks before it, except events and waits (kind sync)." }
-- end_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "End of the gap: start of the next task." }
-- gap_ns = { type = "BIGINT", unit = "ns", doc = "end_ns − start_ns." }
-- cause = { type = "VARCHAR", unit = "enum", doc = "dependency, launch, data_loading, synchronisation or host; NULL if the launch of the next task is unknown. The report's description has the rules." }
-- host_wait_ns = { type = "BIGINT", unit = "ns", doc = "Time from the start of the gap to the launch of the next task, at most the gap: the device waited for the host; 0 if it was launched before; NULL if unknown." }
-- launch_delay_ns = { type = "BIGINT", unit = "ns", doc = "Time from the launch of the next task to its start; more than gap_ns if it was launched before the gap; NULL if unknown." }
-- host_id = { type = "BIGINT", unit = "id", doc = "Innermost range or call (range.id, api.id) of the launching thread, or data loader of another one, that covers at least half of host_wait_ns; NULL if none, and for the causes dependency and launch." }
-- host_name = { type = "VARCHAR", unit = "text", doc = "Its name, such as aten::item." }
-- task_id = { type = "BIGINT", unit = "id", doc = "Next task (task.id); of several that start together, the longest, and of these the first in the source." }
-- task_name = { type = "VARCHAR", unit = "text", doc = "Name of the next task." }
-- stream_id = { type = "BIGINT", unit = "id", doc = "Stream of the next task; NULL if unknown." }
-- thread_id = { type = "BIGINT", unit = "id", doc = "Track of the thread that launched it (track.track_id); NULL if unknown." }
SELECT g.run_id, g.device_id, g.start_ns, g.end_ns, TRY(g.end_ns - g.start_ns) AS gap_ns, g.cause, g.host_wait_ns,
       g.launch_delay_ns, g.host_id, g.host_name, g.task_id, g.task_name, g.stream_id, g.thread_id
FROM device_gap AS g
WHERE {{selected(g.run_id, g.device_id, g.start_ns)}}
  AND (coalesce(step, first_step, last_step) IS NULL OR EXISTS (
    -- The first condition keeps DuckDB from reading all tasks if no step is selected.
    FROM task AS t
    WHERE coalesce(step, first_step, last_step) IS NOT NULL AND t.run_id = g.run_id AND t.id = g.task_id
      AND {{selected(t.step_id)}}
  ))
ORDER BY g.run_id, g.device_id, g.start_ns
