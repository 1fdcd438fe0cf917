"""torch, for what needs it: perceptrons, modules, meta-training, gradient attacks and torchrun. Tables do not."""

from __future__ import annotations


class MissingTorch(ImportError):
    """What was asked for needs torch, which is an extra."""


try:
    import torch as torch
    from torch import Tensor as Tensor
except ModuleNotFoundError as error:  # pragma: no cover (tests run without torch in a process of their own)
    raise MissingTorch('this needs PyTorch, which is not installed: pip install "noisewise[torch]"') from error
