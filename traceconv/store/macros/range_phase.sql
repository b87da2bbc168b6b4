-- doc = "[text] Phase of a training, by name and kind of a range: backward for PyTorch's backward functions, optimizer for Optimizer.step and Optimizer.zero_grad; NULL for others."
range_phase(name, kind) AS
CASE WHEN name LIKE 'autograd::engine::%' OR name LIKE 'torch::autograd::%' THEN 'backward'
     WHEN kind = 'host_op' AND regexp_matches(name, 'Backwards?[0-9]*$') THEN 'backward'
     WHEN name LIKE 'Optimizer.%' THEN 'optimizer' END
