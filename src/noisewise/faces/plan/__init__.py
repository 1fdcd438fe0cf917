"""What a budget buys, before there is any data: noise, the accuracy to expect, the price of tuning, a recommendation."""

from .make import plan
from .plans import Plan

__all__ = ["Plan", "plan"]
