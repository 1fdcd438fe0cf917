"""What a training method is: a paper's loop body that asks the curator and never holds a record."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from numpy.typing import NDArray

from ..accounts import Terms
from ..asking import Curator, Facts, PublicCurator
from ..trusted.accountants.gdp import mu_of
from ..trusted.events import Gaussian
from ..trusted.losses import loss_names
from ..trusted.walks.oneshot import Whole

if TYPE_CHECKING:
    from ..protect.learned.zoo import Learned


Array = NDArray[Any]


class _EveryLoss:
    """Names of all losses, asked when they are needed: one may be registered later."""

    def __get__(self, method: object, kind: type | None = None) -> tuple[str, ...]:
        return loss_names()


class Method(ABC):
    """A frozen dataclass of public settings with three to five small functions.

    ``facts`` passed to :meth:`terms` hold ``size=None`` while the size is private: what is fixed beforehand may not
    depend on it. State is a named tuple; a step returns a new one. ``private = False`` is for the library's own
    ``nonprivate`` alone; any other method that says so is refused.
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    losses: ClassVar[tuple[str, ...]] = cast(tuple[str, ...], _EveryLoss())
    needs_public: ClassVar[bool] = False
    adaptive: ClassVar[bool] = False
    private: ClassVar[bool] = True
    table: ClassVar[bool] = False  # whether it makes features of a table's columns
    elsewhere: ClassVar[bool] = False  # whether it runs in a process of its own, where its state stays
    whole: ClassVar[type[Whole] | None] = None  # the whole run in the room that it asks for, and is proved as

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if any("meter" in vars(kind) for kind in cls.__mro__):
            raise TypeError(
                f"{cls.__name__} defines meter, but a method does not bring its meter: define terms(self, facts) instead "
                "and return Terms.plan(events) or Terms.adaptive(accountant) from noisewise.accounts, or "
                "noisewise.trusted.accountants.choose.choose_terms(facts.budget, ...); the meter is made from them"
            )

    @abstractmethod
    def terms(self, facts: Facts) -> Terms:
        """On what terms the budget is spent, named before any record is touched; a paid size is part of a plan."""

    @abstractmethod
    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> Any:
        """The first state, from a public starting point and public rows if there are any."""

    @abstractmethod
    def step(self, state: Any, private: Curator, public: PublicCurator | None) -> Any:
        """One loop body of the paper."""

    def done(self, state: Any) -> bool:
        """Whether the loop ends here, decided from released facts; by default after :meth:`total_steps`."""
        return bool(state.step >= (self.total_steps() or 1))

    def finish(self, state: Any, public: PublicCurator | None) -> Array:
        """The released parameters; by default where the last step led."""
        theta: Array = state.theta
        return theta

    def spread(self, state: Any) -> Array | None:
        """The deviation of the privacy noise on each released parameter, if the method knows it by itself."""
        return None

    def shares(self, state: Any) -> Array | None:
        """The share of records that has each coordinate of its features, where the method has bought that."""
        return None

    def made(self, state: Any) -> Learned | None:
        """A protector that the run has trained on its private records, from released answers."""
        return None

    @contextmanager
    def opened(self, *, simulation: bool = False) -> Iterator[Method]:
        """The method that runs inside of this block: itself, or what speaks to the process in which it runs.

        ``simulation``: its answers have noise that a seed tells, which no process may remember in a private run.
        """
        yield self

    def refuse_readable(self, files: Iterable[Path]) -> None:  # noqa: B027 (most methods have nothing to refuse)
        """Refuse private files that the method's process could open; a method of this process has none."""

    @property
    def walks(self) -> bool:
        """Whether it goes over rows one by one in the room, which then have to be in one place."""
        return self.whole is not None

    def settings(self) -> dict[str, Any]:
        """The public settings, for a statement."""
        return asdict(self)  # type: ignore[call-overload]

    def with_settings(self, **changes: Any) -> Self:
        """The same method with other settings; one it does not have is refused by name."""
        known = {field.name for field in fields(self)}  # type: ignore[arg-type]
        if unknown := set(changes) - known:
            raise ValueError(f"{self.name} has no setting {sorted(unknown)[0]!r}; it has {', '.join(sorted(known))}")
        return replace(self, **changes)  # type: ignore[type-var]

    def total_steps(self) -> int | None:
        """How many steps a run takes, when that is fixed beforehand: its setting ``steps``, or one."""
        return None if self.adaptive else getattr(self, "steps", 1)


# Buying the number of records, when it is private: one Gaussian count at a hundredth of the budget.
#
# Its noise has standard deviation 10/mu records (mu: what the budget is worth in Gaussian DP), about 100 records at
# (0.5, 1e-8), and it costs the rest of the run half a percent more noise.


SIZE_SHARE = 0.01


def size_noise(facts: Facts) -> tuple[Gaussian, ...]:
    """The paid count as an event of the plan; nothing when the size is public. Depends on the budget alone."""
    if facts.size_is_public:
        return ()
    mu = mu_of(facts.budget.epsilon, facts.budget.delta)
    if facts.budget.adjacency == "replace_one":  # where a Gaussian costs twice its mu; private there if persons differ
        mu /= 2
    return (Gaussian(1 / (mu * math.sqrt(SIZE_SHARE))),)
