"""Which formats there are: known before anything heavy is imported."""

from __future__ import annotations

from importlib.util import find_spec

NAMES = {"json": "model.json", "onnx": "model.onnx", "sklearn": "model.py"}  # how a file is called unless it is said
ONNX_IS_MISSING = (
    "the package onnx is not installed, which writes such files; pip install 'noisewise[export]', or take another "
    "format: json or sklearn"
)


def check_format(to: str) -> None:
    """Refuse a format that is none, or that needs a package which is not there."""
    if to not in NAMES:
        raise ValueError(f"--to is {to!r}; pass one of {', '.join(NAMES)}")
    if to == "onnx" and find_spec("onnx") is None:
        raise ValueError(ONNX_IS_MISSING)
