"""Methods that misbehave in every way that their side of the pipe allows."""

import os
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch

from noisewise.messages import pack

from .honest import Descent, State


@dataclass(frozen=True)
class Rude(Descent):
    """Does one thing in its second step, after an honest first one."""

    what: str = "dies"

    def step(self, state, private, public):
        if state.step == 1:
            getattr(self, self.what)(private)
        return super().step(state, private, public)

    def dies(self, private):
        os._exit(3)

    def raises(self, private):
        raise RuntimeError("its own \x1b[31mwords\nof two lines")

    def hangs(self, private):
        time.sleep(3600)

    def prints(self, private):
        print("a line \x1b[2J of its own")
        print("x" * 200_000, file=sys.stderr)

    def sends(self, private, data):
        os.write(private._wire._writing, data)
        time.sleep(3)

    def noise(self, private):
        self.sends(private, os.urandom(4096))

    def half(self, private):
        os.write(private._wire._writing, (1 << 20).to_bytes(8, "little") + b"\x00" * 100)
        os._exit(0)

    def endless(self, private):
        self.sends(private, (1 << 62).to_bytes(8, "little"))

    def framed(self, private, body):
        self.sends(private, len(body).to_bytes(8, "little") + body)

    def deep(self, private):
        self.framed(private, b"\x07\x01\0\0\0\0\0\0\0" * 5000 + b"\x00")

    def listed(self, private):
        self.framed(private, pack([1, 2]))

    def empty(self, private):
        self.framed(private, pack({}))

    def early(self, private):
        self.framed(private, pack({"done": True}))  # a reply to nothing: the step has not ended

    def odd_requests(self, private):
        for request in ODD:
            try:
                private.asked(**{"what": "question", **request})
                raise AssertionError(f"answered: {request}")
            except ValueError:
                continue


ZEROS = np.zeros(3, np.float32)
ODD = [
    {"what": "everything"},
    {"what": ["question"]},
    {"what": "__class__"},
    {},
    {"question": "Gradient"},
    {"question": ["Gradient"], "values": [], "noise": 1.0, "sampling": ("full",)},
    {"question": "Gradient", "values": [ZEROS, "1.0"], "noise": 4.0, "sampling": ("full",)},
    {"question": "Gradient", "values": [ZEROS, 1.0], "noise": float("nan"), "sampling": ("full",)},
    {"question": "Gradient", "values": [ZEROS, float("inf")], "noise": 4.0, "sampling": ("full",)},
    {"question": "Gradient", "values": [ZEROS * np.nan, 1.0], "noise": 4.0, "sampling": ("full",)},
    {"question": "Gradient", "values": [np.zeros(1 << 20), 1.0], "noise": 4.0, "sampling": ("full",)},
    {"question": "Gradient", "values": [ZEROS, 1.0], "noise": -4.0, "sampling": ("full",)},
    {"question": "Gradient", "values": [ZEROS, 1.0], "noise": 4.0, "sampling": ("poisson", 2.0)},
    {"question": "Gradient", "values": [ZEROS, 1.0], "noise": 4.0, "sampling": {"full": 1}},
    {"question": "Gradient", "values": {"theta": ZEROS}, "noise": 4.0, "sampling": ("full",)},
    {"question": "Sum", "values": [], "noise": 4.0, "sampling": ("full",)},
    {"what": "last_iterate", "walk": "Path", "values": {}},
    {"what": "last_iterate", "walk": "Descent", "values": {"start": ZEROS, "steps": float("nan")}},
    {"what": "last_iterate", "walk": "PerturbedObjective", "values": {}},
    {"what": "minimise", "walk": "Descent", "values": {"start": ZEROS}},
    {"what": "prepare", "features": {"blocks": [], "gains": [1.0]}},
    {"what": "prepare", "features": None},
    {"what": "centre", "centre": [0.0], "scale": 1.0},
    {"what": "change_basis", "matrix": np.full((3, 3), np.nan)},
    {"what": "change_basis", "matrix": b"abc"},
    {"what": "in_first_basis", "theta": "theta"},
    {"what": "noise_for", "share": "all", "sampling": ("full",)},
    {"what": "noise_for", "share": float("nan"), "sampling": ("full",)},
    {"what": "share_after", "event": {"kind": "Gaussian", "noise_multiplier": -1.0}},
    {"what": "share_after", "event": {"kind": "Nothing"}},
]


@dataclass(frozen=True)
class Liar(Descent):
    """Gives back something else than it should."""

    what: str = "text"

    def finish(self, state, public):
        theta = state.theta
        return {
            "text": "theta",
            "short": theta[:1],
            "whole": theta.astype(int),
            "infinite": theta * float("inf"),
            "matrix": theta[None],
        }.get(self.what, theta)

    def spread(self, state):
        spreads = {"unknown": float("nan"), "below": -1.0}
        return state.theta * 0 + spreads[self.what] if self.what in spreads else None

    def terms(self, facts):
        from noisewise.budget import Terms
        from noisewise.trusted.events import Gaussian

        return Terms.plan(Gaussian(1e-3)) if self.what == "plan" else super().terms(facts)


@dataclass(frozen=True)
class Boastful(Descent):
    """Says of itself what is not so."""

    name = "descent"
    private = False
    summary = "x" * 10_000 + "\x1b[2J"
    losses = ("logistic", "no such loss", "squared")
    needs_public = False


def boom(*_):
    raise SystemExit(7)


class Unpacked(Descent):
    """Cannot be made."""

    def __init__(self):
        boom()


@dataclass(frozen=True)
class Collector(Descent):
    """Keeps what it saw from one run to the next, in its process."""

    def step(self, state, private, public):
        torch.seen = [*getattr(torch, "seen", []), private.facts.size]
        print("runs seen", len(torch.seen))
        return State(self.steps, super().step(state, private, public).theta)
