-- doc = "[text] Name of the kernel of an op: its own if that is a C++ function, which tells more than its type; else its type, or its name without one."
kernel_name(name, op_type) AS
CASE WHEN short_name(name) <> name OR op_type = name || '.kd' THEN name ELSE coalesce(op_type, name) END
