"""Clip norms that follow from the loss alone."""

from __future__ import annotations


def typical_clip(loss: str, task: str) -> float:
    """The norm of a record's gradient at the start on rows of length 1: the slope of the loss at score 0.

    >>> typical_clip("logistic", "binary")
    0.5
    """
    if loss == "squared":
        return 2.0 if task == "binary" else 1.0
    return 0.5 if loss == "logistic" else 1.0
