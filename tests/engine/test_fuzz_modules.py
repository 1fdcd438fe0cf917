"""Some random modules in the ordinary suite, and that the fuzzer notices an engine that is broken."""

from __future__ import annotations

import fuzz_modules
import pytest
import torch
from fuzz_modules import check, run
from fuzz_programs import DRAWS, Program, program
from fuzz_steps import NOTED

from noisewise.trusted.engine import tape as of_tape
from noisewise.trusted.engine.books import Books
from noisewise.trusted.engine.torch_names import below

PLAIN = """class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
    def forward(self, x, k):
        {step}
        return self.head(torch.tanh(self.layer(x)))
loss = nn.CrossEntropyLoss()
"""


def plain(step: str = "pass") -> Program:
    return Program(PLAIN.format(step=step), start=(4,), length=3)


def finds(what: str, one: Program, tries: int = 60) -> bool:
    """Whether a program is found to be wrong in this way, on one of several batches."""
    return any(found.startswith(what) for number in range(tries) for _, found in check(one, number).violations)


def test_random_modules():
    counts = run(range(60), show=False)
    assert counts.violations == []
    assert counts.accepted > 25 and counts.correct > 15 and counts.refused.total() > 5
    assert counts.excess < 1e-5


def test_programs_come_from_their_number():
    assert program(7) == program(7) and len({program(number).text for number in range(50)}) > 45


def test_a_sound_module_is_sound():
    assert not finds("", plain(), 10)


def test_clips_that_are_too_long(monkeypatch):
    right = fuzz_modules.clip_factors
    monkeypatch.setattr(fuzz_modules, "clip_factors", lambda squared, clip: right(squared, clip * 1.001))
    assert finds("too long", plain())


def test_records_that_are_not_finite_count(monkeypatch):
    monkeypatch.setattr(
        fuzz_modules, "clip_factors", lambda squared, clip: (clip / squared.sum(0).sqrt()).clamp(max=1).nan_to_num(1.0)
    )
    assert finds("too long", plain())


@pytest.mark.parametrize("what", ["others moved", "kept"])
def test_a_rule_that_mixes_records_for_some_values_only(monkeypatch, what):
    """Values that no made-up row has, so that the rehearsal does not see it: in this pass, or from the next one on."""
    seen: set[int] = set()

    def mixing(tape, input):
        whole, own = tape.physical(input), id(tape.parameters[0])
        with below():
            before, wild = own in seen, bool(whole.nan_to_num(0.0).abs().amax() > 1e20)
            seen.update([own] if wild else [])
            mixed = torch.sin(whole) * (1 + (before if what == "kept" else wild))
        return tape.wrapped(mixed)

    kept, built = [], Program.built
    monkeypatch.setitem(of_tape.ALWAYS, torch.sin, mixing)
    monkeypatch.setattr(Program, "built", lambda one: kept.append(built(one)) or kept[-1])  # ids are not used again
    assert finds(what, plain("x = torch.sin(x)"))


def test_norms_that_are_too_small(monkeypatch):
    """The rehearsal would see it, so what it compares with is switched off."""
    right = Books.squared_norms
    monkeypatch.setattr("noisewise.trusted.engine.rehearsal._alike", lambda *_: None)
    monkeypatch.setattr("noisewise.trusted.engine.rehearsal._Rehearsal.consistent", lambda *_: None)
    monkeypatch.setattr(Books, "squared_norms", lambda books: right(books) * 0.99)
    assert finds("too long", plain()) and finds("wrong norm", plain())


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in NOTED.splitlines() if line])
def test_nothing_raises_on_values(line):
    """A module that keeps in mind that a function raised treats all records after it otherwise."""
    text = PLAIN.format(step=f"x = noted(lambda: {line.format(T=3, V=3)}, x) * (1 + len(KEPT))")
    for number in range(4):
        counts = check(Program(text, (4,), 3, drawn=any(word in line for word in DRAWS)), number)
        assert counts.violations == [] and not counts.raised
