"""Modules as people write them, from one line to whole models: each with what is public about a record, and what is said if it is refused.

Also what they are compared with: a plain loop over single records in double precision.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from module_networks import Applied, weights
from torch import Tensor, nn
from torch.nn.utils import parametrizations, rnn
from torch.utils.checkpoint import checkpoint

from noisewise.trusted.engine import Layout, Spec, Tape, clip_factors, passed, rehearsed
from noisewise.trusted.engine.rehearsal import Quiet

FLOATS, WHOLE = torch.float32, torch.int64
CROSS_ENTROPY = nn.CrossEntropyLoss()


def numbers(*shape: int) -> Spec:
    return Spec(shape, FLOATS)


def ids(*shape: int, high: int = 10) -> Spec:
    return Spec(shape, WHOLE, high)


def waves(outputs: Any) -> Tensor:
    """A loss without labels, which every output moves."""
    found = outputs if isinstance(outputs, tuple) else (outputs,)
    return sum((value.sin() * 5 + value * value).sum() for value in found)


class Architecture(NamedTuple):
    build: Callable[[], nn.Module]
    inputs: tuple[Spec, ...]
    targets: tuple[Spec, ...] = ()
    loss: Any = waves
    refused: str | None = None  # words of the message


def built(case: Architecture, seed: int = 0) -> nn.Module:
    """In double precision, with biases and scales that are not all alike."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = case.build()
        for value in module.parameters():
            if value.requires_grad:
                value.data += 0.1 * torch.randn_like(value)
    return module.double()


def rows(specs: Sequence[Spec], count: int, seed: int = 1, size: float = 1.0) -> list[Tensor]:
    made = torch.Generator().manual_seed(seed)

    def one(spec: Spec) -> Tensor:
        if spec.dtype.is_floating_point:
            return size * torch.randn(count, *spec.shape, generator=made, dtype=torch.float64)
        return torch.randint(spec.high or 2, (count, *spec.shape), generator=made).to(spec.dtype)

    return [one(spec) for spec in specs]


def labelled(case: Architecture, count: int) -> list[Tensor]:
    """Labels, some of which torch's losses leave out where a record has several."""
    found = rows(case.targets, count, 2)
    for value in found:
        if value.dim() > 1:
            value[::2, 1] = -100
    return found


# --- the loop, and what is compared with it ---


def loss_alone(loss: Any, outputs: Any, targets: Sequence[Tensor]) -> Tensor:
    """The loss of a batch of one; a mean of torch's is one over entries, whatever their weights."""
    if getattr(loss, "reduction", None) != "mean":
        return loss(outputs, *targets)
    entries = copy.copy(loss)
    entries.reduction = "none"
    return entries(outputs, *targets).mean()


def by_loop(module: nn.Module, loss: Any, inputs: Sequence[Tensor], targets: Sequence[Tensor] = ()) -> list[Tensor]:
    """(records, numbers) for each parameter that trains: one pass for every record."""
    parameters = [value for value in module.parameters() if value.requires_grad]
    found: list[list[Tensor]] = [[] for _ in parameters]
    for row in range(len(inputs[0])):
        own = slice(row, row + 1)
        with Quiet():
            outputs = module(*[value[own].clone() for value in inputs])
            value = loss_alone(loss, outputs, [value[own] for value in targets])
        gradients = torch.autograd.grad(value, parameters, allow_unused=True)
        for parts, gradient, parameter in zip(found, gradients, parameters, strict=True):
            parts.append((torch.zeros_like(parameter) if gradient is None else gradient.to_dense()).flatten())
    return [torch.stack(parts) for parts in found]


def flat(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.flatten() for part in parts])


def run(module: nn.Module, loss: Any, inputs: Sequence[Tensor], targets: Sequence[Tensor], layout: Layout) -> Tape:
    with Quiet():
        tape, _ = passed(module, loss, inputs, targets, layout)
    return tape


def errors(tape: Tape, gradients: Sequence[Tensor], clip: float) -> tuple[float, float]:
    """How far norms, and clipped sums of each parameter, are off those of the loop, relative to the norms of the whole."""
    squared = torch.stack([value.square().sum(1) for value in gradients])
    found, norms = tape.squared_norms(), squared.sum(0).sqrt()
    off = float(((found.sum(0).sqrt() - norms).abs() / norms.clamp(min=1e-6 * float(norms.max()))).max())
    factors = clip_factors(squared, clip)
    expected = [factors @ value for value in gradients]
    sums = [value.flatten() for value in tape.sums(clip_factors(found, clip))]
    most = max(float((one - other).norm()) for one, other in zip(sums, expected, strict=True))
    return off, most / float(flat(expected).norm().clamp(min=1e-300))


def half_clipped(gradients: Sequence[Tensor]) -> float:
    """A clip that some records are beyond, and some are not."""
    return float(sum(value.square().sum(1) for value in gradients).sqrt().median())


def largest_moves(
    module: nn.Module,
    loss: Any,
    inputs: Sequence[Tensor],
    targets: Sequence[Tensor],
    layout: Layout,
    clip: float,
    removed: Sequence[int] = (0, 2),
) -> tuple[float, float]:
    """The norm of one record's own part of the sum, and how far the sum moves without the record, in clips."""
    tape = run(module, loss, inputs, targets, layout)
    factors = clip_factors(tape.squared_norms(), clip)
    whole, count = flat(tape.sums(factors)), len(inputs[0])
    own = max(float(flat(tape.sums(factors * one)).norm()) for one in torch.eye(count, dtype=factors.dtype))
    moved = 0.0
    for row in removed:
        left = [at for at in range(count) if at != row]
        rest = run(module, loss, [value[left] for value in inputs], [value[left] for value in targets], layout)
        moved = max(moved, float((whole - flat(rest.sums(clip_factors(rest.squared_norms(), clip)))).norm()))
    return own / clip, moved / clip


def rehearsal_of(case: Architecture, module: nn.Module) -> Layout:
    return rehearsed(module, case.inputs, case.targets, case.loss)


# --- modules of few lines ---


def scaled(call: Callable[..., Tensor]) -> Callable[[], nn.Module]:
    return lambda: Applied(call, layer=nn.Linear(4, 4), scale=nn.Parameter(torch.ones(4)))


def times_in_place(m, x):
    x = m.layer(x)
    x *= m.scale
    return x


def with_weights(call: Callable[..., Any], **shapes: tuple[int, ...]) -> Callable[[], nn.Module]:
    """A function of parameters alone."""
    return lambda: Applied(call, **{name: weights(*shape) for name, shape in shapes.items()})


def of_words(**options: Any) -> Callable[[], nn.Module]:
    return lambda: Applied(lambda m, x: m.words(x).sum(1), words=nn.Embedding(10, 4, **options))


def of_bags(mode: str) -> Callable[[], nn.Module]:
    return lambda: nn.EmbeddingBag(10, 4, mode=mode)


def then_norm(norm: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Conv2d(2, 4, 3), norm())


def attending(call: Callable[..., Tensor], **options: Any) -> Callable[[], nn.Module]:
    return lambda: Applied(call, own=nn.MultiheadAttention(4, 2, **{"batch_first": True, **options}))


def causal(m, x):
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=x.dtype)
    return m.own(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]


def recurrent(kind: type[nn.Module], which: int = 0, **options: Any) -> Callable[[], nn.Module]:
    layer = {"batch_first": True, **options}
    return lambda: Applied(lambda m, x: m.layer(x)[which], layer=kind(3, 4, **layer))


def last_state_first(m, x):
    return m.layer(x)[1].transpose(0, 1)


def packed(m, x):
    sequence = rnn.pack_padded_sequence(x, [x.shape[1]] * len(x), batch_first=True)
    return rnn.pad_packed_sequence(m.layer(sequence)[0], batch_first=True)[0]


def checkpointed(again: bool) -> Callable[[], nn.Module]:
    return lambda: Applied(
        lambda m, x: m.head(checkpoint(m.layer, x, use_reentrant=again)), layer=nn.Linear(4, 4), head=nn.Linear(4, 2)
    )


def with_first_token(spread: Callable[[Tensor, int], Tensor]) -> Callable[[], nn.Module]:
    return lambda: Applied(
        lambda m, x: m.layer(torch.cat([spread(m.first, len(x)), x], 1)), first=weights(1, 1, 4), layer=nn.Linear(4, 4)
    )


def all_experts(m, x):
    return (torch.einsum("bi,eij->bej", x, m.experts) * (x @ m.router).softmax(1).unsqueeze(2)).sum(1)


def best_expert(m, x):
    scores = x @ m.router
    return torch.bmm(x.unsqueeze(1), m.experts[scores.argmax(1)]).squeeze(1) * scores.amax(1, keepdim=True)


def sampled(m, x):
    return F.grid_sample(m.picture.expand(len(x), -1, -1, -1), x.tanh().view(-1, 2, 1, 2), align_corners=True)


def of_buckets(m, x):
    edges = torch.linspace(-1, 1, 4, dtype=x.dtype)
    return torch.bucketize(x, edges).to(x.dtype) @ m.steps.cumsum(0)


def turned_sequence(m, x):
    return m.layer(x.transpose(0, 1).reshape(-1, 4)).view(5, len(x), -1).transpose(0, 1)


def with_bilinear() -> nn.Module:
    return Applied(lambda m, x, y: m.layer(x, y), layer=nn.Bilinear(3, 4, 2))


def pooled() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(2), nn.Conv2d(4, 3, 1), nn.Flatten(), nn.Linear(12, 2)
    )


ROW, SEQUENCE, WORDS = (numbers(4),), (numbers(5, 4),), (ids(6),)
STEPS = (numbers(5, 3),)
PACKED = "packed sequences lay records end to end; pad them"
SHORT = {
    # in place, and element by element
    "a scale, in place": Architecture(scaled(lambda m, x: m.layer(x).mul_(m.scale)), ROW),
    "a scale by *=": Architecture(scaled(times_in_place), ROW),
    "a shift, in place": Architecture(scaled(lambda m, x: m.layer(x).add_(m.scale)), ROW),
    "a scale of a copy, in place": Architecture(with_weights(lambda m, x: x.clone().mul_(m.w), w=(4,)), ROW),
    "addcmul": Architecture(with_weights(lambda m, x: torch.addcmul(m.b, m.w, x), w=(4,), b=(4,)), ROW),
    "lerp": Architecture(with_weights(lambda m, x: torch.lerp(x, m.b, m.w), w=(4,), b=(4,)), ROW),
    "where": Architecture(with_weights(lambda m, x: torch.where(x > 0, x, m.w), w=(4,)), ROW),
    "masked_fill and maximum": Architecture(
        lambda: Applied(lambda m, x: m.a(x).masked_fill(x > 0, 0) + torch.maximum(x, m.w), a=nn.Linear(4, 4), w=weights(4)), ROW
    ),
    "pow": Architecture(with_weights(lambda m, x: x.abs().pow(m.w.sigmoid()), w=(4,)), ROW),
    "divided by": Architecture(with_weights(lambda m, x: x / (m.w.square() + 0.5), w=(4,)), ROW),
    "divided by the parameter itself": Architecture(with_weights(lambda m, x: x / m.w, w=(4,)), ROW),
    "subtracted from": Architecture(with_weights(lambda m, x: m.w - x, w=(4,)), ROW),
    "fft": Architecture(with_weights(lambda m, x: torch.fft.irfft(torch.fft.rfft(x) * m.w, n=4), w=(3,)), ROW),
    "prelu": Architecture(lambda: nn.Sequential(nn.Linear(4, 4), nn.PReLU(4)), ROW),
    # products
    "einsum of three": Architecture(
        with_weights(lambda m, x: torch.einsum("bi,ij,jk->bk", x, m.a, m.b), a=(4, 4), b=(4, 4)), ROW
    ),
    "einsum over a sequence": Architecture(
        with_weights(lambda m, x: torch.einsum("bti,ij->btj", x, m.a), a=(4, 4)), SEQUENCE
    ),
    "there and back": Architecture(
        with_weights(lambda m, x: F.linear(torch.tanh(F.linear(x, m.w)), m.w.t()), w=(3, 4)), ROW
    ),
    "three times": Architecture(
        lambda: Applied(lambda m, x: m.a(torch.tanh(m.a(torch.tanh(m.a(x))))), a=nn.Linear(4, 4)), ROW
    ),
    "bilinear": Architecture(with_bilinear, (numbers(3), numbers(4))),
    "experts, all": Architecture(with_weights(all_experts, experts=(3, 4, 2), router=(4, 3)), ROW),
    "experts, the best": Architecture(with_weights(best_expert, experts=(3, 4, 2), router=(4, 3)), ROW),
    "baddbmm": Architecture(
        with_weights(lambda m, x: torch.baddbmm(m.b, x, m.w.expand(len(x), -1, -1)), b=(1, 2), w=(4, 2)), SEQUENCE
    ),
    "tensordot": Architecture(with_weights(lambda m, x: torch.tensordot(x, m.w, 1), w=(4, 2)), SEQUENCE),
    "a vector": Architecture(with_weights(lambda m, x: x @ m.w, w=(4,)), ROW),
    "kron": Architecture(with_weights(lambda m, x: F.linear(x, torch.kron(m.a, m.b)), a=(2, 2), b=(2, 2)), ROW),
    "stacked": Architecture(with_weights(lambda m, x: F.linear(x, torch.stack([m.a, m.b])), a=(4,), b=(4,)), ROW),
    "weights made of the record": Architecture(
        lambda: Applied(lambda m, x: torch.bmm(m.a(x).view(-1, 2, 4), x.unsqueeze(2)), a=nn.Linear(4, 8)), ROW
    ),
    "normalised weights": Architecture(
        with_weights(lambda m, x: F.linear(F.normalize(x), F.normalize(m.w)), w=(3, 4)), ROW
    ),
    "distances to prototypes": Architecture(with_weights(lambda m, x: torch.cdist(x, m.w), w=(3, 4)), ROW),
    "windows": Architecture(lambda: Applied(lambda m, x: m.a(x.unfold(1, 3, 1)), a=nn.Linear(3, 2)), (numbers(8),)),
    "flattened": Architecture(
        lambda: Applied(lambda m, x: m.a(x.reshape(-1, 4)).view(len(x), -1), a=nn.Linear(4, 2)), SEQUENCE
    ),
    "flattened, time first": Architecture(lambda: Applied(turned_sequence, layer=nn.Linear(4, 2)), SEQUENCE),
    # words and places
    "words, tied": Architecture(
        with_weights(lambda m, x: F.linear(F.embedding(x, m.w).mean(1), m.w), w=(10, 4)), WORDS
    ),
    "words, padded": Architecture(of_words(padding_idx=0), WORDS),
    "words, sparse": Architecture(of_words(sparse=True), WORDS),
    "words, of limited norm": Architecture(of_words(max_norm=1.0), WORDS, refused="max_norm .* leave max_norm out"),
    "words, by frequency": Architecture(of_words(scale_grad_by_freq=True), WORDS),
    "a table by places": Architecture(with_weights(lambda m, x: m.w[x].sum(1), w=(10, 4)), WORDS),
    "index_select": Architecture(
        with_weights(lambda m, x: torch.index_select(m.w, 0, x.flatten()).view(len(x), -1), w=(10, 4)), WORDS
    ),
    "gather": Architecture(with_weights(lambda m, x: torch.gather(m.w.expand(len(x), -1), 1, x), w=(10,)), WORDS),
    "take": Architecture(with_weights(lambda m, x: torch.take(m.w, x), w=(10,)), WORDS),
    "one-hot": Architecture(with_weights(lambda m, x: F.one_hot(x, 10).to(m.w.dtype) @ m.w, w=(10, 4)), WORDS),
    "bag, mean": Architecture(of_bags("mean"), WORDS),
    "bag, largest": Architecture(of_bags("max"), WORDS),
    "scatter_add": Architecture(
        with_weights(lambda m, x: m.w.expand(len(x), -1).scatter_add(1, (x > 0).long(), x), w=(4,)), ROW
    ),
    "buckets": Architecture(with_weights(of_buckets, steps=(4,)), ROW),
    "grid_sample": Architecture(with_weights(sampled, picture=(1, 1, 3, 3)), ROW),
    "first token, expanded": Architecture(with_first_token(lambda first, count: first.expand(count, -1, -1)), SEQUENCE),
    "first token, repeated": Architecture(with_first_token(lambda first, count: first.repeat(count, 1, 1)), SEQUENCE),
    "places, a slice": Architecture(
        lambda: Applied(lambda m, x: m.a(x + m.places[:, :5]), places=weights(1, 9, 4), a=nn.Linear(4, 4)), SEQUENCE
    ),
    # norms
    "layer norm without scale": Architecture(
        lambda: nn.Sequential(nn.LayerNorm(4, elementwise_affine=False), nn.Linear(4, 4)), ROW
    ),
    "layer norm": Architecture(lambda: nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4)), SEQUENCE),
    "rms norm": Architecture(lambda: nn.Sequential(nn.RMSNorm(4), nn.Linear(4, 4)), SEQUENCE),
    "group norm": Architecture(then_norm(lambda: nn.GroupNorm(2, 4)), (numbers(2, 6, 6),)),
    "instance norm": Architecture(then_norm(lambda: nn.InstanceNorm2d(4, affine=True)), (numbers(2, 6, 6),)),
    "instance norm with running means": Architecture(
        then_norm(lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True)), (numbers(2, 6, 6),),
        refused="running_mean.*track_running_stats=False",
    ),
    "batch norm, frozen": Architecture(lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4).eval()), ROW),
    "batch norm": Architecture(
        lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)), ROW,
        refused="mixes the records of a batch; use GroupNorm",
    ),
    # convolutions
    "convolution, two groups": Architecture(
        lambda: nn.Conv2d(4, 8, 3, stride=2, dilation=2, groups=2, padding=3), (numbers(4, 11, 11),)
    ),
    "convolution by channel": Architecture(lambda: nn.Conv2d(4, 8, 3, groups=4, padding="same"), (numbers(4, 7, 7),)),
    "convolution, same, even": Architecture(
        lambda: nn.Conv2d(2, 3, 4, dilation=2, padding="same"), (numbers(2, 9, 9),)
    ),
    "convolution, circular": Architecture(
        lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (numbers(2, 6, 6),)
    ),
    "convolution, reflecting": Architecture(
        lambda: nn.Conv1d(2, 3, 3, padding=1, padding_mode="reflect"), (numbers(2, 6),)
    ),
    "convolution in space": Architecture(lambda: nn.Conv3d(2, 3, 2, stride=(1, 2, 1)), (numbers(2, 4, 5, 4),)),
    "transposed convolution": Architecture(
        lambda: nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1, padding=1), (numbers(2, 4, 4),)
    ),
    "transposed convolution, groups": Architecture(lambda: nn.ConvTranspose1d(4, 4, 3, groups=2), (numbers(4, 5),)),
    "convolution that leaps": Architecture(lambda: nn.Conv2d(2, 3, 1, stride=3), (numbers(2, 7, 7),)),
    "convolution, many channels": Architecture(lambda: nn.Conv2d(16, 32, 3), (numbers(16, 4, 4),)),
    "convolution of sound": Architecture(lambda: nn.Conv1d(1, 4, 4, stride=2), (numbers(1, 20),)),
    "pixels shuffled": Architecture(
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.PixelShuffle(2)), (numbers(1, 4, 4),)
    ),
    "pooled": Architecture(pooled, (numbers(1, 4, 4),)),
    # attention
    "attention": Architecture(attending(lambda m, x: m.own(x, x, x, need_weights=False)[0]), SEQUENCE),
    "attention to another": Architecture(attending(lambda m, x, y: m.own(x, y, y)[0]), (numbers(5, 4), numbers(3, 4))),
    "attention to another width": Architecture(
        attending(lambda m, x, y: m.own(x, y, y)[0], kdim=3, vdim=3), (numbers(5, 4), numbers(2, 3))
    ),
    "attention, causal": Architecture(attending(causal), SEQUENCE),
    "attention, padded": Architecture(
        attending(lambda m, x: m.own(x, x, x, key_padding_mask=x[..., 0] > 1.5)[0]), SEQUENCE
    ),
    "attention among records": Architecture(
        attending(lambda m, x: m.own(x, x, x)[0], batch_first=False), SEQUENCE, refused="mixe?s? records.* treat every record by itself"
    ),
    "attention, another tensor of the same": Architecture(attending(lambda m, x: m.own(x, x, x + 0)[0]), SEQUENCE),
    "encoder layer": Architecture(
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), SEQUENCE
    ),
    # recurrent
    "lstm, both ways": Architecture(recurrent(nn.LSTM, num_layers=2, bidirectional=True), STEPS),
    "lstm with projection": Architecture(
        recurrent(nn.LSTM, proj_size=2), STEPS, refused="proj_size is not supported; use a Linear layer behind it"
    ),
    "gru, last states": Architecture(
        lambda: Applied(last_state_first, layer=nn.GRU(3, 4, num_layers=2, batch_first=True)), STEPS
    ),
    "gru, layers first": Architecture(recurrent(nn.GRU, 1, num_layers=2), STEPS),
    "rnn without bias": Architecture(recurrent(nn.RNN, nonlinearity="relu", bias=False), STEPS),
    "lstm, time first": Architecture(
        lambda: Applied(lambda m, x: m.layer(x.transpose(0, 1))[0].transpose(0, 1), layer=nn.LSTM(3, 4)), STEPS
    ),
    "lstm cell": Architecture(lambda: nn.LSTMCell(3, 4), (numbers(3),)),
    "gru cell, two steps": Architecture(
        lambda: Applied(lambda m, x: m.cell(x[:, 1], m.cell(x[:, 0])), cell=nn.GRUCell(3, 4)), STEPS
    ),
    "packed": Architecture(lambda: Applied(packed, layer=nn.LSTM(3, 4, batch_first=True)), STEPS, refused=PACKED),
    # wrapped
    "weight norm": Architecture(lambda: parametrizations.weight_norm(nn.Linear(4, 4)), ROW),
    "weight norm by hooks": Architecture(
        lambda: nn.utils.weight_norm(nn.Linear(4, 4)), ROW, refused=r"cannot be copied \(copy.deepcopy\)"
    ),
    "spectral norm": Architecture(
        lambda: parametrizations.spectral_norm(nn.Linear(4, 4)), ROW, refused="changes the buffer .* switch that off"
    ),
    "orthogonal weights": Architecture(lambda: parametrizations.orthogonal(nn.Linear(4, 4)), ROW),
    "checkpointed, as it was": Architecture(
        checkpointed(True), ROW, refused=r"autograd.Function of its own has no rule .* write it with torch functions"
    ),
    "checkpointed": Architecture(checkpointed(False), ROW, refused="checkpointing, .* switch them off"),
    "compiled": Architecture(
        lambda: torch.compile(nn.Linear(4, 4), backend="eager"), ROW, refused="is compiled .* pass the plain module"
    ),
}  # fmt: skip


# --- whole models, with labels ---


def of_parts(call: Callable[..., Any], **parts: Any) -> Callable[[], nn.Module]:
    """``parts``: functions that make a layer, or shapes of parameters."""
    return lambda: Applied(
        call, **{name: weights(*part) if isinstance(part, tuple) else part() for name, part in parts.items()}
    )


def picture_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2), nn.GroupNorm(2, 8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding="same", dilation=2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 3),
    )  # fmt: skip


def sound_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(3, 6, 3), nn.PReLU(6), nn.ConvTranspose1d(6, 4, 3, stride=2), nn.BatchNorm1d(4).eval(), nn.GELU(),
        nn.AvgPool1d(3), nn.Flatten(), nn.Linear(32, 3),
    )  # fmt: skip


def space_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(1, 4, 3),
        nn.ReLU(),
        nn.MaxPool3d(2),
        nn.InstanceNorm3d(4, affine=True),
        nn.Flatten(),
        nn.Linear(32, 3),
    )


def encoder(m, x):
    return m.head(m.layer(m.words(x) + m.places).mean(1))


def padded_encoder(m, x):
    gone = x.eq(0) & (torch.arange(6) > 0)
    return m.head(m.layers(m.words(x).transpose(0, 1), src_key_padding_mask=gone).mean(0))


def encoder_layers() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def two_attentions(m, q, k, v):
    x = m.own(q, m.own(q, q, q)[0], q)[0]
    return m.head(m.other(x, k, v)[0].mean(1))


def decoder(m, x, memory):
    mask = nn.Transformer.generate_square_subsequent_mask(4, dtype=x.dtype)
    return m.head(m.layer(x, memory, tgt_mask=mask, tgt_is_causal=True).mean(1))


def steps_of_cell(m, x):
    state = None
    for step in range(2):
        state = m.cell(x[:, step], state)
    return m.head(state[0])


class Tied(nn.Module):
    """Words in and words out of one table."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(11, 8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.words(x))).transpose(1, 2)


def many_uses(m, x):
    scores = m.layer((x * m.a + m.b).clamp(-1, 1)) @ (m.c @ m.c.t()) * m.d.exp()
    return scores + torch.einsum("bi,ij->bj", x, m.e) + (x.unsqueeze(1) - m.f).square().sum(-1)


def adapted(m, x):
    """A frozen layer with a low-rank update, once beside it and once added to its weight."""
    beside = m.frozen(x) + x @ m.down.T @ m.up.T
    return m.head(torch.tanh(beside) + F.linear(x, m.frozen.weight + m.up @ m.down)).mean(1)


def bags_and_forms(m, x):
    x = m.bag(x)
    return m.head(m.norm(m.form(x, x)))


def labels(*shape: int, high: int = 3) -> tuple[Spec, ...]:
    return (Spec(shape, WHOLE, high),)


def whole(
    build: Callable[[], nn.Module], *inputs: Spec, loss: Any = CROSS_ENTROPY, targets: Any = None
) -> Architecture:
    return Architecture(build, inputs, targets or labels(), loss)


MODELS = {
    "perceptron": whole(lambda: nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)), numbers(8)),
    "pictures": whole(picture_net, numbers(4, 16, 16)),
    "sound": whole(sound_net, numbers(3, 14)),
    "space": whole(space_net, numbers(1, 6, 6, 6)),
    "encoder": whole(
        of_parts(
            encoder,
            words=lambda: nn.Embedding(20, 16, padding_idx=0),
            layer=lambda: nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True),
            head=lambda: nn.Linear(16, 3),
            places=(1, 6, 16),
        ),
        ids(6, high=20),
    ),
    "encoder, time first, padded": whole(
        of_parts(padded_encoder, words=lambda: nn.Embedding(20, 16), layers=encoder_layers, head=lambda: nn.Linear(16, 3)),
        ids(6, high=3),
    ),
    "two attentions": whole(
        of_parts(
            two_attentions,
            own=lambda: nn.MultiheadAttention(16, 4, batch_first=True, add_bias_kv=True),
            other=lambda: nn.MultiheadAttention(16, 2, kdim=5, vdim=6, batch_first=True),
            head=lambda: nn.Linear(16, 3),
        ),
        numbers(4, 16), numbers(5, 5), numbers(5, 6),
    ),
    "attention to another": whole(
        of_parts(
            lambda m, q, k: m.head(m.own(q, k, k)[0].mean(1)),
            own=lambda: nn.MultiheadAttention(16, 4, batch_first=True),
            head=lambda: nn.Linear(16, 3),
        ),
        numbers(4, 16), numbers(5, 16),
    ),
    "decoder": whole(
        of_parts(
            decoder,
            layer=lambda: nn.TransformerDecoderLayer(16, 4, 32, dropout=0.0, batch_first=True),
            head=lambda: nn.Linear(16, 3),
        ),
        numbers(4, 16), numbers(5, 16),
    ),
    "lstm": whole(
        of_parts(
            lambda m, x: m.head(m.layer(x)[0][:, -1]),
            layer=lambda: nn.LSTM(5, 6, 2, bidirectional=True, batch_first=True),
            head=lambda: nn.Linear(12, 3),
        ),
        numbers(4, 5),
    ),
    "gru": whole(
        of_parts(
            lambda m, x: m.head(m.layer(x.transpose(0, 1))[0][-1]), layer=lambda: nn.GRU(5, 6), head=lambda: nn.Linear(6, 3)
        ),
        numbers(4, 5),
    ),
    "rnn": whole(
        of_parts(
            lambda m, x: m.head(m.layer(x)[0][:, -1]),
            layer=lambda: nn.RNN(5, 6, batch_first=True),
            head=lambda: nn.Linear(6, 3),
        ),
        numbers(4, 5),
    ),
    "cells": whole(of_parts(steps_of_cell, cell=lambda: nn.LSTMCell(5, 6), head=lambda: nn.Linear(6, 3)), numbers(4, 5)),
    "tied words": whole(Tied, ids(5, high=11), targets=labels(5, high=11)),
    "reused": whole(
        of_parts(
            lambda m, x: m.head(m.layer(torch.tanh(m.layer(x)))), layer=lambda: nn.Linear(6, 6), head=lambda: nn.Linear(6, 3)
        ),
        numbers(6),
    ),
    "many uses": whole(
        of_parts(
            many_uses, layer=lambda: nn.Linear(6, 3), a=(6,), b=(6,), c=(3, 3), d=(1,), e=(6, 3), f=(3, 6)
        ),
        numbers(6),
    ),
    "low-rank updates": whole(
        of_parts(
            adapted,
            frozen=lambda: nn.Linear(8, 8).requires_grad_(False),
            down=(2, 8),
            up=(8, 2),
            head=lambda: nn.Linear(8, 3),
        ),
        numbers(5, 8),
    ),
    "weight norms": whole(
        lambda: nn.Sequential(
            parametrizations.weight_norm(nn.Conv1d(1, 2, 3)), nn.Flatten(), nn.Tanh(),
            parametrizations.weight_norm(nn.Linear(12, 6)), nn.Tanh(), nn.Linear(6, 3),
        ),
        numbers(1, 8),
    ),
    "bags and forms": whole(
        of_parts(
            bags_and_forms,
            bag=lambda: nn.EmbeddingBag(10, 8),
            form=lambda: nn.Bilinear(8, 8, 8),
            norm=lambda: nn.RMSNorm(8),
            head=lambda: nn.Linear(8, 3),
        ),
        ids(4),
    ),
    "class weights": whole(
        lambda: nn.Linear(8, 3), numbers(8), loss=nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 9.0], dtype=torch.float64))
    ),
}  # fmt: skip
ARCHITECTURES = {**SHORT, **{f"model: {name}": case for name, case in MODELS.items()}}
