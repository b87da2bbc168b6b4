-- doc = "[text] Size of a launch in each dimension, joined by ',', from the args of a task: part is 'grid' for blocks, or 'block' for threads of a block. NULL if unknown. As PyTorch, Nsight Systems and Nsight Compute record it."
launch_size(args, part) AS
nullif(regexp_replace(coalesce(args->>part, args->>(upper(part[1]) || part[2:] || ' Size'),
  concat_ws(',', args->>(part || 'X'), args->>(part || 'Y'), args->>(part || 'Z'))), '[^0-9,]', '', 'g'), '')
