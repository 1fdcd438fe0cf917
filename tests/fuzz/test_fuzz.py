"""A few inputs of every target in every test run; ``make fuzz`` tries a million. And that the suite can find something."""

from __future__ import annotations

import math
import time
import warnings
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.accounts import AdditiveMeter
from noisewise.accounts.purse import Purse
from noisewise.tables.files import Dialect
from noisewise.tables.refusal import Refusal
from noisewise.tables.rows import read_rows
from noisewise.tables.schema import Schema
from noisewise.trusted.events import InvalidEvent, from_dict

from . import purses, targets
from .core import TARGETS, WORD, Target, made, seed_of, tally_of, tried
from .places import laid
from .tables import HEAD, reading

TRIED = {"parsers": 15, "fits": 4, "purses": 20}
FEW = {
    "command line": 3,
    "explain": 1,
    "report of a run folder": 4,
    "epsilon, every accountant": 5,
    "fit, odd arguments, rows and labels": 5,
}
assert targets


@pytest.mark.parametrize("name", TARGETS)
def test_only_documented_refusals(name: str) -> None:
    one = TARGETS[name]
    tally = tally_of(one, 417, range(FEW.get(name, TRIED[one.group])), lambda *_: None)
    assert not tally.findings, tally.findings
    assert tally.tried == tally.accepted + tally.refused


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["kind", "event", "name", "columns"]) | st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=150)
@given(JSON)
def test_plain_data_is_refused_by_name(data: Any) -> None:
    for parse, refusal in ((from_dict, InvalidEvent), (Schema.from_dict, ValueError)):
        with pytest.raises(refusal):
            parse(data)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.binary(max_size=12), st.sampled_from([b",", b"\n", b'"', b""])), max_size=12))
def test_whatever_follows_a_header_no_cell_is_shown(cells: list[tuple[bytes, bytes]]) -> None:
    body = b"".join(WORD.encode() + cell + sign for cell, sign in cells)
    encoder, scaling = reading()
    try:
        read_rows(laid("private.csv", HEAD + b"\n" + body), encoder, scaling, separator=Dialect())
    except Refusal as refusal:
        assert WORD not in str(refusal) and refusal.__context__ is None


# -- what the suite would find -------------------------------------------------------------------------------------------


def _raises(error: BaseException) -> Any:
    def run(value: Any) -> None:
        raise error

    return run


def _warns(value: Any) -> None:
    warnings.warn("a library speaks", RuntimeWarning, stacklevel=1)


def _loops(value: Any) -> None:
    end = time.process_time() + 10
    while time.process_time() < end:
        pass


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (_raises(KeyError("x")), "KeyError"), (_raises(RecursionError()), "RecursionError"), (_raises(MemoryError()), "MemoryError"),
        (_raises(ValueError("not by a line of noisewise")), "ValueError"), (_raises(SystemExit(3)), "SystemExit"),
        (_raises(Refusal(f"a cell is {WORD}")), "shows a cell"), (_warns, "warned"), (_loops, "took more than"),
        (lambda value: from_dict(value), None), (lambda value: None, None),
    ],
)  # fmt: skip
def test_what_counts_as_a_finding(run: Any, told: str | None) -> None:
    verdict, why = tried(Target("try", Random, run, shown=lambda value: "", seconds=1.0), {"kind": "none"})
    assert (verdict == "finding") == (told is not None) and (told or "") in why


def test_a_seed_makes_the_same_input_again() -> None:
    for one in TARGETS.values():
        if one.group == "purses" or one.name.startswith(("epsilon", "meter")):  # made of functions
            continue
        seed = seed_of(one, 1, 5)
        assert repr(made(one, seed)) == repr(made(one, seed)), one.name


def _findings(name: str, many: int) -> list[tuple[int, str]]:
    return tally_of(TARGETS[name], 5, range(many), lambda *_: None).findings


def test_the_oracle_sees_a_filter_that_gives_a_little_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative 1e-9 for nothing, with every event."""
    real = AdditiveMeter._fits
    monkeypatch.setattr(AdditiveMeter, "_fits", lambda self, units, delta: real(self, units - units // 10**9, delta))
    monkeypatch.setattr(
        purses, "wish", lambda rng, meter: purses.Gaussian(math.nextafter(meter.noise_for(1.0), 0.0) * (1 - 4e-10))
    )
    assert any("over" in why for _, why in _findings("one filter (gdp, zcdp, rdp, tcdp, ctcdp)", 50))


def test_the_oracle_sees_two_holders_of_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def held(self: Any, number: int, entry: Any, meter: Any) -> Any:
        self._holders.setdefault(number, []).append(meter)  # and the one before stays open
        return purses.PurseShare(self, number, entry, meter)

    monkeypatch.setattr(Purse, "_held", held)
    monkeypatch.setattr(Purse, "_settle", lambda self, number, entry, meter, state: meter.close())
    assert _findings("a purse that is a filter", 400) or _findings("a purse of promises", 400)
