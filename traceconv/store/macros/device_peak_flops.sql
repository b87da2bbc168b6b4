-- doc = "[flop/s] Peak of a known device, by its name in a trace, for a number format and unit such as bf16 matrix or fp32 vector, without structured sparsity; NULL for other devices and formats."
device_peak_flops(device_name, compute_type) AS
({{flops_of_devices}})::BIGINT
