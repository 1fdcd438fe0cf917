"""``ledger=`` and ``dataset=`` in every face of Python: the account of a ledger pays, and what does not fit is refused."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from pg_server import WORD

import noisewise as nw
from noisewise.accounts import Budget, BudgetExhausted
from noisewise.accounts.account import BudgetWarning
from noisewise.accounts.ledger import Ledger
from noisewise.accounts.ledger.verify import verified
from noisewise.methods.dpsgd import DpSgd

X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
Y = X[:, 0] > 0


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A ledger in a file, with the account of patients."""
    monkeypatch.delenv("NOISEWISE_LEDGER", raising=False)
    path = tmp_path / "ledger.db"
    Ledger.create(path).register("patients", Budget(3.0, 1e-5))
    return path


def model(epsilon=0.5, **settings):
    return nw.PrivateClassifier(epsilon=epsilon, delta=1e-6, bounds=(-1, 1), **settings)


def entries(place):
    return nw.Ledger(place).state("patients").entries


def test_an_estimator(place):
    fitted = model().fit(X, Y, ledger=place, dataset="patients")
    (entry,) = entries(place)
    assert entry.state == "spent" and entry.terms["what"] == "training in one go" and entry.terms["epsilon"] == 0.5
    assert fitted.statement_.data["account"] == {
        "dataset": "patients", "epsilon": 3.0, "delta": 1e-5, "adjacency": "add_remove",
    }  # fmt: skip
    assert "part of the account 'patients'" in str(fitted.statement_) and verified(Ledger(place)).holds


def test_a_regressor_a_ledger_that_is_open_and_the_environment(place, monkeypatch):
    monkeypatch.setenv("NOISEWISE_LEDGER", str(place))
    regressor = nw.PrivateRegressor(epsilon=0.5, delta=1e-6, bounds=(-1, 1), target_bounds=(-1, 1))
    regressor.fit(X, X[:, 1], ledger=nw.Ledger(place), dataset="patients")
    regressor.fit(X, X[:, 1], dataset="patients")
    assert len(entries(place)) == 2


def test_files(place, desk):
    made = nw.PrivateClassifier(0.5, 1e-6, schema=nw.read_schema("schema.toml"))
    made.fit_files(["private.csv"], ledger=place, dataset="patients")
    assert len(entries(place)) == 1 and made.statement_.data["account"]["dataset"] == "patients"


def test_bounds_are_bought_from_it_too(place):
    nw.PrivateClassifier(0.5, 1e-6, bounds="buy", bounds_epsilon=0.1).fit(X, Y, ledger=place, dataset="patients")
    assert [entry.terms["what"] for entry in entries(place)] == ["bounds", "training in one go"]


def test_a_search(place):
    search = nw.PrivateSearchCV(model(1.0), [{"max_grad_norm": 0.5}, {"max_grad_norm": 1.0}], how="none")
    search.fit(X, Y, ledger=place, dataset="patients")
    assert len(entries(place)) == 1 and search.statement_.data["account"]["dataset"] == "patients"


def test_a_module(place):
    rows, labels = torch.randn(200, 3), torch.randint(0, 2, (200,))
    fitted = nw.fit(
        torch.nn.Linear(3, 2), torch.nn.functional.cross_entropy, (rows, labels), budget=Budget(0.5, 1e-6),
        method="descent", steps=3, ledger=place, dataset_name="patients", progress=False,
    )  # fmt: skip
    assert len(entries(place)) == 1 and fitted.statement.data["account"]["dataset"] == "patients"


def test_a_loop_of_ones_own(place):
    engine = nw.PrivacyEngine(ledger=place, dataset="patients")
    module = torch.nn.Linear(3, 1)
    parts = {
        "module": module,
        "optimizer": torch.optim.SGD(module.parameters(), lr=0.1),
        "data_loader": torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(torch.randn(60, 3), torch.randn(60, 1)), batch_size=20
        ),
    }
    with pytest.raises(ValueError, match="one of them"):
        engine.make_private(**parts, noise_multiplier=3.0, max_grad_norm=1.0, epochs=1, purse=object())
    engine.make_private_with_epsilon(**parts, target_epsilon=0.4, target_delta=1e-6, epochs=1, max_grad_norm=1.0)
    (entry,) = entries(place)
    assert entry.state == "reserved" and entry.terms["what"] == "make_private"


def test_a_block(place):
    with nw.spending(ledger=place, dataset="patients") as account:
        model().fit(X, Y)
        model(random_state=1).fit(X, Y)
    assert len(entries(place)) == 1 and account.simulations == 1
    for wrong in ({"delta": 1e-6}, {"terms": "gdp"}, {"unit": "person"}):
        with pytest.raises(ValueError, match="alone"):
            nw.spending(ledger=place, dataset="patients", **wrong)
    with pytest.raises(ValueError, match="leave ledger out"):
        nw.spending(1.0, 1e-6, ledger=place, dataset="patients")


def test_a_plan(place):
    whole = nw.plan(size=20_000, columns=5, ledger=place, dataset="patients", candidates=(1,), steps=(10,), rates=())
    assert whole.budget.epsilon == pytest.approx(nw.Ledger(place).state("patients").fits.epsilon, rel=1e-5)
    model(1.5).fit(X, Y, ledger=place, dataset="patients")
    less = nw.plan(size=20_000, columns=5, ledger=place, dataset="patients", candidates=(1,), steps=(10,), rates=())
    assert less.budget.epsilon < whole.budget.epsilon
    said = nw.plan(
        1.0, 1e-6, size=20_000, columns=5, ledger=place, dataset="patients", candidates=(1,), steps=(10,), rates=()
    )
    assert said.budget == Budget(1.0, 1e-6)
    for wrong in ((2.9, 1e-6), (2.9, None)):
        with pytest.raises(BudgetExhausted, match="would fit"):
            nw.plan(*wrong, size=20_000, columns=5, ledger=place, dataset="patients")
    with pytest.raises(ValueError, match="epsilon is missing"):
        nw.plan(size=20_000, columns=5)
    with pytest.raises(ValueError, match="replace_one"):
        nw.plan(1.0, 1e-6, size=20_000, columns=5, ledger=place, dataset="patients", adjacency="replace_one")


def test_what_does_not_fit_is_refused_with_what_would(place):
    with pytest.raises(BudgetExhausted, match=r"has \(2\.88\d+, 1e-05\) left, .* asks for \(4, 1e-06\)") as refused:
        model(4.0).fit(X, Y, ledger=place, dataset="patients")
    fits = float(str(refused.value).split("at most epsilon=")[1].split(" ")[0])
    assert entries(place) == () and fits > 2.9  # at a smaller delta the same noise is a larger epsilon
    with pytest.raises(BudgetExhausted):
        model(fits * 1.001).fit(X, Y, ledger=place, dataset="patients")
    model(fits).fit(X, Y, ledger=place, dataset="patients")
    with pytest.raises(BudgetExhausted, match="would fit"):
        model(0.1).fit(X, Y, ledger=place, dataset="patients")


def test_a_run_that_counts_as_its_promise_is_told_what_of_those_would_fit(place):
    sampled = model(1.0, method=DpSgd(sampling=("poisson", 0.05)))
    with pytest.raises(BudgetExhausted, match=r"counts as the .* that it promises, of which at most") as refused:
        sampled.fit(X, Y, ledger=place, dataset="patients")
    fits = float(str(refused.value).split("of which at most epsilon=")[1].split(" ")[0])
    assert "full-batch" in str(refused.value) and entries(place) == ()
    with pytest.raises(BudgetExhausted):
        sampled.set_params(epsilon=fits * 1.01).fit(X, Y, ledger=place, dataset="patients")
    sampled.set_params(epsilon=fits * 0.99).fit(X, Y, ledger=place, dataset="patients")
    (entry,) = entries(place)
    assert entry.spent.delta == pytest.approx(1e-6)


def test_the_share_of_delta_runs_out_before_the_rest(place):
    nw.Ledger(place).register("others", Budget(3.0, 1e-5), delta_share=0.15)
    sampled = model(0.35, method=DpSgd(sampling=("poisson", 0.05)))
    sampled.fit(X, Y, ledger=place, dataset="others")
    with pytest.raises(BudgetExhausted, match=r"at most epsilon=0\.\d+ and delta=[45]\.?\d*e-07 would fit"):
        sampled.fit(X, Y, ledger=place, dataset="others")
    sampled.set_params(delta=4.9e-7).fit(X, Y, ledger=place, dataset="others")
    with pytest.raises(BudgetExhausted, match=r"of which at most epsilon=0\.28\d+ and delta=1e-08 would fit"):
        sampled.fit(X, Y, ledger=place, dataset="others")
    model(0.1).fit(X, Y, ledger=place, dataset="others")  # by the currency there is room


def test_a_ledger_and_a_purse_at_once(place):
    account = nw.Ledger(place).account("patients")
    for face in (model(), nw.PrivateSearchCV(model(), [{}], how="none")):
        with pytest.raises(ValueError, match="pass one of them"):
            face.fit(X, Y, purse=account, ledger=place, dataset="patients")
        with pytest.raises(ValueError, match="say which one"):
            face.fit(X, Y, ledger=place)
        with pytest.raises(ValueError, match="no ledger is named"):
            face.fit(X, Y, dataset="patients")


def test_a_ledger_pays_though_another_account_is_open(place):
    with nw.spending(1.0, 1e-6, dataset="others") as other:
        model().fit(X, Y, ledger=place, dataset="patients")
    assert other.entries == () and len(entries(place)) == 1


def test_runs_in_a_ledger_do_not_warn_that_budgets_add_up(place, recwarn):
    for _ in range(3):
        model().fit(X, Y, ledger=place, dataset="patients")
    assert not [one for one in recwarn if issubclass(one.category, BudgetWarning)]


def test_nothing_that_is_fitted_holds_a_password(server, tmp_path):
    url = server.url(server.database())
    Ledger.create(url).register("patients", Budget(3.0, 1e-5))
    fitted = model().fit(X, Y, ledger=url, dataset="patients")
    nw.save(fitted, tmp_path / "run")
    written = b"".join(path.read_bytes() for path in (tmp_path / "run").iterdir())
    assert WORD.encode() not in written + pickle.dumps(fitted) + repr(fitted).encode()
    assert len(entries(url)) == 1
