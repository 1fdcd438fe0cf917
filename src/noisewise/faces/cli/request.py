"""The options of ``noisewise train`` as plain data, so that a run can be resumed; the fit that they ask for, and a dry run of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console

from ...remote.federation import Federated
from .main import print_json, say

if TYPE_CHECKING:
    from ...accounts import Budget
    from ...methods import Method
    from ...tables.addresses import Place
    from ...tables.fit.build import Origin
    from ...tables.fit.fit import Fit
    from ...tables.resolve import Resolved
    from ...tables.schema import Schema

AUTO = "auto"
PATHS = ("schema", "cache")
LISTS = ("data", "public")
WORDS = ("target", "method", "loss", "protector", "separator", "decimal", "records", "ray_address")
NUMBERS = ("bounds_epsilon", "protector_share", "max_grad_norm")


@dataclass(frozen=True)
class TrainingOptions:
    """The options of one training, apart from where the run is written and how it is shown."""

    data: tuple[Place, ...]
    epsilon: float
    delta: float
    target: str | None = None
    schema: Path | None = None
    public: tuple[Place, ...] = ()
    bounds_epsilon: float | None = None
    method: str | None = None
    loss: str | None = None
    model: str = "auto"
    protector: str | None = None
    protector_share: float | None = None
    adjacency: str = "add_remove"
    max_grad_norm: float | None = None
    size_is_public: bool = False
    separator: str | None = None
    decimal: str | None = None
    cache: Path | None = None
    records: str | None = None
    ray_workers: int | None = None
    ray_address: str | None = None
    federated: Federated | None = None
    clients: int | None = None  # over a network, instead of files
    isolation: str = "sandbox"
    seed: int | None = None  # of a simulation, which is never resumed, so it is not written down

    @property
    def budget(self) -> Budget:
        from ...accounts import Budget

        return Budget(self.epsilon, self.delta, adjacency=cast(Any, self.adjacency))

    @cached_property
    def chosen(self) -> str | Method:
        """The method, as a name or, where a protector is named, as an object: protectors belong to l2p."""
        if self.protector is None and self.protector_share is None:
            return self.method or AUTO
        if self.method not in (None, "l2p"):
            raise ValueError(
                f"--method is {self.method!r}, which has no protector; pass --method l2p, or leave --protector out"
            )
        from ...methods.l2p import L2P, PRIVATE

        if self.protector_share is not None and self.protector != PRIVATE:
            raise ValueError(
                "--protector-share is for a protector trained on the private records; pass --protector private"
            )
        same = ("protector", "protector_share", "max_grad_norm")
        known: dict[str, Any] = {name: getattr(self, name) for name in same}
        return L2P(**{name: value for name, value in known.items() if value is not None})

    @property
    def layers(self) -> str | tuple[int, ...]:
        """The model: a name, or the sizes of its hidden layers."""
        if self.model in ("auto", "linear", "mlp"):
            return self.model
        try:
            sizes = tuple(int(part) for part in self.model.split(","))
        except ValueError:
            sizes = ()
        if not sizes or min(sizes) < 1:
            raise ValueError(f"--model is {self.model!r}; pass auto, linear, mlp, or hidden sizes such as 64,32")
        return sizes

    def check(self) -> None:
        """Refuse an unknown method, protector or model."""
        from ...tables.fit.build import method_for

        method_for(self.chosen, self.layers, None, isolation=self.isolation)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that means the same in any folder: paths are absolute, addresses complete (no address has credentials)."""
        plain = {name: getattr(self, name) for name in _names()}
        for name in PATHS:
            plain[name] = None if plain[name] is None else str(plain[name].absolute())
        for name in LISTS:
            plain[name] = [str(path.absolute()) if isinstance(path, Path) else path.uri for path in plain[name]]
        if self.protector is not None and Path(self.protector).is_file():
            plain["protector"] = str(Path(self.protector).absolute())
        plain["federated"] = None if self.federated is None else self.federated.to_dict()
        return plain

    @classmethod
    def from_dict(cls, plain: Any) -> TrainingOptions:
        """The inverse of :meth:`to_dict`; ValueError for anything else."""
        if not isinstance(plain, Mapping) or set(plain) != set(_names()):
            raise ValueError("other options than a training has")
        for name, value in plain.items():
            if not _plain(name, value):
                raise ValueError(f"the option {name} is of another kind")
        known = dict(plain)
        for name in PATHS:
            known[name] = None if plain[name] is None else Path(plain[name])
        for name in LISTS:
            known[name] = places(plain[name])
        try:
            known["federated"] = None if plain["federated"] is None else Federated(**plain["federated"])
        except TypeError:
            raise ValueError("the option federated is of another kind") from None
        return cls(**known)

    @property
    def declarations(self) -> list[Place]:
        """Public files that say how records are read and trained on; a resumed run needs them unchanged."""
        from ...tables.files import find_files

        named = [path for path in (self.schema, self.protector and Path(self.protector)) if path and path.is_file()]
        return [*named, *(find_files([*self.public]) if self.public else [])]


def places(texts: Iterable[str]) -> tuple[Place, ...]:
    """Files, folders and addresses from the arguments of a command."""
    from ...tables.addresses import place_of

    return tuple(map(place_of, texts))


def _plain(name: str, value: Any) -> bool:
    """Whether a value has the type of its option."""
    if name in LISTS:
        return isinstance(value, list) and all(type(one) is str for one in value)
    if name in (*PATHS, *WORDS):
        return value is None or type(value) is str
    if name == "federated":
        return value is None or isinstance(value, dict)
    if name == "clients":
        return value is None or (type(value) is int and value > 0)
    if name in NUMBERS:
        return value is None or type(value) is float
    if name == "ray_workers":
        return value is None or type(value) is int
    kinds = {"size_is_public": bool, "model": str, "adjacency": str, "isolation": str}
    return type(value) is kinds.get(name, float)


def _names() -> list[str]:
    """The options that :meth:`TrainingOptions.to_dict` writes."""
    return [field.name for field in fields(TrainingOptions) if field.name != "seed"]


def planned(asked: TrainingOptions, resolved: Resolved) -> Fit:
    """The requested fit, with imagined bounds where bounds are still to be bought."""
    fit = fit_for(asked, resolved, resolved.imagined)
    if resolved.purchase is None:
        return fit
    before = resolved.purchase.budget
    return fit.before(before.epsilon, before.delta)


def fit_for(asked: TrainingOptions, resolved: Resolved, schema: Schema) -> Fit:
    """The requested fit for a complete ``schema``."""
    from ...tables.fit.build import fit_of_files

    fit = fit_of_files(
        schema, asked.budget, asked.chosen, loss=loss_of(asked, schema), model=asked.layers, size_is_public=asked.size_is_public,
        seed=asked.seed, max_grad_norm=asked.max_grad_norm, origin=origin_of(resolved), isolation=asked.isolation,
    )  # fmt: skip
    if asked.federated is None:
        return fit
    from ...remote.clients.server import fit_of_clients

    return fit_of_clients(fit, asked.federated)


def origin_of(resolved: Resolved) -> Origin:
    from ...tables.fit.build import Origin

    return Origin(resolved.words, resolved.classes, resolved.preparation)


def of_classes(schema: Schema) -> bool:
    assert schema.target is not None
    return schema[schema.target].kind == "category"


def loss_of(asked: TrainingOptions, schema: Schema) -> str:
    """The requested loss, or the default for the target."""
    from ...trusted.losses import USUAL

    if of_classes(schema):
        return asked.loss or "auto"
    if asked.loss is not None and not for_numbers(asked.loss):
        raise ValueError(
            f"--loss is {asked.loss!r} but the target {schema.target!r} is a number; pass --loss {USUAL['regression']}, or declare its "
            'classes in a schema with kind = "category"'
        )
    return asked.loss or USUAL["regression"]


def known_loss(loss: str | None) -> None:
    from ...trusted.losses import loss_named

    if loss is not None:
        loss_named(loss)


def for_numbers(loss: str | None) -> bool:
    from ...trusted.losses import loss_named

    return loss is not None and loss_named(loss).task == "regression"


def show_plan(asked: TrainingOptions, resolved: Resolved, out: Path, json_output: bool) -> None:
    """Show what a run would do, from names and declarations alone."""
    from ...accounts.budget_warnings import concerns
    from ...tables.fit.auto import choice_for, why
    from ...tables.rows import columns_of
    from ...tables.schema import gaps
    from ...trusted.units import CLIENT

    reasons = None
    if asked.chosen == AUTO:
        training = planned(asked, resolved).training_budget()
        reasons = why(choice_for(columns_of(resolved.imagined), training, None, asked.layers))
    method, face = planned(asked, resolved).method, "Classifier" if of_classes(resolved.imagined) else "Regressor"
    columns = [{"name": column.name, "kind": column.kind} for column in resolved.schema.columns]
    to_buy = [gap.column for gap in gaps(resolved.schema)]
    notes = [*resolved.notes, *concerns(asked.budget.epsilon, asked.budget.delta).values()]
    client = asked.federated is not None and asked.federated.unit == "client"
    unit = CLIENT if client else resolved.schema.protects.words
    document = {
        "dry_run": True, "method": method.name, "estimator": f"Private{face}", "target": resolved.schema.target,
        "epsilon": asked.budget.epsilon, "delta": asked.budget.delta, "adjacency": asked.budget.adjacency,
        "unit": unit, "setting": "central" if asked.federated is None else "federated, trusted server",
        "columns": columns, "bounds_to_buy": to_buy, "bounds_epsilon": asked.bounds_epsilon if to_buy else None,
        "assumed": f"{resolved.words}; the classes, {resolved.classes}", "out": str(out), "why": reasons,
        "notes": notes,
    }  # fmt: skip
    for note in notes:
        say(note)
    if json_output:
        print_json(document)
        return
    kinds = ", ".join(
        f"{sum(column['kind'] == kind for column in columns)} {kind}" for kind in ("number", "category", "ignore")
    )
    told = "" if resolved.schema.unit is None and asked.federated is None else f", the unit is {unit}"
    told += "" if asked.federated is None else f", {document['setting']}"
    bought = (
        f" Bounds of {len(to_buy)} columns would be bought with epsilon {asked.bounds_epsilon:g}." if to_buy else ""
    )
    Console().print(
        f"Would train a {document['estimator']} for {document['target']!r} by {method.name} ({method.summary}) at "
        f"({asked.budget.epsilon:g}, {asked.budget.delta:g}), {asked.budget.adjacency}{told}. Columns: {kinds}. "
        f"Assumed public: {resolved.words}; the classes, {resolved.classes}.{bought} Would write {out}. Nothing was spent; "
        "`noisewise plan` says what the budget buys." + ("" if reasons is None else f"\n{reasons}"),
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
