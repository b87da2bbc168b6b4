-- doc = "[byte/s] Bandwidth of the memory of a known device, by its name in a trace; NULL for other devices."
device_peak_bytes_per_s(device_name) AS
({{bytes_per_s_of_devices}})::BIGINT
