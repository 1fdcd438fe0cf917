"""Protectors as files: what was saved is what is loaded, and anything else is refused with one line."""

from __future__ import annotations

import json
import math
import pickle
import struct
import warnings
from dataclasses import asdict

import numpy as np
import pytest
import torch
from safetensors.torch import save as to_bytes

from noisewise.protect.learned import zoo
from noisewise.protect.learned.parts import new_weights
from noisewise.protect.learned.weights import Design, weights_from
from noisewise.protect.learned.zoo import (
    OutsideRange,
    digest,
    load_protector,
    named,
    names,
    pick,
    save_protector,
    warn_outside,
)
from noisewise.protect.protector import begin, next_question
from noisewise.protect.signal import first_signal, one

DESIGN = Design(units=4, norm_share=0.1, squared_norm=True)
RANGES = {"size": [100, 5000], "dimension": [2, 50], "epsilon": [0.1, 1.0], "horizon": [5, 20]}
HEADER = {"name": "mine", "horizon": 7, "ranges": RANGES, "trained_on": [{"data": "gaussian", "licence": "generated"}]}


def saved(path, seed=0, design=DESIGN, **header):
    return save_protector(path, new_weights(design, seed), design, {**HEADER, **header})


def forged(tensors=None, header=None, metadata=None):
    """The bytes of a file with anything in it; the hash is that of the tensors unless the header says otherwise."""
    tensors = new_weights(DESIGN).tensors() if tensors is None else tensors
    own = {
        **HEADER,
        "format": zoo.FORMAT,
        "design": asdict(DESIGN),
        "sha256": digest({k: w.float() for k, w in tensors.items()}),
    }
    made = {**own, **(header or {})}
    return to_bytes(tensors, {"noisewise": json.dumps(made)} if metadata is None else metadata)


def test_what_was_saved_is_what_is_loaded(tmp_path):
    path = tmp_path / "mine.safetensors"
    kept = saved(path)
    loaded = load_protector(path)
    assert loaded.design == DESIGN == kept.design
    assert loaded.header == kept.header and loaded.header["trained_on"] == HEADER["trained_on"]
    assert (loaded.name, loaded.horizon, loaded.digest) == ("mine", 7, digest(new_weights(DESIGN).tensors()))
    for name, weight in new_weights(DESIGN).tensors().items():
        assert np.array_equal(loaded.weights.tensors()[name], weight.numpy())
    assert [file.name for file in tmp_path.iterdir()] == ["mine.safetensors"], "no half-written file is left"
    assert loaded.protector().norm_share == 0.1 and loaded.protector().squared_norm
    signal = first_signal(1, 3, horizon=5, ratio=one(1.0), typical_clip=1.0)
    start = begin(loaded.untrained(), np.zeros((1, 3), np.float32), signal)
    clip, share, _ = next_question(loaded.untrained(), start)
    assert clip.item() == 1.0 and share.item() == pytest.approx(0.2)


def test_weights_that_are_not_finite_are_kept_as_they_are(tmp_path):
    tensors = {name: torch.full_like(weight, math.nan) for name, weight in new_weights(DESIGN).tensors().items()}
    save_protector(tmp_path / "nan", weights_from(tensors), DESIGN, HEADER)
    assert all(np.isnan(weight).all() for weight in load_protector(tmp_path / "nan").weights.tensors().values())


def test_the_hash_covers_names_shapes_and_values():
    tensors = new_weights(DESIGN).tensors()
    other = {**tensors, "rate": tensors["rate"] + 1e-6}
    renamed = {("speed" if name == "rate" else name): weight for name, weight in tensors.items()}
    reshaped = {**tensors, "rate": tensors["rate"].view(1, 1)}
    assert len({digest(made) for made in (tensors, other, renamed, reshaped)}) == 4
    assert digest(dict(reversed(tensors.items()))) == digest(tensors)


def with_weight(name, weight):
    return forged({**new_weights(DESIGN).tensors(), name: weight})


def without_weight(name):
    return forged({key: weight for key, weight in new_weights(DESIGN).tensors().items() if key != name})


GOOD = forged()
TAMPERED = bytearray(GOOD)
TAMPERED[-1] ^= 1
TORCH = {name: weight.double() for name, weight in new_weights(DESIGN).tensors().items()}
REFUSED = {
    "nothing": b"",
    "text": b"not a protector at all, only words",
    "truncated": GOOD[:-10],
    "header only": GOOD[:100],
    "eight bytes": struct.pack("<Q", 10**9),
    "trailing bytes": GOOD + b"x",
    "changed weight": bytes(TAMPERED),
    "pickle": pickle.dumps({"weights": [1.0]}),
    "no metadata": to_bytes(new_weights(DESIGN).tensors()),
    "other metadata": forged(metadata={"format": "pt"}),
    "header not json": forged(metadata={"noisewise": "{weights: 1"}),
    "header a list": forged(metadata={"noisewise": "[]"}),
    "header a number": forged(metadata={"noisewise": "3"}),
    "header null": forged(metadata={"noisewise": "null"}),
    "header deep": forged(metadata={"noisewise": "[" * 100_000}),
    "wrong hash": forged(header={"sha256": "0" * 64}),
    "hash not text": forged(header={"sha256": None}),
    "earlier format": forged(header={"format": 1}),
    "other format": forged(header={"format": 3}),
    "name a number": forged(header={"name": 3}),
    "horizon zero": forged(header={"horizon": 0}),
    "horizon text": forged(header={"horizon": "many"}),
    "horizon infinite": forged(header={"horizon": math.inf}),
    "horizon nan": forged(header={"horizon": math.nan}),
    "horizon a list": forged(header={"horizon": [3]}),
    "no ranges": forged(header={"ranges": {}}),
    "ranges a list": forged(header={"ranges": [1, 2]}),
    "range empty": forged(header={"ranges": {**RANGES, "size": [5, 1]}}),
    "range nan": forged(header={"ranges": {**RANGES, "size": [1, math.nan]}}),
    "range text": forged(header={"ranges": {**RANGES, "size": "12"}}),
    "range short": forged(header={"ranges": {**RANGES, "size": [1]}}),
    "design a list": forged(header={"design": []}),
    "design unknown": forged(header={"design": {**asdict(DESIGN), "colour": "red"}}),
    "design wrong": forged(header={"design": {**asdict(DESIGN), "form": "closed"}}),
    "design text": forged(header={"design": {**asdict(DESIGN), "norm_share": "0.1"}}),
    "design other inputs": forged(header={"design": {**asdict(DESIGN), "inputs": "paper"}}),
    "design other units": forged(header={"design": {**asdict(DESIGN), "units": 5}}),
    "design many units": forged(header={"design": {**asdict(DESIGN), "units": 10**9}}),
    "extra tensor": with_weight("extra", torch.zeros(3)),
    "extra in a cell": with_weight("clip.layer5.input", torch.zeros(3)),
    "missing rate": without_weight("rate"),
    "missing head": without_weight("projector.head"),
    "wrong rate": with_weight("rate", torch.zeros(2)),
    "wrong head": with_weight("projector.head", torch.zeros(2, 4)),
    "a number for a head": with_weight("projector.head", torch.zeros(())),
    "half precision": with_weight("rate", torch.zeros(1).half()),
    "double precision": forged(TORCH),
    "whole numbers": with_weight("rate", torch.zeros(1, dtype=torch.int64)),
    "one output only": forged(
        {
            **new_weights(DESIGN).tensors(),
            "projector.head": torch.zeros(1, 4),
            "projector.head_bias": torch.zeros(1),
        }
    ),
    "other inputs": with_weight("projector.layer0.input", torch.zeros(16, 5)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_anything_else_is_refused_in_one_line(what, tmp_path):
    path = tmp_path / "given.safetensors"
    path.write_bytes(REFUSED[what])
    with pytest.raises(ValueError) as refusal:
        load_protector(path)
    text = str(refusal.value)
    assert text.startswith(f"{path}: not a protector") and "\n" not in text and len(text) < 1000
    assert refusal.value.__cause__ is None


def test_the_forger_can_make_a_good_one_too(tmp_path):
    path = tmp_path / "good.safetensors"
    path.write_bytes(GOOD)
    assert load_protector(path).name == "mine"


def test_nothing_in_a_file_is_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "exploded"), "w"))

    path = tmp_path / "bomb.safetensors"
    for written in (pickle.dumps(Bomb()), struct.pack("<Q", 8) + pickle.dumps(Bomb())):
        path.write_bytes(written)
        with pytest.raises(ValueError):
            load_protector(path)
    torch.save({"rate": torch.zeros(1), "bomb": 1}, path)
    with pytest.raises(ValueError):
        load_protector(path)
    assert not (tmp_path / "exploded").exists()


def test_a_huge_file_is_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "huge.safetensors"
    with path.open("wb") as file:
        file.truncate(10**9)  # sparse
    monkeypatch.setattr(type(path), "read_bytes", lambda self: pytest.fail("it was read"))
    with pytest.raises(ValueError, match="larger than any protector"):
        load_protector(path)


def test_a_missing_file_is_refused_with_what_there_is(tmp_path):
    for missing in (tmp_path / "missing", tmp_path):
        with pytest.raises(ValueError, match=r"no such file.*clear"):
            load_protector(missing)
    with pytest.raises(ValueError, match="no such file"):
        named("unobserved-of")


# --- what comes with the package ------------------------------------------------------------------------------------


def test_the_package_has_one_for_each_answer_of_the_rule():
    assert set(names()) >= {
        pick("logistic", 5.0),
        pick("logistic", 50.0),
        pick("logistic", 5.0, dimension=785),
        pick("squared", 5.0),
        pick("hinge", 50.0),
        pick("softmax", 5.0, layers=2),
    }
    assert names() == tuple(sorted(names()))


@pytest.mark.parametrize("name", names())
def test_a_shipped_protector_is_small_whole_and_says_where_it_is_from(name):
    path = zoo.files("noisewise.protect.learned").joinpath(f"protectors/{name}.safetensors")
    assert len(path.read_bytes()) < 100_000
    found = named(name)
    assert found.name == name and found.horizon >= 2
    assert found.digest == digest(found.weights.tensors())
    assert set(found.header["ranges"]) == set(zoo.RANGES)
    assert found.header["ranges"]["horizon"][0] <= found.horizon <= found.header["ranges"]["horizon"][1]
    assert named(name) is found, "read once"


def test_a_default_design_is_small(tmp_path):
    saved(tmp_path / "big", design=Design())
    assert (tmp_path / "big").stat().st_size < 100_000


def test_named_takes_a_path_too(tmp_path):
    saved(tmp_path / "mine.safetensors")
    assert named(str(tmp_path / "mine.safetensors")).name == "mine"


# --- ranges ---------------------------------------------------------------------------------------------------------


def test_within_its_ranges_nothing_is_said(tmp_path):
    learned = saved(tmp_path / "mine")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_outside(learned, size=100, dimension=50, epsilon=1.0, horizon=5)
    assert learned.outside(size=100, dimension=50, epsilon=0.1, horizon=20) == []


def test_outside_there_is_one_warning_that_names_each_fact(tmp_path):
    learned = saved(tmp_path / "mine")
    with pytest.warns(OutsideRange) as caught:
        warn_outside(learned, size=80, dimension=3, epsilon=2.0, horizon=4)
    assert len(caught) == 1
    text = str(caught[0].message)
    assert text == (
        "protector 'mine' was not trained for this: size 80 is outside 100 to 5000; epsilon 2 is outside 0.1 to 1; "
        "horizon 4 is outside 5 to 20. It stays private, but may learn less"
    )
