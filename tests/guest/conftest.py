import numpy as np
import pytest
from sandbox import VISITORS


@pytest.fixture(autouse=True)
def visitors(monkeypatch):
    """The package of visiting methods can be found, as by PYTHONPATH."""
    monkeypatch.syspath_prepend(str(VISITORS))


@pytest.fixture(scope="session")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4321, 3))
    return X, (X @ [1.0, -0.5, 0.2] + 0.1 * rng.normal(size=4321) > 0).astype(int)
