-- title = "Layouts are converted"
-- doc = "Tasks that only change the order of dimensions: transposes, and conversions between NCHW, NHWC and the NPU's own formats. By the names of kernels and types of operators."
-- saving = "Sum of their durations: an upper bound, as some conversions may remain."
-- basis = "upper bound"
-- suggestion = "Keep one layout: channels_last for convolutions on GPUs, the device's own format for weights, permutations folded into matrix products."
-- reads = ["op-statistic", "kernels"]
-- evidence = "SELECT label, input_shapes, count, total_ns FROM kernels(run := $run, device := $device) WHERE regexp_matches(label, '(?i)^(batch_?)?transpose|^trans_?data|nchw_?to_?nhwc|nhwc_?to_?nchw') ORDER BY total_ns DESC"
SELECT device_id, label AS subject, dur_ns AS saving_ns, 1 AS count
FROM advice_task
WHERE kernel_id IN (
  SELECT kernel_id
  FROM advice_kernel
  WHERE regexp_matches(label, '(?i)^(batch_?)?transpose|^trans_?data|nchw_?to_?nhwc|nhwc_?to_?nchw')
)
