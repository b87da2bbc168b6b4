"""Short names: the same text in SQL and in tables, no name is too hard, and names that differ look different."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from traceconv.cli.tables import shortened
from traceconv.reports.short_names import distinct, short_name
from traceconv.store.functions import function_body

PIECES = [
    "void ", "at::native::", "(anonymous namespace)::", "f", "Kernel", "<", ">", "(", ")", "{", "}", "{lambda(int)#1}",
    "operator()", "operator", " const", "->", ", ", "::", ":", " ", "_ZN", "_Z", "_ZZN", "3foo", "12", "I", "E", "NS_",
    "Li64E", "St", "9999", "(8)>(0)", ".kd", " [clone .kd]", "/", "é", "\n", "'", "\x01", "",
]  # fmt: skip
NAMES = st.one_of(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.text(max_size=12))


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute(f"CREATE MACRO {function_body('short_name')}")
        yield opened


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, A<char*, 3> >(int, F<X>)",
         "vectorized_elementwise_kernel"),
        ("void at::native::(anonymous namespace)::krn<long>(long*, long const*)", "krn"),
        ("std::enable_if<(((8)>(0)))&&a::T<c10::B>::exists, void>::type vllm::norm<c10::B, 8>(c10::B*)", "norm"),
        ("at::f(at::T&)::{lambda()#2}::operator()() const::{lambda(float)#1}::operator()(float) const", "f"),
        ("void f<&(g(int, bool))>(int) [clone .kd]", "f"),
        ("A<int>::run(float)", "run"),
        ("_Z3addPfS_", "add"),
        ("_ZN7cutlass6KernelINS_4conv4GemmILi64EEEEEvNT_6ParamsE", "Kernel"),
        ("_ZN2at6native12_GLOBAL__N_13krnIlEEvPT_", "krn"),
        ("_ZNSt3foo3barEv", "bar"),
        ("aten::add", "aten::add"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("torch/nn/module.py(1501): _call_impl", "torch/nn/module.py(1501): _call_impl"),
        ("Default/net/Conv2D-op1", "Default/net/Conv2D-op1"),
        ("_Z", "_Z"),
        ("_ZN9999foo", "foo"),
        ("", ""),
    ],
)  # fmt: skip
def test_short_names(connection: duckdb.DuckDBPyConnection, name: str, short: str) -> None:
    assert short_name(name) == short
    assert connection.execute("SELECT short_name(?)", [name]).fetchone() == (short,)


@settings(max_examples=15)
@given(names=st.lists(NAMES, min_size=20, max_size=60))
def test_sql_and_tables_agree(connection: duckdb.DuckDBPyConnection, names: list[str]) -> None:
    names = [name for name in names if "\x00" not in name and name.isprintable()]
    found = connection.execute("SELECT list_transform(?::VARCHAR[], lambda n: short_name(n))", [names]).fetchone()
    assert found == ([short_name(name) for name in names],)
    assert connection.execute("SELECT short_name(NULL)").fetchone() == (None,)


@given(names=st.sets(NAMES.filter(str.isprintable), max_size=30), width=st.integers(10, 40))
def test_different_names_look_different(names: set[str], width: int) -> None:
    cells = distinct(names, width, shortened)
    assert set(cells) == names
    assert len(set(cells.values())) == len(names)
    assert all(cell_len(cell) <= width for cell in cells.values())


def test_names_that_are_hard_to_tell_apart_leave_the_others_alone() -> None:
    add = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, A<char*, 3> >(int, F<X>)"
    cudnn = [
        f"cudnn_infer_volta_scudnn_128x{size}_{end}_nn_v1"
        for size in (32, 64, 128)
        for end in ("relu_medium", "relu_small", "stridedB_small")
    ]
    cells = distinct([add, *cudnn], 30, shortened)
    assert cells[add] == distinct([add], 30, shortened)[add]
    assert "AddFunctor" in cells[add]
    assert len(set(cells.values())) == 10
    assert "#" not in cells[add]


@pytest.mark.parametrize(
    "part",
    ["<", "(", ")", "<(", "<a>(", "f<", "::", " const", "_ZN3foo", "3f", "I", "Li1E", "E", "operator()", "a_", "1x"],
)
def test_hostile_names(connection: duckdb.DuckDBPyConnection, part: str) -> None:
    long = part * (3900 // len(part))
    names = [name + end for name in (long, "void f" + long + ")", "_ZN1f" + long, long * 100) for end in ("", "1")]
    assert len(set(distinct(names, 30, shortened).values())) == len(names)
    found = connection.execute("SELECT short_name(unnest(?::VARCHAR[]))", [names]).fetchall()
    assert [one for (one,) in found] == [short_name(name) for name in names]
