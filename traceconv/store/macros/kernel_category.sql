-- doc = "[text] What a kernel computes, by rules for its name or op type: attention, communication, conv, elementwise, gemm, indexing, loss, memory, moe, normalization, optimizer, pooling, quantization, random, reduction, softmax or sort; NULL if no rule matches. task.kind recognises more collectives."
-- # In a lambda, the short name is computed once.
kernel_category(name) AS
list_transform([short_name(name)], lambda function: CASE
{{cases_of_kernels}} END)[1]
