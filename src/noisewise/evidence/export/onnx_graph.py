"""Nodes and constants of an ONNX graph, and a few operations of several nodes. The package ``onnx`` is optional."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
OPSETS = {"": 17, "ai.onnx.ml": 3}
BOOL, DOUBLE, INT64, STRING = 9, 11, 7, 8  # as ONNX numbers its types
IR = 8  # of the same time: what reads these opsets reads it


class Graph:
    """A graph that grows node by node; every value is the name of one."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: dict[tuple[Any, ...], Any] = {}

    def constant(self, values: Any, kind: type = np.float64) -> str:
        """The name of some numbers, or of texts; the same ones are there once."""
        array: Array = np.asarray(values, dtype=object if kind is str else kind)
        content = tuple(array.ravel().tolist()) if kind is str else array.tobytes()
        identity = (kind, array.shape, content)
        if identity not in self._constants:
            name = f"noisewise/constant-{len(self._constants)}"
            self._constants[identity] = _tensor(name, array)
        return str(self._constants[identity].name)

    def do(self, kind: str, *inputs: str, domain: str = "", called: str | None = None, **attributes: Any) -> str:
        """The name of what an operation gives."""
        from onnx import helper

        name = called or f"noisewise/{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], domain=domain, **attributes))
        return name

    def whole(self, value: str) -> str:
        """As a whole number: what is behind the point is cut off."""
        return self.do("Cast", value, to=INT64)

    def double(self, value: str) -> str:
        """As a number of double precision."""
        return self.do("Cast", value, to=DOUBLE)

    def flat(self, value: str) -> str:
        """One number for each row, of a column of them."""
        return self.do("Squeeze", value, self.constant([1], np.int64))

    def tall(self, value: str) -> str:
        """A column, of one number for each row."""
        return self.do("Unsqueeze", value, self.constant([1], np.int64))

    def across(self, value: str) -> str:
        """The sum of each row, as a column."""
        return self.do("ReduceSum", value, self.constant([1], np.int64), keepdims=1)

    def total(self, values: list[str]) -> str:
        """The sum of several."""
        return values[0] if len(values) == 1 else self.do("Sum", *values)

    def model(self, inputs: list[Any], outputs: list[Any], facts: dict[str, str]) -> bytes:
        """The file, checked."""
        import onnx
        from onnx import helper

        graph = helper.make_graph(self._nodes, "noisewise", inputs, outputs, list(self._constants.values()))
        opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
        made = helper.make_model(graph, opset_imports=opsets, producer_name="noisewise", ir_version=IR)
        helper.set_model_props(made, facts)
        onnx.checker.check_model(made)
        return bytes(made.SerializeToString())


def value(name: str, kind: Any, *shape: Any) -> Any:
    """An input or output."""
    from onnx import helper

    return helper.make_tensor_value_info(name, kind, list(shape))


def _tensor(name: str, values: Array) -> Any:
    from onnx import helper, numpy_helper

    if values.dtype != object:
        return numpy_helper.from_array(values, name)
    texts: Any = [str(text).encode() for text in values]
    return helper.make_tensor(name, STRING, values.shape, texts)
