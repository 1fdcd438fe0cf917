"""LSTM, GRU and plain recurrent layers: a step makes states of W_ih x_t + b_ih and W_hh h_{t-1} + b_hh.

With d_t the gradient of what is added, a record's gradient of W_ih is the sum over steps of d_t x_t^T, of W_hh that of
d_t h_{t-1}^T: dense layers over positions. Products with inputs are made for all steps at once.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..tape import Tape, rule
from ..torch_names import below, is_batched
from .linear import bias_entry, dense, product_entry

PACKED = (
    "packed sequences lay records end to end; pad them, pass a plain tensor, and read each record's last step by gather"
)


def _lstm(a: Tensor, b: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    i, f, g, o = (a + b).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru(a: Tensor, b: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    (r, z, n), (s, y, m) = a.chunk(3, -1), b.chunk(3, -1)
    update = (z + y).sigmoid()
    return ((1 - update) * (n + (r + s).sigmoid() * m).tanh() + update * h,)


def _tanh(a: Tensor, b: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    return ((a + b).tanh(),)


def _relu(a: Tensor, b: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    return ((a + b).relu(),)


class _Lstm(torch.autograd.Function):
    """All steps of an LSTM, (steps, batch, width): :func:`_lstm`, step after step, in less time.

    tanh x = 2 sigmoid(2 x) - 1, so that one call makes all gates; what does not wait for the next step is computed for all.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, h: Tensor, c: Tensor, w_hh: Tensor) -> Any:
        gates, turned = torch.add(a, b, out=a.new_empty(a.shape)), w_hh.t().clone(memory_format=torch.contiguous_format)
        width = w_hh.shape[1]
        gates[..., 2 * width : 3 * width] *= 2
        turned[:, 2 * width : 3 * width] *= 2
        (i, f, s, o), hs, cs = (gate.unbind() for gate in gates.chunk(4, 2)), [h], [c]
        for t, gate in enumerate(gates.unbind()):
            gate.addmm_(hs[t], turned).sigmoid_()
            cs.append((f[t] * cs[t]).sub_(i[t]).addcmul_(i[t], s[t], value=2))
            hs.append((2 * cs[-1]).sigmoid_().mul_(2).sub_(1).mul_(o[t]))
        all_c = torch.stack(cs)
        ctx.save_for_backward(gates, all_c, w_hh)
        return torch.stack(hs[1:]), all_c[-1].clone()

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> Any:
        (given, dc), (gates, cs, w_hh) = outputs, ctx.saved_tensors
        (i, f, s, o), tanh_c = gates.chunk(4, 2), (2 * cs[1:]).sigmoid_().mul_(2).sub_(1)
        g, carry = 2 * s - 1, o * (1 - tanh_c * tanh_c)
        found = torch.stack([g * i * (1 - i), cs[:-1] * f * (1 - f), i * (1 - g * g), tanh_c * o * (1 - o)], 2)
        by_c, by_h, whole = found[:, :, :3].unbind(), found[:, :, 3].unbind(), found.flatten(2)
        dh, steps = torch.zeros_like(given[0]), zip(f.unbind(), carry.unbind(), given.unbind(), strict=True)
        for t, (forget, slope, here) in reversed([*enumerate(steps)]):
            dh = dh.add_(here)
            dc = torch.addcmul(dc, dh, slope)
            by_c[t].mul_(dc.unsqueeze(1))
            by_h[t].mul_(dh)
            dc, dh = dc * forget, whole[t] @ w_hh
        return whole, whole, dh, dc, None


def _one_way(tape: Tape, cell: Any, x: Tensor, states: Any, weights: Any) -> Any:
    """One layer in one direction on (batch, each, steps, width): outputs and last states."""
    w_ih, w_hh, b_ih, b_hh = weights if len(weights) == 4 else (*weights, None, None)
    of_state, of_bias, before = tape.key(w_hh), tape.key(b_hh), list[Tensor]()

    def book(b: Tensor) -> None:
        d, h = b.flatten(1, 2), before[0].flatten(1, 2)
        tape.book(of_state, lambda: product_entry(h, d, of_state))  # type: ignore[arg-type]
        tape.book(of_bias, lambda: bias_entry(d, of_bias))  # type: ignore[arg-type]

    inputs = dense(tape, x, w_ih, b_ih, tape.key(w_ih))
    plain, bias = w_hh.detach(), inputs.new_zeros(inputs.shape[-1]) if b_hh is None else b_hh.detach()
    a, b = (part.flatten(0, 1).transpose(0, 1) for part in (inputs, tape.booked(bias.expand(inputs.shape), book)))
    first = states[0]
    if cell is _lstm:
        outputs, last = _Lstm.apply(a, b, *states, plain)
        states = outputs[-1], last
    else:
        found = []
        for own, inner in zip(a.unbind(), b.unbind(), strict=True):
            states = cell(own, torch.addmm(inner, states[0], plain.t()), *states)
            found.append(states[0])
        outputs = torch.stack(found)
    before.append(torch.cat([first[None], outputs[:-1]]).detach().transpose(0, 1).unflatten(0, x.shape[:2]))
    return outputs.transpose(0, 1).unflatten(0, x.shape[:2]), states


def _layers(tape: Tape, cell: Any, *args: Any) -> Any:
    if len(args) != 9 or not isinstance(args[3], bool):
        tape.refuse(PACKED)
    x, hx, weights, biased, layers, dropout, training, both, batch_first = args
    ways, each = 2 if both else 1, 4 if biased else 2
    keys = [tape.key(weight) for weight in weights]
    if any(map(is_batched, weights)) or any(key is not None and key.number < 0 for key in keys):
        tape.refuse("a recurrent layer whose weights are made of others (dropout of weights); use cells, step by step")
    if len(weights) != each * layers * ways:
        tape.refuse("an LSTM with proj_size is not supported; use a Linear layer behind it")
    if x.dim() != 3:
        tape.refuse("a recurrent layer needs batches of sequences; pass (batch, length, width) and batch_first=True")
    whole = _of_all(tape, x)
    # (batch, layers, each, width)
    firsts = [_of_all(tape, state) for state in ((hx,) if isinstance(hx, Tensor) else hx)]
    with below():
        x, ends = whole if batch_first else whole.transpose(1, 2), list[Any]()
        for layer in range(layers):
            sides = []
            for back in range(ways):
                at = len(ends)
                states = tuple(first[:, at].flatten(0, 1) for first in firsts)
                own = weights[each * at : each * (at + 1)]
                side, end = _one_way(tape, cell, x.flip(2) if back else x, states, own)
                sides.append(side.flip(2) if back else side)
                ends.append(end)
            x = torch.cat(sides, 3) if both else sides[0]
            if dropout and training and layer < layers - 1:
                x = F.dropout(x, dropout, training=True)
        last = [torch.stack([end[n].unflatten(0, x.shape[:2]) for end in ends], 1) for n in range(len(firsts))]
    return tuple(map(tape.wrapped, (x if batch_first else x.transpose(1, 2), *last)))


def _of_all(tape: Tape, value: Tensor) -> Tensor:
    """A tensor of all records, of one that may be the same for each, or a parameter."""
    key = tape.key(value)
    whole = tape.physical(value if key is None else tape.repeated(key))
    return value.expand(tape.batch, *value.shape) if whole is None else whole


def _step(
    tape: Tape, cell: Any, input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
) -> Any:
    with tape:
        states = (hx,) if isinstance(hx, Tensor) else hx
        found = cell(F.linear(input, w_ih, b_ih), F.linear(states[0], w_hh, b_hh), *states)
        return found if cell is _lstm else found[0]


def _with(cell: Any, run: Any) -> Any:
    return lambda tape, *args, **kwargs: run(tape, cell, *args, **kwargs)


for cell, layer, step in (
    (_lstm, torch.lstm, torch.lstm_cell), (_gru, torch.gru, torch.gru_cell),
    (_tanh, torch.rnn_tanh, torch.rnn_tanh_cell), (_relu, torch.rnn_relu, torch.rnn_relu_cell),
):  # fmt: skip
    rule(layer, both=True)(_with(cell, _layers))
    rule(step, both=True)(_with(cell, _step))


@rule(torch._pack_padded_sequence, always=True)
def packed(tape: Tape, *_: Any) -> Any:
    tape.refuse(PACKED)
