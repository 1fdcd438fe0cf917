"""Single layers on random shapes, dropout from a secret seed, and the end of a backward pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from module_networks import Applied
from torch import nn

from noisewise.trusted.engine import Layout, Refused, Spec, Tape, clip_factors, passed, rehearsed
from noisewise.trusted.engine.alone import losses_of
from noisewise.trusted.engine.torch_names import current_level

small = st.integers(1, 4)
shapes = settings(max_examples=12, deadline=None)


def right(module: nn.Module, *inputs: Spec) -> Layout:
    """A rehearsal compares with a loop over records in double precision, and refuses what is not the same."""
    return rehearsed(module, inputs)


def squares(outputs: torch.Tensor) -> torch.Tensor:
    return outputs.square().mean()


@shapes
@given(small, small, st.lists(small, max_size=2), st.booleans())
def test_linear(into, out, positions, bias):
    assert right(nn.Linear(into, out, bias), Spec((*positions, into), torch.float32)).shapes[0] == (out, into)


@shapes
@given(st.data(), st.integers(1, 3))
def test_convolutions(data, dims):
    groups, kernel = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))
    options = {
        "stride": data.draw(st.integers(1, 3)), "padding": data.draw(st.integers(0, 2)),
        "dilation": data.draw(st.integers(1, 2)), "groups": groups, "bias": data.draw(st.booleans()),
    }  # fmt: skip
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    channels, out = groups * data.draw(small), groups * data.draw(small)
    sides = [data.draw(st.integers(5, 7)) for _ in range(dims)]
    right(kind(channels, out, kernel, **options), Spec((channels, *sides), torch.float32))


@shapes
@given(small, st.integers(1, 6), st.lists(small, min_size=1, max_size=2), st.booleans())
def test_embeddings(width, words, positions, padded):
    module = nn.Embedding(words, width, padding_idx=0 if padded else None)
    right(module, Spec(tuple(positions), torch.int64, words))


@shapes
@given(small, st.lists(small, max_size=2), st.booleans())
def test_norms(width, positions, bias):
    right(nn.LayerNorm(2 * width, bias=bias), Spec((*positions, 2 * width), torch.float32))
    right(nn.GroupNorm(2, 2 * width), Spec((2 * width, *positions, 3), torch.float32))


@shapes
@given(small, small, small, st.sampled_from([nn.LSTM, nn.GRU, nn.RNN]), st.booleans(), st.booleans(), st.integers(1, 2))
def test_recurrent_layers(into, width, length, kind, bias, both, layers):
    module = kind(into, width, layers, bias=bias, batch_first=True, bidirectional=both)
    right(module, Spec((length, into), torch.float32))


@shapes
@given(small, st.integers(1, 2), small, small, st.booleans(), st.booleans())
def test_attention(width, heads, length, other, bias, asked):
    own = nn.MultiheadAttention(heads * width, heads, bias=bias, batch_first=True)
    right(
        Applied(lambda m, x: m.own(x, x, x, need_weights=asked)[0], own=own),
        Spec((length, heads * width), torch.float32),
    )
    right(
        Applied(lambda m, x, y: m.own(x, y, y, need_weights=asked)[0], own=own),
        *[Spec((n, heads * width), torch.float32) for n in (length, other)],
    )
    apart = nn.MultiheadAttention(heads * width, heads, bias=bias, batch_first=True, kdim=3, vdim=2)
    specs = [
        Spec((length, heads * width), torch.float32),
        Spec((other, 3), torch.float32),
        Spec((other, 2), torch.float32),
    ]
    right(Applied(lambda m, x, k, v: m.own(x, k, v)[0], own=apart), *specs)


def test_masks_of_attention():
    layer = nn.TransformerEncoderLayer(4, 2, 6, batch_first=True)
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    right(
        Applied(lambda m, x: m.layer(x, src_mask=causal.to(x.dtype), is_causal=True), layer=layer),
        Spec((5, 4), torch.float32),
    )
    padded = Applied(lambda m, x, gone: m.layer(x, src_key_padding_mask=gone & (torch.arange(5) > 0)), layer=layer)
    right(padded, Spec((5, 4), torch.float32), Spec((5,), torch.bool))


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 50), nn.Dropout(0.5), nn.Linear(50, 2))


def test_dropout_is_drawn_from_the_seed_that_is_given_and_leaves_the_callers_numbers_alone():
    module, x = dropping(), torch.randn(6, 8)
    layout = right(module, Spec((8,), torch.float32))

    def losses(seed: int) -> torch.Tensor:
        return passed(module, squares, [x], [], layout, seed=seed)[1]

    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    one, same, other = losses(5), losses(5), losses(6)
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert torch.equal(torch.rand(2), expected)


def test_every_record_draws_its_own_dropout():
    """Alike records have gradients of their own, and norms are those of what is summed."""
    module, x = dropping(), torch.ones(6, 8)
    tape, losses = passed(module, squares, [x], [], right(module, Spec((8,), torch.float32)), seed=1)
    assert len(losses.unique()) == 6
    squared = tape.squared_norms().sum(0)
    for row, one in enumerate(torch.eye(6)):
        part = sum(value.square().sum() for value in tape.sums(one))
        assert torch.isclose(part, squared[row], rtol=1e-4)


def test_the_end_of_every_backward_pass_is_told():
    module, told = dropping(), []
    layout = right(module, Spec((8,), torch.float32))
    for count in (2, 3):
        tape = Tape(layout.parameters(module), count)
        tape.on_end = lambda tape=tape: told.append(tape.squared_norms().shape)
        losses = losses_of(tape, module, squares, [torch.randn(count, 8)], [], layout)
        losses.mean().backward()
    assert told == [(4, 2), (4, 3)] and all(value.grad is None for value in module.parameters())


def test_packed_sequences_are_refused():
    def call(m, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, [x.shape[1]] * len(x), batch_first=True)
        return m.layer(packed)[1]

    for kind in (nn.GRU, nn.LSTM, nn.RNN):
        with pytest.raises(Refused, match="packed sequences"):
            right(Applied(call, layer=kind(3, 2, batch_first=True)), Spec((4, 3), torch.float32))


def test_a_parameter_that_has_no_rule_is_repeated_for_every_record():
    einsum = Applied(lambda m, x: torch.einsum("btd,ed->be", x, m.layer.weight), layer=nn.Linear(3, 4))
    assert right(einsum, Spec((5, 3), torch.float32)).spread == 12
    assert right(nn.Linear(3, 4), Spec((5, 3), torch.float32)).spread == 0


@pytest.mark.parametrize("bias", [True, False])
def test_what_follows_a_layer_may_write_in_place(bias):
    """A rule's result is no view, which autograd would not let anyone write to."""
    for into in ((4,), (5, 4)):
        dense = nn.Sequential(nn.Linear(4, 4, bias), nn.ReLU(inplace=True), nn.Linear(4, 2))
        right(dense, Spec(into, torch.float32))
    right(nn.Sequential(nn.Conv2d(2, 3, 2, bias=bias), nn.ReLU(inplace=True)), Spec((2, 4, 4), torch.float32))
    right(nn.Sequential(nn.LayerNorm(4, bias=bias), nn.ReLU(inplace=True)), Spec((5, 4), torch.float32))
    right(Applied(lambda m, x: m.words(x).mul_(2.0), words=nn.Embedding(9, 4)), Spec((5,), torch.int64, 9))
    right(
        Applied(lambda m, x: m.own(x, x, x)[0].add_(x), own=nn.MultiheadAttention(4, 2, batch_first=True)),
        Spec((5, 4), torch.float32),
    )
    right(
        Applied(lambda m, x: m.layer(x)[0].relu_(), layer=nn.LSTM(4, 3, batch_first=True)), Spec((5, 4), torch.float32)
    )


def test_terms_that_cancel_are_not_taken_for_a_short_gradient():
    """Norms of inner products vanish with the terms, the product that is summed keeps what rounding leaves of them."""
    module = Applied(lambda m, x: m.layer(x).sum(1), layer=nn.Linear(200, 200, bias=False))
    layout = right(module, Spec((4, 200), torch.float32))
    made = torch.Generator().manual_seed(0)
    one, other = (1e4 * torch.randn(64, 1, 200, generator=made) for _ in range(2))
    x = torch.cat([one, other, -one, -other], 1)
    slopes = torch.rand(200, generator=made)
    for row in range(64):
        tape, _ = passed(module, lambda outputs: (outputs * slopes).sum(), [x[row : row + 1]], [], layout)
        (total,) = tape.sums(clip_factors(tape.squared_norms(), 1e-3))
        assert float(total.norm()) <= 1e-3


def test_entries_too_small_to_be_squared_still_count():
    module = nn.Linear(10_000, 2, bias=False)
    layout = right(nn.Linear(4, 2, bias=False), Spec((4,), torch.float32))
    layout = replace(layout, shapes=(module.weight.shape,))
    x = torch.full((1, 10_000), 2e-23)
    tape, _ = passed(module, lambda outputs: (outputs * 1e18).sum(), [x], [], layout)
    (total,) = tape.sums(clip_factors(tape.squared_norms(), 1e-4))
    assert float(total.double().norm()) <= 1e-4


def test_a_seed_leaves_no_trace():
    """Seeding by torch.manual_seed would note, at every pass, what to tell devices that are not there."""
    queued = torch.cuda._queued_calls
    module = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))
    layout = rehearsed(module, [Spec((3,), torch.float32)])
    before, state, x = len(queued), torch.get_rng_state(), torch.ones(8, 3)
    found = [passed(module, squares, [x], [], layout, seed=seed)[1] for seed in (1, 1, 2)]
    assert torch.equal(found[0], found[1]) and not torch.equal(found[1], found[2])
    assert len(queued) == before and torch.equal(torch.get_rng_state(), state)


def test_a_pass_that_fails_leaves_nothing_open():
    """Neither a level nor a mode of torch functions, nor the flag that torch compiles."""

    def call(m, x):
        raise RuntimeError("no")

    module = nn.Linear(3, 2)
    layout = right(module, Spec((3,), torch.float32))
    with pytest.raises(RuntimeError, match="no"):
        passed(
            Applied(call, layer=module),
            squares,
            [torch.ones(2, 3)],
            [],
            replace(layout, names=("layer.weight", "layer.bias")),
        )
    assert current_level() == 0 and torch._C._len_torch_function_stack() == 0 and not torch.compiler.is_compiling()


class Masked(nn.Module):
    """Attention with a mask that is each record's own."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(6, 6)

    def forward(self, x, mask):
        q = self.inside(x).unflatten(2, (2, 3)).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask.unsqueeze(1)).flatten(1)


def test_a_mask_of_a_records_own_stays_with_it():
    """A rehearsal refuses what differs from a loop over single records."""
    layout = rehearsed(Masked(), [Spec(shape, torch.float32) for shape in ((4, 6), (4, 4))])
    assert layout.names == ("inside.weight", "inside.bias")
