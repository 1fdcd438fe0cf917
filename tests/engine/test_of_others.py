"""Modules that others wrote, where they are installed: adapters of peft, and small models of transformers, against a loop."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from architectures import CROSS_ENTROPY, by_loop, errors, half_clipped, largest_moves, rows, run
from module_networks import Applied
from torch import Tensor, nn

from noisewise.trusted.engine import Refused, Spec, rehearsed

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # what these packages say to each other
WORDS, CLASS = Spec((7,), torch.int64, 40), Spec((), torch.int64, 3)
COUNT = 6
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 40}


@pytest.fixture(scope="module")
def made():
    return pytest.importorskip("transformers", reason="an optional package of models; nothing in noisewise needs it")


def inside(found: Any) -> Tensor:
    """The loss that a model computes of labels among its inputs."""
    return found.loss


def right(module: nn.Module, inputs: list[Tensor], targets: list[Tensor], loss: Any = CROSS_ENTROPY) -> None:
    """Rehearsed, then compared with a loop in double precision."""
    highs = [(value, 40 if value.dim() > 1 else 3) for value in (*inputs, *targets)]
    specs = [Spec(tuple(value.shape[1:]), value.dtype, high) for value, high in highs]
    layout = rehearsed(module, specs[: len(inputs)], specs[len(inputs) :], loss)
    own = copy.deepcopy(module).double()
    inputs = [value.double() if value.is_floating_point() else value for value in inputs]
    gradients = by_loop(own, loss, inputs, targets)
    clip = half_clipped(gradients)
    assert max(errors(run(own, loss, inputs, targets, layout), gradients, clip)) < 1e-12
    assert max(largest_moves(own, loss, inputs, targets, layout, clip)) <= 1 + 1e-9


def words(seed: int = 1) -> Tensor:
    return rows([WORDS], COUNT, seed)[0]


def classes() -> Tensor:
    return torch.arange(COUNT) % 3


def ragged() -> Tensor:
    """Masks of records that are two to seven words long, and one that is whole."""
    return (torch.arange(7) < torch.tensor([2, 7, 3, 5, 4, 6])[:, None]).long()


def bert(made: Any, how: str) -> nn.Module:
    torch.manual_seed(0)
    config = made.BertConfig(**SMALL, **QUIET, max_position_embeddings=12, num_labels=3, attn_implementation=how)
    return made.BertForSequenceClassification(config)


@pytest.mark.parametrize("how", ["eager", "sdpa"])
def test_bert_without_masks_and_with_any(made, how):
    right(Applied(lambda m, x: m.own(input_ids=x).logits, own=bert(made, how)), [words()], [classes()])
    masked = Applied(lambda m, x, there: m.own(input_ids=x, attention_mask=there).logits, own=bert(made, how))
    for mask in (torch.ones(COUNT, 7, dtype=torch.int64), ragged()):
        right(masked, [words(), mask], [classes()])


def test_bert_with_labels_and_the_loss_inside(made):
    batch = Applied(lambda m, x, there, y: m.own(input_ids=x, attention_mask=there, labels=y), own=bert(made, "sdpa"))
    right(batch, [words(), ragged(), classes()], [], inside)


def language_model(made: Any, name: str, how: str) -> nn.Module:
    torch.manual_seed(0)
    if name == "gpt2":
        sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 40, "n_positions": 12}
        quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        return made.GPT2LMHeadModel(made.GPT2Config(**sizes, **quiet, use_cache=False, attn_implementation=how))
    sizes = {**SMALL, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 12}
    return made.LlamaForCausalLM(made.LlamaConfig(**sizes, use_cache=False, attn_implementation=how))


@pytest.mark.parametrize("how", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_language_models(made, name, how):
    own = language_model(made, name, how)
    right(Applied(lambda m, x: m.own(input_ids=x).logits.transpose(1, 2), own=own), [words()], [words(2)])
    masked = Applied(lambda m, x, there: m.own(input_ids=x, attention_mask=there).logits.transpose(1, 2), own=own)
    right(masked, [words(), ragged()], [words(2)])


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_language_models_with_the_loss_inside(made, name):
    own = language_model(made, name, "sdpa")
    right(Applied(lambda m, x, y: m.own(input_ids=x, labels=y), own=own), [words(), words(2)], [], inside)


def test_a_vision_transformer(made):
    torch.manual_seed(0)
    sizes = {key: value for key, value in SMALL.items() if key != "vocab_size"}
    config = made.ViTConfig(**sizes, **QUIET, image_size=8, patch_size=4, num_labels=3)
    module = Applied(lambda m, x: m.own(pixel_values=x).logits, own=made.ViTForImageClassification(config))
    right(module, rows([Spec((3, 8, 8), torch.float32)], COUNT), [classes()])


def t5(made: Any) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
    config = made.T5Config(**sizes, dropout_rate=0.0, use_cache=False, decoder_start_token_id=0)
    return made.T5ForConditionalGeneration(config)


def test_t5(made):
    def call(m: Any, x: Tensor, y: Tensor) -> Tensor:
        return m.own(input_ids=x, decoder_input_ids=y).logits.transpose(1, 2)

    right(Applied(call, own=t5(made)), [words(), words(2)], [words(3)])
    batch = Applied(lambda m, x, there, y: m.own(input_ids=x, attention_mask=there, labels=y), own=t5(made))
    right(batch, [words(), ragged(), words(2)], [], inside)


def test_a_model_as_it_comes_draws_its_dropout(made):
    """Norms are those of what is summed, with the dropout of each record."""
    torch.manual_seed(0)
    config = made.BertConfig(**SMALL, max_position_embeddings=12, num_labels=3)
    module = Applied(lambda m, x: m.own(input_ids=x).logits, own=made.BertForSequenceClassification(config))
    assert rehearsed(module, [WORDS], [CLASS], CROSS_ENTROPY).terms == 7


def test_checkpointing_of_transformers_is_refused(made):
    own = bert(made, "sdpa")
    own.gradient_checkpointing_enable()
    with pytest.raises(Refused, match=r"checkpointing|requires_grad_"):
        rehearsed(Applied(lambda m, x: m.own(input_ids=x).logits, own=own), [WORDS], [CLASS], CROSS_ENTROPY)


def adapted(base: nn.Module, **options: Any) -> nn.Module:
    peft = pytest.importorskip("peft", reason="an optional package with adapters; nothing in noisewise needs it")
    torch.manual_seed(0)
    return peft.get_peft_model(base, peft.LoraConfig(r=4, init_lora_weights=False, **options))


def test_adapters_of_peft():
    base = nn.Sequential(nn.Embedding(40, 8), nn.Flatten(), nn.Linear(56, 16), nn.ReLU(), nn.Linear(16, 3))
    module = adapted(base, target_modules=["2", "4"], lora_dropout=0.1)
    layout = rehearsed(module, [WORDS], [CLASS], CROSS_ENTROPY)
    assert len(layout.names) == 4 and all("lora" in name for name in layout.names)
    assert layout.dimension == 4 * (56 + 16 + 16 + 3) and len(layout.frozen) == 5
    right(module, [words()], [classes()])


ADAPTED: dict[str, Callable[[Any], nn.Module]] = {
    "bert": lambda made: adapted(bert(made, "sdpa"), target_modules=["query", "value"], modules_to_save=["classifier"]),
    "bert, rank-stabilised": lambda made: adapted(bert(made, "eager"), target_modules="all-linear", use_rslora=True),
    "bert, dora": lambda made: adapted(bert(made, "sdpa"), target_modules=["query", "value"], use_dora=True),
}


@pytest.mark.parametrize("name", ADAPTED)
def test_adapters_of_peft_in_bert(made, name):
    batch = Applied(lambda m, x, there, y: m.own(input_ids=x, attention_mask=there, labels=y), own=ADAPTED[name](made))
    right(batch, [words(), ragged(), classes()], [], inside)


MASKS: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "padding": lambda m, x, gone: m.own(x, x, x, key_padding_mask=gone)[0],
    "padding, without weights": lambda m, x, gone: m.own(x, x, x, key_padding_mask=gone, need_weights=False)[0],
    "one for each head": lambda m, x, gone: m.own(
        x, x, x, attn_mask=gone[:, None].expand(-1, 5, -1).repeat_interleave(2, 0)
    )[0],
    "causal and padding": lambda m, x, gone: m.own(
        x, x, x, key_padding_mask=gone, attn_mask=torch.ones(5, 5, dtype=torch.bool).triu(1)
    )[0],
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS)
def test_masks_of_attention(name):
    torch.manual_seed(0)
    call, layer = MASKS[name], nn.MultiheadAttention(8, 2, batch_first=True)
    module = Applied(lambda m, x, gone: call(m, x, gone & (torch.arange(5) > 0)).mean(1)[:, :3], own=layer)
    inputs = rows([Spec((5, 8), torch.float32), Spec((5,), torch.bool)], COUNT)
    right(module, [inputs[0].float(), inputs[1]], [classes()])
