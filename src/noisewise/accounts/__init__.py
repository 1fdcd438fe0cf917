"""What may be spent, and what counts it.

What a run states is the cap of its meter, fixed before the first event, never what was spent in the end. A method only
*names* its meter (:class:`Terms`); the trusted side makes it (:func:`open_meter`) and shows a view (:class:`MeterView`).
A :class:`purse.Purse` shares one budget among several runs and writes down what each reserves before it begins.
"""

from noisewise.trusted.accountants.base import Currency, currency
from noisewise.trusted.accountants.terms import LEAST_DELTA, Budget, Terms
from noisewise.trusted.counts import BudgetExhausted
from noisewise.trusted.meter import AdditiveMeter, Meter, PlanMeter, meter_from
from noisewise.trusted.opening import MeterView, checked_meter, open_meter

__all__ = [
    "LEAST_DELTA",
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
