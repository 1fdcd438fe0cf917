"""What a budget buys, before there is any data: noise, the accuracy to expect, the price of tuning, a recommendation."""

from .plans import Plan, plan

__all__ = ["Plan", "plan"]
