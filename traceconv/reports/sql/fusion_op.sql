-- title = "Fused operators"
-- doc = "Which ops were fused, and how much memory does each fused op need? One row per fused op and device that ran it."
-- needs = ["fusion"]
-- when_empty = "Record a model with ops to fuse, such as a convolution with an activation (traceconv record MODEL -o DIR)."
-- when_single = "A model of a single operator has nothing to fuse."
-- order = ["run_id", "device_id", "model_id", "op_id"]
-- measure = "total_bytes"
-- shown = ["device_id", "fusion_op", "original_ops", "total_bytes"]
-- selects = { run = true, device = "Only ops that this device ran; NULL: all devices." }
-- [columns]
-- op_id = { type = "BIGINT", unit = "id", doc = "Fused op (op.op_id)." }
-- fusion_id = { type = "BIGINT", unit = "id", doc = "Fusion (fusion.fusion_id)." }
-- device_id = { type = "BIGINT", unit = "id", msprof = "Device_id", doc = "Device that ran the op; NULL if it has no task in the store." }
-- model_name = { type = "VARCHAR", unit = "text", msprof = "Model Name", doc = "Model of the op; NULL if unknown." }
-- model_id = { type = "BIGINT", unit = "id", msprof = "Model ID", doc = "Model ID; NULL if unknown." }
-- fusion_op = { type = "VARCHAR", unit = "text", msprof = "Fusion Op", doc = "Name of the fused op; NULL if unknown." }
-- original_count = { type = "BIGINT", unit = "count", doc = "Number of original ops in it." }
-- original_ops = { type = "VARCHAR", unit = "text", msprof = "Original Ops", doc = "Names of these ops in order, joined by ';'." }
-- input_bytes = { type = "BIGINT", unit = "byte", msprof = "Memory Input(KB)", msprof_as = "kb", doc = "Input bytes, without weights; NULL if unknown." }
-- output_bytes = { type = "BIGINT", unit = "byte", msprof = "Memory Output(KB)", msprof_as = "kb", doc = "Output bytes; NULL if unknown." }
-- weight_bytes = { type = "BIGINT", unit = "byte", msprof = "Memory Weight(KB)", msprof_as = "kb", doc = "Weight bytes; NULL if unknown." }
-- workspace_bytes = { type = "BIGINT", unit = "byte", msprof = "Memory Workspace(KB)", msprof_as = "kb", doc = "Scratch memory needed during execution; NULL if unknown." }
-- total_bytes = { type = "BIGINT", unit = "byte", msprof = "Memory Total(KB)", msprof_as = "kb", doc = "Sum of the four; NULL if one of them is NULL." }
WITH fused AS (
  SELECT f.run_id, f.fusion_id, f.op_id, count(*) AS original_count,
         string_agg(f.original_name, ';' ORDER BY f.original_index) AS original_ops
  FROM fusion AS f
  WHERE {{selected(f.run_id)}}
  GROUP BY f.run_id, f.fusion_id, f.op_id
), ran AS (
  SELECT t.run_id, t.op_id, t.device_id
  FROM task AS t
  WHERE t.op_id IS NOT NULL AND {{selected(t.run_id, t.device_id)}}
  GROUP BY t.run_id, t.op_id, t.device_id
)
SELECT f.run_id, f.op_id, f.fusion_id, r.device_id, o.model_name, o.model_id, o.name AS fusion_op,
       f.original_count, f.original_ops, o.input_bytes, o.output_bytes, o.weight_bytes, o.workspace_bytes,
       o.input_bytes + o.output_bytes + o.weight_bytes + o.workspace_bytes AS total_bytes
FROM fused AS f
LEFT JOIN op AS o ON o.run_id = f.run_id AND o.op_id = f.op_id
LEFT JOIN ran AS r ON r.run_id = f.run_id AND r.op_id = f.op_id
WHERE device IS NULL OR r.device_id = device
ORDER BY f.run_id, r.device_id, o.model_id, f.op_id
