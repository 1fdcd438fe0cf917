"""A question is one file in the room: copied with one more, which needs a sum of its own, the house asks it and names it.

Ranks and clients add it up, servers know what a client can send for it, verify, report, reading list and guests know it, and the
laws hold it to what it says. One whose sum does not say what a record adds to it is not asked at all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAWS = "test_curator_laws.py"
OF_CLIENTS, OF_RULES = "test_client_laws.py", "test_rule_laws.py"
QUESTION = '''
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..stores.protocol import POSITIVE, between as from_to
from ..stores.linear import ROW
from ..stores.protocol import POSITIVE, between as from_to, everywhere
from ..stores.totals import IntegerTotal
from ..question import Question, always, between, itself, question


@everywhere(POSITIVE, limit=from_to(-1, 1))
def near_origin(records, drawn, radius):
    """Sum of 1 for a row of norm at most ``radius``, -1 for others."""
    count = 0
    for rows, _, _ in records.unit_rows(drawn):
        count += int(np.where((rows * rows).sum(1) <= (ROW * radius) ** 2, 1, -1).sum())
    return np.array([count])


@question
@dataclass(frozen=True)
class NearOrigin(Question):
    """Sum over records of +1/2 for a row within the radius, -1/2 for others. *Sensitivity*: 1/2, and 1 for replace_one."""

    radius: float = 0.5
    words: ClassVar[str] = "how many rows are short"
    moves = always(0.5, 1.0)
    cases = classmethod(itself)

    def __post_init__(self):
        between("NearOrigin.radius", self.radius, 0.01, 1)

    def total(self, records, drawn, how):
        return IntegerTotal(near_origin(records, drawn, self.radius), 1, 0.5)

    def numbers(self, facts):
        return facts.features
'''
ASK = """
import numpy as np
import noisewise as nw
from noisewise.accounts import AdditiveMeter, Budget
from noisewise.curator import QUESTIONS
from noisewise.trusted.models import Linear
from noisewise.trusted.losses import Logistic
from noisewise.curator import KINDS
from noisewise.trusted.question import AnswerLine
from noisewise.trusted.question import HowAsked
from noisewise.evidence.report.sentences import question_text

X = np.concatenate([np.full((60, 3), 0.1), np.full((40, 3), 1.0)])
meter = AdditiveMeter(Budget(50.0, 1e-6), "gdp")
private = nw.Curator(X, np.ones(100), model=Linear(3, Logistic()), meter=meter, size=100.0, seed=1)
answer = private.statistic(QUESTIONS["NearOrigin"](), noise_multiplier=1.0)
assert abs(float(answer.value) - 10) < 3 and answer.noise_std == 0.5
(line,) = private.trace
assert question_text(line.question) == "how many rows are short"
kind, how = KINDS[line.question], HowAsked("add_remove", ("full",), 1.0, 100.0, 3)
assert kind.made(line.event) and kind.fits(line.noise_std, how, AnswerLine(line.clip, private.facts))
assert not kind.fits(line.noise_std / 2, how, AnswerLine(line.clip, private.facts))
"""

ELSEWHERE = """
import numpy as np, pytest
from noisewise.remote.clients.messages import check_request
from noisewise.remote.messages import BadMessage
from noisewise.remote.forms import packed, unpacked
from noisewise.remote.holder import Holder, Holding, Request
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Linear
from noisewise.trusted.stores.protocol import SUMS
from noisewise.trusted.stores.totals import Drawn

X = np.concatenate([np.full((60, 3), 0.1), np.full((40, 3), 1.0)])
holder = Holder({"own": lambda: Holding((0,), (100,), X, np.ones(100))})
asked = Request(3, "total", (1, "near_origin", Drawn(), (0.5,), {}))
for request in (Request(1, "make", ("own",)), Request(2, "hold", (1, Linear(3, Logistic()))), unpacked(packed(asked))):
    reply = holder.reply(request)
    assert reply.trouble is None
assert reply.value.tolist() == [20]
check_request(asked)
for wrong in ((), (0.0,), (-1.0,), ("x",), (np.ones(3),), (0.5, 0.5)):
    with pytest.raises(BadMessage):
        check_request(asked._replace(arguments=(1, "near_origin", Drawn(), wrong, {})))
with pytest.raises(BadMessage):
    check_request(asked._replace(arguments=(1, "nobody_knows", Drawn(), (), {})))
limit, zero = SUMS["near_origin"], np.zeros(1, np.int64)
assert [limit.fits([np.array([sent])], zero, (0.5,), 3) for sent in (-4, -3, 0, 3, 4)] == [False, True, True, True, False]
"""
KNOWN = (
    ASK
    + """
from types import SimpleNamespace
from noisewise.statements import reading_list as reading
from noisewise.guest.running import Served
from noisewise.guest.wire import question_to
from noisewise.statements.statement import HOMES

assert HOMES["NearOrigin"] == "trusted/questions/near_origin" and reading.digest_of(HOMES["NearOrigin"] + ".py")
served = Served(SimpleNamespace(tick=lambda: None), private)
asked = {"ask": "question", "noise": 1.0, "sampling": ["full"], **question_to(QUESTIONS["NearOrigin"](0.25))}
assert abs(float(served(asked)["answer"]["value"]) - 10) < 3 and len(private.trace) == 2
for values in ([2.0], ["x"], [], [0.5, 0.5]):
    assert served({**asked, "values": values}).get("error") == "refused" or not values
assert len(private.trace) == 3  # a question that names no radius has its own
QUESTIONS["NearOrigin"].numbers = lambda self, facts: 2.0**27  # what the host would keep to answer it
assert served(asked) == {"error": "refused"} and len(private.trace) == 3
"""
)


def extended(folder: Path, question: str) -> None:
    """A copy of the house with one more file, and the laws."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for laws in (LAWS, OF_CLIENTS, OF_RULES):
        shutil.copy(ROOT / "tests" / "laws" / laws, folder / laws)
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


def test_ranks_clients_and_servers_know_its_sum(tmp_path):
    extended(tmp_path, QUESTION)
    asked = run(tmp_path, "-c", ELSEWHERE)
    assert asked.returncode == 0, asked.stderr
    held = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", OF_CLIENTS, "-k", "NearOrigin")
    assert held.returncode == 0, held.stdout
    other = tmp_path / "other"
    extended(other, QUESTION.replace("from_to(-1, 1)", "from_to(0, 1)"))  # which refuses what a client may well send
    held = run(other, "-m", "pytest", "-q", "-p", "no:cacheprovider", OF_CLIENTS, "-k", "NearOrigin")
    assert held.returncode == 1 and "AssertionError: near_origin" in held.stdout


def test_verify_report_reading_list_and_guests_know_it(tmp_path):
    extended(tmp_path, QUESTION)
    asked = run(tmp_path, "-c", KNOWN)
    assert asked.returncode == 0, asked.stderr
    held = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", OF_RULES, "-k", "NearOrigin")
    assert held.returncode == 0, held.stdout
    assert int(held.stdout.split(" passed")[0].split()[-1]) >= 5


def test_a_sum_that_does_not_say_what_a_record_adds_is_none(tmp_path):
    extended(tmp_path, QUESTION.replace("POSITIVE, limit=from_to(-1, 1)", "POSITIVE"))
    asked = run(tmp_path, "-c", "import noisewise.curator")
    assert asked.returncode == 1 and "missing 1 required keyword-only argument: 'limit'" in asked.stderr
