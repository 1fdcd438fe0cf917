"""A curator for tests of its answers, charged to a purse that affords what no meter would."""

from __future__ import annotations

from noisewise.accounts import AdditiveMeter, PlanMeter
from noisewise.curator import Curator


def with_purse(X, y, *, meter, **how):
    """A curator takes exact meters only, so a purse of a test takes the place of one afterwards."""
    if type(meter) in (AdditiveMeter, PlanMeter):
        return Curator(X, y, meter=meter, **how)
    curator = Curator(X, y, meter=AdditiveMeter(meter.budget, "gdp"), **how)
    desk = curator._Curator__desk  # out of reach of methods on purpose
    desk.meter = desk.view = meter
    return curator
