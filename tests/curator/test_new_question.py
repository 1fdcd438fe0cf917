"""A question is one file in the room: copied with one more, the house asks it, names it and holds it to the laws."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAWS = "test_curator_laws.py"
QUESTION = '''
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..stores.linear import ROW
from ..stores.totals import IntegerTotal
from ..question import Question, always, itself, question


@question
@dataclass(frozen=True)
class NearOrigin(Question):
    """Sum over records of +1/2 for a row of norm at most 1/2, -1/2 for others. *Sensitivity*: 1/2, and 1 for replace_one."""

    words: ClassVar[str] = "how many rows are short"
    moves = always(0.5, 1.0)
    cases = classmethod(itself)

    def total(self, records, drawn, terms):
        count = 0
        for rows, _, _ in records.unit_rows(drawn):
            count += int(np.where((rows * rows).sum(1) <= ROW * ROW / 4, 1, -1).sum())
        return IntegerTotal(np.array([count]), 1, 0.5)
'''
ASK = """
import torch
import noisewise as nw
from noisewise.budget import AdditiveMeter, Budget
from noisewise.curator import QUESTIONS
from noisewise.trusted.models import Linear
from noisewise.trusted.losses import Logistic
from noisewise.curator import KINDS
from noisewise.trusted.proved import Line
from noisewise.trusted.question import HowAsked
from noisewise.report.words import question_text

X = torch.cat([torch.full((60, 3), 0.1), torch.full((40, 3), 1.0)])
meter = AdditiveMeter(Budget(50.0, 1e-6), "gdp")
private = nw.Curator(X, torch.ones(100), model=Linear(3, Logistic()), meter=meter, size=100.0, seed=1)
answer = private.statistic(QUESTIONS["NearOrigin"](), noise_multiplier=1.0)
assert abs(float(answer.value) - 10) < 3 and answer.noise_std == 0.5
(line,) = private.trace
assert question_text(line.question) == "how many rows are short"
kind, how = KINDS[line.question], HowAsked("add_remove", ("full",), 1.0, 100.0, 3)
assert kind.made(line.event) and kind.fits(line.noise_std, how, Line(line.clip, private.facts))
assert not kind.fits(line.noise_std / 2, how, Line(line.clip, private.facts))
"""


def extended(folder: Path, question: str) -> None:
    """A copy of the house with one more file, and the laws."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "tests" / "laws" / LAWS, folder / LAWS)
    (folder / "src" / "noisewise" / "trusted" / "questions" / "near_origin.py").write_text(question)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": ""}
    environment |= {"NOISEWISE_KERNELS": "reference", "OMP_NUM_THREADS": "1"}  # which would be compiled for each copy
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def test_a_question_is_one_file(tmp_path):
    extended(tmp_path, QUESTION)
    asked = run(tmp_path, "-c", ASK)
    assert asked.returncode == 0, asked.stderr
    held = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", LAWS, "-k", "NearOrigin")
    assert held.returncode == 0, held.stdout
    assert int(held.stdout.split(" passed")[0].split()[-1]) > 20


def test_a_question_that_states_half_of_what_a_record_does_breaks_a_law(tmp_path):
    extended(tmp_path, QUESTION.replace("always(0.5, 1.0)", "always(0.25, 0.5)"))
    which = "test_no_record_moves_a_total_further_than_its_noise_allows_for and NearOrigin-logistic"
    held = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", LAWS, "-k", which)
    assert held.returncode == 1 and "1 failed" in held.stdout
