"""Fusion in training: random networks learn bit-identical weights, and no fused op writes what nothing reads."""

from __future__ import annotations

import onnx
from hypothesis import HealthCheck, given, settings
from random_networks import check_plan, check_same, networks, plans


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(networks())
def test_fusion_changes_no_result_and_saves_only_what_is_read(proto: onnx.ModelProto) -> None:
    check_plan(*plans(proto))
    check_same(proto)
