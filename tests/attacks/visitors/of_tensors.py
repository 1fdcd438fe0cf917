"""The methods of honest.py as somebody writes them who works with torch: theta, what is asked with and answers are tensors."""

from typing import Any, ClassVar

import torch

from . import honest


class Tensors:
    kind: ClassVar[Any] = staticmethod(torch.as_tensor)


class Descent(Tensors, honest.Descent):
    pass


class Sampled(Tensors, honest.Sampled):
    pass


class Curious(Tensors, honest.Curious):
    pass


class Turned(Tensors, honest.Turned):
    pass


class OnTable(Tensors, honest.OnTable):
    pass


class Whole(Tensors, honest.Whole):
    pass
