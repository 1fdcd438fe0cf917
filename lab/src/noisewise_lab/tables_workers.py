"""Other learners of tables (``tables_peer``), each in a process of its own and in its own interpreter if need be."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import tables_peer
from .tables_split import Array, Split

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "LOKY_MAX_CPU_COUNT"), "1")


@dataclass(frozen=True)
class About:
    """Whether a learner is private, whether seeds change it, whose interpreter it shares, and how to get it."""

    install: str
    private: bool = True
    seeded: bool = True
    family: str = ""


EBM = "pip install interpret-core"
PEERS = {
    "logistic": About("pip install scikit-learn", private=False, seeded=False),
    "boosting": About("pip install scikit-learn", private=False),
    "ebm": About(EBM),
    "ebm-fast": About(EBM, family="ebm"),
    "diffprivlib": About("pip install diffprivlib scikit-learn==1.5.2"),
}


class Missing(Exception):
    """A learner that cannot be imported in the interpreter it is looked for in."""


def pythons(pairs: list[str]) -> dict[str, str]:
    """Interpreters by the name of the peer, from NAME=PATH."""
    found = {}
    for pair in pairs:
        name, sign, path = pair.partition("=")
        if not sign or not path or name not in PEERS:
            raise ValueError(f"--peer-python is {pair!r}; pass NAME=PATH, NAME one of {', '.join(PEERS)}")
        found[name] = path
    return found


class Workers:
    """The processes, by interpreter; ``close`` ends them. ``folder`` is for what passes between us."""

    def __init__(self, interpreters: Mapping[str, str], folder: Path) -> None:
        self._interpreters = interpreters
        self._folder = folder
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._versions: dict[str, str] = {}
        self._open: dict[str, Split] = {}  # which split each process has

    def version(self, peer: str) -> str:
        """The version of a peer; ``Missing`` if it cannot be had."""
        if peer not in self._versions:
            said = self._ask(peer, {"do": "hello", "peer": peer})
            if "error" in said:
                raise Missing(self._line(peer, said["error"]))
            self._versions[peer] = said["version"]
        return self._versions[peer]

    def fit(self, peer: str, split: Split, *, epsilon: float | None, delta: float, seed: int) -> dict[str, Any]:
        """Answers and scores of the test rows and processor seconds, or what it ``refused``."""
        self.version(peer)
        python = self._python(peer)
        if self._open.get(python) is not split:
            path = self._folder / "split.npz"
            split.save(path)
            if "error" in (said := self._ask(peer, {"do": "load", "path": str(path), "facts": split.facts()})):
                raise ValueError(f"{peer} cannot read the table: {said['error']}")
            self._open[python] = split
        to = self._folder / "scores.npz"
        job = {"do": "fit", "peer": peer, "epsilon": epsilon, "delta": delta, "seed": seed, "to": str(to)}
        said = self._ask(peer, job)
        if "error" in said:
            raise ValueError(f"{peer} failed: {said['error']}; run again to go on")
        if "refused" in said:
            return said
        with np.load(to) as arrays:
            answers: Array = arrays["answers"]
            return {"answers": answers, "scores": arrays["scores"], "cpu_s": said["cpu_s"]}

    def close(self) -> None:
        for process in self._running.values():
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._running.clear()

    def _python(self, peer: str) -> str:
        return self._interpreters.get(peer) or self._interpreters.get(PEERS[peer].family) or sys.executable

    def _line(self, peer: str, reason: str) -> str:
        name = PEERS[peer].family or peer
        return (
            f"{peer} cannot be imported ({reason}), so its rows are left out; install it: {PEERS[peer].install} "
            f"(in another environment: --peer-python {name}=ITS/bin/python)"
        )

    def _ask(self, peer: str, job: dict[str, Any]) -> dict[str, Any]:
        process = self._process(peer)
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            if job["do"] == "hello":
                return {"error": self._last_words() or "its interpreter does not start"}
            raise ValueError(
                f"the process of {peer} ended: {self._last_words() or 'without a word'}; run again to go on"
            )
        said: dict[str, Any] = json.loads(line)
        return said

    def _process(self, peer: str) -> subprocess.Popen[str]:
        python = self._python(peer)
        if python not in self._running:
            script = self._folder / "tables_peer.py"  # alone in its folder, so that it hides no package
            shutil.copyfile(tables_peer.__file__, script)
            try:
                with (self._folder / "errors.txt").open("w") as errors:
                    self._running[python] = subprocess.Popen(
                        [python, str(script)],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=errors,
                        text=True,
                        env={**os.environ, **ONE_THREAD},
                    )
            except OSError as error:
                raise Missing(self._line(peer, f"{python}: {error.strerror}")) from None
        return self._running[python]

    def _last_words(self) -> str:
        lines = (self._folder / "errors.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else ""
