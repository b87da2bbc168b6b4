"""Models by name: the networks in the installed `onnx` package, and small ones built here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx

from traceconv.base.errors import ModelError, printable, reason_of, suggestion
from traceconv.runtime import reference_kinds, reference_models

#: Networks in `onnx/backend/test/data/light`: real graphs whose weights all have one value.
LIGHT_MODELS = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)

#: Small models built on demand, identical on every machine and with every version of `onnx`.
BUILT_MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "mini_bf16": reference_kinds.mini_bf16,
    "mini_decoder": reference_kinds.mini_decoder,
    "mini_detector": reference_kinds.mini_detector,
    "mini_half": reference_kinds.mini_half,
    "mini_lstm": reference_kinds.mini_lstm,
    "mini_quantized": reference_kinds.mini_quantized,
    "mini_resnet": reference_models.mini_resnet,
    "mini_transformer": reference_models.mini_transformer,
}


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model in memory, and its name in logs (never a path)."""

    name: str
    proto: onnx.ModelProto


def model_names() -> list[str]:
    """Return every name that `find_model` accepts, sorted."""
    return sorted([*LIGHT_MODELS, *BUILT_MODELS])


def find_model(text: str) -> FoundModel:
    """Return the model named by `text`: a file, or one of `model_names()`.

    Raises ModelError when it is neither, or the file is not an ONNX model.
    """
    path = Path(text)
    if os.path.isfile(path):
        return FoundModel(re.sub(r"[^\w.+-]+", "_", path.stem) or "model", _read(path))
    if text in BUILT_MODELS:
        return FoundModel(text, BUILT_MODELS[text]())
    if text in LIGHT_MODELS:
        folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
        light = folder / f"light_{text}.onnx"
        if not light.is_file():
            raise ModelError(f"the installed onnx package {onnx.__version__} does not include {text}: give a path")
        return FoundModel(text, _read(light))
    if os.path.isdir(path):
        raise ModelError(f"{printable(text)} is a folder: give an .onnx file, or a name")
    if path.suffix or len(path.parts) > 1:
        raise ModelError(f"no such model file: {printable(text)}")
    known = model_names()
    hint = suggestion(text, known) or f" Known names: {', '.join(known)}."
    raise ModelError(f"{printable(text)} is neither a file nor the name of a model.{hint}")


def _read(path: Path) -> onnx.ModelProto:
    # onnx depends on this module, which has no types.
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        proto = onnx.load(path)
    except (OSError, DecodeError, onnx.checker.ValidationError, ValueError) as error:
        # The exception for missing external data depends on the version of onnx.
        raise ModelError(f"{printable(str(path))} can't be read as an ONNX model: {reason_of(error)}") from error
    if not proto.HasField("graph") or not proto.opset_import:
        raise ModelError(f"{printable(str(path))} is not an ONNX model: it has no graph or no opset")
    return proto
