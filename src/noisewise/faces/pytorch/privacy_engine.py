"""A training loop of the user's own, made private: the calls, names and return values that Opacus has.

``make_private`` returns the module itself, an optimizer and a data loader, with which the loop goes on as before. What it
does is differential privacy of the *parameters*: the loop sees the records, and what it prints is not covered.
docs/migrating-from-opacus.md says what is different.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from ...accounts.account import Account, BudgetWarning
from ...accounts.paying import payer
from ...accounts.purse import Purse
from ...remote.transport import started_by_torchrun
from ...statements.statement import Statement
from ...trusted import validate
from ...trusted.accountants.calibrate import calibrate
from ...trusted.accountants.terms import Budget
from ...trusted.engine import layout_of
from ...trusted.events import ADJACENCIES, Adjacency
from ...trusted.models.module import uncompiled
from ...trusted.stores.totals import expected_size
from ...trusted.torch_extra import torch
from .criterion import Criterion, Forward, take_off
from .loader import DPDataLoader, check_loader, draws_of, empty_batch, explain_loader
from .loop_meter import LoopMeter, Spent
from .optimizer import DPOptimizer, check_optimizer
from .rehearsals import Rehearsals
from .run import EngineRun, checked_clip, statement_of
from .validator import ModuleValidator

ACCOUNTANTS = {"auto": "auto", "prv": "auto", "pld": "pld", "rdp": "rdp"}
MODES = ("hooks", "functorch", "ew", "ghost")
CLIPPINGS = ("flat", "per_layer")
MODULE, SPENT = "module_state_dict", "privacy_accountant_state_dict"
PARTS = (
    "optimizer_state_dict",
    "noise_scheduler_state_dict",
    "grad_clip_scheduler_state_dict",
    "lr_scheduler_state_dict",
)
SHUFFLED = (
    "poisson_sampling=False has no price under add_remove, and shuffling is not Poisson sampling; leave it out, or pass "
    "PrivacyEngine(adjacency='replace_one') for batches of a fixed size, drawn at random"
)
OWN_LOSS = (
    "the loop's own loss is trusted to be a mean or sum of each record's own; pass criterion= to make_private, and train with the "
    "criterion that it returns, which makes sure of it"
)

if TYPE_CHECKING:
    from ...accounts.ledger import Ledger as NoisewiseLedger


class PrivacyEngine:
    """Makes a module, an optimizer and a data loader private.

    ``accountant``: "auto" (also "prv", as scripts say) prices plans by PLD and is the best there is; "rdp" by Renyi.
    ``adjacency``: "add_remove" or "replace_one"; a ``budget`` brings its own. ``ledger`` and ``dataset``: the account in a
    ledger that pays. A loop of one's own has no end that is known, so what it reserves stays charged whole.

    *Guarantee*: with ``make_private_with_epsilon``, ``epochs=`` or ``budget=`` all parameters that the loop ever has are
    together (epsilon, delta)-DP, under the assumptions of :meth:`statement`.

    >>> import torch
    >>> module = torch.nn.Linear(4, 1)
    >>> data = torch.utils.data.TensorDataset(torch.randn(30, 4), torch.randn(30, 1))
    >>> engine = PrivacyEngine()
    >>> module, optimizer, criterion, loader = engine.make_private_with_epsilon(
    ...     module=module,
    ...     optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
    ...     criterion=torch.nn.MSELoss(),
    ...     data_loader=torch.utils.data.DataLoader(data, batch_size=30),
    ...     target_epsilon=1.0,
    ...     target_delta=1e-5,
    ...     epochs=2,
    ...     max_grad_norm=1.0,
    ... )
    >>> for _ in range(2):
    ...     for x, y in loader:
    ...         optimizer.zero_grad()
    ...         criterion(module(x), y).backward()
    ...         optimizer.step()
    >>> round(engine.get_epsilon(delta=1e-5), 3)
    1.0
    """

    def __init__(
        self,
        *,
        accountant: str = "auto",
        secure_mode: bool = False,
        adjacency: Adjacency = "add_remove",
        ledger: NoisewiseLedger | str | None = None,
        dataset: str | None = None,
    ) -> None:
        if accountant == "gdp":
            raise ValueError(
                "accountant is 'gdp', which for sampled batches is an approximation from below; pass 'auto', which is tight"
            )
        validate.one_of(tuple(ACCOUNTANTS), accountant=accountant)
        validate.one_of(ADJACENCIES, adjacency=adjacency)
        self._account = payer(None, ledger, dataset)
        self._accountant, self._adjacency = ACCOUNTANTS[accountant], adjacency
        self.secure_mode = True  # noise is drawn exactly, from the operating system's entropy, always
        self._run: EngineRun | None = None
        self._words: dict[str, Any] = {}

    # -- making things private --------------------------------------------------------------------------------------

    def make_private(
        self,
        *,
        module: nn.Module,
        optimizer: Optimizer,
        data_loader: DataLoader[Any],
        noise_multiplier: float,
        max_grad_norm: float | Sequence[float],
        criterion: Callable[..., Any] | None = None,
        batch_first: bool = True,
        loss_reduction: str = "mean",
        poisson_sampling: bool = True,
        clipping: str = "flat",
        noise_generator: Any = None,
        grad_sample_mode: str = "hooks",
        wrap_model: bool = True,
        rand_on_empty: bool = False,
        epochs: int | None = None,
        budget: Budget | None = None,
        public_size: int | None = None,
        purse: Purse | Account | None = None,
    ) -> Any:
        """(module, optimizer, criterion, data_loader) to train with; without a ``criterion`` the three others.

        ``epochs`` fixes the length beforehand: all batches are priced together, and more than those are not drawn.
        ``budget`` is a cap: with ``epochs`` the plan must fit it, without a filter ends the run there. With neither,
        batches are only counted. ``public_size``: a public number of records to compute the rate from, instead of
        ``len(dataset)``, which is otherwise assumed to be public.
        ``criterion``: the loss. It comes back as one that computes each record's loss alone, and is then the only way from the
        module's outputs, which have no graph, to its parameters. Without it the loop's own loss is trusted to be a mean (or
        sum) of each record's own, and the statement says so.
        ``wrap_model`` and ``rand_on_empty`` have no effect: no module is wrapped, and empty batches need no made-up values.
        """
        _check(batch_first, loss_reduction, clipping, noise_generator, grad_sample_mode)
        if criterion is None and grad_sample_mode == "ghost":
            criterion = nn.CrossEntropyLoss(reduction=loss_reduction)
        adjacency = self._adjacency if budget is None else budget.adjacency
        if not poisson_sampling and adjacency == "add_remove":
            raise ValueError(SHUFFLED)
        if started_by_torchrun():
            raise RuntimeError(
                "this is one of several processes that torchrun started, and each would draw and spend for itself; use noisewise.fit, "
                "which shares one budget and one noise among them, or start one process"
            )
        if self._run is not None:
            raise RuntimeError("this engine has a run; make another engine, and let nw.spending(...) pay for both")
        module = uncompiled(module)
        take_off(module)
        own = {id(parameter) for parameter in module.parameters()}
        if isinstance(criterion, nn.Module) and any(
            p.requires_grad and id(p) not in own for p in criterion.parameters()
        ):
            raise ValueError(
                "criterion has parameters of its own, which nothing would protect; put them into the module"
            )
        self.validate(module=module, optimizer=optimizer, data_loader=data_loader)
        explain_loader(data_loader)
        draws = draws_of(data_loader, size=public_size, poisson=poisson_sampling)
        empty, rehearsals = empty_batch(data_loader), Rehearsals(module, criterion)
        layout = rehearsals.of_batch(empty) or layout_of(module)
        parameters = layout.parameters(module)
        clip = checked_clip(max_grad_norm, len(parameters), clipping == "per_layer")
        noise = float(noise_multiplier)
        if self._account is not None and purse is not None:
            raise ValueError("purse and the engine's ledger both say where the budget comes from; pass one of them")
        ledger = LoopMeter(
            draws.sampling,
            adjacency,
            noise,
            steps=None if epochs is None else _whole(epochs) * draws.batches,
            budget=budget,
            accountant=self._accountant,
            purse=purse if self._account is None else self._account,
        )
        self._warn(ledger)
        if criterion is None:
            warnings.warn(OWN_LOSS, stacklevel=2)
        expected = expected_size(draws.sampling, draws.size)
        run = EngineRun(
            ledger, layout, parameters, noise=noise, clip=clip, expected=expected, mean=loss_reduction == "mean"
        )
        self._run, self._own_loss = run, criterion is None
        self._words = _words(module, criterion, run, declared=public_size is not None)
        Forward(module, run, rehearsals, attached=criterion is None)
        private = DPOptimizer(optimizer, run)
        loader = DPDataLoader(data_loader, run, batches=draws.batches, empty=empty)
        return (module, private, loader) if criterion is None else (module, private, Criterion(criterion, run), loader)

    def make_private_with_epsilon(
        self,
        *,
        module: nn.Module,
        optimizer: Optimizer,
        data_loader: DataLoader[Any],
        target_epsilon: float,
        target_delta: float,
        epochs: int,
        max_grad_norm: float | Sequence[float],
        poisson_sampling: bool = True,
        public_size: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """:meth:`make_private` with the least noise that keeps ``epochs`` epochs within (target_epsilon, target_delta)."""
        kwargs.pop("epsilon_tolerance", None)  # the noise found is never too little
        if "noise_multiplier" in kwargs or "budget" in kwargs:
            raise TypeError(
                "the noise follows from target_epsilon and target_delta; leave out noise_multiplier and budget"
            )
        if not poisson_sampling and self._adjacency == "add_remove":
            raise ValueError(SHUFFLED)
        check_loader(data_loader)
        budget = Budget(float(target_epsilon), float(target_delta), self._adjacency)
        draws = draws_of(data_loader, size=public_size, poisson=poisson_sampling)
        steps = _whole(epochs) * draws.batches
        return self.make_private(
            module=module,
            optimizer=optimizer,
            data_loader=data_loader,
            noise_multiplier=calibrate(budget, steps=steps, sampling=draws.sampling, accountant=self._accountant),
            max_grad_norm=max_grad_norm,
            poisson_sampling=poisson_sampling,
            epochs=epochs,
            budget=budget,
            public_size=public_size,
            **kwargs,
        )

    def _warn(self, ledger: LoopMeter) -> None:
        if ledger.kind == "counter":
            warnings.warn(
                "make_private without epochs= or budget= only counts: get_epsilon holds for a number of steps that was fixed "
                "beforehand, and stopping by looking at results is not covered; pass epochs=, or budget= for a cap",
                BudgetWarning,
                stacklevel=3,
            )
        elif ledger.kind == "nothing":
            warnings.warn("noise_multiplier is 0: nothing about this run is private", BudgetWarning, stacklevel=3)

    # -- what it costs ------------------------------------------------------------------------------------------------

    def get_epsilon(self, delta: float) -> float:
        """What the parameters cost: the price so far where noise was fixed beforehand, else the cap.

        A batch counts from its draw on. The price so far holds for a loop that stops there for a reason fixed beforehand;
        whatever makes it stop, the price of the whole plan holds, which :meth:`statement` says.
        """
        return self._own().ledger.epsilon(float(delta))

    @property
    def accountant(self) -> Spent:
        """What was spent, under the name that scripts ask for it by."""
        return Spent(self._own().ledger)

    def statement(self, delta: float | None = None) -> Statement:
        """What the parameters promise, with every event and everything that is assumed."""
        return statement_of(self._own(), self._words, own_loss=self._own_loss, delta=delta)

    def _own(self) -> EngineRun:
        if self._run is None:
            raise RuntimeError("nothing is private yet; call make_private or make_private_with_epsilon first")
        return self._run

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def save_checkpoint(
        self,
        *,
        path: str | os.PathLike[str] | BinaryIO,
        module: nn.Module,
        optimizer: DPOptimizer | None = None,
        noise_scheduler: Any = None,
        grad_clip_scheduler: Any = None,
        lr_scheduler: Any = None,
        checkpoint_dict: dict[str, Any] | None = None,
        module_state_dict_kwargs: dict[str, Any] | None = None,
        torch_save_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Save module, optimizer, schedules and what was spent; never the stream of noise."""
        saved = dict(checkpoint_dict or {})
        saved[MODULE] = module.state_dict(**(module_state_dict_kwargs or {}))
        saved[SPENT] = self._own().ledger.state()
        for name, part in zip(PARTS, (optimizer, noise_scheduler, grad_clip_scheduler, lr_scheduler), strict=True):
            if part is not None:
                saved[name] = part.state_dict()
        torch.save(saved, path, **(torch_save_kwargs or {}))

    def load_checkpoint(
        self,
        *,
        path: str | os.PathLike[str] | BinaryIO,
        module: nn.Module,
        optimizer: DPOptimizer | None = None,
        noise_scheduler: Any = None,
        grad_clip_scheduler: Any = None,
        lr_scheduler: Any = None,
        module_load_dict_kwargs: dict[str, Any] | None = None,
        torch_load_kwargs: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Continue what was saved, after the same call of ``make_private``; gives the whole checkpoint.

        What the checkpoint had spent is spent here, too, and what this engine spent stays spent. Noise is fresh.
        """
        saved: dict[str, Any] = torch.load(path, **(torch_load_kwargs or {}))
        self._own().ledger.resume(saved[SPENT])
        module.load_state_dict(saved[MODULE], **(module_load_dict_kwargs or {}))
        for name, part in zip(PARTS, (optimizer, noise_scheduler, grad_clip_scheduler, lr_scheduler), strict=True):
            if part is not None and name not in saved:
                raise ValueError(f"the checkpoint has no {name}; leave that argument out, or save it")
            if part is not None:
                part.load_state_dict(saved[name])
        return saved

    # -- what can be made private -------------------------------------------------------------------------------------

    def is_compatible(
        self, *, module: nn.Module, optimizer: Optimizer | None, data_loader: DataLoader[Any] | None
    ) -> bool:
        """Whether :meth:`validate` finds nothing wrong."""
        try:
            self.validate(module=module, optimizer=optimizer, data_loader=data_loader)
        except (ValueError, TypeError):
            return False
        return True

    def validate(self, *, module: nn.Module, optimizer: Optimizer | None, data_loader: DataLoader[Any] | None) -> None:
        """Refuse layers that mix records, an optimizer of other parameters, and loaders whose batches have no price."""
        ModuleValidator.validate(module, strict=True)
        if optimizer is not None:
            check_optimizer(module, optimizer)
        if data_loader is not None:
            check_loader(data_loader)

    @classmethod
    def get_compatible_module(cls, module: nn.Module) -> nn.Module:
        """A copy with layers that can be trained privately; see :meth:`ModuleValidator.fix`."""
        return ModuleValidator.fix_and_validate(module)


def _whole(epochs: int) -> int:
    validate.whole(epochs=epochs)
    return int(epochs)


def _check(batch_first: bool, loss_reduction: str, clipping: str, generator: Any, mode: str) -> None:
    validate.one_of(("mean", "sum"), loss_reduction=loss_reduction)
    validate.one_of(CLIPPINGS, clipping=clipping)
    validate.one_of(MODES, grad_sample_mode=mode)
    if not batch_first:
        raise ValueError(
            "batch_first=False: give the module batches with the records first, and transpose inside of it"
        )
    if generator is not None:
        raise ValueError("noise_generator: noise that can be drawn again is not private; leave it out")


def _words(module: nn.Module, criterion: Any, run: EngineRun, *, declared: bool) -> dict[str, Any]:
    size = "a number of records that was declared" if declared else "the number of records, len(dataset)"
    return {
        "model": type(module).__name__,
        "loss": "the loop's own" if criterion is None else getattr(criterion, "__name__", type(criterion).__name__),
        "size": f"{size}: the rate of sampling is the expected batch size over it",
        "settings": {
            "noise_multiplier": run.noise,
            "max_grad_norm": list(run.clip) if isinstance(run.clip, tuple) else run.clip,
            "clipping": "per_layer" if isinstance(run.clip, tuple) else "flat",
            "loss_reduction": "mean" if run.mean else "sum",
            "expected_batch_size": run.expected,
        },
    }
