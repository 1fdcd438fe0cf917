"""Methods that watch the process in which they run: as guests, they watch one in which no record is.

Where there are no guests, a method runs beside the records, as all did once.

These stand for tests of checks for observers in the same process, which are gone, because such a list cannot be completed:
- modes of dispatch (``test_questions``, ``test_review``): "signalled" here; a mode that an object's constructor left on was the caller's own;
- a profiler that is told shapes (``test_review``): "trace" here;
- hooks on all modules and on saved tensors (``pytorch/test_fit_module``, ``curator/test_meta_gradient``): the thread here;
- ``__del__`` of garbage that is collected while rows are touched (``test_moved_walls``): deleted, a guest has no objects here.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import noisewise as nw

HERE = Path(__file__).parent
GUESTS = importlib.util.find_spec("noisewise.guest") is not None
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (4321, 3))
y = (X @ [1.0, -0.5, 0.2] > 0).astype(int)

if GUESTS:
    from sandbox import needs_sandbox

    pytestmark = needs_sandbox


def spy(name, **settings):
    """A method that spies, as it would be run: by its name where that makes it a guest."""
    if GUESTS:
        from noisewise.guest import method_named

        return method_named(f"visitors.spies:{name}").with_settings(**settings)
    from visitors import spies

    return getattr(spies, name)(**settings)


@pytest.fixture(autouse=True)
def found(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "visitors"]:
        del sys.modules[name]


def said(capfd):
    both = capfd.readouterr()
    lines = [line.partition("learned ")[2] for line in (both.out + both.err).splitlines() if "learned " in line]
    assert lines
    return dict(line.split(": ", 1) for line in lines)


def classifier(method, **options):
    given = {"epsilon": 1.0, "bounds": (-1, 1), "classes": [0, 1], **options}
    return nw.PrivateClassifier(method=method, **given).fit(X, y)


def test_no_audit_hook_sees_the_size_of_a_mapped_file(tmp_path, capfd):
    lines = [
        "a,b,c,y",
        *(",".join([*map(repr, row), ["no", "yes"][label]]) for row, label in zip(X.tolist(), y, strict=True)),
    ]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    columns = [{"name": name, "kind": "number", "low": -1.0, "high": 1.0} for name in "abc"]
    schema = nw.Schema.from_dict(
        {
            "format": "noisewise-schema/1",
            "target": "y",
            "columns": [*columns, {"name": "y", "kind": "category", "categories": ["no", "yes"]}],
        }
    )
    made = nw.PrivateClassifier(1.0, 1e-6, method=spy("Observer", how="hook"), schema=schema)
    made.fit_files(tmp_path / "rows.csv", cache=tmp_path)
    assert said(capfd) == {"lengths": "[]"}


@pytest.mark.parametrize("how", ["trace", "signalled", "kernel"])
def test_no_observer_of_torch_sees_how_many_records_there_are(how, capfd):
    classifier(spy("Observer", how=how), model=(8,))
    assert said(capfd) == {"lengths": "[]"}


def test_no_thread_sees_what_a_module_is_given(capfd):
    module, loss = (
        torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2)),
        torch.nn.CrossEntropyLoss(),
    )
    records = torch.utils.data.TensorDataset(torch.tensor(X, dtype=torch.float32), torch.tensor(y))
    nw.fit(
        module,
        loss,
        records,
        budget=nw.Budget(1.0, 1e-6),
        method=spy("Observer", how="thread", steps=30),
        progress=False,
    )
    assert said(capfd) == {"lengths": "[]"}
