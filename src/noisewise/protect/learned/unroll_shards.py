"""What a curator is handed to train inside shards, where a run asks for that: with torch, which is imported then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ...trusted.models import Model
    from ...trusted.stores.shards import ShardRows


def unrolled(model: Model, asked: Any, shards: ShardRows) -> NDArray[np.float64]:
    """The vector (S, 4 or all weights) of every shard: :func:`.inside.unrolled`."""
    from .inside import unrolled as inside

    return inside(model, asked, shards)
