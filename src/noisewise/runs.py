"""Run folders: a trained model with its preprocessing, statement and trace, as safetensors and JSON.

Reading one never runs code from it. ``seal.json`` holds the SHA-256 of every file: a folder in which one was changed is
refused. The seal finds damage and careless edits; whoever changes a file on purpose can seal it again, so a folder from
a stranger is worth what the stranger's word is worth.
"""

from __future__ import annotations

import numbers
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .atomic import umask
from .data.encode import Encoder
from .data.preprocess import Scaling, interval
from .events import from_dict, to_dict
from .losses import loss_named
from .seal import FORMAT, TRACE_FORMAT, checked_contents, formatted, json_of, put_json
from .seal import check_seal as check_seal
from .seal import reseal as reseal

if TYPE_CHECKING:
    from torch import Tensor

    from .estimators import PrivateClassifier, PrivateRegressor
    from .report.statement import Statement

SOFTWARE = ("noisewise", "torch", "numpy", "scikit-learn", "pyarrow")


def save(
    estimator: PrivateClassifier | PrivateRegressor,
    folder: str | Path,
    *,
    warnings: Sequence[str] = (),
) -> Path:
    """Write a fitted estimator to a new folder, all of it or nothing."""
    with new_folder(folder) as place:
        write(estimator, place, warnings=warnings)
    return Path(folder)


def write(estimator: PrivateClassifier | PrivateRegressor, place: Path, *, warnings: Sequence[str] = ()) -> None:
    """The files of a run, sealed, into an empty folder."""
    import torch
    from safetensors.torch import save as tensors

    document = {
        "format": FORMAT,
        **described(estimator),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "software": {name: version(name) for name in SOFTWARE},
        "warnings": list(warnings),
    }
    rows = [{**row._asdict(), "event": to_dict(row.event)} for row in estimator.trace_]
    (place / "model.safetensors").write_bytes(tensors({"theta": estimator._theta.to(torch.float32).contiguous()}))
    put_json(place / "run.json", document)
    put_json(place / "trace.json", {"format": TRACE_FORMAT, "rows": rows})
    (place / "statement.json").write_text(estimator.statement_.to_json() + "\n", encoding="utf-8")
    (place / "statement.txt").write_text(f"{estimator.statement_}\n", encoding="utf-8")
    reseal(place)


def load(folder: str | Path) -> PrivateClassifier | PrivateRegressor:
    """The estimator of a run folder. Nothing in the folder is executed; one whose files were changed is refused."""
    from safetensors import SafetensorError
    from safetensors.torch import load as load_tensors

    from .curator.facts import Released
    from .report.statement import Statement, check_shape

    place = Path(folder)
    contents = checked_contents(place)
    document, trace = (
        formatted(place, contents, "run.json", FORMAT),
        formatted(place, contents, "trace.json", TRACE_FORMAT),
    )
    statement = json_of(place, contents, "statement.json")
    try:
        check_shape(statement)
        theta = load_tensors(contents["model.safetensors"])["theta"]
        rows = tuple(Released(**{**row, "event": from_dict(row["event"])}) for row in trace["rows"])
        return restored(document, theta, Statement(statement), rows)
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        SafetensorError,
    ) as error:
        raise ValueError(f"{place}: not a run that this version can read ({_reason(error)})") from None


def described(estimator: PrivateClassifier | PrivateRegressor) -> dict[str, Any]:
    """What an estimator was told and what it released, except for theta, statement and trace."""
    from .fitting import describe

    encoder = getattr(estimator, "_encoder", None)
    names = getattr(estimator, "feature_names_in_", None)
    plain = names if names is not None else [f"x{i}" for i in range(estimator.n_features_in_)]
    features = [*(plain if encoder is None else encoder.feature_names), "(intercept)"]
    classes = getattr(estimator, "classes_", None)
    target = None if encoder is None else encoder.schema.target
    return {
        "estimator": type(estimator).__name__,
        "settings": _settings(estimator),
        "target": target or "y",
        "classes": None if classes is None else classes.tolist(),
        "features": [str(name) for name in features],
        "preprocessing": _preprocessing(estimator, encoder),
        "model": describe(estimator._trained_model),
        "steps": estimator.n_iter_,
        "size": getattr(estimator, "_released_size", None),
        "coefficients": _coefficients(estimator, features),
    }


def _settings(estimator: Any) -> dict[str, Any]:
    """The constructor's arguments that are plain; the method and loss by name, the columns under preprocessing."""
    settings = {
        name: value for name, value in estimator.get_params(deep=False).items() if name not in ("bounds", "schema")
    }
    settings["method"] = estimator._method().name
    if not isinstance(settings["loss"], str):
        settings["loss"] = settings["loss"].name
    if isinstance(settings.get("class_weight"), Mapping):  # JSON has no keys but texts
        settings["class_weight"] = [list(pair) for pair in settings["class_weight"].items()]
    if settings.get("classes") is not None:
        settings["classes"] = np.asarray(settings["classes"]).tolist()
    if not isinstance(settings["random_state"], numbers.Integral | None):  # a generator, whose state is not kept
        settings["random_state"] = str(settings["random_state"])
    return settings


def _preprocessing(estimator: Any, encoder: Encoder | None) -> dict[str, Any]:
    scaling: Scaling = estimator._scaling
    names = getattr(estimator, "feature_names_in_", None)
    return {
        "schema": None if encoder is None else encoder.to_dict(),
        "columns": None if names is None else [str(name) for name in names],
        "low": scaling.low.tolist(),
        "high": scaling.high.tolist(),
        "unit_rows": scaling.unit_rows,
        "target_bounds": list(estimator._target) if hasattr(estimator, "_target") else None,
    }


def _coefficients(estimator: Any, features: Sequence[str]) -> list[dict[str, Any]] | None:
    """Each coefficient with the standard deviation of the privacy noise on it, where that is known."""
    model = estimator._trained_model
    if not model.linear:
        return None
    values, errors = (np.atleast_2d(estimator._shaped(theta)) if theta is not None else None
                      for theta in (estimator._theta, estimator._theta_std()))  # fmt: skip
    assert values is not None
    classes = getattr(estimator, "classes_", None)  # one output of a classifier speaks for the last of two classes
    outputs = [None] if classes is None else [str(name) for name in classes[-model.outputs :]]
    return [
        {"output": output, "feature": str(feature), "value": float(values[k, j]),
         "standard_error": None if errors is None else float(errors[k, j])}
        for k, output in enumerate(outputs) for j, feature in enumerate(features)
    ]  # fmt: skip


def restored(
    document: Mapping[str, Any], theta: Tensor, statement: Statement, trace: tuple[Any, ...]
) -> PrivateClassifier | PrivateRegressor:
    """The estimator that :func:`described` described."""
    from .estimators import PrivateClassifier, PrivateRegressor
    from .replay import Spread

    kinds = {"PrivateClassifier": PrivateClassifier, "PrivateRegressor": PrivateRegressor}
    settings, saved = dict(document["settings"]), document["preprocessing"]
    if settings.get("class_weight") is not None:
        settings["class_weight"] = dict(settings["class_weight"])
    estimator: Any = kinds[document["estimator"]](**settings)
    low, high = (np.asarray(saved[end], dtype=float) for end in ("low", "high"))
    if not (low.ndim == 1 and low.shape == high.shape and bool((low < high).all())):
        raise ValueError("its bounds are not pairs of numbers with low < high")
    if saved["schema"] is not None:
        estimator._encoder = Encoder.from_dict(saved["schema"])
        estimator.schema = estimator._encoder.schema
        _agree(estimator._encoder, low, high, None if settings.get("classes") else document["classes"])
    else:
        estimator.bounds = list(zip(saved["low"], saved["high"], strict=True))
    if saved["columns"] is not None:
        estimator.feature_names_in_ = np.array(saved["columns"], dtype=object)
    estimator.n_features_in_ = len(saved["columns"] or saved["low"])
    estimator._scaling = Scaling(low, high, bool(saved["unit_rows"]))
    outputs = 1
    if document["classes"] is not None:
        estimator.classes_ = np.asarray(document["classes"])
        loss = estimator._loss()
        outputs = len(estimator.classes_) if loss.task == "classes" else 1
    else:
        estimator._target = interval("target_bounds", saved["target_bounds"])
        loss = loss_named(estimator.loss)
    estimator._trained_model = estimator._model(loss, outputs)
    if theta.shape != (estimator._trained_model.dimension,) or not bool(theta.double().isfinite().all()):
        raise ValueError("the model's parameters do not fit its description")
    estimator._theta, estimator.statement_, estimator.trace_ = theta, statement, trace
    estimator.n_iter_ = int(document["steps"])
    estimator._released_size = document.get("size")
    estimator._spread = Spread.known(_saved_errors(document["coefficients"]))
    return estimator


def _agree(encoder: Encoder, low: NDArray[Any], high: NDArray[Any], classes: Any) -> None:
    """Refuse a schema that does not go with the rest of the run."""
    same = np.array_equal(encoder.low, low) and np.array_equal(encoder.high, high)
    declared = None if encoder.schema.target is None or encoder.classes is None else encoder.classes.tolist()
    if not same or (declared is not None and classes is not None and declared != classes):
        raise ValueError("its schema does not go with its bounds or classes")


def _saved_errors(coefficients: Sequence[Mapping[str, Any]] | None) -> Tensor | None:
    import torch

    found = [row["standard_error"] for row in coefficients or ()]
    return None if not found or None in found else torch.tensor(found, dtype=torch.float64)


def append(folder: str | Path, name: str, entry: Mapping[str, Any]) -> None:
    """Add an entry to a list of the folder (evaluation.json, audit.json) and seal it again."""
    place = Path(folder)
    with _alone(place):
        contents = checked_contents(place)
        entries = json_of(place, contents, name) if name in contents else []
        if not isinstance(entries, list):
            raise ValueError(f"{place}: {name} is not a list; pass the folder that noisewise train wrote")
        put_json(place / name, [*entries, dict(entry)])
        reseal(place)


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Nobody else appends to the folder meanwhile: two scores at once must both be counted."""
    if os.name != "posix" or not place.is_dir():
        yield
        return
    import fcntl

    handle = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def document_of(folder: str | Path) -> dict[str, Any]:
    """run.json of a folder whose seal holds."""
    place = Path(folder)
    return formatted(place, checked_contents(place), "run.json", FORMAT)


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """A folder to fill that becomes ``folder`` when all went well, and is gone otherwise."""
    place = vacant(folder)
    made = [parent for parent in place.parents if not parent.exists()]
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        yield draft
        draft.chmod(0o777 & ~umask())
        if place.is_dir():
            place.rmdir()
        draft.replace(place)
        made = []
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        for parent in made:
            with suppress(OSError):
                parent.rmdir()


def vacant(folder: str | Path) -> Path:
    """The folder, if nothing is there that would be overwritten (an empty folder is nothing)."""
    place = Path(folder)
    empty = place.is_dir() and not place.is_symlink() and not any(place.iterdir())
    if not place.name or (not empty and (place.exists() or place.is_symlink())):
        raise ValueError(f"{place} exists already; pass another folder, or remove it first")
    return place


def writable(folder: str | Path) -> None:
    """Refuse a folder that could not be written later, when its content has been paid for."""
    parent = next(parent for parent in Path(folder).absolute().parents if parent.exists())
    try:
        Path(tempfile.mkdtemp(prefix=".noisewise-", dir=parent)).rmdir()
    except OSError as error:
        raise ValueError(f"{folder}: cannot be written ({error.strerror}); pass another folder") from None


def _reason(error: Exception) -> str:
    text = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return " ".join(text.split())[:200]
