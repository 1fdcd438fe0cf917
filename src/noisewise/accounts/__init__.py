"""Who pays: what may be spent, what counts it, and what is written down before a record is touched.

What a run states is the cap of its meter, fixed before the first event, never what was spent in the end. A method only
*names* its meter (:class:`Terms`); the trusted side makes it (:func:`open_meter`) and shows a view (:class:`MeterView`).
A :class:`purse.Purse` shares one budget among several runs and writes down what each reserves before it begins.

Names are imported when they are first used, so that writing a file whole (:mod:`.atomic`) waits for no accountant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..trusted.accountants.base import Currency, currency
    from ..trusted.accountants.terms import MIN_DELTA, Budget, Terms
    from ..trusted.counts import BudgetExhausted
    from ..trusted.meter import AdditiveMeter, Meter, PlanMeter, meter_from
    from ..trusted.opening import MeterView, checked_meter, open_meter

__all__ = [
    "MIN_DELTA",
    "AdditiveMeter",
    "Budget",
    "BudgetExhausted",
    "Currency",
    "Meter",
    "MeterView",
    "PlanMeter",
    "Terms",
    "checked_meter",
    "currency",
    "meter_from",
    "open_meter",
]
_HOMES = {
    "accountants.base": ("Currency", "currency"),
    "accountants.terms": ("MIN_DELTA", "Budget", "Terms"),
    "counts": ("BudgetExhausted",),
    "meter": ("AdditiveMeter", "Meter", "PlanMeter", "meter_from"),
    "opening": ("MeterView", "checked_meter", "open_meter"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return globals().setdefault(name, getattr(import_module(f"noisewise.trusted.{home}"), name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
