-- doc = "[text] Size of a launch in each dimension, joined by ',', from the args of a task: part is 'grid' for blocks, or 'block' for threads of a block. NULL if unknown. As PyTorch, Nsight Systems, Nsight Compute and Perfetto's GPU packets record it."
launch_size(args, part) AS
nullif(regexp_replace(coalesce(args->>part, args->>(upper(part[1]) || part[2:] || ' Size'),
  nullif(concat_ws(',', args->>(part || 'X'), args->>(part || 'Y'), args->>(part || 'Z')), ''),
  concat_ws(',', args->>('$.launch.' || CASE part WHEN 'grid' THEN 'grid' ELSE 'workgroup' END || '_size.x'),
    args->>('$.launch.' || CASE part WHEN 'grid' THEN 'grid' ELSE 'workgroup' END || '_size.y'),
    args->>('$.launch.' || CASE part WHEN 'grid' THEN 'grid' ELSE 'workgroup' END || '_size.z'))), '[^0-9,]', '', 'g'), '')
