-- doc = "[text] short_name of a kernel with the first template argument that isn't a plain type, such as vectorized_elementwise_kernel<CUDAFunctor_add>; different kernels may have the same."
-- # The words are those of template arguments that don't show what a kernel does: types, and wrappers of PyTorch around a
-- # functor. The argument of a mangled name is a part with a length of two digits, as in 23ImplicitGemmConvolution.
kernel_label(name) AS
list_transform([{'base': short_name(name), 'rest': substr(name, strpos(name, short_name(name))),
                  'plain': regexp_replace(replace(name, '(anonymous namespace)', ''), '\w*::', '', 'g')}], lambda n:
  CASE WHEN n.base = name THEN name
  ELSE n.base || coalesce('<' || nullif(
    CASE WHEN starts_with(name, '_Z') THEN
      substr(regexp_extract(substr(n.rest, length(n.base) + 1), '[^0-9][0-9][0-9]([A-Z]\w*)', 1), 1,
             TRY_CAST(regexp_extract(substr(n.rest, length(n.base) + 1), '[^0-9]([0-9][0-9])[A-Z]', 1)
                      AS INTEGER))
    ELSE
      list_filter(
        regexp_extract_all(regexp_extract(n.plain, '\b\Q' || n.base || '\E<(.*?)(>\(|$)', 1), '[A-Za-z_]\w\w+'),
        lambda word: NOT list_contains(string_split('void const unsigned signed int float double char long short bool half lambda operator type auto true false Array array TensorIteratorBase TensorIterator gpu_kernel_impl gpu_kernel_impl_nocast ReduceOp func_wrapper_t OpaqueType TensorListMetadata BFloat16 Half __half __nv_bfloat16 nv_bfloat16 float2 float4 half2 enable_if AUnaryFunctor BUnaryFunctor BinaryFunctor BinaryOpScalarFunctor BinaryOpScalarTensorFunctor BinaryOpListAlphaFunctor BinaryOpScalarListFunctor TernaryOpScalarFunctor UnaryOpFunctor PointwiseOpScalarFunctor gpu_index_kernel PointwiseOpScalarListFunctor TensorListScalarListMetadata KernelParams cudnnKernelDataType_t size_t', ' '), word))[1]
    END, '') || '>', '') END)[1]
