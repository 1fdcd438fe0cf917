"""Attacks that once worked on files, settings and far thetas; each is refused, or harmless, now."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save as to_bytes

import noisewise as nw
from noisewise.curator import PublicCurator
from noisewise.learned.tasks import load_tasks
from noisewise.methods.descent import public_basis
from noisewise.methods.l2p import L2P
from noisewise.protect.learned import zoo
from noisewise.protect.learned.formulas import MAX_COORDINATE
from noisewise.protect.learned.weights import Design, zero_weights
from noisewise.train import Records, train
from noisewise.trusted.accountants.gdp import mu_of
from noisewise.trusted.facts import facts_of
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Linear
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.totals import Drawn

DESIGN = Design(units=3)
HEADER = {"name": "mine", "horizon": 5, "ranges": {name: [1e-9, 1e12] for name in zoo.RANGES}}

pytestmark = pytest.mark.filterwarnings("ignore::noisewise.protect.learned.zoo.OutsideRange")


def a_file(path: Path, **header):
    zoo.save_protector(path, zero_weights(DESIGN), DESIGN, {**HEADER, **header})
    return path


def test_the_rounding_of_far_scores_stays_within_the_clip_norm():
    """A smooth loss at a huge theta: scores are exact, so a neighbour cannot shift the others' rounding."""
    d, n, clip = 200, 1000, 0.5
    row = np.random.default_rng(0).normal(size=d)
    row = ((row - row.mean()) / np.linalg.norm(row - row.mean())).astype(np.float32)
    X = np.vstack([-row + np.float32(0.01 / d**0.5), *[row] * n])
    y = np.append(np.float32(-1), np.ones(n, np.float32))
    model = Linear(d, Logistic())
    for far in (1e3, 1e5, 1e6, 1e20):
        theta = np.full(d, far)
        totals = [records_of(model, X[k:], y[k:]).gradients(Drawn(), theta, clip) for k in (0, 1)]
        moved = [int(a) - int(b) for a, b in zip(totals[0].values, totals[1].values, strict=True)]
        assert sum(v * v for v in moved) <= totals[0].ones ** 2
    assert MAX_COORDINATE <= 1e3


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-10, 1e-15), (1e-30, 1e-40)])
def test_a_budget_too_small_to_be_priced_is_refused(epsilon, delta):
    with pytest.raises(ValueError, match="too little to be priced"):
        mu_of(epsilon, delta)


def test_what_the_statement_names_is_what_ran(tmp_path):
    """The file is read once: changing or deleting it during the run changes neither the run nor the statement."""
    method = L2P(protector=str(a_file(tmp_path / "p.safetensors")))
    facts = facts_of(Linear(3, Logistic()), nw.Budget(1.0, 1e-6), size=50.0, row_bound=1.0)
    before = method.learned(facts)
    (tmp_path / "p.safetensors").unlink()
    assert method.learned(facts) is before
    stated = method.settings()
    assert (stated["sha256"], stated["horizon"]) == (before.digest, 5)
    assert stated["design"] == DESIGN.to_dict()


@pytest.mark.parametrize(
    "header",
    [
        {"horizon": 10**12}, {"horizon": 10**400}, {"horizon": "7"}, {"horizon": True}, {"trained_on": "xyz"},
        {"trained_on": [{"data": 3, "licence": ""}]}, {"command": 7}, {"recipe": []}, {"name": "a\x1b[31m"},
        {"ranges": {name: [10**400, 10**401] for name in zoo.RANGES}},
    ],
)  # fmt: skip
def test_a_header_of_another_shape_is_refused(tmp_path, header):
    with pytest.raises(ValueError, match="not a protector"):
        zoo.load_protector(a_file(tmp_path / "p.safetensors", **header))


def test_a_design_with_words_for_switches_or_cells_of_unequal_depth_is_refused(tmp_path):
    path = a_file(tmp_path / "p.safetensors")
    kept = zoo.load_protector(path)
    tensors = kept.weights.tensors()
    document = {**kept.header, "design": {**kept.header["design"], "clip": "no"}}
    path.write_bytes(to_bytes(tensors, {"noisewise": json.dumps(document)}))
    with pytest.raises(ValueError, match="clip"):
        zoo.load_protector(path)
    shallow = {name: weight for name, weight in tensors.items() if not name.startswith("clip.layer1")}
    document = {**kept.header, "sha256": zoo.digest(shallow)}
    path.write_bytes(to_bytes(shallow, {"noisewise": json.dumps(document)}))
    with pytest.raises(ValueError, match="do not fit"):
        zoo.load_protector(path)


@pytest.mark.parametrize("settings", [{"steps": 10**6}, {"max_grad_norm": 1e300}, {"max_grad_norm": 1e-9}])
def test_settings_that_would_fail_in_the_middle_are_refused_at_once(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        L2P(**settings)


def test_public_rows_that_say_nothing_give_no_basis():
    model = Linear(3, Logistic())
    facts = facts_of(model, nw.Budget(0.1, 1e-8), size=100.0, row_bound=1.0)
    for rows in (np.zeros((5000, 3)), np.full((5000, 3), np.nan)):
        assert public_basis(PublicCurator(rows, np.ones(5000), model=model), facts) is None
    half = np.vstack([np.full((5000, 3), np.nan), np.tile(np.eye(3), (2000, 1))])
    whole = PublicCurator(half[5000:], np.ones(6000), model=model)
    found = public_basis(PublicCurator(half, np.ones(11000), model=model), facts)
    assert np.allclose(found.matrix, public_basis(whole, facts).matrix)


def test_a_start_of_another_shape_is_refused_before_anything_is_asked():
    model = Linear(3, Logistic())
    records = Records(np.zeros((10, 3)), np.ones(10), 10.0, row_bound=1.0)
    with pytest.raises(ValueError, match="theta has shape"):
        train(L2P(steps=2), records, model=model, budget=nw.Budget(1.0, 1e-6), theta=np.zeros(4))
    wanting = torch.zeros(3, requires_grad=True)
    run = train(L2P(steps=2), records, model=model, budget=nw.Budget(1.0, 1e-6), theta=wanting, seed=0)
    assert type(run.theta) is np.ndarray and np.isfinite(run.theta).all()


@pytest.mark.parametrize("file", ["/etc/hostname", "../secret.csv"])
def test_a_task_file_names_only_files_of_its_folder(tmp_path, file):
    path = tmp_path / "tasks.toml"
    path.write_text(f'[[source]]\ndata = "table"\nfile = "{file}"\n')
    with pytest.raises(ValueError, match="inside the data folder"):
        load_tasks(path)
    path.write_text("rows = 1000000000000\n[[source]]\ndata = 'gaussian'\n")
    with pytest.raises(ValueError, match="rows"):
        load_tasks(path)
