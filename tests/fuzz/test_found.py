"""What fuzzing found, each as the smallest input that showed it."""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisewise as nw
from noisewise.accounts import AdditiveMeter, Budget, BudgetExhausted, Terms, open_meter
from noisewise.accounts.journal.folder import FORMAT, Journal
from noisewise.accounts.purse import Purse
from noisewise.evidence.export.standalone import Scores
from noisewise.evidence.report.page import report_page
from noisewise.learned.tasks import load_tasks
from noisewise.protect.learned.zoo import load_protector
from noisewise.statements.seal import reseal
from noisewise.tables.codebook import codes_in
from noisewise.tables.wizard import answered
from noisewise.trusted.accountants.choose import choose_terms, explain
from noisewise.trusted.events import Gaussian, InvalidEvent, from_dict, to_dict

from .folders import exported, runs

HUGE = 10**400
BUDGET = Budget(1.0, 1e-6)


def nested(depth: int) -> Any:
    event: Any = {"kind": "Gaussian", "noise_multiplier": 1.0}
    for _ in range(depth):
        event = {"kind": "Repeated", "count": 1, "event": event}
    return event


@pytest.mark.parametrize(
    "data",
    [1, "x", None, [], {"kind": "Gaussian"}, {"kind": "Composed", "events": 3}, {"kind": "Repeated", "count": 1, "event": 0.5}, nested(600),
     {"kind": "Selection", "repetitions": {"kind": "PoissonRepetitions", "mean": 1.0}}],
    ids=lambda data: str(data)[:40],
)  # fmt: skip
def test_events_that_are_none(data: Any) -> None:
    with pytest.raises(InvalidEvent):
        from_dict(data)


@pytest.mark.parametrize("text", ["nan\n1", "NaN, 2", "inf"])
def test_codes_that_are_no_numbers_are_texts(text: str) -> None:
    assert isinstance(codes_in(text)[0][0], str)


def test_a_long_list_of_codes_takes_no_long_time() -> None:
    assert (
        len(codes_in("\n".join(f"{i} = code {i}" for i in range(20_000)))[0]) == 20_000
    )  # minutes, when it was quadratic


@pytest.mark.parametrize("target", [["income"], {"a": 1}, 3])
def test_a_target_that_is_no_name(target: Any) -> None:
    with pytest.raises(ValueError, match="target must be the name"):
        answered(nw.Schema(age=(17, 90), income=["low", "high"]).columns, None, {"target": target})


@pytest.mark.parametrize("fields", [{"categories": 3}, {"knots": 1}, {"kind": ["number"]}, {"name": 4}, {"rare": "a"}])
def test_a_column_of_odd_kinds(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"texts|lists"):
        nw.Column(**{"name": "age", "kind": "category", **fields})


@pytest.mark.parametrize(
    "text",
    [b"\xff\xfe", b"source = 3", b"[[source]]\nlicence = 'x'", b"[[source]]\ndata = 'gaussian'\nwhere = [1]", b"[[source]]\ndata = 'table'\nfile = 3"],
)  # fmt: skip
def test_tasks_that_are_none(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "tasks.toml").write_bytes(text)
    with pytest.raises(ValueError, match=r"tasks\.toml"):
        load_tasks(tmp_path / "tasks.toml")


@pytest.mark.parametrize("name", ["x" * 3000, "none.csv"])
def test_a_file_of_a_task_that_cannot_be_there(name: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.toml").write_text(f"[[source]]\ndata = 'table'\nfile = '{name}'\n")
    with pytest.raises(ValueError, match="is not there"):
        load_tasks(tmp_path / "tasks.toml")
    with pytest.raises(ValueError, match="no such file"):
        load_protector(Path(name))


def test_a_date_with_space_around_it() -> None:
    born = nw.Column("born", "number", "1920-01-01", "2010-01-01", unit="years", since="\r\n1900-01-01")
    assert born.since == "1900-01-01" and born.low == 20.0


CALLS = {
    "epsilon": lambda: Budget(HUGE, 1e-6), "delta": lambda: nw.epsilon(Gaussian(1.0), delta=5e-324), "mu": lambda: Budget.from_gdp(2**63, 0.999),
    "rho": lambda: Budget.from_zcdp(5e-324), "share": lambda: AdditiveMeter(BUDGET, "gdp").noise_for(HUGE),
    "one_shot_delta": lambda: open_meter(BUDGET, Terms("adaptive", "gdp", (), None, HUGE)),
    "sampling": lambda: AdditiveMeter(BUDGET, "tcdp").noise_for(0.5, 0.25),  # type: ignore[arg-type]
    "meter": lambda: choose_terms(BUDGET, adaptive=True, meter=["gdp"]),  # type: ignore[arg-type]
    "steps": lambda: choose_terms(BUDGET, adaptive=True, sampling=("poisson", 0.1), steps=HUGE),
    "steps of a plan": lambda: nw.plan(1.0, 1e-6, size=100, columns=2, steps=3), "columns": lambda: nw.plan(1.0, 1e-6, size=100, columns=HUGE),
    "candidates": lambda: nw.plan(1.0, 1e-6, size=100, columns=2, candidates=3), "size": lambda: nw.plan(1.0, 1e-6, size=HUGE, columns=2),
    "size of an explanation": lambda: explain(BUDGET, size="many"), "shape": lambda: nw.calibrate(BUDGET, steps=1, shape={}),
    "target_bounds": lambda: nw.PrivateRegressor(1.0, 1e-6, bounds=(-1, 1), target_bounds=(0, HUGE)).fit(np.zeros((4, 1)), [0, 1, 0, 1]),
    "max_grad_norm": lambda: nw.PrivateClassifier(1.0, 1e-6, bounds=(-1, 1), method="l2p", max_grad_norm=[]).fit(np.zeros((4, 1)), [0, 1, 0, 1]),
    "method": lambda: nw.PrivateClassifier(1.0, 1e-6, bounds=(-1, 1), method=["descent"]).fit(np.zeros((4, 1)), [0, 1, 0, 1]),
}  # fmt: skip


@pytest.mark.parametrize("what", CALLS)
def test_arguments_beyond_reason(what: str) -> None:
    with pytest.raises((ValueError, TypeError), match=r"; pass|not a part of delta|sampling must be"):
        CALLS[what]()


def test_single_precision_is_no_endless_search() -> None:
    assert Budget.from_zcdp(np.float32(0.5), 0.999).epsilon > 0


def test_public_labels_may_be_a_column() -> None:
    X = np.random.default_rng(0).uniform(-1, 1, (30, 2))
    y = (X[:, 0] > 0).astype(int)
    nw.PrivateClassifier(1.0, 1e-6, bounds=(-1, 1), random_state=0, method="dpsgd").fit(X, y, public=(X, y[:, None]))
    with pytest.raises(ValueError, match="one label each"):
        nw.PrivateClassifier(1.0, 1e-6, bounds=(-1, 1), random_state=0).fit(X, y, public=(X, np.stack([y, y], 1)))


@pytest.mark.parametrize("rows", [[[1, 2], [3]], [[{}, 1, 2]], {"x0": [[1, 2]], "x1": [1], "x2": [2]}, [[HUGE, 0, 0]]])
def test_an_exported_model_says_what_is_no_table(rows: Any) -> None:
    with pytest.raises(ValueError, match=r"no table|no number|pass a table"):
        Scores(exported())(rows)


ANSWER = {
    "answered": {}, "at": 0, "count": 1, "dtype": "float32", "shape": [1], "noise_std": 1.0, "below": None, "crc": zlib.crc32(bytes(4)),
}  # fmt: skip
CHARGED = {"charged": "g", "event": to_dict(Gaussian(1.0))}
JOURNALS = {
    "part": [{"part": math.inf}],
    "depth": [{"charged": "g", "event": nested(600)}],
    "at": [CHARGED, {**ANSWER, "at": 2**80}],
    "count": [CHARGED, {**ANSWER, "count": 10**12}],
    "noise": [CHARGED, {**ANSWER, "noise_std": HUGE}],
}


@pytest.mark.parametrize("what", JOURNALS)
def test_a_journal_with_numbers_beyond_its_files(what: str, tmp_path: Path) -> None:
    lines: list[Any] = [*JOURNALS[what], {"block": 0.5}]  # which was forced to the disk, so nothing before it is torn
    (tmp_path / "settings.json").write_text(json.dumps({"format": FORMAT}))
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "answers.bin").write_bytes(bytes(8))
    with pytest.raises(ValueError, match="its journal was changed"):
        Journal(tmp_path, {})


@pytest.mark.parametrize("filtered", [False, True])
def test_a_part_that_is_taken_up_again_has_one_holder(filtered: bool) -> None:
    """The first holder could settle it as unused, and the second spend it all, or both spend it."""
    terms = Terms.adaptive("gdp")
    purse = Purse(BUDGET, terms if filtered else None)
    first = purse.part(terms, BUDGET)
    second = purse.part(terms, BUDGET, number=first.number)
    with pytest.raises(BudgetExhausted):
        first.meter.spend(Gaussian(1e6))
    with pytest.raises(ValueError, match="taken up again"):
        first.settle()
    second.meter.spend(Gaussian(second.meter.noise_for(1.0)))
    second.settle()
    with pytest.raises(BudgetExhausted):
        purse.part(terms, BUDGET)


def test_a_parquet_file_with_other_rows_than_it_declares(tmp_path: Path) -> None:
    from .bombs import declared_rows
    from .tables import read

    with pytest.raises(ValueError, match="other rows than it declares"):
        read("private.parquet", declared_rows(), (None, None))


@pytest.mark.parametrize("filtered", [False, True])
def test_a_part_that_forgets_what_its_earlier_holder_drew_is_charged_whole(filtered: bool) -> None:
    """Taken up without its past, it could be settled as unused, and its budget spent again."""
    terms = Terms.adaptive("gdp")
    purse = Purse(BUDGET, terms if filtered else None)
    first = purse.part(terms, BUDGET)
    first.meter.spend(Gaussian(first.meter.noise_for(0.5)))
    purse.part(terms, BUDGET, number=first.number).settle("failed")
    assert purse.left[0] == 0
    with pytest.raises(BudgetExhausted):
        purse.part(terms, BUDGET)


def nan_counts(files: dict[str, Any]) -> None:
    files["evaluation.json"][0]["confusion"]["counts"] = [[math.nan, 1.0], [1.0, 1.0]]


def fewer_bounds(files: dict[str, Any]) -> None:
    files["run.json"]["preprocessing"]["high"].pop()


@pytest.mark.parametrize("change", [nan_counts, fewer_bounds])
def test_a_page_that_cannot_be_drawn(change: Any, tmp_path: Path) -> None:
    files = {name: json.loads(text) for name, text in runs()[1].items() if name.endswith(".json")}
    change(files)
    for name, content in runs()[1].items():
        (tmp_path / name).write_bytes(json.dumps(files[name]).encode() if name in files else content)
    reseal(tmp_path)
    with pytest.raises(ValueError, match=r"cannot be shown|is not"):
        report_page(tmp_path)
