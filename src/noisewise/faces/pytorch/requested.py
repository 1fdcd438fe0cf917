"""What a fit of a module is asked for, resolved from public facts: the method, its steps, its batches, the size."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...accounts import Budget
from ...guest import method_named
from ...methods import Method, makes_a_promise
from ...methods.l2p import L2P
from ...trusted import validate
from ...trusted.events import FULL, Sampling

# of the library's methods, those that ask for gradients alone
METHODS = ("adaptive_clip", "descent", "dpsgd", "dynamic", "l2p", "ppsgd")
USUAL_BATCH = 256
MODULE_TAIL = 0.1  # share of the last steps, or of the budget, whose iterates are averaged: networks keep moving
CLIPPINGS = ("flat", "per_layer")
ARITHMETICS = ("assumed", "bounded")


@dataclass(frozen=True)
class Size:
    """The number of records, as far as that is public: declared, or guessed beforehand."""

    public: float | None
    expected: float | None

    @property
    def known(self) -> float | None:
        """The size from which a rate may be computed."""
        return self.public if self.public is not None else self.expected


def size_of(records: int, budget: Budget, *, size_is_public: bool, expected_size: float | None) -> Size:
    """The size when it is public: declared so, or fixed by the relation. Only then is delta compared with it."""
    validate.positive_or_none(expected_size=expected_size)
    if not size_is_public and budget.adjacency != "replace_one":
        return Size(None, None if expected_size is None else float(expected_size))
    if budget.delta > 1 / records:
        raise ValueError(
            f"delta is {budget.delta!r}, above 1/size = {1 / records:.3g}, which allows publishing a record; pass a delta well "
            f"below it, e.g. {0.1 / records:.1g}"
        )
    if expected_size is not None:
        raise ValueError("expected_size is given, but the size is public; leave expected_size out")
    return Size(float(records), None)


def chosen(method: str | Method | None, protector: str | None, isolation: str = "sandbox") -> Method:
    if protector is not None:
        if method not in (None, L2P.name):
            raise ValueError(f"protector is given, which {L2P.name} runs, and method too; pass one of them")
        return L2P(protector=protector)
    named = method_named("dpsgd" if method is None else method, isolation)
    if not makes_a_promise(named):
        raise ValueError("nonprivate makes no promise; train the module with torch.optim instead")
    if isinstance(method, str | None) and not named.elsewhere and named.name not in METHODS:
        raise ValueError(
            f"method is {named.name!r}, which asks about rows of numbers; pass one of {', '.join(METHODS)}"
        )
    if isinstance(method, str | None) and "tail" in named.settings():
        return named.with_settings(tail=MODULE_TAIL)
    return named


def with_batches(
    method: Method, size: Size, *, steps: int | None, epochs: float | None, batch_size: float | None
) -> Method:
    """The method with the requested steps and batch size: Poisson batches, of a rate fixed beforehand."""
    if steps is not None and epochs is not None:
        raise ValueError("steps and epochs are both given; pass one of them")
    validate.positive_or_none(epochs=epochs, batch_size=batch_size)
    known = method.settings()
    if batch_size is not None and "sampling" not in known:
        raise ValueError(f"batch_size is given, but {method.name} asks all records at every step; leave it out")
    rate = 1.0
    if batch_size is not None or (epochs is not None and "sampling" in known):
        if size.known is None:
            raise ValueError(
                "the size of the data is private, and the rate of batches is fixed beforehand; pass expected_size=, a public "
                "guess, or size_is_public=True"
            )
        rate = min(1.0, (batch_size or USUAL_BATCH) / size.known)
        sampling: Sampling = FULL if rate == 1.0 else ("poisson", rate)
        method = method.with_settings(sampling=sampling)
    if epochs is not None:
        steps = max(1, round(epochs / rate))
    return method if steps is None else method.with_settings(steps=steps)


def with_clip(method: Method, max_grad_norm: float | None, clipping: str, layers: int) -> Method:
    """The method with a clip norm, or with one for each layer that together have the requested norm."""
    validate.one_of(CLIPPINGS, clipping=clipping)
    if clipping == "per_layer":
        if not getattr(method, "layers", False):
            raise ValueError(f"clipping is 'per_layer', which dpsgd has, not {method.name}; pass clipping='flat'")
        norm = 1.0 if max_grad_norm is None else max_grad_norm
        validate.positive(max_grad_norm=norm)
        return method.with_settings(max_grad_norm=(norm / math.sqrt(layers),) * layers)
    return method if max_grad_norm is None else method.with_settings(max_grad_norm=max_grad_norm)


def chunk_for(method: Method, size: Size, most: int, *, padded: bool) -> int:
    """Rows of one pass; where chunks are padded, about a quarter of what a batch is expected to have, by public facts."""
    match getattr(method, "sampling", FULL):
        case (_, float(rate)) if padded and size.known is not None:
            return min(most, max(16, -(-math.ceil(rate * size.known / 4) // 16) * 16))
    return most
