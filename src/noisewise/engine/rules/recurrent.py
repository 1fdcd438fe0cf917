"""LSTM, GRU and plain recurrent layers: one step after the other, with the gate gradients of every step kept.

A step adds W_ih x_t + b_ih and W_hh h_{t-1} + b_hh; with d_t the gradient of what is added, a record's gradient of W_ih is the
sum over steps of d_t x_t^T, of W_hh that of d_t h_{t-1}^T: dense layers over positions. Products with inputs are made for all
steps at once, and everything in the backward pass that does not wait for the next step too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..layout import Where
from ..tape import Tracked, Use, rule
from .linear import bias_entry, product_entry

Kept = tuple[Tensor, ...]


class Cell(NamedTuple):
    """Steps of one layer in one direction: ``forward`` gives outputs, last states and what is kept, ``backward`` gate gradients."""

    gates: int
    states: int
    forward: Callable[..., tuple[Tensor, tuple[Tensor, ...], Kept]]
    backward: Callable[..., tuple[Tensor, Tensor, tuple[Tensor, ...]]]


def _lstm_forward(before: Tensor, states: tuple[Tensor, ...], w_hh: Tensor, b_hh: Tensor | None) -> Any:
    """``before``: inputs' products of all steps, (steps, batch, 4 width)."""
    gates = before if b_hh is None else before.add_(b_hh)
    steps, batch, width = len(gates), gates.shape[1], w_hh.shape[1]
    hs, cs = (torch.cat([state[None], gates.new_empty(steps, batch, width)]) for state in states)
    tanh_c, turned = gates.new_empty(steps, batch, width), w_hh.t().contiguous()
    for t in range(steps):
        a = gates[t]
        a.addmm_(hs[t], turned)
        a[:, : 2 * width].sigmoid_()
        a[:, 2 * width : 3 * width].tanh_()
        a[:, 3 * width :].sigmoid_()
        i, f, g, o = a.chunk(4, 1)
        c = torch.mul(f, cs[t], out=cs[t + 1])
        c.addcmul_(i, g)
        torch.tanh(c, out=tanh_c[t])
        torch.mul(o, tanh_c[t], out=hs[t + 1])
    return hs, (hs[-1], cs[-1]), (hs, cs, tanh_c, gates)


def _lstm_backward(kept: Kept, w_hh: Tensor, given: Tensor, ends: tuple[Tensor, ...]) -> Any:
    """Gradients of what is added at each step, by inputs and by states, and of the first states."""
    _, cs, tanh_c, gates = kept
    steps, batch, width = given.shape
    found, local = torch.empty_like(gates), torch.empty_like(gates)
    i, f, g, o = gates.chunk(4, 2)
    carry = o * (1 - tanh_c * tanh_c)
    torch.mul(g, i * (1 - i), out=local[..., :width])
    torch.mul(cs[:-1], f * (1 - f), out=local[..., width : 2 * width])
    torch.mul(i, 1 - g * g, out=local[..., 2 * width : 3 * width])
    torch.mul(tanh_c, o * (1 - o), out=local[..., 3 * width :])
    dh, dc = given[-1] + ends[0], ends[1]
    for t in range(steps - 1, -1, -1):
        dc = torch.addcmul(dc, dh, carry[t])
        here, there = found[t].view(batch, 4, width), local[t].view(batch, 4, width)
        torch.mul(there[:, :3], dc.unsqueeze(1), out=here[:, :3])
        torch.mul(there[:, 3], dh, out=here[:, 3])
        dc = dc * f[t]
        dh = torch.addmm(given[t - 1], found[t], w_hh) if t else found[t] @ w_hh
    return found, found, (dh, dc)


def _gru_forward(before: Tensor, states: tuple[Tensor, ...], w_hh: Tensor, b_hh: Tensor | None) -> Any:
    steps, batch, width = len(before), before.shape[1], w_hh.shape[1]
    hs = torch.cat([states[0][None], before.new_empty(steps, batch, width)])
    inner, gates, turned = before.new_empty(steps, batch, width), torch.empty_like(before), w_hh.t().contiguous()
    for t in range(steps):
        own = hs[t] @ turned if b_hh is None else torch.addmm(b_hh, hs[t], turned)
        here, inner[t] = gates[t], own[:, 2 * width :]
        torch.add(before[t, :, : 2 * width], own[:, : 2 * width], out=here[:, : 2 * width]).sigmoid_()
        r, z, n = here.chunk(3, 1)
        torch.addcmul(before[t, :, 2 * width :], r, inner[t], out=n).tanh_()
        torch.lerp(n, hs[t], z, out=hs[t + 1])
    return hs, (hs[-1],), (hs, inner, gates)


def _gru_backward(kept: Kept, w_hh: Tensor, given: Tensor, ends: tuple[Tensor, ...]) -> Any:
    hs, inner, gates = kept
    steps, width = len(given), given.shape[2]
    by_input, by_state = torch.empty_like(gates), torch.empty_like(gates)
    r, z, n = gates.chunk(3, 2)
    to_n, to_z, to_r = (1 - z) * (1 - n * n), (hs[:-1] - n) * z * (1 - z), inner * r * (1 - r)
    dh = given[-1] + ends[0]
    for t in range(steps - 1, -1, -1):
        here = by_input[t]
        torch.mul(dh, to_n[t], out=here[:, 2 * width :])
        torch.mul(here[:, 2 * width :], to_r[t], out=here[:, :width])
        torch.mul(dh, to_z[t], out=here[:, width : 2 * width])
        by_state[t, :, : 2 * width] = here[:, : 2 * width]
        torch.mul(here[:, 2 * width :], r[t], out=by_state[t, :, 2 * width :])
        dh = torch.addmm(dh * z[t], by_state[t], w_hh)
        if t:
            dh += given[t - 1]
    return by_input, by_state, (dh,)


def _plain(act: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor]) -> Cell:
    def forward(before: Tensor, states: tuple[Tensor, ...], w_hh: Tensor, b_hh: Tensor | None) -> Any:
        gates = before if b_hh is None else before.add_(b_hh)
        hs, turned = torch.cat([states[0][None], torch.empty_like(gates)]), w_hh.t().contiguous()
        for t in range(len(gates)):
            hs[t + 1] = act(torch.addmm(gates[t], hs[t], turned))
        return hs, (hs[-1],), (hs,)

    def backward(kept: Kept, w_hh: Tensor, given: Tensor, ends: tuple[Tensor, ...]) -> Any:
        (hs,) = kept
        slopes, found = slope(hs[1:]), torch.empty_like(given)
        dh = given[-1] + ends[0]
        for t in range(len(given) - 1, -1, -1):
            torch.mul(dh, slopes[t], out=found[t])
            dh = torch.addmm(given[t - 1], found[t], w_hh) if t else found[t] @ w_hh
        return found, found, (dh,)

    return Cell(1, 1, forward, backward)


CELLS = {
    torch.lstm: Cell(4, 2, _lstm_forward, _lstm_backward),
    torch.gru: Cell(3, 1, _gru_forward, _gru_backward),
    torch.rnn_tanh: _plain(torch.tanh, lambda h: 1 - h * h),
    torch.rnn_relu: _plain(torch.relu, lambda h: (h > 0).to(h.dtype)),
}


class _Layer(torch.autograd.Function):
    """One layer in one direction on (steps, batch, width)."""

    @staticmethod
    def forward(ctx: Any, token: Tensor, cell: Cell, book: Any, weights: Kept, x: Tensor, *states: Tensor) -> Any:
        w_ih, w_hh, *biases = weights
        b_ih, b_hh = biases or (None, None)
        steps, batch = x.shape[:2]
        flat = x.reshape(steps * batch, -1)
        before = flat @ w_ih.t() if b_ih is None else torch.addmm(b_ih, flat, w_ih.t())
        hs, ends, kept = cell.forward(before.view(steps, batch, -1), states, w_hh, b_hh)
        ctx.cell, ctx.book, ctx.weights, ctx.kept = cell, book, weights, kept
        ctx.save_for_backward(x)
        return hs[1:].clone(), *[end.clone() for end in ends]

    @staticmethod
    def backward(ctx: Any, given: Tensor, *ends: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        w_ih, w_hh, *_ = ctx.weights
        by_input, by_state, firsts = ctx.cell.backward(ctx.kept, w_hh, given, ends)
        ctx.book(x, ctx.kept[0][:-1], by_input, by_state)
        ctx.kept = None
        gradient = by_input @ w_ih if ctx.needs_input_grad[4] else None
        return None, None, None, None, gradient, *firsts


def _run(use: Use, cell: Cell, x: Tensor, states: tuple[Tensor, ...], weights: list[Tensor], *, back: bool) -> Any:
    keys = [use.tracked(weight) for weight in weights]

    def book(x: Tensor, h: Tensor, by_input: Tensor, by_state: Tensor) -> None:
        turned = [value.transpose(0, 1) for value in (x, h, by_input, by_state)]
        for number, key in enumerate(keys):
            if key is not None:
                use.book(key, lambda number=number, key=key: _entry(number, key, turned))  # type: ignore[misc]

    if back:
        x = x.flip(0)
    plain = tuple(weight.detach() for weight in weights)
    outputs, *ends = _Layer.apply(use.tape.token, cell, book, plain, x, *states)
    return outputs.flip(0) if back else outputs, ends


def _entry(number: int, key: Tracked, turned: list[Tensor]) -> Any:
    x, h, by_input, by_state = turned
    if number < 2:
        a, b = (x, by_input) if number == 0 else (h, by_state)
        return product_entry(a, b, key, None, False)
    return bias_entry(by_input if number == 2 else by_state, key, None)


@rule(*CELLS)
def recurrent(use: Use) -> Any:
    if len(use.args) != 9 or not isinstance(use.args[2], list | tuple):
        use.tape.refuse("packed sequences lie across records; pad them, and pass a plain tensor")
    x, hx, weights, biased, layers, dropout, training, both, batch_first = use.args
    cell, each = CELLS[use.function], 4 if biased else 2
    if len(weights) != each * layers * (2 if both else 1):
        use.tape.refuse("an LSTM with proj_size is not supported; use a Linear layer behind it")
    if use.where(x) != Where(0 if batch_first else 1):
        use.tape.refuse("records do not lie where the recurrent layer expects them; see its batch_first")
    states = (hx,) if isinstance(hx, Tensor) else tuple(hx)
    out = x.transpose(0, 1) if batch_first else x
    ends: list[Any] = []
    for layer in range(layers):
        sides = []
        for back in (False, True) if both else (False,):
            at = len(ends)
            own = [*weights[each * at : each * at + each]]
            side, end = _run(use, cell, out, tuple(state[at] for state in states), own, back=back)
            sides.append(side)
            ends.append(end)
        out = torch.cat(sides, 2) if both else sides[0]
        if dropout and training and layer < layers - 1:
            out = F.dropout(out, dropout, training=True)
    last = [torch.stack([end[number] for end in ends]) for number in range(cell.states)]
    return out.transpose(0, 1) if batch_first else out, *last
