"""Fill the table collective from the tasks of stored runs, and from the ranges of Gloo, which runs on the host."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from traceconv.store.sections import section

if TYPE_CHECKING:
    import duckdb

#: Collective → pattern of its name: without case, and of letters and digits alone. The first that matches counts.
_COLLECTIVES = {
    "all_reduce": "allreduce|crossdevicereduce",
    "reduce_scatter": "reducescatter",
    "all_gather": "allgather",
    "all_to_all": "alltoall|all2all",
    "broadcast": "broadcast|bcast",
    "send_recv": "sendrecv|sendreceive",
    "send": "(^|nccl|rccl|hcom|gloo)(dev)?(kernel)?i?send",
    "recv": "(^|nccl|rccl|hcom|gloo)(dev)?(kernel)?i?(recv|receive)",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "reduce": "reduce",
}
_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
#: Bytes → names of data types: PyTorch's, HCCL's, and those of C++ in PyTorch.
_ELEMENT_BYTES = {
    1: ("int8", "uint8", "byte", "char", "bool", "fp8", "hif8", "fp8e4m3", "fp8e5m2", "fp8e8m0", *_FLOAT8,
        "signed char", "unsigned char", *(f"c10::{name}" for name in _FLOAT8)),
    2: ("fp16", "float16", "half", "bfp16", "bf16", "bfloat16", "int16", "uint16", "short", "short int", "c10::half",
        "c10::bfloat16"),
    4: ("fp32", "float32", "float", "int32", "uint32", "int", "complexhalf"),
    8: ("fp64", "float64", "double", "int64", "uint64", "long", "complexfloat", "long int", "long long",
        "c10::complex<float>"),
    16: ("int128", "complexdouble", "c10::complex<double>"),
}  # fmt: skip
# Rows with a position have a known group, and times (up to the year 2043) that can be shifted and subtracted without an
# overflow.
_FIRST_NS, _LAST_NS, _MOST_NS = -(1 << 60), 1 << 61, 1 << 60
_MOST_ELEMENTS, _MOST_RANKS = 1 << 58, 1 << 31
_KEYS = (
    "Collective name", "dtype", "In msg nelems", "Out msg nelems", "Group size", "Process Group Ranks", "Seq",
    "data_type", "count", "rank_size",
)  # fmt: skip
#: Columns → torch_npu's times in ms.
_VENDOR = {
    "vendor_transit_ns": "Transit Time(ms)",
    "vendor_wait_ns": "Wait Time(ms)",
    "vendor_idle_ns": "Idle Time(ms)",
}
_sql = partial(section, __name__)


def fill_collectives(connection: duckdb.DuckDBPyConnection, runs: Iterable[int]) -> None:
    """Insert the rows of runs that have none."""
    chosen = ", ".join(f"{run_id:d}" for run_id in runs)
    tasks = f"SELECT 1 FROM task WHERE run_id IN ({chosen}) AND kind = 'collective' LIMIT 1"  # noqa: S608 - numbers
    if not chosen:
        return
    with_gloo = _numbers(connection, "with_gloo", chosen)
    if not with_gloo and not connection.execute(tasks).fetchall():
        return
    with_payloads = _numbers(connection, "with_payloads", chosen)
    cases = " ".join(f"WHEN regexp_matches(word, '{pattern}') THEN '{name}'" for name, pattern in _COLLECTIVES.items())
    connection.execute(
        _sql(
            "rows",
            runs=chosen,
            gloo=_sql("gloo", with_gloo=with_gloo) if with_gloo else "",
            payload=_sql("payload", with_payloads=with_payloads) if with_payloads else _sql("no_payload"),
            named=f"CASE {cases} END",
            paths=", ".join(
                [f"""'$."{key}"'""" for key in _KEYS]
                + [f"""'$.communication."Communication Time Info"."{key}"'""" for key in _VENDOR.values()]
            ),
            vendor=", ".join(
                f"TRY_CAST(TRY_CAST(f.arg[{place}] AS DECIMAL(24, 12)) * 1000000 AS BIGINT) AS {name}"
                for place, name in enumerate(_VENDOR, len(_KEYS) + 1)
            ),
            vendor_names=", ".join(_VENDOR),
            widths=element_widths(),
            first=_FIRST_NS,
            last=_LAST_NS,
            longest=_MOST_NS,
            most=_MOST_ELEMENTS,
            most_ranks=_MOST_RANKS,
        )
    )


def _numbers(connection: duckdb.DuckDBPyConnection, name: str, runs: str) -> str:
    """Return the runs that a query finds among some, as SQL."""
    return ", ".join(f"{run_id:d}" for (run_id,) in connection.execute(_sql(name, runs=runs)).fetchall())


def element_widths() -> str:
    """Return the data types in lower case and their sizes in bytes, as rows of SQL."""
    return ", ".join(f"('{name}', {size})" for size, names in _ELEMENT_BYTES.items() for name in names)
