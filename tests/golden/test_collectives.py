"""collectives and collective_arrivals: stores of a few rows, and the expected rows worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from stores import query as ask

from traceconv.export.one_clock import on_one_clock
from traceconv.store.database import open_store

MakeStore = Callable[..., Path]
Row = dict[str, object]
MS = 1_000_000


def collective(id_: int, start_ns: int | None, dur_ns: int | None, name: str = "allreduce", **more: object) -> Row:
    """A kernel of NCCL on two ranks, with 1000 floats, as in PyTorch's traces."""
    args = {
        "Collective name": name, "dtype": "Float", "In msg nelems": 1000, "Out msg nelems": 1000, "Group size": 2,
        "Process Group Ranks": "[0, 1]",
    }  # fmt: skip
    args |= {key: value for key, value in more.items() if key[0].isupper() or key == "dtype"}
    columns = {key: value for key, value in more.items() if key not in args}
    task = {"id": id_, "start_ns": start_ns, "dur_ns": dur_ns, "name": "ncclDevKernel", "kind": "collective"}
    return {**task, "comm_group": "0", "args": json.dumps(args), **columns}


def ranks(*hosts: str | None, **more: object) -> list[Row]:
    """Runs 1, 2 … of the ranks 0, 1 … of a job."""
    return [
        {"run_id": n + 1, "label": f"r{n}", "rank": n, "group_label": "job", "host": host, "start_ns": 0, **more}
        for n, host in enumerate(hosts)
    ]


# nccl-tests (PERFORMANCE.md): the size S and the factor of the bus bandwidth for n ranks that each have 1000 floats.
# 4 ranks, 3 collectives of 1, 2 and 1 µs.
@pytest.mark.parametrize(
    ("name", "elements", "size_bytes", "factor"),
    [
        ("allreduce", (1000, 1000), 4000, Decimal(2 * 3) / 4),
        ("_allgather_base", (1000, 4000), 16_000, Decimal(3) / 4),
        ("allgather", (1000, None), 16_000, Decimal(3) / 4),
        ("_reduce_scatter_base", (4000, 1000), 16_000, Decimal(3) / 4),
        ("reduce_scatter", (None, 1000), 16_000, Decimal(3) / 4),
        ("all_to_all", (4000, 4000), 16_000, Decimal(3) / 4),
        ("gather", (1000, 0), 16_000, Decimal(3) / 4),
        ("scatter", (0, 1000), 16_000, Decimal(3) / 4),
        ("broadcast", (1000, 1000), 4000, Decimal(1)),
        ("reduce", (1000, 0), 4000, Decimal(1)),
        ("send", (1000, 0), 4000, Decimal(1)),
        ("barrier", (1, 1), None, None),
        ("allreduce", (-1, None), None, None),
        ("something", (1, 1), None, None),
    ],
)
def test_bandwidths_are_those_of_nccl_tests(
    name: str, elements: tuple[int, int], size_bytes: int | None, factor: Decimal | None, make_store: MakeStore
) -> None:
    sizes = dict(zip(("In msg nelems", "Out msg nelems"), elements, strict=True))
    tasks = [
        collective(n, n * 10_000, dur, name, **{**sizes, "Group size": 4}) for n, dur in enumerate([1000, 2000, 1000])
    ]
    columns = "message_bytes, count, total_ns, mean_ns, algorithm_bytes_per_s, bus_bytes_per_s, wait_ns"
    algorithm = size_bytes and 3 * size_bytes * 10**9 // 4000
    bus = size_bytes and factor and int(3 * size_bytes * 10**9 * factor / 4000)
    expected = [(size_bytes, 3, 4000, 1333, algorithm, bus, None)]
    assert ask(make_store(task=tasks), f"SELECT {columns} FROM collectives") == expected


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "all_gather"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reduce_scatter"),
        ("ncclKernel_Reduce_RING_LL_Sum_float", "reduce"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
        ("void vllm::cross_device_reduce_1stage<float, 2>(vllm::RankData*)", "all_reduce"),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", "all_reduce"),
        ("_ZN4vllm26cross_device_reduce_1stageI6__halfLi8EEEvPNS_8RankDataENS_11RankSignalsE", "all_reduce"),
        ("hcom_allReduce__586_0_1", "all_reduce"),
        ("hcom_reduceScatter__1", "reduce_scatter"),
        ("hcom_alltoallv__1", "all_to_all"),
        ("hcom_receive__1", "recv"),
        ("ncclDevKernel_Generic_1", None),
    ],
)
def test_kinds_by_the_names_of_kernels(name: str, kind: str | None, make_store: MakeStore) -> None:
    store = make_store(task=[{"id": 1, "start_ns": 0, "dur_ns": 5, "name": name, "kind": "collective"}])
    assert ask(store, "SELECT collective FROM collective") == [(kind,)]


ARRIVAL = "rank, start_ns, rank_count, wait_ns, transfer_ns, launch_skew_ns, late_ns, is_last, clock_error_ns, match"


def test_waits_and_transfers_of_ranks_on_one_host(make_store: MakeStore) -> None:
    """Rank 1 arrives 30 ns later, 25 of which are the launch's; then both arrive together; then one has no end."""
    store = make_store(
        run=ranks("a", "a"),
        step=[{"run_id": n, "step_id": 10 + n, "iteration": 4, "start_ns": 0, "end_ns": 1000} for n in (1, 2)],
        task=[
            collective(1, 100, 80, submit_ns=50, step_id=11, run_id=1),
            collective(1, 130, 52, submit_ns=75, step_id=12, run_id=2),
            collective(2, 300, 10, step_id=11, run_id=1),
            collective(2, 300, 12, step_id=12, run_id=2),
            collective(3, 400, None, step_id=11, run_id=1),
        ],
    )
    assert ask(store, f"SELECT {ARRIVAL} FROM collective_arrivals ORDER BY start_ns, rank") == [
        (0, 100, 2, 30, 50, 25, 0, False, 0, "position"),
        (1, 130, 2, 0, 52, 0, 30, True, 0, "position"),
        (0, 300, 2, 0, 10, None, 0, False, 0, "position"),
        (1, 300, 2, 0, 12, None, 0, False, 0, "position"),
        (0, 400, 1, None, None, None, None, None, None, "no_times"),
    ]
    columns = (
        "rank, count, unfinished_count, matched_count, rank_count, wait_ns, transfer_ns, transfer_bus_bytes_per_s, "
    )
    columns += "launch_skew_ns, last_count, last_step_count, step_count, late_ns, conclusion"
    expected = [
        (0, 2, 1, 2, 2, 30, 60, 2 * 4000 * 10**9 // 60, 25, 0, 0, 1, 0, "transfer"),
        (1, 2, 0, 2, 2, 0, 64, 2 * 4000 * 10**9 // 64, 0, 1, 1, 1, 30, "transfer"),
    ]
    assert ask(store, f"SELECT {columns} FROM collectives ORDER BY rank") == expected
    # One run is compared with the others of its group, too.
    assert ask(store, f"SELECT {columns} FROM collectives(run := 2)") == expected[1:]
    assert ask(store, "SELECT count(*) FROM collective_arrivals(run := 1, from_ns := 200, to_ns := 400)") == [(1,)]


GLOO_GROUP = {"pg_name": "0", "pg_size": 4, "ranks": [0, 1, 2, 3]}


def gloo(id_: int, start_ns: int, name: str, *inputs: tuple[str, list[int]], run_id: int = 1) -> Row:
    """A range of Gloo, as in PyTorch's traces."""
    args = {"Input type": [type_ for type_, _ in inputs], "Input Dims": [dims for _, dims in inputs]} if inputs else {}
    return {"run_id": run_id, "id": id_, "start_ns": start_ns, "dur_ns": 1000, "name": f"gloo:{name}", "step_id": 1,
            "kind": "annotation", "category": "user_annotation", "args": json.dumps(args)}  # fmt: skip


def gloo_runs(pg_count: int, *others: str | None) -> list[Row]:
    """Runs with a group, and others of these backends."""
    groups = [*({"pg_name": "9", "backend_config": one} for one in others), GLOO_GROUP]
    options = {"distributedInfo": {"backend": "gloo", "pg_count": pg_count, "pg_config": groups}}
    return ranks("a", "a", options=json.dumps(options))


@pytest.mark.parametrize(
    ("name", "inputs", "kind", "size_bytes"),
    [
        ("all_reduce", [("c10::BFloat16", [10, 100])], "all_reduce", 2000),
        ("all_reduce", [("float", [])], "all_reduce", 4),
        ("all_reduce", [("float", [3]), ("float", [5])], "all_reduce", 32),
        ("all_reduce", [("float", [3]), ("double", [5])], "all_reduce", None),
        ("all_reduce", [("float", [2**62, 2**62, 2**62])], "all_reduce", None),
        ("all_gather", [("long int", [5])], "all_gather", 160),
        ("gather", [("unsigned char", [7])], "gather", 28),
        ("scatter", [("float", [6])] * 4, "scatter", 96),
        ("scatter", [], "scatter", None),
        ("all_to_all", [("float", [8])], "all_to_all", 32),
        ("barrier", [], "barrier", None),
        ("send", [("float", [8])], "send", 32),
        ("recv", [("float", [8])], "recv", 32),
    ],
)
def test_sizes_of_gloo(
    name: str, inputs: list[tuple[str, list[int]]], kind: str, size_bytes: int | None, make_store: MakeStore
) -> None:
    """Without a device. Other ranges with such a name are no collectives, and neither are those of other runs."""
    other = {"id": 9, "start_ns": 0, "dur_ns": 5, "name": "gloo:all_reduce", "kind": "annotation"}
    ranges = [gloo(1, 0, name, *inputs), {**other, "category": "cpu_op"}, {**other, "run_id": 3}]
    store = make_store(run=[*gloo_runs(1), {"run_id": 3}], range=ranges)
    columns = "run_id, id, device_id, collective, message_bytes, comm_group, group_ranks, group_size, position"
    expected = [(1, 1, None, kind, size_bytes, "gloo:0", "[0,1,2,3]", 4, 1)]
    assert ask(store, f"SELECT {columns} FROM collective") == expected


@pytest.mark.parametrize(
    ("count", "others", "is_known"),
    [
        (1, (), True),
        (2, (), False),
        (2, ("cpu:gloo,cuda:nccl",), False),
        (2, (None,), False),
        (3, ("cuda:nccl", "cuda:nccl"), True),
    ],
)
def test_ranks_of_gloo_are_compared_if_there_is_one_group(
    count: int, others: tuple[str | None, ...], is_known: bool, make_store: MakeStore
) -> None:
    """Ranges of Gloo don't name their group: with several, the same place can be another collective."""
    expected = (200, "position", "gloo:0", 4000) if is_known else (None, "unknown_group", None, 4000)
    ranges = [gloo(n, 200 * (n - 1), "all_reduce", ("float", [1000]), run_id=n) for n in (1, 2)]
    sql = "SELECT wait_ns, match, comm_group, message_bytes FROM collective_arrivals WHERE rank = 0"
    store = make_store(run=gloo_runs(count, *others), range=ranges)
    assert ask(store, sql) == [expected]
    assert ask(store, "SELECT count, total_ns FROM collectives") == [(1, 1000), (1, 1000)]


def test_the_rank_that_is_late_in_most_collectives(make_store: MakeStore) -> None:
    late = {0: (0, 0, 7), 1: (5, 5, 5), 2: (40, 60, 0)}
    tasks = [
        collective(n, 1000 * n + late[rank][n], 500 - late[rank][n], run_id=rank + 1)
        for rank in range(3)
        for n in range(3)
    ]
    store = make_store(run=ranks("a", "a", "a"), task=tasks)
    assert ask(store, "SELECT rank, wait_ns, last_count, late_ns, conclusion FROM collectives ORDER BY rank") == [
        (0, 40 + 60, 1, 7 - 5, "transfer"),
        (1, 35 + 55 + 2, 0, 0, "transfer"),
        (2, 7, 2, 35 + 55, "late"),
    ]


@pytest.mark.parametrize("hosts", [("a", "b"), (None, None), ("a", "a")])
def test_clocks_that_must_be_apart_are_aligned_by_the_ends(
    hosts: tuple[str | None, ...], make_store: MakeStore
) -> None:
    """Rank 1's clock is 1 ms ahead: its kernels start after those of rank 0 ended. It comes 10 µs late to the first."""
    ahead, times = MS, [(0, 100_000, 10_000), (500_000, 100_000, 0), (900_000, 100_000, 0)]
    tasks = []
    for n, (start, dur, late) in enumerate(times):
        tasks += [
            collective(n, start, dur, run_id=1),
            collective(n, start + late + ahead, dur - late + 2 * (n == 1), run_id=2),
        ]
    store = make_store(run=ranks(*hosts, epoch_offset_ns=0), task=tasks)
    columns = (
        "rank, wait_ns, transfer_ns, last_count, late_ns, clock_offset_ns, clock_error_ns, clock_off_ns, conclusion"
    )
    assert ask(store, f"SELECT {columns} FROM collectives ORDER BY rank") == [
        (0, 10_000, 290_000, 0, 0, 0, 2, 0, "transfer"),
        (1, 0, 290_002, 1, 10_000, -ahead, 2, ahead - 90_000, "transfer"),
    ]
    with open_store(store) as connection:
        placed, _ = on_one_clock(connection, [1, 2])
    assert placed[1].offset_ns - placed[0].offset_ns == -ahead, "a timeline of both"


def test_too_few_collectives_between_hosts_are_inconclusive(make_store: MakeStore) -> None:
    """Two kernels of 100 ns overlap, if the clocks are off by up to that; the offset seems 30 ns."""
    store = make_store(run=ranks("a", "b"), task=[collective(1, 0, 100), collective(1, 30, 100, run_id=2)])
    columns = "wait_ns, clock_offset_ns, clock_error_ns, clock_off_ns, conclusion"
    assert ask(store, f"SELECT {columns} FROM collectives ORDER BY rank") == [
        (0, 0, 100, 0, "inconclusive"),
        (0, -30, 100, 0, "inconclusive"),
    ]


def test_devices_of_a_capture_are_compared_within_their_clock_errors(make_store: MakeStore) -> None:
    run = {"run_id": 1, "label": "c", "rank": None, "source_format": "npulog", "start_ns": 0}
    more: Row = {"comm_group": "world", "name": "hcom_allReduce__0", "args": None, "size_bytes": 6000}
    store = make_store(
        run=[run],
        device=[{"device_id": n, "clock_error_ns": error} for n, error in enumerate((7, 5, 20))],
        task=[{**collective(n, 10 * n, 100, device_id=n), **more} for n in range(3)],
    )
    columns = "device_id, group_size, message_bytes, bus_bytes_per_s, wait_ns, late_ns, clock_error_ns, conclusion"
    bus = 6000 * 10**9 * 4 // 3 // 100
    assert ask(store, f"SELECT {columns} FROM collectives ORDER BY device_id") == [
        # The errors against device 0 are 0, 12 and 27.
        (0, 3, 6000, bus, 20, 0, 27, "transfer"),
        (1, 3, 6000, bus, 10, 0, 39, "transfer"),
        (2, 3, 6000, bus, 0, 10, 39, "transfer"),
    ]
    # An export with --device has the collectives of one device.
    store = make_store(run=[run], device=[{"device_id": n} for n in range(3)], task=[{**collective(0, 0, 100), **more}])
    assert ask(store, "SELECT group_size, bus_bytes_per_s FROM collectives") == [(3, bus)]


def test_collectives_are_paired_by_number_or_not_at_all(make_store: MakeStore) -> None:
    def one(store: Path) -> list[tuple[object, ...]]:
        return ask(store, "SELECT run_id, id, rank_count, match FROM collective_arrivals ORDER BY ALL")

    # Rank 1 was recorded from the second collective on.
    rows = [(1, 1, 5), (1, 2, 6), (1, 3, 7), (2, 1, 6), (2, 2, 7)]
    two = ranks("a", "a")
    tasks = [collective(id_, id_ * 100, 10, run_id=run, Seq=seq) for run, id_, seq in rows]
    assert one(make_store(run=two, task=tasks)) == [
        (1, 1, 1, "single_rank"), (1, 2, 2, "sequence"), (1, 3, 2, "sequence"),
        (2, 1, 2, "sequence"), (2, 2, 2, "sequence"),
    ]  # fmt: skip
    tasks = [collective(id_, id_ * 100, 10, run_id=run) for run, id_, _ in rows]
    assert {match for *_, match in one(make_store(run=two, task=tasks))} == {"counts_differ"}
    # In iterations of the same number of collectives, places can be compared.
    steps = [{"run_id": n, "step_id": s, "iteration": s, "start_ns": 0, "end_ns": 9} for n in (1, 2) for s in (1, 2)]
    tasks = [
        collective(id_, id_ * 100, 10, run_id=run, step_id=step)
        for run, id_, step in ((1, 1, 1), (1, 2, 1), (1, 3, 2), (2, 1, 1), (2, 2, 2))
    ]
    assert one(make_store(run=two, step=steps, task=tasks)) == [
        (1, 1, 1, "counts_differ"), (1, 2, 1, "counts_differ"), (1, 3, 2, "position"),
        (2, 1, 1, "counts_differ"), (2, 2, 2, "position"),
    ]  # fmt: skip


def test_what_is_not_compared(make_store: MakeStore) -> None:
    def matches(runs: list[Row], *tasks: Row) -> list[object]:
        return [row[0] for row in ask(make_store(run=runs, task=list(tasks)), "SELECT match FROM collective_arrivals")]

    two = ranks("a", "a")
    first = collective(1, 0, 10)
    assert matches(two, first, collective(1, 0, 10, run_id=2, **{"In msg nelems": 999, "Out msg nelems": 9})) == [
        "sizes_differ", "sizes_differ",
    ]  # fmt: skip
    assert matches(two, first, collective(1, 0, 10, run_id=2, comm_group="1")) == ["single_rank"] * 2
    assert matches(two, first, collective(1, 0, 10, "broadcast", run_id=2)) == ["single_rank"] * 2
    assert matches([{**run, "rank": None} for run in two], first, collective(1, 0, 10, run_id=2)) == ["single_rank"] * 2
    assert matches([{**run, "rank": 0} for run in two], first, collective(1, 0, 10, run_id=2)) == ["same_rank"] * 2
    sent = [collective(1, 0, 10, name, run_id=run) for run, name in ((1, "send"), (2, "send"))]
    assert matches(two, *sent) == ["point_to_point"] * 2
    unknown = [collective(1, 0, 10, "unheard", run_id=run) for run in (1, 2)]
    assert matches(two, *unknown) == ["unknown_kind"] * 2


def test_extreme_times_and_sizes_are_null_and_no_error(make_store: MakeStore) -> None:
    most = 2**63 - 1
    huge = {"In msg nelems": most, "Out msg nelems": 2**57, "Group size": most, "Seq": most}
    store = make_store(
        run=[{**run, "epoch_offset_ns": offset} for run, offset in zip(ranks("a", "b"), (most, -most), strict=True)],
        task=[
            collective(1, -most, most, **huge),
            collective(2, most - 5, 5, run_id=2, **huge),
            collective(3, 2**61, 2**60, "broadcast", run_id=1),
            collective(3, -(2**60), 2**60, "broadcast", run_id=2),
            collective(4, 2**61, 2**60, run_id=1, submit_ns=most),
            collective(4, -(2**60), 0, run_id=2, submit_ns=-most),
            collective(5, None, None, args="{", run_id=2),
        ],
    )
    assert len(ask(store, "FROM collective_arrivals")) == 7
    assert len(ask(store, "FROM collectives")) > 4
    assert ask(store, "SELECT DISTINCT message_bytes, group_size FROM collective WHERE id < 3") == [(2**59, None)]
