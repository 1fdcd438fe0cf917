"""A loss is one file and a layer is one file: a copy of the package with one more finds it everywhere, laws included."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

import noisewise
from noisewise.faces.sklearn import PrivateClassifier
from noisewise.methods import registry
from noisewise.trusted import losses
from noisewise.trusted.losses import LOSSES, Hinge, Logistic, Loss, loss_named, loss_names, register
from noisewise.trusted.models import layers

TESTS = Path(__file__).parents[1]
SQUARED_HINGE = """
from dataclasses import dataclass
import numpy as np
from noisewise.trusted.losses.base import Loss

@dataclass(frozen=True)
class SquaredHinge(Loss):
    \"\"\"max(0, 1 - y z)^2.\"\"\"

    name, smoothness, typical_clip = "squared_hinge", 2.0, 2.0

    def value(self, z, y):
        return (1 - y * z).relu().square()

    def slope(self, z, y):
        return -2 * y * (1 - y * z).relu()

    def row_value(self, z, y):
        return np.maximum(1.0 - y * z, 0.0) * np.maximum(1.0 - y * z, 0.0)

    def row_slope(self, z, y):
        return -2.0 * y * np.maximum(1.0 - y * z, 0.0)
"""
LEAKY_RELU = """
import numpy as np
from .base import Layer, layer

@layer
class LeakyRelu(Layer):
    name = "leaky_relu"

    def forward(self, z):
        return z.where(z > 0, 0.125 * z)

    def derivative(self, a):
        return 0.125 + 0.875 * (a > 0).to(a.dtype)

    def by_entry(self, z):
        return np.where(z > 0, z, 0.125 * z)
"""
FIT = """
import numpy as np
from noisewise.faces.sklearn import PrivateClassifier
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (3000, 3)); y = X[:, 0] > 0.1
fitted = PrivateClassifier(5.0, 1e-6, loss="squared_hinge", bounds=(-1, 1), random_state=0).fit(X, y)
assert fitted.score(X, y) > 0.9, fitted.score(X, y)
assert not hasattr(fitted, "predict_proba")
print(fitted.statement_.data["model"]["loss"])
"""
PREDICT = """
import numpy as np
from noisewise.statements.network import Network
print(Network("MLP", (1, 1, 1), "squared", "leaky_relu").scores(np.array([1.0, 0, 1, 0]), np.array([[-8.0]])).tolist())
"""


@pytest.fixture
def copy(tmp_path):
    """A copy of the package with one loss and one layer more, and a way to run Python with it."""
    package = Path(noisewise.__file__).parent
    shutil.copytree(package, tmp_path / "noisewise", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "noisewise" / "trusted" / "losses" / "squared_hinge.py").write_text(SQUARED_HINGE)
    (tmp_path / "noisewise" / "trusted" / "models" / "layers" / "leaky_relu.py").write_text(LEAKY_RELU)
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "NOISEWISE_KERNELS": "reference", "OMP_NUM_THREADS": "1"}
    env["PYTHONDONTWRITEBYTECODE"] = ""  # compiled once for all of them

    def run(*arguments):
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_a_new_loss_and_a_new_layer_are_one_file_each(copy):
    assert copy("-c", FIT) == "squared_hinge\n"
    helps = copy(
        "-c", "import sys; from noisewise.faces.cli import main; sys.argv = ['noisewise', 'train', '--help']; main()"
    )
    assert "squared_hinge" in helps
    assert copy("-c", PREDICT) == "[-1.0]\n"
    laws = [str(TESTS / "laws" / f"test_{kind}_laws.py") for kind in ("loss", "layer")]
    ran = copy("-m", "pytest", "-q", "-p", "no:cacheprovider", *laws, "-k", "squared_hinge or leaky_relu")
    assert "8 passed" in ran


def test_a_layer_from_outside_is_refused():
    class Step(layers.Layer):
        name = "step"

        def forward(self, z):
            return (z > 0).to(z.dtype)

        def derivative(self, a):
            return 0 * a

        def by_entry(self, z):
            return (z > 0).astype(z.dtype)

    with pytest.raises(TypeError, match="not defined in the room of layers"):
        layers.layer(Step)
    Step.__module__ = "noisewise.trusted.models.layers.step"  # nor when it says that it is
    with pytest.raises(TypeError, match="not defined in the room of layers"):
        layers.layer(Step)
    assert "step" not in layers.LAYERS


class Late(Hinge):
    """The hinge with its corner at margin 2."""

    name = "late_hinge"

    def value(self, z, y):
        return (2 - y * z).relu()

    def slope(self, z, y):
        return (-y).where(y * z < 2, 0.0)

    def row_value(self, z, y):
        return np.maximum(2.0 - y * z, 0.0)

    def row_slope(self, z, y):
        return np.where(y * z < 2.0, -1.0 * y, 0.0)


def fitted(**options):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3000, 3))
    return PrivateClassifier(5.0, 1e-6, bounds=(-1, 1), random_state=0, **options).fit(X, X[:, 0] > 0.1)


def test_a_loss_from_outside_trains_without_a_kernel_and_the_statement_names_it_and_its_home():
    assert "late_hinge" not in loss_names()
    register(Late())
    assert "late_hinge" in loss_names() and "late_hinge" in registry()["descent"].losses
    assert Hinge.kernel == 1 and Late.kernel is None  # its slopes are its own, not the compiled ones of the hinge
    late = fitted(loss="late_hinge")
    assert late.statement_.data["model"]["loss"] == f"late_hinge, from {__name__}"
    assert not np.array_equal(late.coef_, fitted(loss="hinge").coef_)
    assert np.array_equal(late.coef_, fitted(loss=Late()).coef_)


def test_a_loss_from_outside_takes_no_name_of_another_and_is_a_loss():
    class Impostor(Late):
        name = "logistic"

    with pytest.raises(ValueError, match="a loss named 'logistic' exists"):
        register(Impostor())
    for wrong in (Late, "hinge", None):
        with pytest.raises(TypeError, match="not a loss with a name"):
            register(wrong)
    assert type(LOSSES["logistic"]) is Logistic


def test_an_installed_package_brings_a_loss_by_entry_point(monkeypatch):
    brought = {name: EntryPoint(name, f"{__name__}:Late", losses.__name__) for name in ("late_hinge", "other")}
    monkeypatch.setattr(losses, "_installed", lambda: brought)
    assert loss_names()[-2:] == ("late_hinge", "other")
    assert isinstance(loss_named("late_hinge"), Loss) and LOSSES["late_hinge"] == Late()
    with pytest.raises(ValueError, match="brings a loss named 'late_hinge'"):
        loss_named("other")
