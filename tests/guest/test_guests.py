"""Methods of other packages, run as guests: the same bits as beside the records, and no trace of their code there."""

import json
import sys
import warnings

import numpy as np
import pytest
import torch
from sandbox import needs_sandbox

import noisewise as nw
from noisewise.accounts.purse import Purse
from noisewise.evidence.audit import epsilon_lower_bound
from noisewise.faces.compare.compare import compare
from noisewise.guest import described, method_named
from noisewise.guest.isolation import located, readable
from noisewise.guest.running import FREE, PARSED, Served
from noisewise.guest.wire import vector_from
from noisewise.methods import isolation_of, registered_elsewhere
from noisewise.methods.dpsgd import DpSgd

pytestmark = needs_sandbox
HONEST = "visitors.honest:"


def classifier(method, **options):
    given = {"epsilon": 1.0, "bounds": (-1, 1), "classes": [0, 1], "random_state": 5, **options}
    return nw.PrivateClassifier(method=method, **given)


def as_object(name):
    from importlib import import_module

    return getattr(import_module("visitors.honest"), name)()


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["Descent", "Sampled", "Curious", "Greedy", "Whole", "Turned"])
def test_a_guest_gives_the_bits_of_the_same_class_as_an_object(rows, name):
    X, y = rows
    public = (X[:200], y[:200]) if name == "Curious" else None
    theirs = classifier(HONEST + name, size_is_public=True).fit(X, y, public=public)
    ours = classifier(as_object(name), size_is_public=True).fit(X, y, public=public)
    assert np.array_equal(theirs.fitted_.theta, ours.fitted_.theta) and theirs.n_iter_ == ours.n_iter_
    stated = [{**one.statement_.data, "method": None, "code": None} for one in (theirs, ours)]
    assert stated[0].pop("isolation") == "sandbox" and stated[1].pop("isolation") == "caller's own code"
    for words in ("trusted", "does_not_cover"):
        assert stated[0].pop(words) != stated[1].pop(words)
    assert stated[0] == stated[1] and theirs.trace_ == ours.trace_


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["Descent", "Sampled", "Curious", "Turned", "OnTable", "Whole"])
def test_a_method_that_holds_tensors_gives_the_bits_of_one_that_holds_arrays(rows, name):
    """It asks with tensors and is answered in tensors, beside the records and as a guest; what is released is an array."""
    from visitors import of_tensors

    X, y = rows
    public = (X[:200], y[:200]) if name == "Curious" else None
    arrays, beside, guest = (
        classifier(method, size_is_public=True).fit(X, y, public=public)
        for method in (as_object(name), getattr(of_tensors, name)(), f"visitors.of_tensors:{name}")
    )
    for made in (beside, guest):
        assert type(made.fitted_.theta) is np.ndarray and np.array_equal(made.fitted_.theta, arrays.fitted_.theta)
        assert made.trace_ == arrays.trace_ and made.n_iter_ == arrays.n_iter_


def test_features_of_a_table_are_asked_for_as_plain_data(rows):
    X, y = rows
    theirs, ours = (classifier(method).fit(X, y) for method in (HONEST + "OnTable", as_object("OnTable")))
    assert np.array_equal(theirs.fitted_.theta, ours.fitted_.theta)
    assert theirs.fitted_.made.to_dict() == ours.fitted_.made.to_dict()


def test_a_regression_and_a_module_take_guests_too(rows):
    X, y = rows
    settings = {"epsilon": 1.0, "bounds": (-1, 1), "target_bounds": (0, 1), "random_state": 2}
    theirs, ours = (
        nw.PrivateRegressor(method=method, **settings).fit(X, y.astype(float))
        for method in (HONEST + "Descent", as_object("Descent"))
    )
    assert np.array_equal(theirs.fitted_.theta, ours.fitted_.theta)
    data = torch.utils.data.TensorDataset(torch.tensor(X, dtype=torch.float32), torch.tensor(y))
    torch.manual_seed(0)
    module, options = torch.nn.Linear(3, 2), {"budget": nw.Budget(1.0, 1e-6), "random_state": 1, "progress": False}
    both = [
        nw.fit(module, torch.nn.CrossEntropyLoss(), data, method=method, **options)
        for method in (HONEST + "Descent", as_object("Descent"))
    ]
    assert torch.equal(both[0].module.weight, both[1].module.weight)
    assert both[0].statement.data["isolation"] == "sandbox"


def test_code_of_a_guest_is_never_imported_here(rows):
    for name in [name for name in sys.modules if name.partition(".")[0] == "visitors"]:
        del sys.modules[name]
    classifier(HONEST + "Descent").fit(*rows)
    assert not [name for name in sys.modules if name.partition(".")[0] == "visitors"]


def test_settings_are_the_guests_own(rows):
    method = described(HONEST + "Descent")
    assert method.settings() == {"steps": 12, "max_grad_norm": 1.0, "rate": 0.5} and method.total_steps() == 12
    assert (method.summary, method.paper, method.adaptive) == ("noisy descent of another package", "nobody 2026", True)
    fewer = method.with_settings(steps=3)
    assert fewer.total_steps() == 3 and classifier(fewer).fit(*rows).n_iter_ == 3
    assert fewer.settings()["steps"] == 3
    with pytest.raises(ValueError, match="has no setting 'pace'; it has max_grad_norm, rate, steps"):
        method.with_settings(pace=1)
    assert classifier(HONEST + "Descent", max_grad_norm=0.5).fit(*rows).statement_.data["method"] == {
        "name": HONEST + "Descent",
        "settings": {"steps": 12, "max_grad_norm": 0.5, "rate": 0.5},
    }


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("visitors.honest:", "pass package.module:Class"),
        ("visitors honest:Descent", "pass package.module:Class"),
        ("no_such_package:Mine", "there is no package 'no_such_package'"),
        ("sys:Mine", "there is no package 'sys'"),
        ("visitors.absent:Mine", "No module named 'visitors.absent'"),
        ("visitors.honest:Absent", "has no attribute 'Absent'"),
        ("visitors.honest:State", "is not a noisewise.methods.Method"),
        ("visitors.hostile:Unpacked", "ended or broke off in its process"),
    ],
)
def test_what_is_no_method_is_refused_in_one_line(spec, why):
    with pytest.raises(ValueError, match=why) as caught:
        method_named(spec)
    assert "\n" not in str(caught.value)


def test_a_sandbox_that_cannot_be_made_is_refused(rows, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("noisewise.guest.running._idle", {})
    with pytest.raises(ValueError, match=r"apt install bubblewrap.*isolation='process'"):
        described("visitors.honest:Descent", "sandbox").with_settings(rate=0.1)
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho no namespaces here >&2; exit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(ValueError, match=r"no namespaces here.*isolation='process'"):
        described("visitors.honest:Descent", "sandbox").with_settings(rate=0.1)
    with pytest.raises(ValueError, match="isolation is 'open'"):
        method_named(HONEST + "Descent", "open")


def test_what_another_package_registers_runs_as_a_guest(rows, monkeypatch):
    from importlib.metadata import EntryPoint

    import noisewise.methods as methods

    points = [
        EntryPoint("visiting", HONEST + "Descent", methods.ENTRY_POINT_GROUP),
        EntryPoint("descent", HONEST + "Descent", methods.ENTRY_POINT_GROUP),
    ]
    monkeypatch.setattr(methods, "entry_points", lambda group: points)
    registered_elsewhere.cache_clear()
    try:
        with pytest.warns(UserWarning, match="'descent' of another package is left out"):
            assert registered_elsewhere() == {"visiting": HONEST + "Descent"}
        fitted = classifier("visiting").fit(*rows)
        assert fitted.statement_.data["method"]["name"] == "visiting"
        assert fitted.statement_.data["isolation"] == "sandbox"
        with pytest.raises(ValueError, match="did you mean 'visiting'"):
            method_named("visitin")
    finally:
        registered_elsewhere.cache_clear()


def test_a_statement_says_where_the_method_ran(rows):
    assert isolation_of(DpSgd(steps=3)) == isolation_of(method_named("additive")) == "shipped"
    changed = DpSgd(steps=3)
    object.__setattr__(changed, "step", lambda *_: None)
    assert isolation_of(changed) == "caller's own code"

    class Own(DpSgd):
        pass

    assert isolation_of(Own()) == "caller's own code"
    sandboxed = classifier(HONEST + "Descent", random_state=None).fit(*rows).statement_
    assert "in its sandbox, notices of time" in str(sandboxed) and nw.verify(sandboxed.data).holds
    assert not nw.verify({**sandboxed.data, "isolation": "shipped"}).holds  # its words say otherwise
    assert not nw.verify({**sandboxed.data, "isolation": "far away"}).holds
    own = classifier(as_object("Descent")).fit(*rows).statement_
    assert "code of the caller's own that ran beside the records" in str(own)


def test_a_budget_that_is_exhausted_ends_a_guest_as_any_other(rows):
    purse = Purse(nw.Budget(1.0, 1e-6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = classifier(HONEST + "Greedy", random_state=None).fit(*rows, purse=purse)
    assert 0 < fitted.n_iter_ < 40 and purse.spent_fraction == pytest.approx(1.0, abs=1e-6)


@pytest.mark.slow
def test_compare_and_audit_take_guests(rows):
    X, y = rows
    names = ["descent", HONEST + "Descent"]
    table = compare(X, y, task="classification", epsilon=2.0, delta=1e-6, size=2000, methods=names, repeats=1)
    assert [row.method for row in table] == names and all(row.mean > 0.6 for row in table)
    audit = epsilon_lower_bound(HONEST + "Descent", epsilon=2.0, delta=0.25, runs=16)
    assert not audit.violation and audit.method == HONEST + "Descent"


def test_the_command_line_takes_guests(rows, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from noisewise.faces.cli.main import app

    X, y = rows
    lines = [
        "a,b,c,y",
        *(",".join([*map(repr, x), ["no", "yes"][label]]) for x, label in zip(X.tolist(), y, strict=True)),
    ]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    (tmp_path / "schema.toml").write_text(
        'format = "noisewise-schema/1"\ntarget = "y"\n'
        + "".join(f'[columns.{name}]\nkind = "number"\nlow = -1.0\nhigh = 1.0\n' for name in "abc")
        + '[columns.y]\nkind = "category"\ncategories = ["no", "yes"]\n'
    )
    monkeypatch.chdir(tmp_path)
    asked = ["train", "rows.csv", "--schema", "schema.toml", "--epsilon", "1", "--delta", "1e-6", "--json"]
    done = CliRunner().invoke(app, [*asked, "--method", HONEST + "Descent", "--out", "run"])
    assert done.exit_code == 0, done.output
    stated = json.loads((tmp_path / "run" / "statement.json").read_text())
    assert stated["isolation"] == "sandbox" and stated["method"]["name"] == HONEST + "Descent"
    assert CliRunner().invoke(app, ["verify", "run"]).exit_code == 0
    refused = CliRunner().invoke(app, [*asked, "--method", HONEST + "Absent", "--out", "other"])
    assert isinstance(refused.exception, ValueError) and not (tmp_path / "other").exists()
    audited = CliRunner().invoke(app, ["audit", "run", "--runs", "16", "--json"])
    assert audited.exit_code == 0, audited.output


def test_records_inside_of_what_a_guest_can_read_are_refused(rows, tmp_path, monkeypatch):
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("from visitors.honest import Descent\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert located("mine") == package and package in readable(package)
    from noisewise.guest.isolation import refuse_readable

    with pytest.raises(ValueError, match="move it elsewhere"):
        refuse_readable(package, [package / "rows.csv"])
    refuse_readable(package, [tmp_path / "rows.csv"])


def test_whatever_may_touch_records_is_answered_on_a_tick():
    class Ticking:
        ticks = 0

        def tick(self):
            self.ticks += 1

    assert {"question", "last_iterate", "minimise", "prepare", "centre", "change_basis"} == PARSED.keys() - FREE
    for name in ("question", "last_iterate", "minimise", "prepare", "centre", "change_basis", "noise_for"):
        guest = Ticking()
        assert "error" in Served(guest, None)({"ask": name})  # of what was asked, as much as of an answer
        assert guest.ticks == (name not in FREE)


@pytest.mark.parametrize("kind", [np.int8, np.bool_, np.float16, np.int64])
def test_arrays_of_a_guest_are_of_floats_and_grow_no_larger_here(kind):
    with pytest.raises(TypeError, match="floating-point"):
        vector_from(np.zeros(3, kind))
    assert vector_from(np.zeros(3, np.float32)).dtype == np.float32
