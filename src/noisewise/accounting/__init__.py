"""What an event costs, in every currency of privacy the library knows.

Each module prices the events of :mod:`noisewise.events` in one currency: ``gdp``, ``rdp``, ``zcdp``, ``tcdp``, ``pld``
and ``advanced``; ``calibrate`` turns a budget into noise. Nothing here sees a record or imports torch: an epsilon can
be computed, and audited, from an event list alone.
"""

from noisewise.accounting._common import Unpriceable

__all__ = ["Unpriceable"]
