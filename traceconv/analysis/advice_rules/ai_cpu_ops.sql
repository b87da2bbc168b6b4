-- title = "Operators run on the AI CPU"
-- doc = "Tasks of operators for which the NPU has no kernel on its cores, or not for this type, so that its slow AI CPU runs them."
-- saving = "Sum of their durations: an upper bound, as they would take some time on a core too."
-- basis = "upper bound"
-- suggestion = "Replace the operator or its type: 32-bit instead of 64-bit integers and doubles, static shapes, an equivalent operator of the cores, or the host before the model runs."
-- reads = ["op-statistic", "kernels"]
-- evidence = "SELECT name, start_ns, dur_ns FROM task WHERE run_id = $run AND device_id IS NOT DISTINCT FROM $device AND kind = 'compute' AND task_type ILIKE '%AI%CPU%' ORDER BY dur_ns DESC"
SELECT device_id, label AS subject, dur_ns AS saving_ns, 1 AS count
FROM advice_task
WHERE contains(lower(task_type), 'ai_cpu') OR contains(lower(task_type), 'aicpu')
