"""What a fit is refused for is decided before torch is there; once it is, everybody holds the real one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from noisewise.budget import Budget
from noisewise.data.schema import Column, Schema
from noisewise.estimators import PrivateClassifier, PrivateRegressor
from noisewise.fitting.auto import method_for
from noisewise.fitting.of_files import fit_of_files
from noisewise.methods import registry

CHECKS = """
import sys
import numpy as np
from noisewise.budget import Budget
from noisewise.data.encode import Encoder
from noisewise.data.schema import Column, Schema
from noisewise.fitting.fit import Fit, classes_for, classifier_loss, model_for
from noisewise.fitting.of_files import scaling_of
from noisewise.methods import registry

classes = np.array([0, 1])
encoder = Encoder(Schema((Column("a", "number", -1, 1), Column("b", "number", -1, 1))))
for name, kind in registry().items():
    outcomes = []
    for adjacency in ("add_remove", "replace_one"):
        for hidden in ("linear", "mlp"):
            loss = classifier_loss("auto", kind(), classes)
            labels = classes_for(classes, loss)
            scaling, budget = scaling_of(encoder, kind(), unit_rows=True), Budget(1.0, 1e-6, adjacency=adjacency)
            try:
                fit = Fit(budget, kind(), model_for(hidden, scaling, loss, labels), scaling, labels, encoder)
                fit.check(public=True, records=2000)
                outcomes.append("right")
            except ValueError:
                outcomes.append("refused")
    print(name, *outcomes, *[heavy for heavy in ("torch", "sklearn") if heavy in sys.modules])
"""
LINEAR_ALONE = {"additive", "objective_perturbation", "output_perturbation", "pnsgd", "sufficient_statistics"}


def told(code: str, *arguments: str) -> list[list[str]]:
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def test_checking_a_fit_of_any_method_needs_neither_torch_nor_scikit_learn():
    wanted = {name: ["right", "refused" if name in LINEAR_ALONE else "right"] * 2 for name in registry()}
    wanted |= {name: ["refused", "refused", "right", "right"] for name in ("projected_sgd", "sgd_adv")}
    wanted |= {"sgd_ma": ["right", "right", "refused", "refused"], "pnsgd": ["refused", "refused", "right", "refused"]}
    assert {name: outcomes for name, *outcomes in told(CHECKS)} == wanted


PEOPLE = (
    Column("id", "ignore"),
    Column("age", "number", 0, 100),
    Column("income", "number", 0, 9),
    Column("job", "category", categories=("clerk", "farmer")),
)


@pytest.mark.parametrize("target", ["job", "income"])
@pytest.mark.parametrize("persons", [{}, {"unit": "id", "rows_per_unit": 3}], ids=["records", "persons"])
@pytest.mark.parametrize(("method", "model"), [("descent", "linear"), ("dpsgd", (8, 4)), ("auto", "auto")])
def test_a_dry_run_checks_the_fit_that_the_estimator_would_run(target, persons, method, model):
    schema = Schema(PEOPLE, target, **persons)
    face, loss = (PrivateClassifier, "auto") if target == "job" else (PrivateRegressor, "squared")
    same = {"loss": loss, "model": model, "size_is_public": True}
    planned = face(1.0, 1e-6, schema=schema, method=method, random_state=3, **same).planned()
    chosen = method_for(method, model, len(schema.features))
    checked = fit_of_files(schema, Budget(1.0, 1e-6), chosen, seed=3, **same)
    for part in ("budget", "method", "model", "persons", "unit", "size_is_public", "seed"):
        assert getattr(checked, part) == getattr(planned, part), part
    assert (checked.persons is None) == (not persons)
    assert type(checked.scaling) is type(planned.scaling) and checked.scaling.unit_rows == planned.scaling.unit_rows
    assert type(checked.labels) is type(planned.labels) and checked.encoder == planned.encoder


DRY_RUN = """
import sys
from pathlib import Path
from noisewise.cli import main

folder, (command, wanted) = Path(sys.argv[1]), sys.argv[2:4]
(folder / "people.csv").write_text("age,income,job\\n30,1,clerk\\n40,2,farmer\\n")
(folder / "schema.toml").write_text(f'''
format = "noisewise-schema/1"
target = "{wanted}"
[columns.age]
kind = "number"
low = 0
high = 100
[columns.income]
kind = "number"
low = 0
high = 9
[columns.job]
kind = "category"
categories = ["clerk", "farmer"]
''')
budget = ["--epsilon", "1", "--delta", "1e-6", "--schema", str(folder / "schema.toml")]
sys.argv[1:] = [command, str(folder / "people.csv"), *budget, "--out", str(folder / "run"), *sys.argv[4:]]
try:
    main()
except SystemExit as end:
    print(end.code, *[heavy for heavy in ("torch", "sklearn") if heavy in sys.modules])
"""


@pytest.mark.parametrize(
    ("target", "more", "said"),
    [
        ("job", (), "PrivateClassifier"),
        ("income", ("--model", "64,32"), "PrivateRegressor"),
        ("job", ("--method", "pnsgd"), None),
    ],
)
def test_a_dry_run_of_the_command_needs_neither_torch_nor_scikit_learn(tmp_path, target, more, said):
    *words, last = told(DRY_RUN, str(tmp_path), "train", target, "--dry-run", *more)
    assert last == ["2" if said is None else "0"] and (said is None or said in words[0])


FIRST_USES = {
    "settings": "with desk.own_settings(): pass",
    "bare": """
class Mine(torch.Tensor):
    cpu = None
assert question.bare(torch.ones(2).as_subclass(Mine)).tolist() == [1.0, 1.0]
""",
    "plain": "assert question.plain(torch.ones(2)).tolist() == [1.0, 1.0]",
    "rows": "assert len(grid.lay_out(torch.ones(2, 3), torch.ones(2), columns=3, classes=None)) == 2",
}


def test_at_the_first_use_everybody_holds_the_real_torch():
    """Each first use in a fork of its own: importing torch four times would take four times as long."""
    code = f"""
import os, sys
from noisewise.trusted import gate as desk, question
from noisewise.trusted.stores import grid
print("torch" in sys.modules, flush=True)
import torch

def first(use):
    exec(use, globals())
    from noisewise.protect import sets  # who comes later, too
    assert sets.torch is question.torch is torch and sets.Tensor is question.Tensor is grid.Tensor is torch.Tensor
    held = {{"torch": torch, "Tensor": torch.Tensor}}
    ours = [module for name, module in sys.modules.items() if name.startswith("noisewise")]
    return [(module, name) for module in ours for name in held if vars(module).get(name, held[name]) is not held[name]]

for name, use in {FIRST_USES!r}.items():
    if (child := os.fork()) == 0:
        try:
            print(name, *first(use), flush=True)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
"""
    assert told(code) == [["False"], *([name] for name in FIRST_USES)]


def test_who_has_imported_torch_before_gets_it_at_once():
    assert told(
        "import torch\nfrom noisewise.trusted import late\nprint(late.torch is torch, late.Tensor is torch.Tensor)"
    ) == [["True", "True"]]
