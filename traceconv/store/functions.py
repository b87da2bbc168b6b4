"""SQL functions in every store, for its views and reports and for users' queries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import resources
from typing import Any

import tomli

from traceconv.schema.ddl import quote_text

_CYCLES_NS_DOC = (
    "[ns] Time of cycles summed over blocks, on cores that run one block at a time: "
    "cycles / clock / blocks · ⌈blocks / cores⌉, in integers, rounded half up; NULL if an argument is NULL, or if the "
    "clock, the blocks or the cores are 0."
)

# Both branches are the same formula: 2 · 10⁹ · ⌈…⌉ · cycles + clock · blocks over 2 · clock · blocks. The first
# computes in µs and MHz, within 64 bits by its bounds, which is five times as fast as 128 bits.
_CYCLES_NS = """
cycles_ns(cycles, clock_hz, blocks, cores) AS
CASE WHEN cycles < 34359738368 AND clock_hz % 1000000 = 0 AND blocks <= 65536 AND cores <= 65536 THEN
  (2000 * ((blocks + cores - 1) // nullif(cores, 0)) * cycles + clock_hz // 1000000 * blocks)
    // nullif(2 * (clock_hz // 1000000) * blocks, 0)
ELSE
  TRY_CAST(
    (2000000000::HUGEINT * ((blocks + cores - 1) // nullif(cores, 0)) * cycles + clock_hz::HUGEINT * blocks)
      // nullif(2::HUGEINT * clock_hz * blocks, 0)
    AS BIGINT)
END
"""

_SHARE_DOC = "[ratio] part / total as doubles; 0 if total is 0, NULL if one of them is NULL."
_SHARE = """
share(part, total) AS
CASE WHEN total = 0 THEN 0 ELSE part::DOUBLE / total::DOUBLE END
"""

_GIB_PER_S_DOC = (
    "[GiB/s] Transfer rate of bytes moved in a number of cycles: size_bytes / (cycles / clock) / 2^30, as doubles; "
    "0 if cycles are 0, NULL if an argument is NULL. Cycles summed over blocks give the rate of one core."
)
_GIB_PER_S = """
gib_per_s(size_bytes, cycles, clock_hz) AS
CASE WHEN cycles = 0 THEN 0
     ELSE size_bytes::DOUBLE * clock_hz::DOUBLE / (cycles::DOUBLE * 1073741824) END
"""

_SHORT_NAME_DOC = (
    "[text] The function of a C++ name, demangled or not, without namespaces, template arguments and arguments; other "
    "names unchanged. In a mangled name, the last part before the template arguments."
)
# A mangled name is a sequence of lengths and parts: chr(1) marks the place, before which the last part is.
_SHORT_NAME = r"""
short_name(name) AS
CASE WHEN length(name) > 4000 THEN name
WHEN regexp_matches(name, '^_ZZ?(N[rVK]*(St|Sa|Ss)?|L|St)?[0-9]') THEN
  coalesce(nullif(split_part(list_reduce(
    list_prepend(chr(1) || regexp_replace(name, '^_ZZ?(N[rVK]*(St|Sa|Ss)?|L|St)?', ''), ['' FOR i IN range(24)]),
    lambda rest, step: CASE WHEN regexp_matches(rest, '\x01[0-9]') THEN
      substr(split_part(rest, chr(1), 2), length(regexp_extract(rest, '\x01([0-9]{1,4})', 1)) + 1,
             regexp_extract(rest, '\x01([0-9]{1,4})', 1)::INTEGER)
      || chr(1) ||
      substr(split_part(rest, chr(1), 2), length(regexp_extract(rest, '\x01([0-9]{1,4})', 1)) + 1
             + regexp_extract(rest, '\x01([0-9]{1,4})', 1)::INTEGER)
    ELSE rest END), chr(1), 1), ''), name)
WHEN regexp_matches(regexp_replace(name, '( \[clone [^\]]*\]|\.kd)+$', ''),
                    '(?s)^(void |[A-Za-z_(][^/]*[A-Za-z0-9_>][<(].*[>)]( const)?$)') THEN
  coalesce(nullif(regexp_extract(regexp_replace(regexp_extract(list_reduce(
    list_prepend(
      regexp_replace(replace(replace(replace(regexp_replace(name, '( \[clone [^\]]*\]|\.kd)+$', ''),
        '(anonymous namespace)', ''), 'operator()', 'operator'), '->', ''), '\) ?(<<|>>|[<>]=?) ?\(', ')(', 'g'),
      ['' FOR i IN range(24)]),
    lambda rest, step: regexp_replace(rest, '<[^<>(){}]*>|\([^<>(){}]*\)|\{[^<>(){}]*\}', '', 'g')),
    '^[^<({]*'), '(::|operator| const|[>)} ])+$', ''), '([^: ]|[^: ]:)*$'), ''), name)
ELSE name END
"""

_KERNEL_LABEL_DOC = (
    "[text] short_name of a kernel with the first template argument that isn't a plain type, such as "
    "vectorized_elementwise_kernel<CUDAFunctor_add>; different kernels may have the same."
)
# Words of template arguments that don't show what a kernel does: types, and wrappers of PyTorch around a functor.
_PLAIN_WORDS = (
    "void const unsigned signed int float double char long short bool half lambda operator type auto true false Array "
    "array TensorIteratorBase TensorIterator gpu_kernel_impl gpu_kernel_impl_nocast ReduceOp func_wrapper_t "
    "OpaqueType TensorListMetadata BFloat16 Half __half __nv_bfloat16 nv_bfloat16 float2 float4 half2 enable_if "
    "AUnaryFunctor BUnaryFunctor BinaryFunctor BinaryOpScalarFunctor BinaryOpScalarTensorFunctor "
    "BinaryOpListAlphaFunctor BinaryOpScalarListFunctor TernaryOpScalarFunctor UnaryOpFunctor PointwiseOpScalarFunctor "
    "gpu_index_kernel PointwiseOpScalarListFunctor TensorListScalarListMetadata KernelParams cudnnKernelDataType_t "
    "size_t"
)
# The argument of a mangled name is a part with a length of two digits, as in 23ImplicitGemmConvolution.
_KERNEL_LABEL = rf"""
kernel_label(name) AS
list_transform([{{'base': short_name(name), 'rest': substr(name, strpos(name, short_name(name))),
                  'plain': regexp_replace(replace(name, '(anonymous namespace)', ''), '\w*::', '', 'g')}}], lambda n:
  CASE WHEN n.base = name THEN name
  ELSE n.base || coalesce('<' || nullif(
    CASE WHEN starts_with(name, '_Z') THEN
      substr(regexp_extract(substr(n.rest, length(n.base) + 1), '[^0-9][0-9][0-9]([A-Z]\w*)', 1), 1,
             TRY_CAST(regexp_extract(substr(n.rest, length(n.base) + 1), '[^0-9]([0-9][0-9])[A-Z]', 1)
                      AS INTEGER))
    ELSE
      list_filter(
        regexp_extract_all(regexp_extract(n.plain, '\b\Q' || n.base || '\E<(.*?)(>\(|$)', 1), '[A-Za-z_]\w\w+'),
        lambda word: NOT list_contains(string_split('{_PLAIN_WORDS}', ' '), word))[1]
    END, '') || '>', '') END)[1]
"""

_KERNEL_NAME_DOC = (
    "[text] Name of the kernel of an op: its own if that is a C++ function, which tells more than its type; else its "
    "type, or its name without one."
)
_KERNEL_NAME = """
kernel_name(name, op_type) AS
CASE WHEN short_name(name) <> name OR op_type = name || '.kd' THEN name ELSE coalesce(op_type, name) END
"""

_UNNUMBERED_DOC = "[text] A label without the number that tells it from equal ones: add<Half>#2 becomes add<Half>."
_UNNUMBERED = """
unnumbered(label) AS
regexp_replace(label, '#[0-9]+$', '')
"""

_KERNEL_CATEGORY_DOC = (
    "[text] What a kernel computes, by rules for its name or op type: attention, communication, conv, elementwise, "
    "gemm, indexing, loss, memory, moe, normalization, optimizer, pooling, quantization, random, reduction, "
    "softmax or sort; NULL if no rule matches. task.kind recognises more collectives."
)


@cache
def _kernel_category() -> str:
    """The rules of `normalize/kernel_categories.toml` as an SQL expression."""
    text = (resources.files("traceconv.normalize") / "kernel_categories.toml").read_text("utf-8")
    cases = []
    for rule in tomli.loads(text)["rule"]:
        tests = [
            f"regexp_matches({subject}, {quote_text(rule[key])}, 'i')"
            for key, subject in (("function", "function"), ("name", "name"))
            if key in rule
        ]
        cases.append(f"WHEN {' AND '.join(tests)} THEN {quote_text(rule['category'])}")
    # In a lambda, the short name is computed once.
    matched = "\n".join(cases)
    return f"kernel_category(name) AS\nlist_transform([short_name(name)], lambda function: CASE\n{matched} END)[1]"


_DEVICE_PEAK_FLOPS_DOC = (
    "[flop/s] Peak of a known device, by its name in a trace, for a number format and unit such as bf16 matrix or fp32 "
    "vector, without structured sparsity; NULL for other devices and formats."
)
_DEVICE_PEAK_BYTES_PER_S_DOC = (
    "[byte/s] Bandwidth of the memory of a known device, by its name in a trace; NULL for other devices."
)


def _of_devices(value: Callable[[Mapping[str, Any]], str]) -> str:
    """A value for each device of `normalize/device_peaks.toml`, as an SQL expression of `device_name`."""
    text = (resources.files("traceconv.normalize") / "device_peaks.toml").read_text("utf-8")
    cases = [
        f"WHEN regexp_matches(device_name, {quote_text(device['pattern'])}, 'i') THEN {value(device)}"
        for device in tomli.loads(text)["device"]
    ]
    return f"CASE {' '.join(cases)} END"


@cache
def _device_peak_flops() -> str:
    def peaks(device: Mapping[str, Any]) -> str:
        cases = [f"WHEN {quote_text(kind)} THEN {rate * 10**9:d}" for kind, rate in device["gflops"].items()]
        return f"CASE compute_type {' '.join(cases)} END"

    return f"device_peak_flops(device_name, compute_type) AS\n({_of_devices(peaks)})::BIGINT"


@cache
def _device_peak_bytes_per_s() -> str:
    rates = _of_devices(lambda device: f"{device['gbytes_per_s'] * 10**9:d}")
    return f"device_peak_bytes_per_s(device_name) AS\n({rates})::BIGINT"


#: Name → the text after CREATE MACRO, or what reads it, and the comment.
_MEMORY_IN_WINDOW_DOC = (
    "Bytes in use at some times of a window, among them those of the peaks of each device and pool: run_id, device_id, "
    "level, pool, ts_ns, used_bytes, reserved_bytes."
)
# Intervals within the window have their peaks. In those at its ends, changes are added to what was in use before.
_MEMORY_IN_WINDOW = """
memory_in_window(of_run, of_device, from_ns, to_ns) AS TABLE
WITH piece AS (
  SELECT i.*, coalesce(lag(used_bytes) OVER of_pool, 0) AS before_used,
         CASE WHEN has_segments THEN coalesce(lag(reserved_bytes) OVER of_pool, 0) END AS before_reserved,
         min(start_ns) OVER (PARTITION BY run_id, device_id) AS first_ns,
         coalesce(peak_used_ns IS NULL OR (start_ns <= from_ns AND end_ns > from_ns)
           OR (start_ns < to_ns AND end_ns >= to_ns), false) AS is_cut
  FROM memory_interval AS i
  WHERE (of_run IS NULL OR run_id = of_run) AND (of_device IS NULL OR device_id = of_device)
  WINDOW of_pool AS (PARTITION BY run_id, device_id, level, pool ORDER BY start_ns)
), cut AS MATERIALIZED (
  SELECT * FROM piece WHERE is_cut
), change AS (
  SELECT c.*, coalesce(m.alloc_ns, c.first_ns) AS ts_ns, m.kind, m.size_bytes AS bytes
  FROM memory AS m
  JOIN cut AS c ON c.run_id = m.run_id AND c.device_id IS NOT DISTINCT FROM m.device_id
    AND (c.level = 'device' OR c.pool IS NOT DISTINCT FROM m.pool)
    AND coalesce(m.alloc_ns, c.first_ns) BETWEEN c.start_ns AND c.end_ns
  UNION ALL
  SELECT c.*, m.free_ns AS ts_ns, m.kind, TRY(-m.size_bytes) AS bytes
  FROM memory AS m
  JOIN cut AS c ON c.run_id = m.run_id AND c.device_id IS NOT DISTINCT FROM m.device_id
    AND (c.level = 'device' OR c.pool IS NOT DISTINCT FROM m.pool) AND m.free_ns BETWEEN c.start_ns AND c.end_ns
  WHERE m.free_ns >= m.alloc_ns OR m.alloc_ns IS NULL
), at_time AS (
  SELECT run_id, device_id, level, pool, start_ns, before_used, before_reserved, ts_ns,
         sum(CASE WHEN kind = 'segment' THEN 0 ELSE bytes END) AS used,
         sum(CASE WHEN kind = 'segment' THEN bytes WHEN has_segments THEN 0 END) AS reserved
  FROM change
  GROUP BY ALL
), known AS (
  SELECT run_id, device_id, level, pool, ts_ns, TRY_CAST(before_used + sum(used) OVER so_far AS BIGINT) AS used_bytes,
         TRY_CAST(before_reserved + sum(reserved) OVER so_far AS BIGINT) AS reserved_bytes
  FROM at_time
  WINDOW so_far AS (PARTITION BY run_id, device_id, level, pool, start_ns ORDER BY ts_ns)
  UNION ALL
  SELECT run_id, device_id, level, pool, end_ns AS ts_ns, used_bytes, reserved_bytes
  FROM piece
  WHERE NOT is_cut AND end_ns <= from_ns
)
SELECT run_id, device_id, level, pool, ts_ns, used_bytes, reserved_bytes
FROM known
WHERE (from_ns IS NULL OR ts_ns > from_ns) AND (to_ns IS NULL OR ts_ns < to_ns)
UNION ALL
-- What is in use at from_ns, since the last change until then, counts too.
SELECT run_id, device_id, level, pool, from_ns AS ts_ns,
       unnest(max_by({ 'used_bytes': used_bytes, 'reserved_bytes': reserved_bytes }, ts_ns))
FROM known
WHERE ts_ns <= from_ns AND (to_ns IS NULL OR ts_ns < to_ns)
GROUP BY run_id, device_id, level, pool
UNION ALL
SELECT run_id, device_id, level, pool, peak_used_ns AS ts_ns, peak_used_bytes AS used_bytes,
       reserved_at_peak_bytes AS reserved_bytes
FROM piece
WHERE NOT is_cut AND (from_ns IS NULL OR start_ns > from_ns) AND (to_ns IS NULL OR end_ns < to_ns)
UNION ALL
SELECT run_id, device_id, level, pool, peak_reserved_ns AS ts_ns, NULL AS used_bytes,
       peak_reserved_bytes AS reserved_bytes
FROM piece
WHERE NOT is_cut AND (from_ns IS NULL OR start_ns > from_ns) AND (to_ns IS NULL OR end_ns < to_ns)
"""

_STEPS_ALONE_DOC = (
    "Per run and device, a range of time begin_ns to end_ns, around the middle of the tasks of some steps, in which no "
    "other task runs: empty, and without a row, if they are few."
)
_STEPS_ALONE = """
steps_alone(of_run, of_device, of_step, from_step, to_step) AS TABLE
WITH span AS (
  SELECT t.run_id, t.device_id, min(t.start_ns) AS first_ns, max(t.start_ns) AS last_ns
  FROM task AS t
  WHERE (of_step IS NOT NULL OR from_step IS NOT NULL OR to_step IS NOT NULL) AND t.kind IS DISTINCT FROM 'sync'
    AND (of_run IS NULL OR t.run_id = of_run) AND (of_device IS NULL OR t.device_id = of_device)
    AND (of_step IS NULL OR t.step_id = of_step) AND (from_step IS NULL OR t.step_id >= from_step)
    AND (to_step IS NULL OR t.step_id <= to_step)
  GROUP BY t.run_id, t.device_id
), middle AS (
  -- Few tasks are read faster than the tasks of other steps.
  SELECT s.run_id, s.device_id, s.first_ns // 2 + s.last_ns // 2 AS ts_ns
  FROM span AS s
  JOIN device_busy AS p ON p.run_id = s.run_id AND p.device_id IS NOT DISTINCT FROM s.device_id
    AND p.ts_ns BETWEEN s.first_ns AND s.last_ns
  GROUP BY s.run_id, s.device_id, s.first_ns, s.last_ns
  HAVING count(*) > 64
), other AS (
  SELECT t.run_id, t.device_id, max(t.start_ns) FILTER (WHERE t.start_ns < m.ts_ns) AS before_ns,
         min(t.start_ns) FILTER (WHERE t.start_ns >= m.ts_ns) AS after_ns,
         max(t.start_ns + t.dur_ns) FILTER (WHERE t.start_ns < m.ts_ns) AS until_ns
  FROM task AS t
  JOIN middle AS m ON m.run_id = t.run_id AND m.device_id IS NOT DISTINCT FROM t.device_id
  WHERE t.kind IS DISTINCT FROM 'sync' AND t.dur_ns IS NOT NULL
    AND (of_run IS NULL OR t.run_id = of_run) AND (of_device IS NULL OR t.device_id = of_device)
    AND NOT coalesce((of_step IS NULL OR t.step_id = of_step) AND (from_step IS NULL OR t.step_id >= from_step)
      AND (to_step IS NULL OR t.step_id <= to_step), false)
  GROUP BY t.run_id, t.device_id
)
SELECT m.run_id, m.device_id, coalesce(greatest(o.before_ns + 1, o.until_ns), -9223372036854775807) AS begin_ns,
       coalesce(o.after_ns, 9223372036854775807) AS end_ns
FROM middle AS m
LEFT JOIN other AS o ON o.run_id = m.run_id AND o.device_id IS NOT DISTINCT FROM m.device_id
"""

_FUNCTIONS: Mapping[str, tuple[str | Callable[[], str], str]] = {
    "cycles_ns": (_CYCLES_NS, _CYCLES_NS_DOC),
    "share": (_SHARE, _SHARE_DOC),
    "gib_per_s": (_GIB_PER_S, _GIB_PER_S_DOC),
    "short_name": (_SHORT_NAME, _SHORT_NAME_DOC),
    "kernel_label": (_KERNEL_LABEL, _KERNEL_LABEL_DOC),
    "kernel_name": (_KERNEL_NAME, _KERNEL_NAME_DOC),
    "unnumbered": (_UNNUMBERED, _UNNUMBERED_DOC),
    "kernel_category": (_kernel_category, _KERNEL_CATEGORY_DOC),
    "device_peak_flops": (_device_peak_flops, _DEVICE_PEAK_FLOPS_DOC),
    "device_peak_bytes_per_s": (_device_peak_bytes_per_s, _DEVICE_PEAK_BYTES_PER_S_DOC),
    "steps_alone": (_STEPS_ALONE, _STEPS_ALONE_DOC),
    "memory_in_window": (_MEMORY_IN_WINDOW, _MEMORY_IN_WINDOW_DOC),
}


def function_names() -> Collection[str]:
    """Return the names of all functions."""
    return _FUNCTIONS.keys()


def function_body(name: str) -> str:
    """Return the text after CREATE MACRO. Raises KeyError."""
    body, _ = _FUNCTIONS[name]
    return body if isinstance(body, str) else body()


def function_statements() -> list[str]:
    """Return the statements that create the functions and their comments."""
    return [
        statement
        for name, (_, doc) in _FUNCTIONS.items()
        for body in (function_body(name),)
        for statement in (
            f"CREATE OR REPLACE MACRO {body}",
            f"COMMENT ON MACRO {'TABLE ' if ' AS TABLE' in body else ''}{name} IS {quote_text(doc)}",
        )
    ]
