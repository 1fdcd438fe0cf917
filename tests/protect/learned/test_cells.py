"""The cells are torch's LSTM cells, coordinate by coordinate."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from noisewise.protect.learned.fast import empty_memory, net_from, run_net
from noisewise.protect.learned.parts import new_cell, no_memory, run
from noisewise.protect.learned.weights import LstmCell, cell_from


def a_cell(inputs=4, outputs=2, units=6, depth=2, seed=0):
    return new_cell(inputs, outputs, units=units, generator=torch.Generator().manual_seed(seed), depth=depth)


def inputs_for(rows, steps=5, inputs=4):
    return torch.randn(steps, rows, inputs, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_it_is_torchs_own_cell(depth):
    g, xs = torch.Generator().manual_seed(2), inputs_for(7)
    cell = cell_from({k: torch.randn(w.shape, generator=g) for k, w in a_cell(depth=depth).tensors().items()})
    layers = []
    for number, (into, memory, into_bias, memory_bias) in enumerate(cell.layers):
        layer = torch.nn.LSTMCell(4 if number == 0 else 6, 6)
        layer.load_state_dict({"weight_ih": into, "weight_hh": memory, "bias_ih": into_bias, "bias_hh": memory_bias})
        layers.append(layer)
    states, memory = [None] * depth, no_memory(cell, 7)
    for x in xs:
        out, memory = run(cell, x, memory)
        with torch.no_grad():
            for number, layer in enumerate(layers):
                states[number] = layer(x, states[number])
                x = states[number][0]
        assert torch.allclose(out, x @ cell.head.T + cell.bias, atol=1e-6)
        for (h, c), (own_h, own_c) in zip(states, memory, strict=True):
            assert torch.allclose(h, own_h, atol=1e-6) and torch.allclose(c, own_c, atol=1e-6)


@pytest.mark.parametrize("own", [4, 2])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_so_is_the_cell_of_arrays(depth, own):
    """Where all inputs differ from row to row, and where the last ones are shared."""
    g, xs = torch.Generator().manual_seed(2), inputs_for(7)
    xs[:, :, own:] = xs[:, :1, own:]
    cell = cell_from({k: torch.randn(w.shape, generator=g) for k, w in a_cell(depth=depth).tensors().items()})
    net = net_from(cell_from({name: weight.numpy() for name, weight in cell.tensors().items()}), own)
    states, memory = [(torch.zeros(7, 6), torch.zeros(7, 6)) for _ in cell.layers], empty_memory(net, 7)
    for x in xs:
        out, memory = run_net(net, x[:, :own].T.numpy(), x[0, own:].tolist(), memory)
        for number, layer in enumerate(cell.layers):
            states[number] = torch.lstm_cell(x, states[number], *layer)
            x = states[number][0]
        assert out.dtype == np.float32 and out == pytest.approx((x @ cell.head.T + cell.bias).T.numpy(), abs=1e-6)
        for state, found in zip(states, memory, strict=True):
            assert all(two == pytest.approx(one.T.numpy(), abs=1e-6) for one, two in zip(state, found, strict=True))


def test_shapes_and_names_survive_a_round_trip():
    cell = a_cell()
    assert (cell.inputs, cell.units, len(cell.bias)) == (4, 6, 2)
    again = cell_from(cell.tensors())
    for name, weight in cell.tensors().items():
        assert torch.equal(again.tensors()[name], weight)
    assert set(cell.tensors()) == {"head", "head_bias"} | {
        f"layer{n}.{part}" for n in (0, 1) for part in ("input", "memory", "input_bias", "memory_bias")
    }


def misfits():
    def without(name):
        return lambda tensors: {key: weight for key, weight in tensors.items() if key != name}

    def instead(name, shape):
        return lambda tensors: {**tensors, name: torch.zeros(shape)}

    for name in a_cell().tensors():
        yield pytest.param(without(name), id=f"without {name}")
        yield pytest.param(instead(name, (5, 5)), id=f"square {name}")
        yield pytest.param(instead(name, (3,)), id=f"short {name}")
        yield pytest.param(instead(name, ()), id=f"number {name}")
        yield pytest.param(instead(name, (0, 0)), id=f"empty {name}")
        yield pytest.param(instead(name, (2, 2, 2)), id=f"cube {name}")
    yield pytest.param(instead("layer2.input", (24, 6)), id="half a layer")
    yield pytest.param(instead("extra", (1,)), id="extra")
    yield pytest.param(lambda tensors: {}, id="nothing")
    yield pytest.param(lambda tensors: {k.replace("layer0", "layer9"): w for k, w in tensors.items()}, id="gap")


@pytest.mark.parametrize("change", list(misfits()))
def test_misfits_are_refused(change):
    with pytest.raises(ValueError, match="cell"):
        cell_from(change(a_cell().tensors()))


def test_a_fresh_head_changes_almost_nothing():
    cell = a_cell()
    out, _ = run(cell, 100 * inputs_for(50)[0], no_memory(cell, 50))
    assert float(out.abs().max()) < 0.05
    assert not a_cell().bias.any()
    assert not torch.equal(a_cell(seed=1).head, a_cell(seed=2).head)


def test_permuting_the_rows_permutes_the_outputs():
    cell, xs, order = a_cell(), inputs_for(9), torch.randperm(9, generator=torch.Generator().manual_seed(3))
    cell = LstmCell(cell.layers, 100 * cell.head, cell.bias + 0.5)
    one, other = no_memory(cell, 9), no_memory(cell, 9)
    for x in xs:
        first, one = run(cell, x, one)
        second, other = run(cell, x[order], other)
        assert torch.allclose(first[order], second, atol=1e-6)
        assert not torch.allclose(first, second, atol=1e-3)


def test_rows_do_not_feel_each_other():
    cell, xs = a_cell(), inputs_for(4)
    memory, alone = no_memory(cell, 4), [no_memory(cell, 1) for _ in range(4)]
    for x in xs:
        out, memory = run(cell, x, memory)
        for row in range(4):
            own, alone[row] = run(cell, x[row : row + 1], alone[row])
            assert torch.allclose(out[row], own[0], atol=1e-6)
