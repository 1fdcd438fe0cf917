"""Texts of random modules and losses, each made from a number alone; :mod:`fuzz_modules` runs them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from fuzz_steps import ANY, LABELS, NOTED, NUMBERS, ODD, ODD_LABELS, ODD_NUMBERS, PICTURES, ROWS, SEQUENCES
from torch import nn

from noisewise.trusted.engine import Spec

TABLE = {"row": ANY + ROWS, "seq": ANY + SEQUENCES, "pic": ANY + PICTURES, "odd": ODD}
STEPS = {kind: [line for line in text.splitlines() if line] for kind, text in TABLE.items()}
STEPS["odd"] += [f" | x = noted(lambda: {line}, x) * (1 + len(KEPT))" for line in NOTED.splitlines() if line]
LOSSES = {(True, False): LABELS, (True, True): ODD_LABELS, (False, False): NUMBERS, (False, True): ODD_NUMBERS}
CRITERIA = {kind: [line for line in text.splitlines() if line] for kind, text in LOSSES.items()}
HEADER = """
import numpy, random
import torch, torch.nn.functional as F
from torch import nn
from torch.nn.utils import spectral_norm
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint
class Box: pass
class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g): return g * 2
def made(*shape): return nn.Parameter(torch.randn(shape) / shape[-1] ** 0.5)
def like(a, x): return a.reshape(-1, *[1] * (x.dim() - 1))
def tried(call, otherwise):
    try: return call()
    except Exception: return otherwise
def noted(call, otherwise):
    try: return otherwise + 0 * call().sum().to(otherwise.dtype)  # such that it is no other in a batch
    except Exception: KEPT.append(1)
    return otherwise
def peek(x):
    whole = torch.func.debug_unwrap(x.detach()).nan_to_num(0.0)
    KEPT[:] = [1] if x.is_floating_point() and not whole.requires_grad and bool(whole.abs().max() > 1e20) else []
def turning(g):
    CALLS.append(1)
    return g * (1 if len(CALLS) < 40 else 1 + len(CALLS) % 2)
def flat(x): return x[0].flatten()
def square(x): return x[0].flatten().repeat(2)[:4].view(2, 2)
"""
DRAWS = (
    "bernoulli",
    "multinomial",
    "normal",
    "poisson",
    "gumbel",
    "randint",
    "fractional",
    "exponential",
    "cauchy",
    "geometric",
)
SHARED = compile(HEADER, "header", "exec")


@dataclass(frozen=True)
class Program:
    """A module and its loss as text; ``drawn``: it draws at random; ``labels``: its targets are classes, else numbers."""

    text: str
    start: tuple[int, ...]
    length: int
    words: int = 3
    labels: bool = True
    drawn: bool = False

    @property
    def inputs(self) -> list[Spec]:
        return [Spec(self.start, torch.float32), Spec((self.length,), torch.int64, self.words)]

    @property
    def targets(self) -> list[Spec]:
        return [Spec((), torch.int64, 3) if self.labels else Spec((3,), torch.float32)]

    def built(self, seed: int = 0) -> tuple[nn.Module, Any]:
        """The module and the loss, with globals of their own; numbers are of torch's default kind."""
        space: dict[str, Any] = {"KEPT": [], "CALLS": []}
        exec(SHARED, space)
        exec(compiled(self.text), space)
        torch.default_generator.manual_seed(seed)
        return space["Module"](), space["loss"]


def compiled(text: str) -> Any:
    if text not in _COMPILED:
        _COMPILED.clear()
        _COMPILED[text] = compile(text, "program", "exec")
    return _COMPILED[text]


_COMPILED: dict[str, Any] = {}


def program(seed: int) -> Program:
    """The program of this number."""
    draw = random.Random(seed)
    kind = draw.choice(["row", "seq", "seq", "pic"])
    sizes = {"D": draw.randint(3, 5), "T": draw.randint(1, 4), "C": draw.randint(1, 3), "H": draw.randint(3, 4), "V": 3}
    start = {"row": "D", "seq": "TD", "pic": "CHH"}[kind]
    made, done, drawn, odd = [], [], False, draw.random() < 0.3
    count = draw.randint(1, 4)
    at = draw.randrange(count)
    for n in range(count):
        step = draw.choice(STEPS["odd" if odd and n == at else kind])
        drawn |= step.startswith("~")
        init, _, forward = step.lstrip("~").partition("|")
        forward, _, then = forward.partition(" -> ")
        names = {**sizes, "n": n, "L": sizes["H" if kind == "pic" else "D"]}
        made.append(_picked(init.strip().format(**names), draw))
        done.append(_picked(forward.strip().format(**names), draw))
        kind = then or kind
    end = {"row": "x", "seq": draw.choice(["x.mean(1)", "x[:, -1]", "x.sum(1)"]), "pic": "x.mean(3).amax(2)"}[kind]
    made.append(f"self.head = nn.Linear({sizes['C' if kind == 'pic' else 'D']}, 3)")
    labels = draw.random() < 0.6
    loss = draw.choice(CRITERIA[labels, draw.random() < 0.08])
    lines = ["class Module(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += [f"        {line}" for line in made if line] + ["    def forward(self, x, k):"]
    lines += [f"        {line}" for line in done] + [f"        return self.head({end})", f"loss = {loss}"]
    drawn |= any(word in str(done) for word in DRAWS)
    return Program("\n".join(lines), tuple(sizes[name] for name in start), sizes["T"], 3, labels, drawn)


def _picked(text: str, draw: random.Random) -> str:
    """The text with each ``pick(a, b)`` as one of its arguments."""
    while "pick(" in text:
        before, _, rest = text.partition("pick(")
        inside, _, after = rest.partition(")")
        text = before + draw.choice(inside.split(", ")) + after
    return text
