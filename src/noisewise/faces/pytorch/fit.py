"""Train any torch module privately by handing the data set over: the curator's way.

The module and the loss are copied, the data set is read once, and from then on no code of the caller's sees a private batch:
a method asks the curator, and each answer is paid for before the records are touched.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ..._version import __version__
from ...accounts import Budget
from ...accounts.account import Account, account_of
from ...accounts.journal import Journal, settings_in
from ...accounts.paying import payer
from ...accounts.purse import Purse
from ...asking import PublicCurator
from ...methods import Method, isolation_of
from ...remote.transport import started_by_torchrun
from ...statements.statement import Statement, make_statement
from ...tables.fit.build import plain_values, seed_of
from ...train import Records, StepProgress, Trained, train
from ...trusted import validate
from ...trusted.models.module import ROWS_PER_PASS, ModuleModel, TensorRows
from ...trusted.torch_extra import Tensor
from ..progress import bar
from .fitted import FittedModule
from .handed_over import handed_over, refuse_ranges, specs_of
from .processes import ReadyModule, among_ranks, fitted_module
from .requested import ARITHMETICS, Size, chosen, chunk_for, size_of, with_batches, with_clip

if TYPE_CHECKING:
    from torch.nn import Module

    from ...accounts.ledger import Ledger

MAX_LISTED_NAMES = 8  # of parameters, in a statement


def fit(
    module: Module,
    loss: Callable[..., Tensor],
    dataset: Any,
    *,
    budget: Budget,
    method: str | Method | None = None,
    protector: str | None = None,
    public: Any = None,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: float | None = None,
    size_is_public: bool = False,
    expected_size: float | None = None,
    max_grad_norm: float | None = None,
    clipping: str = "flat",
    optimizer: str | None = None,
    learning_rate: float | None = None,
    settings: Mapping[str, Any] | None = None,
    loss_reduction: str | None = None,
    max_physical_batch_size: int = ROWS_PER_PASS,
    arithmetic: str | None = None,
    device: Any = None,
    purse: Purse | Account | None = None,
    ledger: Ledger | str | None = None,
    dataset_name: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    random_state: Any = None,
    progress: StepProgress | bool | None = None,
    isolation: str = "sandbox",
) -> FittedModule:
    """Train a copy of ``module`` on private records under ``budget``; what trains is what requires a gradient.

    Parameters
    ----------
    module
        Copied. Trusted code; it sees each record alone, as a batch of one, and is rehearsed on made-up rows first.
    loss
        Copied, and run like the module; takes (outputs, target) and gives the mean or sum over records
        (``loss_reduction``), or a number for each.
    dataset
        A TensorDataset, a tuple of tensors (inputs..., target) or a map-style data set, private; read once, now.
    budget
        What the run may spend.
    method
        "dpsgd" (default), "adaptive_clip", "descent", "dynamic", "l2p", "ppsgd", a Method, or "package.module:Class", a method
        of another package, which runs in a process of its own.
    protector
        A learned protector: its name or file, or "auto".
    public
        Records of the same kind that are public, for methods that use some, beside the private ones.
    steps
        How long; or ``epochs``.
    epochs
        How long, with ``batch_size``: an epoch has one over the rate steps.
    batch_size
        Batches are Poisson, of rate batch_size / size. Without it all records, every step.
    size_is_public
        Whether the number of records may be known. If not, a noisy count is bought.
    expected_size
        A public guess of the size, which stands in where it is private and the rate of batches is fixed beforehand.
    max_grad_norm
        The clip norm of a record's whole gradient.
    clipping
        "flat", or "per_layer", which clips each parameter to its even part.
    optimizer
        Of the method.
    learning_rate
        Of the method.
    settings
        A dict of any other settings of the method.
    loss_reduction
        "mean" or "sum" over records; None: what the loss says of itself, else "mean".
    max_physical_batch_size
        Rows of one pass: bounds memory, and changes nothing else.
    arithmetic
        "assumed" or "bounded": how the rounding of sums is treated; None: the better one that is not slow.
    device
        Where passes run; None: where the module is.
    purse
        Where the budget comes from.
    ledger
        Where the budget comes from, instead: a ledger, by URL or as a ``noisewise.Ledger``, with ``dataset_name``.
    dataset_name
        The account that pays, the name under which the records are registered in the ledger.
    checkpoint
        A folder from which a run that was interrupted goes on.
    resume
        The folder of a run that was interrupted, like checkpoint, but refused where there is none to go on with.
    random_state
        Makes the run a simulation, which is not private.
    progress
        False for no bar, or progress(step, steps, spent).
    isolation
        Where a method of another package runs: "sandbox", or "process", which trusts it not to look at your files.
    """
    purse = payer(purse, ledger, dataset_name)
    checkpoint = _folder(checkpoint, resume)
    _checked(budget, arithmetic, checkpoint, random_state)
    validate.whole(max_physical_batch_size=max_physical_batch_size)
    seed, asked = seed_of(random_state), chosen(method, protector, isolation)
    given = {"optimizer": optimizer, "learning_rate": learning_rate, **(settings or {})}
    asked = asked.with_settings(**{name: value for name, value in given.items() if value is not None})

    def prepared(rows: TensorRows, records: int) -> ReadyModule:
        """What is decided before the first question, for the ``rows`` of ``records``."""
        size = size_of(records, budget, size_is_public=bool(size_is_public), expected_size=expected_size)
        how = with_batches(asked, size, steps=steps, epochs=epochs, batch_size=batch_size)
        make = partial(ModuleModel, module, loss, *specs_of(rows), reduction=loss_reduction, device=device)
        model = make(
            chunk=chunk_for(how, size, max_physical_batch_size, padded=arithmetic != "assumed"), arithmetic=arithmetic
        )
        if not model.bounded:
            model.chunk = model.within(max_physical_batch_size)
        how = with_clip(how, max_grad_norm, clipping, len(model.groups))
        refuse_ranges(model, rows)
        asked_for = _settings(budget, how, model, size, random_state=seed, batch_size=batch_size, epochs=epochs)
        return ReadyModule(how, size, model, asked_for)

    def run(ready: ReadyModule, inputs: Any, targets: Any) -> FittedModule:
        how, size, model, asked_for = ready
        known = None
        if public is not None:
            shown = handed_over(public, "public")
            if specs_of(shown) != (list(model.inputs), list(model.targets)):
                raise ValueError(
                    "public has records of other shapes or types than dataset; pass records of the same kind"
                )
            refuse_ranges(model, shown, "public")
            known = PublicCurator(shown.inputs, shown.targets, model=model)
        with (
            _journal(checkpoint, {**asked_for, "settings": plain_values(how.settings())}, model) as journal,
            _shown(progress) as report,
        ):
            account = account_of(purse) if seed is None else None
            done = train(
                how,
                Records(inputs, targets, size.public, row_bound=float("inf")),
                model=model,
                budget=budget,
                public=known,
                seed=seed,
                progress=report,
                purse=purse,
                journal=journal,
            )
        statement = _stated(done, how, model, size, known, account)
        return fitted_module(ready, module, done.theta, statement, done.trace, done.steps, done.facts.size)

    if started_by_torchrun():
        paid_where = account_of(purse) if purse is None else purse
        lasting = checkpoint is not None or (paid_where is not None and paid_where.durable)
        return among_ranks(dataset, module, prepared, run, may_restart=seed is not None or lasting)
    rows = handed_over(dataset)
    return run(prepared(rows, len(rows)), rows.inputs, rows.targets)


def _checked(budget: Budget, arithmetic: str | None, checkpoint: Any, random_state: Any) -> None:
    if not isinstance(budget, Budget):
        raise TypeError(f"budget is a {type(budget).__name__}; pass noisewise.Budget(epsilon, delta)")
    if arithmetic is not None:
        validate.one_of(ARITHMETICS, arithmetic=arithmetic)
    if checkpoint is not None and random_state is not None:
        raise ValueError("checkpoint is for private runs: noise of a seeded one would repeat; leave random_state out")


def _folder(checkpoint: Any, resume: Any) -> Any:
    """The folder of the journal of a new run or of one to resume."""
    if resume is None:
        return checkpoint
    if checkpoint is not None:
        raise ValueError("checkpoint and resume both name a folder; pass resume to go on, checkpoint to start or go on")
    if settings_in(resume) is None:
        raise ValueError(f"resume is {str(resume)!r}, which holds no run to go on with; pass the folder of checkpoint=")
    return resume


def _settings(budget: Budget, method: Method, model: ModuleModel, size: Size, **also: Any) -> dict[str, Any]:
    """The settings of the run as plain data, from public facts alone."""
    clip = method.settings().get("max_grad_norm")
    return {
        "model": "module",
        "epsilon": float(budget.epsilon),
        "delta": float(budget.delta),
        "adjacency": budget.adjacency,
        "method": method.name,
        "size_is_public": size.public is not None,
        "expected_size": size.expected,
        "max_grad_norm": clip if isinstance(clip, float | int | None) else None,
        "arithmetic": "bounded" if model.bounded else "assumed",
        "max_physical_batch_size": model.chunk,
        **also,
    }


@contextmanager
def _journal(checkpoint: Any, asked_for: Mapping[str, Any], model: ModuleModel) -> Iterator[Journal | None]:
    if checkpoint is None:
        yield None
        return
    free = () if model.bounded else ("max_physical_batch_size",)  # which changes nothing that is charged
    journal = Journal(
        checkpoint,
        {
            **{name: value for name, value in asked_for.items() if name not in free},
            "module": model.path,
            "loss": str(model.loss),
            "trained": [
                [name, list(shape)] for name, shape in zip(model.layout.names, model.layout.shapes, strict=True)
            ],
            "start": hashlib.sha256(model.start().tobytes()).hexdigest(),
            "noisewise": __version__,
        },
    )
    try:
        yield journal
    finally:
        journal.close()


@contextmanager
def _shown(progress: StepProgress | bool | None) -> Iterator[StepProgress | None]:
    if callable(progress):
        yield progress
    elif progress is False:
        yield None
    else:
        with bar("training") as report:
            yield lambda step, steps, spent: report(step, steps, news=f"{spent:.0%} of the budget")


def _stated(
    run: Trained, method: Method, model: ModuleModel, size: Size, public: PublicCurator | None, account: Account | None
) -> Statement:
    layout = model.layout
    specs = (*model.inputs, *model.targets)
    shapes = ", ".join(f"{spec.dtype} {list(spec.shape)}".removeprefix("torch.") for spec in specs)
    assumed = [
        f"the weights that the module started from (public, or paid for elsewhere); {_listed(layout.names)} were trained",
        f"shapes and types of the records' tensors: {shapes}",
        "records were checked by their holder before training: same shapes, whole numbers within what the module takes",
        "settings, chosen without the private records",
    ]
    if layout.frozen:
        assumed.insert(1, f"frozen parameters (public, or paid for elsewhere): {_listed(layout.frozen)}")
    if size.public is not None:
        relation = run.facts.budget.adjacency == "replace_one"
        assumed.append("the number of records, " + ("fixed by replace_one" if relation else "declared public"))
    elif size.expected is not None:
        assumed.append(f"a guess of the number of records, {size.expected:g}, made without looking at them")
    if public is not None:
        assumed.append(f"{public.size} public records, disjoint from the private ones")
    return make_statement(
        method=method.name,
        settings=plain_values(method.settings()),
        run=run,
        model={"kind": model.path, "shape": [*model.shape], "loss": str(model.loss), "parameters": model.dimension},
        assumed=assumed,
        arithmetic=run.arithmetic,
        account=None if account is None else account.describe(),
        isolation=isolation_of(method),
        source="tensors",
    )


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(names[:MAX_LISTED_NAMES]) + more
