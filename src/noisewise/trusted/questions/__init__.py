"""The questions that a curator answers. A module of this folder is found by itself; nothing registers from elsewhere."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from ..question import QUESTIONS, HowAsked, Question, close, plain, question, rebuilt

__all__ = ["QUESTIONS", "HowAsked", "Question", "plain", "question", "rebuilt"]

for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f".{_module}", __name__)
close()
