"""Any torch module as a model: theta is what trains of it, flat, and gradients come from the module engine.

Module and loss see each record alone, as a batch of one, in one pass over many; norms and clipped sums of gradients follow from
what that pass has booked (:mod:`noisewise.trusted.engine`). Frozen parameters are no part of theta: they cost nothing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..engine import Layout, Refused, Spec, Tape, clip_factors, passed, rehearsed, values
from ..engine.alone import LossOfOne
from ..engine.entries import MAX_GRADIENT_NUMBERS
from ..engine.torch_names import no_other_modes
from ..torch_extra import Tensor, torch
from .base import Model, soft_count
from .batches import Floats
from .module_loss import ModuleLoss, as_module, path_of, steady

if TYPE_CHECKING:
    from torch.nn import Module

ROWS_PER_PASS = 512  # unless asked otherwise


@dataclass(frozen=True, slots=True, repr=False)
class TensorRows:
    """Records as tensors, one entry of the first dimension each: what goes into the module, and what the loss compares."""

    inputs: tuple[Tensor, ...]
    targets: tuple[Tensor, ...]

    def __len__(self) -> int:
        return len(self.inputs[0])

    def _each(self, change: Callable[[Tensor], Tensor]) -> TensorRows:
        return TensorRows(tuple(map(change, self.inputs)), tuple(map(change, self.targets)))

    def take(self, rows: Any) -> TensorRows:
        """Some records, by their numbers."""
        places = torch.as_tensor(rows)
        return self._each(lambda part: part.index_select(0, places))

    def narrow(self, start: int, length: int) -> TensorRows:
        """A view of consecutive records."""
        return self._each(lambda part: part.narrow(0, start, length))

    def to(self, device: Any, floats: torch.dtype) -> TensorRows:
        """On a device, with floating-point numbers as the module has them."""
        return self._each(lambda part: part.to(device, floats if part.is_floating_point() else None))

    def chunks(self, height: int) -> Iterator[TensorRows]:
        """Views of at most ``height`` records."""
        for start in range(0, len(self), height):
            yield self.narrow(start, min(height, len(self) - start))


class ModuleModel(Model):
    """A user's module with a loss, both copied here and rehearsed on made-up rows before any private row.

    ``inputs`` and ``targets`` say what is public of one record's tensors. ``chunk``: rows of one pass, which bounds memory.
    ``arithmetic``: "assumed", "bounded" (:mod:`noisewise.trusted.stores.modules`), or None for the better one that is not slow:
    "bounded" for dense layers alone, whose passes stay in single precision; others run in double precision for it.
    Passes are in train mode, losses in eval mode.
    """

    tensors: ClassVar[bool] = True
    records: ClassVar[str] = "modules"
    loss: ModuleLoss
    world_size: int = 1  # processes that each sum over a part of the records

    def __init__(
        self,
        module: Module,
        loss: Callable[..., Tensor],
        inputs: Sequence[Spec],
        targets: Sequence[Spec] = (),
        *,
        reduction: str | None = None,
        device: Any = None,
        chunk: int = ROWS_PER_PASS,
        arithmetic: str | None = None,
    ) -> None:
        module, loss = uncompiled(module), as_module(loss)
        self.device = torch.device(device if device is not None else _device_of(module))
        self.inputs, self.targets, self.chunk = tuple(inputs), tuple(targets), int(chunk)
        self.path, how = path_of(module), str(reduction or getattr(loss, "reduction", "mean"))
        self._hold(module, loss, how)
        with _on_made_up_rows(self):
            self.layout: Layout = rehearsed(self.module, self.inputs, self.targets, self.loss.call)
        self.chunk = self.within(self.chunk)
        self.bounded = arithmetic == "bounded" or (arithmetic is None and self.layout.plain_linear)
        self._hold(module, loss, how, double=self.double)
        self._rehearse()
        self._refuse_unsteady(arithmetic)
        self._hold(module, loss, how, double=self.double)  # anew: a module may keep something of what it was given
        self._given: Module = _copied(module).to(self.device, torch.float64 if self.double else None)

    def _hold(self, module: Module, loss: Callable[..., Tensor], how: str, *, double: bool = False) -> None:
        kind = torch.float64 if double else None
        self.module: Module = _copied(module).train().to(self.device, kind)
        call = _copied(loss)
        self.loss = ModuleLoss(call.to(self.device, kind) if isinstance(call, torch.nn.Module) else call, how)
        self._loss = LossOfOne(self.loss.call)

    def __deepcopy__(self, memo: dict[int, Any]) -> ModuleModel:
        """A copy with its own module and loss; the layout, which is public and frozen, is shared."""
        own = ModuleModel.__new__(ModuleModel)
        own.__dict__.update(self.__dict__)
        own.module = deepcopy(self.module, memo)
        own.loss = ModuleLoss(deepcopy(self.loss.call, memo), self.loss.reduction)
        own._loss = LossOfOne(own.loss.call)
        return own

    def within(self, rows: int) -> int:
        """``rows``, or fewer where a parameter without a rule is repeated for every row of a pass."""
        return max(1, min(rows, MAX_GRADIENT_NUMBERS // self.layout.spread)) if self.layout.spread else rows

    @property
    def double(self) -> bool:
        """Whether passes run in double precision."""
        return self.bounded and not self.layout.plain_linear

    def _rehearse(self) -> None:
        """Passes over made-up rows: what fails for all records fails here, with its own message."""
        with _on_made_up_rows(self):
            for count in (1, 2, min(self.chunk, 7)):
                rows = made_up(self, count)
                tape, _ = self.booked(rows, 1)
                tape.sums(clip_factors(tape.squared_norms(), 1.0))
                if self.double:
                    tape.term_norms()
                tape.free()
                self.values(rows)

    def _refuse_unsteady(self, arithmetic: str | None) -> None:
        """A module for which a made-up row has other bits at another place of a chunk is not "bounded"."""
        if not self.bounded:
            return
        with own_settings():
            self.bounded = steady(self, made_up(self, self.chunk))
        if arithmetic == "bounded" and not self.bounded:
            raise Refused(
                "in this module a row's gradient depends on its place in a chunk (rounding, or something random like "
                "dropout), which arithmetic='bounded' excludes; pass arithmetic='assumed', other layer sizes, or a module "
                "without randomness"
            )

    @property
    def features(self) -> int:
        return sum(math.prod(spec.shape) for spec in self.inputs)

    @property
    def outputs(self) -> int:
        return max(1, sum(math.prod(spec.shape) for spec in self.targets))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.features, self.outputs

    @property
    def groups(self) -> tuple[int, ...]:
        """Every trained parameter is a layer of its own."""
        return tuple(math.prod(shape) for shape in self.layout.shapes)

    @property
    def floats(self) -> torch.dtype:
        """The floating-point type that passes run in."""
        return torch.float64 if self.double else next(iter(self._trained())).dtype

    def _trained(self) -> list[Tensor]:
        known = dict(self.module.named_parameters())
        return [known[name] for name in self.layout.names]

    def start(self) -> NDArray[np.float32]:
        """The weights that the module was handed over with."""
        return np.array(torch.cat([part.detach().reshape(-1).float().cpu() for part in self._trained()]).numpy())

    def put(self, theta: NDArray[Any]) -> None:
        """Make theta the module's parameters."""
        self._filled(self._trained(), theta)

    def _filled(self, parameters: Sequence[Tensor], theta: NDArray[Any]) -> None:
        whole = torch.from_numpy(np.ascontiguousarray(theta, np.float32))
        with torch.no_grad():
            for own, part in zip(parameters, whole.split(list(self.groups)), strict=True):
                own.copy_(part.view(own.shape))

    def refuse_rows(self, X: Any, y: Any) -> None:
        parts, specs = (*X, *y), (*self.inputs, *self.targets)
        fits = len(parts) == len(specs) and len({len(part) for part in parts}) == 1
        if not fits or any(tuple(part.shape[1:]) != tuple(spec.shape) for part, spec in zip(parts, specs, strict=True)):
            raise ValueError(
                "records must be tensors of the shapes that the module was rehearsed with; pass such tensors"
            )

    # --- passes -------------------------------------------------------------------------------------------------------

    def booked(self, rows: TensorRows, seed: int | None = None) -> tuple[Tape, Tensor]:
        """One pass forwards and backwards: books of every layer, and the loss of each record."""
        rows = rows.to(self.device, self.floats)
        return passed(self.module, self._loss, rows.inputs, rows.targets, self.layout, seed=seed)

    def values(self, rows: TensorRows) -> Tensor:
        """The loss of each record of one pass, in eval mode; NaN for a label or an index out of range."""
        return self._valued(rows)[0]

    def takes(self, rows: TensorRows) -> bool:
        """Whether all labels and indices of these rows are legal for the module and the loss."""
        return not bool(self._valued(rows)[1].any())

    def _valued(self, rows: TensorRows) -> tuple[Tensor, Tensor]:
        rows = rows.to(self.device, self.floats)
        self.module.eval()
        try:
            return values(self.module, self._loss, rows.inputs, rows.targets, self.layout)
        finally:
            self.module.train()

    def _passes(self, theta: NDArray[Any], batch: Any) -> Iterator[Tape]:
        with own_settings():
            self.put(theta)
            for rows in batch.chunks(self.chunk):
                tape, _ = self.booked(rows)
                yield tape
                tape.free()

    # --- public sums --------------------------------------------------------------------------------------------------

    def lay_out(self, X: Any, y: Any) -> Any:
        self.refuse_rows(X, y)
        return TensorRows(tuple(part.clone() for part in X), tuple(part.clone() for part in y))

    def clipped_sum(self, theta: NDArray[Any], batch: Any, clip: float) -> Floats:
        return self.clipped_sum_and_count(theta, batch, clip)[0]

    def clipped_sum_and_count(
        self,
        theta: NDArray[Any],
        batch: Any,
        clip: float,
        *,
        scale: Floats | None = None,
        basis: Floats | None = None,
        threshold: float | None = None,
    ) -> tuple[Floats, Floats | None]:
        total, count = np.zeros(self.dimension), np.zeros(1)
        for tape in self._passes(theta, batch):
            squared = tape.squared_norms()
            total += flat(tape.sums(clip_factors(squared, clip))).numpy()
            if threshold is not None:
                norms = squared.double().sum(0).sqrt().cpu().numpy()
                count += soft_count(norms, np.isfinite(norms), threshold)
        return total, None if threshold is None else count

    def norms(self, theta: NDArray[Any], batch: Any) -> Floats:
        parts = [tape.squared_norms().double().sum(0).sqrt().cpu().numpy() for tape in self._passes(theta, batch)]
        return np.concatenate([np.zeros(0), *parts])

    def losses(self, theta: NDArray[Any], batch: Any) -> Floats:
        with own_settings():
            self.put(theta)
            parts = [self.values(rows).double().detach().cpu().numpy() for rows in batch.chunks(self.chunk)]
        return np.concatenate([np.zeros(0), *parts])

    def per_record(self, theta: NDArray[Any], batch: Any) -> Floats:
        rows = np.zeros((len(batch), self.dimension))
        with own_settings():
            self.put(theta)
            for i, record in enumerate(batch.chunks(1)):
                tape, _ = self.booked(record)
                rows[i] = flat(tape.sums(clip_factors(tape.squared_norms(), math.inf))).numpy()
                tape.free()
        return rows

    def scores(self, theta: NDArray[Any], X: Any) -> Any:
        """The module's outputs for a tuple of inputs."""
        with own_settings(), torch.no_grad():
            self.put(theta)
            outputs: Tensor = self.module(*TensorRows(tuple(X), ()).to(self.device, self.floats).inputs)
        return outputs

    def trained(self, theta: NDArray[Any]) -> Module:
        """A copy of the module with these parameters, as it was handed over otherwise."""
        made = deepcopy(self._given).train()
        known = dict(made.named_parameters())
        self._filled([known[name] for name in self.layout.names], theta)
        return made

    def _rows_alone(self, *_: object, **__: object) -> NoReturn:
        raise ValueError("a module's records are tensors, not rows of numbers; take a method that asks for gradients")

    in_old_basis = rows = _seen = _rows_alone


def made_up(model: ModuleModel, rows: int) -> TensorRows:
    """Made-up records: normal numbers, and whole numbers from the range of their spec, else 0 and 1."""
    generator = torch.Generator().manual_seed(rows)

    def part(spec: Spec) -> Tensor:
        shape = (rows, *spec.shape)
        if spec.dtype.is_floating_point:
            return torch.randn(shape, generator=generator).to(spec.dtype)
        return torch.randint(0, spec.high or 2, shape, generator=generator).to(spec.dtype)

    return TensorRows(tuple(map(part, model.inputs)), tuple(map(part, model.targets)))


def flat(parts: Sequence[Tensor]) -> Tensor:
    """Sums of parameters as one vector in double precision."""
    return torch.cat([part.reshape(-1).double() for part in parts]).cpu()


@contextmanager
def own_settings() -> Iterator[None]:
    """Passes run in here: gradients on, no mode of torch functions but our own, no search for anomalies (a record's NaN)."""
    with (
        no_other_modes(),
        torch.autograd.set_detect_anomaly(False),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        yield


@contextmanager
def _on_made_up_rows(model: ModuleModel) -> Iterator[None]:
    """A failure in here involves no private row, so its message may be shown."""
    try:
        with own_settings():
            yield
    except Refused:
        raise
    except Exception as error:
        shapes = ", ".join(str(list(spec.shape)) for spec in (*model.inputs, *model.targets))
        raise Refused(
            f"{model.path} with the loss {model.loss} fails on made-up records of shapes {shapes}: {type(error).__name__}: "
            f"{error}; mend it, or pass records as it takes them"
        ) from None


def _copied(thing: Any) -> Any:
    """A copy that no other code holds."""
    try:
        return deepcopy(thing)
    except Exception as error:
        raise Refused(
            f"{path_of(thing)} cannot be copied ({type(error).__name__}), and only a copy that nobody else holds sees private "
            "records; pass one that copy.deepcopy takes"
        ) from None


def uncompiled(module: Module) -> Module:
    """The module that ``torch.compile`` was given, if it is compiled: passes run function by function."""
    inside = getattr(module, "_orig_mod", None)
    if inside is None:
        return module
    warnings.warn("the module is compiled; it is trained as it was before torch.compile", stacklevel=4)
    return inside


def _device_of(module: Module) -> torch.device:
    first = next(chain(module.parameters(), module.buffers()), None)
    return torch.device("cpu") if first is None else first.device
