"""Modules that others wrote, where they are installed: adapters of peft, and small language models of transformers."""

from __future__ import annotations

import pytest
import torch
from module_networks import Applied
from torch import nn

from noisewise.engine import Spec, probed

WORDS = (Spec((7,), torch.int64, 100),)


def test_adapters_of_peft():
    peft = pytest.importorskip("peft", reason="an optional package with adapters; nothing in noisewise needs it")
    base = nn.Sequential(nn.Embedding(100, 8), nn.Flatten(), nn.Linear(56, 16), nn.ReLU(), nn.Linear(16, 3))
    module = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["2", "4"], lora_dropout=0.1))
    layout = probed(module, WORDS, (Spec((), torch.int64, 3),), nn.CrossEntropyLoss())
    assert len(layout.names) == 4 and all("lora" in name for name in layout.names)
    assert layout.dimension == 4 * (56 + 16 + 16 + 3) and len(layout.frozen) == 5


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_language_models_of_transformers(name):
    made = pytest.importorskip("transformers", reason="an optional package of models; nothing in noisewise needs it")
    if name == "bert":
        sizes = {
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 8,
            "vocab_size": 100,
        }
        module = Applied(
            lambda m, x: m.own(input_ids=x).logits, own=made.BertForSequenceClassification(made.BertConfig(**sizes))
        )
        layout = probed(module, WORDS, (Spec((), torch.int64, 2),), nn.CrossEntropyLoss())
    else:
        sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 100, "n_positions": 8}
        own = made.GPT2LMHeadModel(made.GPT2Config(**sizes))
        module = Applied(lambda m, x: m.own(input_ids=x, use_cache=False).logits.transpose(1, 2), own=own)
        layout = probed(module, WORDS, WORDS, nn.CrossEntropyLoss())
    assert layout.dimension == sum(value.numel() for value in module.parameters())
