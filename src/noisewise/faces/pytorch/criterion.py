"""The loss of a private loop: it computes each record's loss alone, and is the only way from outputs to the books."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules import module as of_torch
from torch.utils._pytree import tree_leaves

from ...trusted.engine import Layout, Refused, Tape
from ...trusted.engine.alone import LossOfOne, one_each, opened, outputs_of
from ...trusted.engine.tape import map_tensors
from ...trusted.torch_extra import Tensor, torch
from .handed_over import Handed, unmarked
from .rehearsals import Rehearsals
from .run import OTHER_ROWS, EngineRun

# Calls of a module in a loop of the user's own: in training each record goes through it alone, and the books wait for a loss.
#
# ``module.forward`` is stood in for, so that the module stays what it is: names in its state_dict, its own methods, its type.


ROWS = "_noisewise_rows"  # of an output: the books, the mark of the piece, and the tensor of all records that it shows
STALE = (
    "rows of an earlier batch, or of several, come to the module; give it the rows that the data loader handed out last, or "
    "what torch functions make of them alone"
)


class Forward:
    """Stands in for ``module.forward``. A copy of the module has its own forward back: it is no part of the private run."""

    def __init__(self, module: nn.Module, run: EngineRun, rehearsals: Rehearsals, *, attached: bool) -> None:
        """``attached``: outputs keep their graph, so that any loss reaches the books; else a criterion's alone does."""
        self._module, self._run, self._rehearsals, self._attached = module, run, rehearsals, attached
        self.own = module.forward
        self._trains = [(each, each.requires_grad) for each in module.parameters()]
        refuse_outside(module)
        module.forward = self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.own, memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._module, "forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        (args, kwargs), marks = unmarked((args, kwargs))
        run, ticket, rows = self._run, self._run.mark(), rows_of((args, kwargs))
        trains = self._module.training and torch.is_grad_enabled() and ticket is not None
        if rows == 0:
            if trains:
                run.passed_nothing()
            args, kwargs = map_tensors(_one_row, (args, kwargs))
            return map_tensors(_no_row, self.own(*args, **kwargs))
        if not trains:
            return self.own(*args, **kwargs)
        if rows is None:
            raise Refused("the module was called without a tensor of rows; call it with the batch, records first")
        if any(mark is not ticket for mark in marks):
            raise Refused(STALE)
        if not marks and run.marks:
            raise Refused(OTHER_ROWS)
        refuse_outside(self._module)
        if any(isinstance(one, list) and one and isinstance(one[0], int | float) for one in (*args, *kwargs.values())):
            raise Refused(
                "a list of numbers in the call would be every record's; pass a tensor with a row for each record"
            )
        self._same_parameters()
        return self._private(args, kwargs, rows, ticket)

    def _private(self, args: Any, kwargs: Any, rows: int, ticket: object) -> Any:
        run = self._run
        layout = self._rehearsed(args, kwargs)
        tape, outputs = self._alone(args, kwargs, rows, layout)
        kept = [(each.grad, None if each.grad is None else each.grad._version) for each in run.parameters]
        tape.on_end = lambda: self._ended(tape, rows, ticket, kept)
        if self._attached:
            tape.scale = rows if run.mean else 1
            return outputs_of(tape, outputs, self._with_graph)
        return outputs_of(tape, outputs, lambda whole, one: self._shown(tape, ticket, whole, one))

    def _with_graph(self, whole: Tensor, one: Tensor) -> Tensor:
        if not one.dim():  # a loss inside of the module, one for each record
            return whole.mean() if self._run.mean else whole.sum()
        return in_a_batch(whole, one)

    def _shown(self, tape: Tape, ticket: object, whole: Tensor, one: Tensor) -> Tensor:
        shown = whole.detach().mean() if not one.dim() else in_a_batch(whole.detach(), one)
        setattr(shown, ROWS, (tape, ticket, whole))
        return shown

    def _alone(self, args: Any, kwargs: Any, rows: int, layout: Layout) -> tuple[Tape, Any]:
        """A pass over all rows; where a function raises, those rows that it raises for alone are left out."""
        run, seed = self._run, self._run.words()
        try:
            return self._tried(args, kwargs, rows, layout, seed)
        except Refused:
            raise
        except Exception:
            bad = torch.tensor([not self._works(args, kwargs, row, layout) for row in range(rows)])
        places = torch.arange(rows).masked_fill(bad, int(bad.long().argmin()))
        stand_ins = map_tensors(lambda one: one[places.to(one.device)], (args, kwargs))
        if bool(bad.all()):
            stand_ins = map_tensors(torch.zeros_like, (args, kwargs))
        tape, outputs = self._tried(stand_ins[0], stand_ins[1], rows, layout, run.words())
        tape.leave_out(bad.to(tape.token.device))
        return tape, outputs

    def _tried(self, args: Any, kwargs: Any, rows: int, layout: Layout, seed: int) -> tuple[Tape, Any]:
        tape = Tape(self._run.parameters, rows, channels_last=layout.channels_last)
        with opened(tape, self._module, seed=seed):
            inputs = one_each(tape, (args, kwargs), copied=layout.writes)
            outputs = self.own(*inputs[0], **inputs[1])
        return tape, outputs

    def _works(self, args: Any, kwargs: Any, row: int, layout: Layout) -> bool:
        one = map_tensors(lambda value: value[row : row + 1], (args, kwargs))
        try:
            self._tried(one[0], one[1], 1, layout, self._run.words())
        except Exception:
            return False
        return True

    def _rehearsed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Layout:
        """What is known of such a call; one that looks new is rehearsed before the module sees its rows."""
        layout = self._rehearsals.of_call(args, kwargs)
        if layout.names != self._run.layout.names:
            raise Refused("the module trains other parameters in this call than in others; call it in one way")
        return layout

    def _same_parameters(self) -> None:
        now = [*self._module.parameters()]
        if len(now) != len(self._trains) or any(
            one is not each or one.requires_grad != before
            for one, (each, before) in zip(now, self._trains, strict=True)
        ):
            raise Refused(
                "a parameter was frozen or set free, added or replaced after make_private, which fixed what trains; do that first, then "
                "call make_private"
            )

    def _ended(self, tape: Tape, rows: int, ticket: object, kept: list[tuple[Tensor | None, int | None]]) -> None:
        """The backward pass is over; a parameter that got a gradient by another way has slipped by."""
        try:
            for each, (grad, version) in zip(self._run.parameters, kept, strict=True):
                if each.grad is not None and (each.grad is not grad or grad._version != version):
                    raise Refused("a parameter got a gradient that was not clipped: use it inside of the module alone")
            self._run.passed(tape, rows, ticket)
        finally:
            tape.free()


def refuse_outside(module: nn.Module) -> None:
    """Refuse what would run around ``forward``, on all rows at once."""
    hooked = module._forward_pre_hooks or module._forward_hooks
    if hooked or of_torch._global_forward_hooks or of_torch._global_forward_pre_hooks:
        raise Refused(
            "a hook on the module itself sees all records of a batch; put it on a part of the module, or remove it"
        )
    if type(module).__call__ is not nn.Module.__call__:
        raise Refused("the module has a __call__ of its own, which sees all records of a batch; do that in forward")


def take_off(module: nn.Module) -> None:
    """End an earlier run's part in a module: that run cannot step any more."""
    if isinstance(module.forward, Forward):
        own = module.forward.own
        del module.forward
        if module.forward != own:
            module.forward = own


def in_a_batch(whole: Tensor, one: Tensor) -> Tensor:
    """Outputs of all records, (batch, ...), as a batch of them looks: the batch stands where the record's one was."""
    at = next((dim for dim, length in enumerate(one.shape) if length == 1), None)
    if at is None:
        raise Refused("the module gives a tensor without a dimension for the batch; keep that dimension, records first")
    return whole.squeeze(at + 1).movedim(0, at)


def rows_of(given: Any) -> int | None:
    """How many rows a call of the module has: the length of its first tensor."""
    return next((int(leaf.shape[0]) for leaf in tree_leaves(given) if isinstance(leaf, Tensor) and leaf.dim()), None)


def _one_row(leaf: Tensor) -> Tensor:
    """Zeros in place of no row: a made-up record, of which nothing is kept. Modules that reshape cannot take an empty batch."""
    return leaf.new_zeros((1, *leaf.shape[1:])) if leaf.dim() and leaf.shape[0] == 0 else leaf


def _no_row(leaf: Tensor) -> Tensor:
    return leaf[:0] if leaf.dim() and leaf.shape[0] == 1 else leaf


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
