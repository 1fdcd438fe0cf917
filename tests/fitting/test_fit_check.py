"""What a fit is refused for is decided before torch is there; whoever imports it later is heard all the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

from noisewise.accounts import Budget
from noisewise.faces.sklearn import PrivateClassifier, PrivateRegressor
from noisewise.methods import registry
from noisewise.tables.fit.build import fit_of_files, method_for
from noisewise.tables.schema import Column, Schema

CHECKS = """
import sys
import numpy as np
from noisewise.accounts import Budget
from noisewise.tables.encode import Encoder
from noisewise.tables.schema import Column, Schema
from noisewise.tables.fit.build import classes_for, classifier_loss, model_for, scaling_of
from noisewise.tables.fit.fit import Fit
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
from noisewise.faces.cli import main

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


def test_tensors_are_taken_from_who_imports_torch_after_noisewise():
    code = """
import sys
from noisewise import asking
from noisewise.accounts import Budget, PlanMeter
from noisewise.curator import Curator
from noisewise.trusted.events import Gaussian
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Linear
from noisewise.trusted.process import own_settings
print("torch" in sys.modules)
import torch

class Mine(torch.Tensor):
    cpu = numpy = None

mine = torch.ones(2).as_subclass(Mine)
assert asking.array(mine).tolist() == [1.0, 1.0]
with own_settings():
    assert type(mine * 2) is torch.Tensor  # no subclass hears of it
meter = PlanMeter(Budget(1.0, 1e-6), Gaussian(50.0))
held = Curator(torch.ones(2, 3), torch.ones(2), model=Linear(3, Logistic()), meter=meter, size=2.0)
print(type(held.gradient(torch.zeros(3), clip=1.0, noise_multiplier=50.0).value).__name__)
"""
    assert told(code) == [["False"], ["Tensor"]]
