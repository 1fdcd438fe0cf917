"""A model as ONNX, by the package ``onnx`` alone: the arithmetic of docs/export.md in double precision.

A table has one input for each column, [rows, 1]: numbers in double precision, NaN where one is missing, and categories as
text. An array has one, ``X``. A category that the schema refuses makes the scores NaN, for ONNX has no way to refuse.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Nodes and constants of an ONNX graph, and a few operations of several nodes. The package ``onnx`` is optional.


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


ROWS = "rows"
KINDS = {"U": (str, STRING), "b": (np.bool_, BOOL), "i": (np.int64, INT64)}
BETWEEN = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid", "softplus": "Softplus"}
Way = tuple[str, str | None]  # rows of a table, and the share of each; None: all of it


def as_onnx(model: Mapping[str, Any]) -> bytes:
    """The content of a file for onnxruntime and other readers of ONNX."""
    writer = _Writer(model)
    outputs = _regression(writer) if "low" in model["output"] else _classes(writer)
    facts = {
        "statement": json.dumps(model["statement"]),
        "promise": str(model["statement"].get("guarantee") or ""),
        "target": str(model["target"]),
        "software": str(model["software"]),
    }
    return writer.graph.model(writer.inputs(), outputs, facts)


class _Writer:
    def __init__(self, model: Mapping[str, Any]) -> None:
        self.model, self.graph = model, Graph()
        self.columns: Sequence[Mapping[str, Any]] = model["columns"]
        self.named = model["named"]
        self._codes: dict[int, str] = {}
        self._ways: dict[str, list[Way]] = {}

    def inputs(self) -> list[Any]:
        if not self.named:
            return [value("X", DOUBLE, ROWS, len(self.columns))]
        kinds = [STRING if "categories" in about else DOUBLE for about in self.columns]
        return [value(about["name"], kind, ROWS, 1) for about, kind in zip(self.columns, kinds, strict=True)]

    def output(self, name: str) -> str:
        """A name that no column has."""
        taken = {about["name"] for about in self.columns} if self.named else {"X"}
        while name in taken:
            name += "_"
        return name

    def scores(self) -> str:
        """[rows, outputs]."""
        graph, model = self.graph, self.model
        plain = [term for term in model["terms"] if _straight(term)]
        parts = [self._together(plain)] if plain else []
        parts += [self._part(term) for term in model["terms"] if not _straight(term)]
        width = len(model["bias"])
        sums = graph.total([sums for sums, _ in parts])
        if model["unit_length"]:
            sums = graph.do("Div", sums, graph.do("Sqrt", graph.total([squares for _, squares in parts])))
        scores = graph.do("Add", sums, graph.constant(np.reshape(model["bias"], (1, width))))
        for layer in model["layers"]:
            bent = graph.do(BETWEEN[model["between"]], scores)
            product = graph.do("MatMul", bent, graph.constant(np.transpose(layer["weights"])))
            scores = graph.do("Add", product, graph.constant(np.asarray(layer["bias"])[None]))
        strange = [self._strange(place) for place, about in enumerate(self.columns) if about.get("unknown") == "refuse"]
        return graph.total([scores, *strange])

    def _together(self, terms: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
        """Numbers whose effect is one straight line from bound to bound, all at once: sums, and squares of their entries."""
        graph = self.graph
        low, high = (np.array([[term["axes"][0]["points"][end] for term in terms]]) for end in (0, 1))
        tables = np.array([term["table"] for term in terms])  # [columns, 3, sums]
        x = self._numbers([term["axes"][0]["column"] for term in terms])
        missing = graph.do("IsNaN", x)
        inside = self.clamped(graph.do("Where", missing, graph.constant(low), x), low, high)
        share = graph.do("Div", graph.do("Sub", inside, graph.constant(low)), graph.constant(high - low))
        absent, width = graph.double(missing), len(self.model["bias"])
        first = tables[:, 0]
        rise, gap = tables[:, 1] - first, tables[:, 2] - first
        sums = [
            graph.do("MatMul", share, graph.constant(rise[:, :width])),
            graph.do("MatMul", absent, graph.constant(gap[:, :width])),
            graph.constant(first[:, :width].sum(0, keepdims=True)),
        ]
        own = [
            graph.do("Mul", share, graph.constant(rise[None, :, -1])),
            graph.do("Mul", absent, graph.constant(gap[None, :, -1])),
            graph.constant(first[None, :, -1]),
        ]
        entries = graph.total(own) if self.model["unit_length"] else ""
        squares = graph.across(graph.do("Mul", entries, entries)) if entries else ""
        return graph.total(sums), squares

    def _part(self, term: Mapping[str, Any]) -> tuple[str, str]:
        """Any other term: rows of its table, times their shares."""
        graph, table, width = self.graph, np.array(term["table"], dtype=float), len(self.model["bias"])
        ways: list[Way] = [("", None)]
        for axis, length in zip(term["axes"], table.shape, strict=False):
            ways = [self._joined(way, side, length) for way in ways for side in self._places(axis, length - 1)]
        rows = graph.constant(table.reshape(-1, table.shape[-1]))
        found = [rows if not at else graph.do("Gather", rows, at) for at, _ in ways]
        shares = [share for _, share in ways]
        parts = [
            part if share is None else graph.do("Mul", part, graph.tall(share))
            for part, share in zip(found, shares, strict=True)
        ]
        whole = graph.total(parts)
        if not self.model["unit_length"]:
            return whole, ""
        cut = (graph.constant([at], np.int64) for at in (0, width, 1, width, width + 1))
        start, end, along, last, beyond = cut
        entry = graph.do("Slice", whole, last, beyond, along)
        return graph.do("Slice", whole, start, end, along), graph.do("Mul", entry, entry)

    def _joined(self, way: Way, side: Way, length: int) -> Way:
        """A row along one more axis of a table."""
        graph, (at, share), (to, more) = self.graph, way, side
        if at:
            to = graph.do("Add", graph.do("Mul", at, graph.constant(length, np.int64)), to)
        both = [part for part in (share, more) if part is not None]
        return to, (graph.do("Mul", *both) if len(both) == 2 else both[0] if both else None)

    def _places(self, axis: Mapping[str, Any], last: int) -> list[Way]:
        """Rows of a table along an axis, and the share of each."""
        known = json.dumps([axis, last])
        if known not in self._ways:
            self._ways[known] = self._hats(axis, last) if "points" in axis else self._category(axis, last)
        return self._ways[known]

    def _category(self, axis: Mapping[str, Any], last: int) -> list[Way]:
        places = self.graph.constant([*axis["places"], last, last], np.int64)
        return [(self.graph.do("Gather", places, self._code(axis["column"])), None)]

    def _hats(self, axis: Mapping[str, Any], last: int) -> list[Way]:
        graph, points, places = self.graph, np.array(axis["points"]), np.array(axis["places"])
        x = self._numbers([axis["column"]])
        missing, ends = graph.do("IsNaN", x), (points[:1, None], points[-1:, None])
        x = self.clamped(graph.do("Where", missing, graph.constant(ends[0]), x), *ends)
        below = graph.double(graph.do("GreaterOrEqual", x, graph.constant(points[None, 1:-1])))
        piece = graph.whole(graph.flat(graph.across(below)))
        x, missing = graph.flat(x), graph.flat(missing)
        start, base, slope = (
            graph.do("Gather", graph.constant(values), piece)
            for values in (places[:-1], points[:-1], np.diff(places) / np.diff(points))
        )
        place = graph.do("Add", start, graph.do("Mul", graph.do("Sub", x, base), slope))
        first = graph.whole(graph.do("Min", place, graph.constant(float(last - 2))))
        share = graph.do("Sub", place, graph.double(first))
        end, one, none = graph.constant(last, np.int64), graph.constant(1.0), graph.constant(0.0)
        second = graph.do("Add", first, graph.constant(1, np.int64))
        return [
            (graph.do("Where", missing, end, first), graph.do("Where", missing, one, graph.do("Sub", one, share))),
            (graph.do("Where", missing, end, second), graph.do("Where", missing, none, share)),
        ]

    def clamped(self, x: str, low: Any, high: Any) -> str:
        return self.graph.do("Min", self.graph.do("Max", x, self.graph.constant(low)), self.graph.constant(high))

    def _numbers(self, columns: Sequence[int]) -> str:
        """Columns of numbers side by side."""
        graph = self.graph
        if not self.named:
            every = list(columns) == list(range(len(self.columns)))
            return "X" if every else graph.do("Gather", "X", graph.constant(columns, np.int64), axis=1)
        names = [self.columns[place]["name"] for place in columns]
        return names[0] if len(names) == 1 else graph.do("Concat", *names, axis=1)

    def _code(self, place: int) -> str:
        """Where a category is among those declared; then comes what is missing, and what is unknown."""
        if place not in self._codes:
            about, graph = self.columns[place], self.graph
            keys, last = list(about["categories"]), len(about["categories"])
            words = {form for word in self.model["missing"] for form in (word, word.upper(), word.title())} - {*keys}
            positions = [*range(last), *[last] * len(words)]
            codes = graph.do(
                "LabelEncoder", about["name"], domain="ai.onnx.ml", keys_strings=[*keys, *sorted(words)],
                values_int64s=positions, default_int64=last + (about["unknown"] == "refuse"),
            )  # fmt: skip
            self._codes[place] = graph.flat(codes)
        return self._codes[place]

    def _strange(self, place: int) -> str:
        """NaN where a category is none of those declared, else 0."""
        none = [0.0] * (len(self.columns[place]["categories"]) + 1)
        return self.graph.tall(self.graph.do("Gather", self.graph.constant([*none, math.nan]), self._code(place)))


def _straight(term: Mapping[str, Any]) -> bool:
    """Whether it is of one number, and a straight line from bound to bound."""
    return len(term["axes"]) == 1 and len(term["axes"][0].get("points", ())) == 2


def _regression(writer: _Writer) -> list[Any]:
    graph, (low, high) = writer.graph, (writer.model["output"][end] for end in ("low", "high"))
    bounded = writer.clamped(graph.flat(writer.scores()), -1.0, 1.0)
    share = graph.do("Div", graph.do("Add", bounded, graph.constant(1.0)), graph.constant(2.0))
    scaled = graph.do("Mul", share, graph.constant(high - low))
    name = graph.do("Add", scaled, graph.constant(low), called=writer.output("prediction"))
    return [value(name, DOUBLE, ROWS)]


def _classes(writer: _Writer) -> list[Any]:
    graph, output, scores = writer.graph, writer.model["output"], writer.scores()
    single = len(output["classes"]) == 2
    flat = graph.flat(scores) if single else scores
    if single:
        best = graph.whole(graph.do("Greater", flat, graph.constant(0.0)))
    else:
        best = graph.do("ArgMax", scores, axis=1, keepdims=0)
    kind, proto = KINDS.get(np.asarray(output["classes"]).dtype.kind, (np.float64, DOUBLE))
    label = graph.do("Gather", graph.constant(output["classes"], kind), best, called=writer.output("label"))
    shown = graph.do("Identity", flat, called=writer.output("scores"))
    made = [value(label, proto, ROWS)]
    if output["probabilities"]:
        odds = _log_odds(graph, scores, output["cut"]) if single else scores
        none = graph.do("Sub", odds, odds) if single else ""
        both = graph.do("Concat", none, odds, axis=1) if single else odds
        shares = graph.do("Softmax", both, axis=1, called=writer.output("probabilities"))
        made.append(value(shares, DOUBLE, ROWS, len(output["classes"])))
    return [*made, value(shown, DOUBLE, ROWS, *([] if single else [len(output["classes"])]))]


def _log_odds(graph: Graph, scores: str, cut: float | None) -> str:
    if cut is None:
        return scores
    size, one = graph.do("Abs", scores), graph.constant(1.0)
    rest = graph.do("Log", graph.do("Add", one, graph.do("Exp", graph.do("Neg", size))))
    beyond = graph.total([size, rest, graph.constant(math.log(cut))])
    far = graph.do("Greater", size, graph.constant(math.log(cut / (1 - cut))))
    return graph.do("Mul", graph.do("Sign", scores), graph.do("Where", far, beyond, size))
