"""Clients' records give the bits of the same rows in one place; every method runs on them or is refused before a charge."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from crowds import CLIENT, CLIENTS, RECORD, NoNoise, a_fit, alone, client_files, equal, on_clients
from desk import SCHEMA

from noisewise.accounts import Budget
from noisewise.accounts.purse import Purse
from noisewise.methods import registry
from noisewise.remote.clients.client import Client
from noisewise.remote.clients.server import fit_of_clients
from noisewise.remote.federation import Federated
from noisewise.statements.statement import verify_data
from noisewise.trusted.stores.protocol import SUMS

pytestmark = pytest.mark.filterwarnings("ignore::noisewise.protect.learned.zoo.OutsideRange")
QUICK = ("dpsgd", "descent", "l2p", "additive", "agd", "adaptive_clip", "sufficient_statistics", "ppsgd")
LARGER = {"growing_batch": {"first_rate": 0.25, "stages": 2}, "projected_sgd": {"batch_size": 12.0}}
REFUSED = {"nonprivate", "output_perturbation", "objective_perturbation", "pnsgd"}


def a_method(name):
    kind = registry()[name]
    few = {"steps": 6} if "steps" in {field.name for field in fields(kind)} else {}
    return kind(**few, **LARGER.get(name, {}))


def budget_for(name):
    return Budget(4.0, 1e-5, adjacency="replace_one" if name in ("pnsgd", "ppsgd") else "add_remove")


def every(names):
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", every(sorted(set(registry()) - REFUSED)))
def test_clients_give_the_bits_of_one_place(name, tmp_path):
    paths = client_files(tmp_path)
    fit = a_fit(tmp_path, a_method(name), budget=budget_for(name))
    public = tmp_path / "public.csv" if fit.method.needs_public else None
    assert equal(on_clients(fit, paths, RECORD, public=public), alone(fit, paths, public))


def test_a_bought_size_and_a_perceptron_too(tmp_path):
    paths = client_files(tmp_path)
    fit = a_fit(tmp_path, a_method("dpsgd"), size_is_public=False, model="mlp")
    assert equal(on_clients(fit, paths, RECORD), alone(fit, paths))


def test_rows_without_a_label_are_left_out_at_every_client(tmp_path):
    paths = client_files(
        tmp_path, text=SCHEMA.replace('target = "income"\n', 'target = "income"\ntarget_missing = "drop"\n')
    )
    for path in paths[1:]:
        rows = pd.read_csv(path)
        rows.loc[::4, "income"] = None
        rows.to_csv(path, index=False)
    fit = a_fit(tmp_path, a_method("descent"))
    assert equal(on_clients(fit, paths, RECORD), alone(fit, paths))
    assert on_clients(fit, paths, CLIENT).trace


@pytest.mark.sample(16)
@pytest.mark.parametrize("federated", [RECORD, CLIENT], ids=lambda each: each.unit)
@pytest.mark.parametrize("name", sorted(registry()))
def test_every_method_runs_or_is_refused_before_a_charge(name, federated, tmp_path):
    paths, purse = client_files(tmp_path), Purse(Budget(4.0, 1e-5))
    if name in REFUSED:
        with pytest.raises(ValueError, match="stay with their clients; take one"):
            on_clients(a_fit(tmp_path, name), paths, federated, purse=purse)
        assert not purse.entries
        return
    fit = a_fit(tmp_path, a_method(name), budget=budget_for(name))
    public = tmp_path / "public.csv" if fit.method.needs_public else None
    run = on_clients(fit, paths, federated, public=public)
    assert np.isfinite(run.theta).all()
    data = json.loads(run.statement.to_json())
    assert data["setting"] == "federated, trusted server" and data["federated"]["unit"] == federated.unit
    assert name == "only_public" or "simulation" in verify_data(data).reason


def test_a_protector_that_is_trained_on_rows_is_refused_before_a_charge(tmp_path):
    client_files(tmp_path)
    with pytest.raises(ValueError, match="l2p goes over rows one by one"):
        fit_of_clients(a_fit(tmp_path, registry()["l2p"](protector="private")), CLIENT)


def test_the_unit_of_a_statement_is_the_client(tmp_path):
    paths = client_files(tmp_path)
    run = on_clients(a_fit(tmp_path, a_method("dpsgd"), seed=None, size_is_public=False), paths, CLIENT)
    data = json.loads(run.statement.to_json())
    assert verify_data(data).holds and data["promise"]["unit"] == "one client, all its rows"
    assert "with or without any one client" in data["guarantee"] and "the noisy number of clients" in data["covers"]
    assert "the server, which adds the noise and sees one clipped vector" in data["trusted"]
    for change in (
        {"format": "noisewise-statement/3"},
        {"setting": "central"},
        {"federated": data["federated"] | {"unit": "record"}},
        {"federated": data["federated"] | {"local_steps": 0}},
        {"promise": data["promise"] | {"unit": "one record"}},
    ):
        assert not verify_data(data | change).holds
    assert not verify_data({name: value for name, value in data.items() if name != "federated"}).holds


def test_what_is_taken_for_granted_of_clients_is_said(tmp_path):
    paths, fit = client_files(tmp_path), a_fit(tmp_path, a_method("dpsgd"))

    def granted(federated):
        return "; ".join(on_clients(fit, paths, federated).statement.data["accounting"]["assumptions"])

    assert "every client whose rows were drawn answered" in granted(RECORD)
    assert "whether a client answers does not depend on the records" in granted(Federated("record", "independent"))
    assert "the mean gradient of 3 local steps of size 0.5" in granted(Federated("client", "required", 3, 0.5))


def test_a_client_makes_only_what_it_does_not_hold(tmp_path, monkeypatch):
    paths = client_files(tmp_path)
    made = []
    monkeypatch.setattr(
        Client,
        "_do",
        lambda self, *told, do=Client._do: (made.append(told[1][told[0]].request.act), do(self, *told))[1],
    )
    on_clients(a_fit(tmp_path, a_method("descent")), paths, RECORD)
    assert made.count("make") == made.count("hold") == CLIENTS


def test_a_client_that_forgot_everything_answers_the_same(tmp_path):
    class Forgetful(NoNoise):
        def ask(self, history, questions):
            self._members = [Client(path) for path in self._paths]
            return super().ask(history, questions)

    paths, fit = client_files(tmp_path), a_fit(tmp_path, a_method("additive"))
    assert equal(on_clients(fit, paths, RECORD, carrier=Forgetful), alone(fit, paths))


def test_a_client_knows_every_sum_by_itself():
    """In a process of its own nothing but the client is imported."""
    code = "import noisewise.remote.clients.client; from noisewise.trusted.stores.protocol import SUMS; print(*sorted(SUMS))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.split() == sorted(SUMS)
