"""The loss of a private loop: it computes each record's loss alone, and is the only way from outputs to the books."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from ...trusted.engine import Refused, Tape
from ...trusted.engine.alone import LossOfOne, one_each, opened
from ...trusted.engine.tape import map_tensors
from ...trusted.torch_extra import Tensor, torch
from .calls import ROWS, STALE
from .handed_out import Handed, unmarked
from .run import EngineRun

# Of every tensor: whether it has a row for each record, whether the module gave it, and its shape.
Kinds = list[tuple[bool, bool, Any]]


class Criterion(nn.Module):
    """What ``make_private(criterion=...)`` returns: the mean (or sum) of each record's own loss.

    Outputs of the module come without a graph, so no other loss reaches its parameters. Whatever is done with the number,
    a backward pass counts each record's own loss once. Outside of training it is the loss that was given.
    """

    def __init__(self, criterion: Callable[..., Any], run: EngineRun | None = None) -> None:
        super().__init__()
        self.criterion, self.run, self._alone = criterion, run, LossOfOne(criterion)

    def forward(self, outputs: Any, *targets: Any) -> Any:
        found: list[Any] = []  # what the module gave
        marks: list[object] = []
        kinds: Kinds = []

        def whole(leaf: Tensor) -> Tensor:
            """All records' outputs for those that the loop was shown; an ordinary tensor for one that was handed out."""
            rows = getattr(leaf, ROWS, None)
            kinds.append((rows is not None or isinstance(leaf, Handed), rows is not None, leaf.shape))
            if rows is not None:
                found.append(rows)
                return rows[2]
            plain, more = unmarked(leaf)
            marks.extend(more)
            return plain

        given = map_tensors(whole, (outputs, targets))
        if self.run is None or not found:
            return self._without_rows(*given)
        tape: Tape = found[0][0]
        ticket = self.run.mark()
        if any(one is not tape or mark is not ticket for one, mark, _ in found) or any(
            mark is not ticket for mark in marks
        ):
            raise Refused(STALE)
        if any(dealt and not shown and shape[:1] != (tape.batch,) for dealt, shown, shape in kinds):
            raise Refused(
                "the criterion is given something of the batch that has no row for each record; compute it inside of it"
            )
        losses = self._of_each(tape, given, kinds)
        return _Shown.apply(losses.detach().mean() if self.run.mean else losses.detach().sum(), losses)

    def _without_rows(self, outputs: Any, targets: Any) -> Any:
        """Outside of training the loss that was given; in training, something that says what to do when it is gone back from."""
        if self.run is None or not torch.is_grad_enabled() or self.run.mark() is None:
            return self.criterion(outputs, *targets)
        if self.run.waits_for_nothing():
            return torch.zeros((), requires_grad=True)
        with torch.no_grad():
            number = self.criterion(outputs, *targets)
        return _Wrong.apply(torch.zeros((), requires_grad=True), number)

    def _of_each(self, tape: Tape, given: Any, kinds: Kinds) -> Tensor:
        """The loss of each record; where a function raises, records that it raises for alone are left out."""
        try:
            return self._tried(tape, given, kinds)
        except Refused:
            raise
        except Exception:
            bad = torch.tensor([not self._works(tape, given, kinds, row) for row in range(tape.batch)])
        places, own = torch.arange(tape.batch).masked_fill(bad, int(bad.long().argmin())), iter(kinds)

        def stand_in(leaf: Tensor) -> Tensor:
            if not next(own)[0]:
                return leaf
            gone = bad.to(leaf.device).view(-1, *[1] * (leaf.dim() - 1))
            return torch.where(gone, 0 if bool(bad.all()) else leaf.detach()[places.to(leaf.device)], leaf)

        tape.failed = None
        losses = self._tried(tape, map_tensors(stand_in, given), kinds)
        tape.leave_out(bad.to(tape.token.device))
        return losses

    def _tried(self, tape: Tape, given: Any, kinds: Kinds) -> Tensor:
        own = iter(kinds)

        def one(leaf: Tensor) -> Any:
            dealt, shown, _ = next(own)
            if shown:
                return tape.wrapped(leaf)
            return one_each(tape, leaf) if dealt else leaf

        with opened(tape, self._alone.call, seed=None if self.run is None else self.run.words()):
            outputs, targets = map_tensors(one, given)
            losses = tape.physical(self._alone(outputs, *targets))
        if losses is None:
            raise Refused(
                "the criterion gives a number that does not depend on the record; give it the module's outputs"
            )
        return losses

    def _works(self, tape: Tape, given: Any, kinds: Kinds, row: int) -> bool:
        own = iter(kinds)

        def one(leaf: Tensor) -> Tensor:
            return leaf.detach()[row : row + 1] if next(own)[0] else leaf

        try:
            self._tried(Tape(tape.parameters, 1), map_tensors(one, given), kinds)
        except Exception:
            return False
        return True


class _Wrong(torch.autograd.Function):
    """A number that cannot be gone back from, with the reason."""

    @staticmethod
    def forward(ctx: Any, token: Tensor, number: Tensor) -> Tensor:
        return number.clone()

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise Refused(
            "the criterion was not given the module's outputs as they are, so it cannot tell records apart; reshape or combine "
            "them inside of the module or of the criterion"
        )


class _Shown(torch.autograd.Function):
    """A number for the loop to look at; going back from it, each record's loss counts once."""

    @staticmethod
    def forward(ctx: Any, number: Tensor, losses: Tensor) -> Tensor:
        ctx.like = losses
        return number.clone()

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        if not bool((slopes[0] == 1).all()):
            raise Refused(
                "something was computed with the number that the criterion gave; call backward() on that number itself, and put "
                "weights and penalties into the criterion, or into the optimizer"
            )
        return None, torch.ones_like(ctx.like)
