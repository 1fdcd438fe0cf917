"""The privacy statement of a run in a loop of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..._version import __version__
from ...statements.reading_list import RunKind, code_of, files_of
from ...statements.statement import FORMAT, HYPER_PARAMETERS, Statement, promised
from ...statements.wording import FORMATS, derived_words
from ...trusted.arithmetic import Arithmetic
from ...trusted.engine.torch_names import untested
from ...trusted.events import Repeated, to_dict
from ...trusted.stores.modules import APART
from ...trusted.units import RECORD
from .run import EngineRun

ARITHMETIC = Arithmetic(
    "assumed",
    (
        "sums of gradients, norms and clips in floats are as on real numbers, as every engine for modules takes them",
        APART,
        "AES is pseudo-random",
    ),
)
LOOP = (
    "the training loop, which sees the records: it gives each batch to the module as it comes, empty or not, trains by "
    "loss.backward() and optimizer.step() of this run alone, and what it prints or keeps otherwise (losses, accuracies, sizes of batches) is not "
    "covered",
    "the data set and its collate_fn: a row of a batch depends on its record alone, not on its company",
)
OWN_LOSS = "the loop's loss is a mean or sum of each record's own (pass criterion= to make_private, and it is so by construction)"
NO_CAP = "the number of steps: nothing capped it, and stopping by looking at results is not covered"
RESUMED = "the run was resumed: what was trained after the checkpoint it continues was thrown away unseen"


def statement_of(run: EngineRun, words: Mapping[str, Any], *, own_loss: bool, delta: float | None) -> Statement:
    """What the parameters promise at this moment; nothing when no batch was drawn, or without noise."""
    stated = run.ledger.stated(delta)
    assumed = [words["size"], *LOOP, *([OWN_LOSS] if own_loss else [])]
    if run.layout.frozen:
        assumed.append("parameters that do not train: " + ", ".join(run.layout.frozen[:20]))
    if run.ledger.kind == "counter":
        assumed.append(NO_CAP)
    if run.ledger.resumed:
        assumed.append(RESUMED)
    parameters = [parameter.numel() for parameter in run.parameters]
    data: dict[str, Any] = {
        "format": FORMAT,
        "promise": None if stated is None else promised(stated[0], None, RECORD),
        "simulation": False,
        "meter": None if stated is None else stated[1].describe(),
        "events": [] if stated is None else [to_dict(Repeated(leaf, n)) for leaf, n in run.ledger.events.items()],
        "preparation": None,
        "size": "public" if stated is not None else "not needed",
        "method": {"name": "make_private", "settings": words["settings"]},
        "model": {"kind": words["model"], "shape": parameters, "loss": words["loss"], "parameters": sum(parameters)},
        "hyper_parameters": HYPER_PARAMETERS,
        "assumed": assumed,
        "software": {"noisewise": __version__},
        "arithmetic": (ARITHMETIC if (news := untested()) is None else ARITHMETIC.assumed(news)).to_dict(),
    }
    if stated is not None:
        data["isolation"] = "caller's own code"
        data["code"] = code_of(files_of(RunKind("modules", "", data["meter"], source="loop"), {}))
        data["format"] = FORMATS[3]
    if run.ledger.account is not None and stated is not None:
        data["account"] = run.ledger.account.describe()
    return Statement(data | derived_words(data))
