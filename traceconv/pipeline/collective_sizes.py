"""Sizes of collectives whose source has the number and type of their elements, but no bytes."""

from __future__ import annotations

from traceconv.pipeline.run_sql import RunSql

#: Keys in args: elements, their type. Ascend (HCCL), and PyTorch (NCCL).
_KEYS = (("count", "data_type"), ("In msg nelems", "dtype"))
_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
_ELEMENT_BYTES = {
    1: ("int8", "uint8", "byte", "char", "bool", "fp8", "hif8", "fp8e4m3", "fp8e5m2", "fp8e8m0", *_FLOAT8),
    2: ("fp16", "float16", "half", "bfp16", "bf16", "bfloat16", "int16", "uint16", "short"),
    4: ("fp32", "float32", "float", "int32", "uint32", "int", "complexhalf"),
    8: ("fp64", "float64", "double", "int64", "uint64", "long", "complexfloat"),
    16: ("int128", "complexdouble"),
}


def size_collectives(target: RunSql) -> None:
    """Set task.size_bytes of collectives from their args; NULL for unknown types."""
    types = ", ".join(f"('{name}', {size})" for size, names in _ELEMENT_BYTES.items() for name in names)
    for count, kind in _KEYS:
        target.run_sql(
            "UPDATE task SET size_bytes = found.size_bytes FROM ("  # noqa: S608 - our own words
            "SELECT id, elements * width AS size_bytes FROM ("
            f"SELECT id, lower(args->>'{kind}') AS type, TRY_CAST(args->>'{count}' AS BIGINT) AS elements FROM task "
            "WHERE run_id = $run AND kind = 'collective' AND size_bytes IS NULL) AS c "
            f"JOIN (VALUES {types}) AS w(type, width) USING (type) WHERE elements BETWEEN 0 AND {2**58}"
            ") AS found WHERE task.run_id = $run AND task.id = found.id"
        )
