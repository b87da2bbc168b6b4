"""The layout of each record type, byte by byte, so that existing logs stay readable.

Each line is a field, a value, and the value's bytes in hexadecimal. Changing a line breaks all existing captures. Add
new fields at the end of their record, with a new line here.
"""

from __future__ import annotations

import numpy as np
import pytest

from traceconv.schema import record, record_by_tag, records
from traceconv.schema.dtypes import dtype_of
from traceconv.wire.codec import decode_block, encode_block
from traceconv.wire.frames import BLOCK_HEADER_BYTES, Block

TAGS = {
    "capture": (1, 56),
    "dictionary": (2, 64),
    "thread": (3, 32),
    "model": (4, 24),
    "op": (5, 128),
    "fusion": (6, 32),
    "api": (7, 40),
    "range": (8, 80),
    "memory": (9, 80),
    "clock_stop": (10, 24),
    "device": (20, 72),
    "stream": (21, 16),
    "sync": (22, 24),
    "task": (23, 64),
    "pmu_pipe_utilization": (24, 136),
    "counter": (25, 32),
    "step_mark": (26, 24),
    "pmu_arithmetic_utilization": (27, 104),
    "pmu_memory": (28, 128),
    "pmu_memory_l0": (29, 96),
    "pmu_memory_ub": (30, 80),
    "pmu_resource_conflict_ratio": (31, 56),
    "pmu_l2_cache": (32, 128),
    "stream_range": (33, 40),
    "event_wait": (34, 16),
}

GOLDEN: dict[str, tuple[tuple[str, int | bytes, str], ...]] = {
    "capture": (
        ("host_ns", -1720000000123456789, "eb32f8e21c5521e8"),
        ("epoch_ns", 1720000000123456791, "17cd071de3aade17"),
        ("process_id", 0xA237363534333231, "31323334353637a2"),
        ("host_name", 0xA347464544434241, "41424344454647a3"),
        ("model_name", 0xA457565554535251, "51525354555657a4"),
        ("writer", 0xA567666564636261, "61626364656667a5"),
        ("options", 0xA677767574737271, "71727374757677a6"),
    ),
    "dictionary": (
        ("hash", 0xA017161514131211, "11121314151617a0"),
        ("part", 0, "0000"),
        ("part_count", 1, "0100"),
        ("size_bytes", 6, "06000000"),
        (
            "text_bytes",
            b"Conv2D".ljust(48, b"\0"),
            "436f6e763244000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
        ),
    ),
    "thread": (
        ("process_id", 0xA017161514131211, "11121314151617a0"),
        ("process_name", 0xA127262524232221, "21222324252627a1"),
        ("thread_name", 0xA237363534333231, "31323334353637a2"),
        ("thread_id", 0xA3434241, "414243a3"),
        ("sort_index", 0xA4535251, "515253a4"),
    ),
    "model": (
        ("name", 0xA017161514131211, "11121314151617a0"),
        ("graph_name", 0xA127262524232221, "21222324252627a1"),
        ("model_id", 0xA2333231, "313233a2"),
        ("op_count", 0xA3434241, "414243a3"),
    ),
    "op": (
        ("name", 0xA017161514131211, "11121314151617a0"),
        ("op_type", 0xA127262524232221, "21222324252627a1"),
        ("scope_path", 0xA237363534333231, "31323334353637a2"),
        ("input_shapes", 0xA347464544434241, "41424344454647a3"),
        ("input_dtypes", 0xA457565554535251, "51525354555657a4"),
        ("input_formats", 0xA567666564636261, "61626364656667a5"),
        ("output_shapes", 0xA677767574737271, "71727374757677a6"),
        ("output_dtypes", 0xA787868584838281, "81828384858687a7"),
        ("output_formats", 0xA897969594939291, "91929394959697a8"),
        ("flops", 0xA9A7A6A5A4A3A2A1, "a1a2a3a4a5a6a7a9"),
        ("input_bytes", 0xAAB7B6B5B4B3B2B1, "b1b2b3b4b5b6b7aa"),
        ("output_bytes", 0xABC7C6C5C4C3C2C1, "c1c2c3c4c5c6c7ab"),
        ("weight_bytes", 0xACD7D6D5D4D3D2D1, "d1d2d3d4d5d6d7ac"),
        ("workspace_bytes", 0xADE7E6E5E4E3E2E1, "e1e2e3e4e5e6e7ad"),
        ("op_index", 0xAEF3F2F1, "f1f2f3ae"),
        ("model_id", 0xAF030201, "010203af"),
        ("fusion_id", 0xFFFFFFFF, "ffffffff"),
        ("state", 1, "01"),
        ("phase", 2, "02"),
        ("pad", 0, "0000"),
    ),
    "fusion": (
        ("original_name", 0xA017161514131211, "11121314151617a0"),
        ("original_type", 0xA127262524232221, "21222324252627a1"),
        ("fusion_id", 0xA2333231, "313233a2"),
        ("op_index", 0xA3434241, "414243a3"),
        ("original_index", 0xA4535251, "515253a4"),
        ("pad", 0, "00000000"),
    ),
    "api": (
        ("host_ns", -1720000000123456789, "eb32f8e21c5521e8"),
        ("correlation_id", 0xA127262524232221, "21222324252627a1"),
        ("name", 0xA237363534333231, "31323334353637a2"),
        ("thread_id", 0xA3434241, "414243a3"),
        ("op_index", 0xFFFFFFFF, "ffffffff"),
        ("step_id", 0xA5636261, "616263a5"),
        ("event", 1, "01"),
        ("level", 4, "04"),
        ("pad", 0, "0000"),
    ),
    "range": (
        ("host_ns", -1720000000123456789, "eb32f8e21c5521e8"),
        ("span_id", 0xA127262524232221, "21222324252627a1"),
        ("parent_span_id", 0xA237363534333231, "31323334353637a2"),
        ("trace_id", 0xA347464544434241, "41424344454647a3"),
        ("name", 0xA457565554535251, "51525354555657a4"),
        ("category", 0xA567666564636261, "61626364656667a5"),
        ("args", 0xA677767574737271, "71727374757677a6"),
        ("thread_id", 0xA7838281, "818283a7"),
        ("step_id", 0xFFFFFFFF, "ffffffff"),
        ("event", 1, "01"),
        ("kind", 5, "05"),
        ("pad", 0, "0000"),
        ("pe_index", 0xADC3C2C1, "c1c2c3ad"),
        ("item_index", 0, "00000000"),
        ("execution_id", 0xFFFFFFFF, "ffffffff"),
    ),
    "memory": (
        ("host_ns", -1720000000123456789, "eb32f8e21c5521e8"),
        ("block_id", 0xA127262524232221, "21222324252627a1"),
        ("address", 0xA237363534333231, "31323334353637a2"),
        ("size_bytes", 0xA347464544434241, "41424344454647a3"),
        ("used_bytes", 0xA457565554535251, "51525354555657a4"),
        ("reserved_bytes", 0xA567666564636261, "61626364656667a5"),
        ("pool", 0xA677767574737271, "71727374757677a6"),
        ("tensor_name", 0xA787868584838281, "81828384858687a7"),
        ("device_id", 0xA8939291, "919293a8"),
        ("op_index", 0xA9A3A2A1, "a1a2a3a9"),
        ("event", 1, "01"),
        ("kind", 1, "01"),
        ("alloc_by", 5, "05"),
        ("pad", 0, "00"),
        ("pad2", 0, "00000000"),
    ),
    "clock_stop": (
        ("host_ns", -1720000000123456789, "eb32f8e21c5521e8"),
        ("dur_ns", 0x2222333344445555, "5555444433332222"),
        ("thread_id", 0xA1B2C3D4, "d4c3b2a1"),
        ("pad", 0, "00000000"),
    ),
    "device": (
        ("kind", 0xA017161514131211, "11121314151617a0"),
        ("name", 0xA127262524232221, "21222324252627a1"),
        ("peak_flops", 0xA237363534333231, "31323334353637a2"),
        ("peak_bytes_per_s", 0xA347464544434241, "41424344454647a3"),
        ("memory_bytes", 0xA457565554535251, "51525354555657a4"),
        ("clock_hz", 0xA567666564636261, "61626364656667a5"),
        ("core_clock_hz", 0xA677767574737271, "71727374757677a6"),
        ("device_id", 0xA7838281, "818283a7"),
        ("ai_core_count", 0xA8939291, "919293a8"),
        ("ai_vector_core_count", 0xA9A3A2A1, "a1a2a3a9"),
        ("ai_cpu_count", 0xAAB3B2B1, "b1b2b3aa"),
    ),
    "stream": (
        ("name", 0xA017161514131211, "11121314151617a0"),
        ("stream_id", 0xA1232221, "212223a1"),
        ("pad", 0, "00000000"),
    ),
    "sync": (
        ("ticks", 0xA017161514131211, "11121314151617a0"),
        ("host_before_ns", 1720000000123456791, "17cd071de3aade17"),
        ("host_after_ns", 1720000000123456792, "18cd071de3aade17"),
    ),
    "task": (
        ("ticks", 0xA017161514131211, "11121314151617a0"),
        ("correlation_id", 0xA127262524232221, "21222324252627a1"),
        ("name", 0xA237363534333231, "31323334353637a2"),
        ("size_bytes", 0xA347464544434241, "41424344454647a3"),
        ("task_id", 0xA4535251, "515253a4"),
        ("stream_id", 0xA5636261, "616263a5"),
        ("context_id", 0xFFFFFFFF, "ffffffff"),
        ("op_index", 0xA7838281, "818283a7"),
        ("step_id", 0xFFFFFFFF, "ffffffff"),
        ("execution_id", 0xA9A3A2A1, "a1a2a3a9"),
        ("block_count", 0xAAB1, "b1aa"),
        ("mix_block_count", 0xABC1, "c1ab"),
        ("task_type", 8, "08"),
        ("event", 1, "01"),
        ("hf32_eligible", 0xAE, "ae"),
        ("pad", 0, "00"),
    ),
    "pmu_pipe_utilization": (
        ("ticks", 0xA017161514131211, "11121314151617a0"),
        ("task_id", 0xA1232221, "212223a1"),
        ("stream_id", 0xA2333231, "313233a2"),
        ("aic_total_cycles", 0xA347464544434241, "41424344454647a3"),
        ("aic_mac_cycles", 0xA457565554535251, "51525354555657a4"),
        ("aic_scalar_cycles", 0xA567666564636261, "61626364656667a5"),
        ("aic_mte1_cycles", 0xA677767574737271, "71727374757677a6"),
        ("aic_mte2_cycles", 0xA787868584838281, "81828384858687a7"),
        ("aic_fixpipe_cycles", 0xA897969594939291, "91929394959697a8"),
        ("aic_icache_miss_count", 0xA9A7A6A5A4A3A2A1, "a1a2a3a4a5a6a7a9"),
        ("aic_icache_request_count", 0xAAB7B6B5B4B3B2B1, "b1b2b3b4b5b6b7aa"),
        ("aiv_total_cycles", 0xABC7C6C5C4C3C2C1, "c1c2c3c4c5c6c7ab"),
        ("aiv_vec_cycles", 0xACD7D6D5D4D3D2D1, "d1d2d3d4d5d6d7ac"),
        ("aiv_scalar_cycles", 0xADE7E6E5E4E3E2E1, "e1e2e3e4e5e6e7ad"),
        ("aiv_mte2_cycles", 0xAEF7F6F5F4F3F2F1, "f1f2f3f4f5f6f7ae"),
        ("aiv_mte3_cycles", 0xAF07060504030201, "01020304050607af"),
        ("aiv_icache_miss_count", 0xB017161514131211, "11121314151617b0"),
        ("aiv_icache_request_count", 0xB127262524232221, "21222324252627b1"),
    ),
    "counter": (
        ("ticks", 0xA017161514131211, "11121314151617a0"),
        ("name", 0xA127262524232221, "21222324252627a1"),
        ("value_unit", 0xA237363534333231, "31323334353637a2"),
        ("value", 1720000000123456793, "19cd071de3aade17"),
    ),
    "step_mark": (
        ("ticks", 0xA017161514131211, "11121314151617a0"),
        ("step_id", 0xA1232221, "212223a1"),
        ("model_id", 0xA2333231, "313233a2"),
        ("iteration", 0xA3434241, "414243a3"),
        ("mark", 3, "03"),
        ("pad", 0, "00"),
        ("pad2", 0, "0000"),
    ),
    "pmu_arithmetic_utilization": (
        ("ticks", 0xA017161514131211, "11121314151617a0"),
        ("task_id", 0xA1232221, "212223a1"),
        ("stream_id", 0xA2333231, "313233a2"),
        ("aic_total_cycles", 0xA347464544434241, "41424344454647a3"),
        ("aic_mac_fp16_cycles", 0xA457565554535251, "51525354555657a4"),
        ("aic_mac_int8_cycles", 0xA567666564636261, "61626364656667a5"),
        ("aic_mac_fp32_cycles", 0xA677767574737271, "71727374757677a6"),
        ("aic_cube_flops", 0xA787868584838281, "81828384858687a7"),
        ("aiv_total_cycles", 0xA897969594939291, "91929394959697a8"),
        ("aiv_vec_fp32_cycles", 0xA9A7A6A5A4A3A2A1, "a1a2a3a4a5a6a7a9"),
        ("aiv_vec_fp16_cycles", 0xAAB7B6B5B4B3B2B1, "b1b2b3b4b5b6b7aa"),
        ("aiv_vec_int32_cycles", 0xABC7C6C5C4C3C2C1, "c1c2c3c4c5c6c7ab"),
        ("aiv_vec_misc_cycles", 0xACD7D6D5D4D3D2D1, "d1d2d3d4d5d6d7ac"),
        ("aiv_vector_flops", 0xADE7E6E5E4E3E2E1, "e1e2e3e4e5e6e7ad"),
    ),
    "pmu_memory": (
        ("ticks", 0xA017161514131211, "11121314151617a0"),
        ("task_id", 0xA1232221, "212223a1"),
        ("stream_id", 0xA2333231, "313233a2"),
        ("aic_total_cycles", 0xA347464544434241, "41424344454647a3"),
        ("aic_l1_read_bytes", 0xA457565554535251, "51525354555657a4"),
        ("aic_l1_write_bytes", 0xA567666564636261, "61626364656667a5"),
        ("aic_main_mem_read_bytes", 0xA677767574737271, "71727374757677a6"),
        ("aic_main_mem_write_bytes", 0xA787868584838281, "81828384858687a7"),
        ("aic_l2_read_bytes", 0xA897969594939291, "91929394959697a8"),
        ("aic_l2_write_bytes", 0xA9A7A6A5A4A3A2A1, "a1a2a3a4a5a6a7a9"),
        ("aiv_total_cycles", 0xAAB7B6B5B4B3B2B1, "b1b2b3b4b5b6b7aa"),
        ("aiv_ub_read_bytes", 0xABC7C6C5C4C3C2C1, "c1c2c3c4c5c6c7ab"),
        ("aiv_ub_write_bytes", 0xACD7D6D5D4D3D2D1, "d1d2d3d4d5d6d7ac"),
        ("aiv_main_mem_read_bytes", 0xADE7E6E5E4E3E2E1, "e1e2e3e4e5e6e7ad"),
        ("aiv_main_mem_write_bytes", 0xAEF7F6F5F4F3F2F1, "f1f2f3f4f5f6f7ae"),
        ("aiv_l2_read_bytes", 0xAF07060504030201, "01020304050607af"),
        ("aiv_l2_write_bytes", 0xB017161514131211, "11121314151617b0"),
    ),
    "pmu_memory_l0": (
        ("ticks", 0xA017161514131211, "11121314151617a0"),
        ("task_id", 0xA1232221, "212223a1"),
        ("stream_id", 0xA2333231, "313233a2"),
        ("aic_total_cycles", 0xA347464544434241, "41424344454647a3"),
        ("aic_l0a_read_bytes", 0xA457565554535251, "51525354555657a4"),
        ("aic_l0a_write_bytes", 0xA567666564636261, "61626364656667a5"),
        ("aic_l0b_read_bytes", 0xA677767574737271, "71727374757677a6"),
        ("aic_l0b_write_bytes", 0xA787868584838281, "81828384858687a7"),
        ("aic_l0c_read_cube_bytes", 0xA897969594939291, "91929394959697a8"),
        ("aic_l0c_write_cube_bytes", 0xA9A7A6A5A4A3A2A1, "a1a2a3a4a5a6a7a9"),
        ("aiv_total_cycles", 0xAAB7B6B5B4B3B2B1, "b1b2b3b4b5b6b7aa"),
        ("aiv_l0c_read_bytes", 0xABC7C6C5C4C3C2C1, "c1c2c3c4c5c6c7ab"),
        ("aiv_l0c_write_bytes", 0xACD7D6D5D4D3D2D1, "d1d2d3d4d5d6d7ac"),
    ),
    "pmu_memory_ub": (
        ("ticks", 0xA017161514131211, "11121314151617a0"),
        ("task_id", 0xA1232221, "212223a1"),
        ("stream_id", 0xA2333231, "313233a2"),
        ("aic_total_cycles", 0xA347464544434241, "41424344454647a3"),
        ("aic_ub_read_scalar_bytes", 0xA457565554535251, "51525354555657a4"),
        ("aic_ub_write_scalar_bytes", 0xA567666564636261, "61626364656667a5"),
        ("aiv_total_cycles", 0xA677767574737271, "71727374757677a6"),
        ("aiv_ub_read_vector_bytes", 0xA787868584838281, "81828384858687a7"),
        ("aiv_ub_write_vector_bytes", 0xA897969594939291, "91929394959697a8"),
        ("aiv_ub_read_scalar_bytes", 0xA9A7A6A5A4A3A2A1, "a1a2a3a4a5a6a7a9"),
        ("aiv_ub_write_scalar_bytes", 0xAAB7B6B5B4B3B2B1, "b1b2b3b4b5b6b7aa"),
    ),
    "pmu_resource_conflict_ratio": (
        ("ticks", 0xA017161514131211, "11121314151617a0"),
        ("task_id", 0xA1232221, "212223a1"),
        ("stream_id", 0xA2333231, "313233a2"),
        ("aic_total_cycles", 0xA347464544434241, "41424344454647a3"),
        ("aiv_total_cycles", 0xA457565554535251, "51525354555657a4"),
        ("aiv_vec_bankgroup_cflt_cycles", 0xA567666564636261, "61626364656667a5"),
        ("aiv_vec_bank_cflt_cycles", 0xA677767574737271, "71727374757677a6"),
        ("aiv_vec_resc_cflt_cycles", 0xA787868584838281, "81828384858687a7"),
    ),
    "pmu_l2_cache": (
        ("ticks", 0xA017161514131211, "11121314151617a0"),
        ("task_id", 0xA1232221, "212223a1"),
        ("stream_id", 0xA2333231, "313233a2"),
        ("aic_total_cycles", 0xA347464544434241, "41424344454647a3"),
        ("aic_write_cache_hit_count", 0xA457565554535251, "51525354555657a4"),
        ("aic_write_cache_miss_count", 0xA567666564636261, "61626364656667a5"),
        ("aic_r0_read_cache_hit_count", 0xA677767574737271, "71727374757677a6"),
        ("aic_r0_read_cache_miss_count", 0xA787868584838281, "81828384858687a7"),
        ("aic_r1_read_cache_hit_count", 0xA897969594939291, "91929394959697a8"),
        ("aic_r1_read_cache_miss_count", 0xA9A7A6A5A4A3A2A1, "a1a2a3a4a5a6a7a9"),
        ("aiv_total_cycles", 0xAAB7B6B5B4B3B2B1, "b1b2b3b4b5b6b7aa"),
        ("aiv_write_cache_hit_count", 0xABC7C6C5C4C3C2C1, "c1c2c3c4c5c6c7ab"),
        ("aiv_write_cache_miss_count", 0xACD7D6D5D4D3D2D1, "d1d2d3d4d5d6d7ac"),
        ("aiv_r0_read_cache_hit_count", 0xADE7E6E5E4E3E2E1, "e1e2e3e4e5e6e7ad"),
        ("aiv_r0_read_cache_miss_count", 0xAEF7F6F5F4F3F2F1, "f1f2f3f4f5f6f7ae"),
        ("aiv_r1_read_cache_hit_count", 0xAF07060504030201, "01020304050607af"),
        ("aiv_r1_read_cache_miss_count", 0xB017161514131211, "11121314151617b0"),
    ),
    "stream_range": (
        ("ticks", 0xA017161514131211, "11121314151617a0"),
        ("span_id", 0xA127262524232221, "21222324252627a1"),
        ("name", 0xA237363534333231, "31323334353637a2"),
        ("args", 0xA347464544434241, "41424344454647a3"),
        ("stream_id", 0xA4535251, "515253a4"),
        ("event", 1, "01"),
        ("pad", 0, "00"),
        ("pad2", 0, "0000"),
    ),
    "event_wait": (
        ("ticks", 0xA017161514131211, "11121314151617a0"),
        ("task_id", 0xA1232221, "212223a1"),
        ("event_task_id", 0xA2333231, "313233a2"),
    ),
}


def golden_bytes(name: str) -> bytes:
    return b"".join(bytes.fromhex(part) for _, _, part in GOLDEN[name])


def test_every_record_type_has_a_golden_layout() -> None:
    assert list(GOLDEN) == list(TAGS) == list(records())


@pytest.mark.parametrize("name", TAGS)
def test_tag_and_size(name: str) -> None:
    schema = record(name)
    assert (schema.tag, schema.size_bytes) == TAGS[name]
    assert len(golden_bytes(name)) == TAGS[name][1]
    assert record_by_tag()[schema.tag] is schema


@pytest.mark.parametrize("name", GOLDEN)
def test_values_encode_to_these_bytes(name: str) -> None:
    schema = record(name)
    records_ = np.zeros(1, dtype_of(schema))
    for field, value, _ in GOLDEN[name]:
        records_[field] = np.void(value) if isinstance(value, bytes) else value
    assert b"".join(encode_block(schema, records_, 0))[BLOCK_HEADER_BYTES:].hex(" ") == golden_bytes(name).hex(" ")


@pytest.mark.parametrize("name", GOLDEN)
def test_bytes_decode_to_these_values(name: str) -> None:
    schema, payload = record(name), golden_bytes(name)
    block = Block(schema.tag, len(payload), 1, 0, memoryview(payload), 0, 0, 0)
    decoded = decode_block(block, schema, schema)
    assert dict(zip(decoded.dtype.names or (), decoded[0].tolist(), strict=True)) == {
        field: value for field, value, _ in GOLDEN[name]
    }
