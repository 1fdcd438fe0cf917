"""A fit: its description, which is checked as a whole before anything is read or paid for, its rows, and its one private run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...accounts import Budget, Terms, open_meter
from ...accounts.account import Account, account_of
from ...accounts.budget_warnings import chosen, warn_of
from ...accounts.journal import Journal
from ...accounts.purse import Purse
from ...asking import PublicCurator
from ...methods import Method, isolation_of, makes_a_promise
from ...remote.federation import Federated
from ...statements.network import Network
from ...statements.standard_errors import standard_errors
from ...statements.statement import Statement, make_statement, training_budget
from ...train import RecordedAnswers, Records, StepProgress, Trained, refuse_batches, train
from ...trusted.facts import facts_of
from ...trusted.features import Features
from ...trusted.models import Additive, Model
from ...trusted.process import own_settings
from ...trusted.stores.protocol import Elsewhere
from ...trusted.units import RECORD, Unit
from ..column_checks import tells_nothing
from ..encode import Encoder
from ..persons import PersonColumn
from ..rows import Scaling
from .fitted import Fitted, Spread
from .labels import ClassesOrTarget

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Fit:
    """One fit, fully described, and once they are read the rows that it runs on.

    ``private`` and ``public`` are rows; nothing else here was read from private rows, except classes that are assumed public.
    ``preparation`` is what was paid for bounds before training, as a statement has it; ``assumed`` is what a statement
    lists as assumed public; ``settings`` is what was asked for, as plain data.
    """

    budget: Budget
    method: Method
    model: Model
    scaling: Scaling
    labels: ClassesOrTarget
    encoder: Encoder | None = None
    columns: tuple[str, ...] | None = None
    size_is_public: bool = False
    seed: int | None = None
    assumed: tuple[str, ...] = ()
    preparation: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    persons: PersonColumn | None = None  # whose rows these are, where what is protected is a person
    federated: Federated | None = None  # how clients are asked, where records lie with them
    source: str = "arrays"  # where rows came from, as a reading list has it
    private: Records | None = None
    public: Records | None = None

    def check(self, *, public: bool, records: int | None = None) -> None:
        """Refuse a fit that could not be trained; every rule that public facts decide is here.

        ``public``: whether there are public rows. ``records``: how many private ones there are, once that is known; a
        meter is made only when the size it may depend on is known, or private and so of no influence.
        """
        self._rules(public=public)
        if (asked := self.asks(records)) is not None:
            open_meter(asked[1], asked[0])

    def asks(self, records: int | None = None) -> tuple[Terms, Budget] | None:
        """The terms and the budget of the training; None while they depend on a size that is not known yet."""
        if not self.method.private or (records is None and self._size_known):
            return None
        size, budget = None if records is None else self.size(records), self.training_budget()
        terms = self.method.terms(facts_of(self.model, budget, size=size, row_bound=1.0, unit=self.unit))
        refuse_batches(self.method, terms, self.unit)
        return terms, budget

    def _rules(self, *, public: bool) -> None:
        method, loss = self.method, self.model.loss
        if method.needs_public and not public:
            raise ValueError(f"public is missing; {method.name} needs public rows, pass them or take another method")
        if self.encoder is not None:
            for column in self.encoder.schema.features:
                if reason := tells_nothing(column):
                    raise ValueError(reason)
        if getattr(method, "table", False) and not self.scaling.cells:
            raise ValueError(f"{method.name} makes features of a table's columns; pass schema= or bounds=")
        if method.private and loss.name not in method.losses:
            raise ValueError(
                f"the loss is {loss.name}; {method.name} takes {', '.join(method.losses)}: pass one of them as loss, or "
                "take another method"
            )
        refuse_without_torch(self.model)

    def size(self, records: float) -> float | None:
        """The number of records if it is public, declared so or fixed by the relation. Only then is delta compared with it."""
        if not self._size_known:
            return None
        records = max(records, 1)
        if self.budget.delta > 1 / records:
            raise ValueError(
                f"delta is {self.budget.delta!r}, above 1/size = {1 / records:.3g}, which allows publishing a record; "
                f"pass a delta well below it, e.g. {0.1 / records:.1g}"
            )
        return float(records)

    def public_size(self, rows: Records) -> float | None:
        """The number of records if it is public; where a person has several rows, all rows of the table, also those that do not count."""
        if not self.size_is_public:
            return self.size(len(rows.y))
        return self.size(len(rows.y if rows.counted is None else rows.counted) if rows.size is None else rows.size)

    @property
    def unit(self) -> Unit:
        """What is protected: a record, a person, or a client, which counts once."""
        if self.federated is not None and self.federated.unit == "client":
            return Unit(1)
        return RECORD if self.persons is None else Unit(self.persons.rows)

    def on(self, private: Records, public: Records | None = None) -> Fit:
        """The same fit on these rows, checked and scaled."""
        return replace(self, private=private, public=public)

    def run(
        self,
        *,
        progress: StepProgress | None = None,
        purse: Purse | Account | None = None,
        journal: Journal | None = None,
    ) -> Fitted:
        """Pay and train; ``purse`` says where the budget comes from, ``journal`` where released answers are written down.

        Without a purse the budget comes from the account that is open, if there is any (``noisewise.spending``).
        """
        private, public = self.private, self.public
        assert private is not None
        self._rules(public=public is not None)
        account = self._account(purse)
        size, assumed = self.public_size(private), list(self.assumed)
        if makes_a_promise(self.method) and self.seed is None:
            warn_of(self.budget.epsilon, self.budget.delta, size=size, chosen=chosen(self.settings))
        if size is not None:
            assumed.append(self._known_number())
        if self.persons is not None:
            assumed.append(f"a person is an id in the column {self.persons.column!r}; a row without one does not count")
        if account is not None and self.federated is not None and self.federated.unit == "client":
            assumed.append("each client is one person of the account")
        if self.encoder is not None and self.encoder.schema.target_missing == "drop":
            assumed.append("a record without a label keeps its place and counts for nothing")
        with own_settings():
            X, y = self._taken(private)
            records = Records(X, y, size, 1.0, private.store, self.unit)
        known = None if public is None else PublicCurator(*self._taken(public), model=self.model)
        if known is not None:
            assumed.append(f"{known.size} public rows, disjoint from the private ones")
        run = train(
            self.method,
            records,
            model=self.model,
            budget=self.training_budget(),
            public=known,
            seed=self.seed,
            progress=progress,
            purse=purse,
            journal=journal,
        )
        return self._fitted(run, self._stated(run, assumed, account), known)

    def _account(self, purse: Purse | Account | None) -> Account | None:
        """The account that pays for this fit; None for simulations and fits without privacy, which take nothing."""
        account = account_of(purse) if makes_a_promise(self.method) and self.seed is None else None
        if account is not None and self.preparation is not None:
            account.paid_for(self.preparation)
        return account

    def _fitted(self, run: Trained, statement: Statement, public: PublicCurator | None) -> Fitted:
        known = None if run.spread is None else run.spread.astype(np.float64)
        if known is not None and run.features is not None:
            known = _shown(known, run.features)
        spread = Spread(partial(_errors, self.method, run.tape, public)) if known is None else Spread.known(known)
        return Fitted(
            run.theta,
            self._network(run),
            self.scaling,
            self.labels,
            statement,
            run.trace,
            max(run.steps, 1),
            run.facts.size,
            spread,
            self.settings,
            self.encoder,
            self.columns,
            run.features,
            None if run.shares is None else run.shares.astype(np.float64),
            run.protector,
        )

    def _network(self, run: Trained) -> Network:
        """The model at the end of a run, which may have made features of its own."""
        model = self.model
        if run.features is not None and isinstance(model, Additive):
            model = model.of_width(run.features.width)
        return network_of(model)

    def _stated(self, run: Trained, assumed: list[str], account: Account | None) -> Statement:
        return make_statement(
            method=self.method.name,
            settings=self.method.settings(),
            run=run,
            model=self._network(run).to_dict(),
            assumed=assumed,
            preparation=self.preparation,
            arithmetic=run.arithmetic,
            account=None if account is None else account.describe(),
            federated=self.federated,
            isolation=isolation_of(self.method),
            source=self.source,
        )

    def training_budget(self) -> Budget:
        """What is left for training after what was paid before."""
        return self.budget if self.preparation is None else training_budget(self.budget, self.preparation)

    @property
    def _size_known(self) -> bool:
        return self.size_is_public or self.unit.fixes_size(self.budget.adjacency)

    def _known_number(self) -> str:
        """What is public about the number of records, in words."""
        if self.persons is None:
            relation, client = self.budget.adjacency == "replace_one", self.unit.persons
            how = "fixed by replace_one" if relation else "declared public"
            return f"the number of {'clients' if client else 'records'}, {how}"
        if self.size_is_public:
            return "the number of rows of the table, declared public"
        return "the number of persons, fixed by replace_one"

    def _taken(self, rows: Records) -> tuple[Any, Any]:
        """Rows and labels as a curator takes them."""
        return rows.X, rows.y if isinstance(rows.X, Elsewhere) else as_labels(rows.y, self.model)

    def before(self, epsilon: float, delta: float) -> Fit:
        """The same fit after paying this much before training."""
        return replace(self, preparation={"epsilon": epsilon, "delta": delta})


def _shown(noise: Array, features: Features) -> Array:
    """Standard errors of the coefficients of the coordinates themselves, rounded to four digits."""
    own = (noise.reshape(-1, features.width) * features.gains).ravel()
    return np.array([float(f"{value:.4g}") for value in own])


def _errors(method: Method, tape: RecordedAnswers | None, public: PublicCurator | None) -> Array | None:
    return standard_errors(method, tape, public)


def network_of(model: Model) -> Network:
    """The model as statements describe it and predictions need it."""
    return Network(type(model).__name__, model.shape, str(model.loss), getattr(model, "activation", "tanh"))


def as_labels(y: Array, model: Model) -> Array:
    """Labels as the model's loss takes them."""
    return np.asarray(y, np.int64 if model.loss.task == "classes" else np.float32)


def refuse_without_torch(model: Model) -> None:
    """Raise MissingTorch, before anything is read or paid for, if the model needs torch and it is not installed."""
    if model.records == "perceptron" and find_spec("torch") is None:  # importing it would take seconds
        import_module("noisewise.trusted.torch_extra")
