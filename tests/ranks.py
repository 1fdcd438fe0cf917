"""What the tests of several ranks share: ranks that are objects of one process, on a line that packs every message."""

from __future__ import annotations

from collections import deque

import numpy as np

from noisewise.remote.forms import packed, unpacked
from noisewise.remote.holder import Holder, Holding
from noisewise.remote.processes import Lead, PiecePlaces, RowsElsewhere, ShapeElsewhere, cut
from noisewise.remote.transport import RankLost
from noisewise.trusted.noise import Stream

PIECE = 7


def through_the_wire(message):
    return unpacked(packed(message))


class DirectLine:
    """Rank 0's end of a line to holders of the same process; they may draw no noise."""

    def __init__(self, holders):
        self.holders, self.rank, self.world_size = holders, 0, len(holders)
        self.waiting = {rank: deque() for rank in range(1, len(holders))}
        self.requests = []
        self.gone = set()
        self.stopped = []

    def send(self, to, message):
        if to in self.gone:
            raise RankLost(f"rank {to} is gone")
        request = through_the_wire(message)
        self.requests.append((to, request))
        if request.act == "stop":
            self.stopped.append(to)
            return
        drawn, Stream.__init__ = Stream.__init__, refused
        try:
            reply = self.holders[to].reply(request)
        finally:
            Stream.__init__ = drawn
        self.waiting[to].append(through_the_wire(reply))

    def receive(self, of):
        if of in self.gone:
            raise RankLost(f"rank {of} is gone")
        return self.waiting[of].popleft()

    def close(self):
        pass


def refused(*_, **__):
    raise AssertionError("a rank that is not rank 0 makes a stream of noise")


def spread(X, y, model, ranks, piece=PIECE, line=DirectLine):
    """Rows dealt to ranks in contiguous pieces, and rank 0's lead."""
    holders = []
    for rank in range(ranks):
        parts = cut(len(X), piece, rank, ranks)
        own = [number for part in parts for number in part]
        numbers = tuple(range(rank, -(-len(X) // piece), ranks))
        holders.append(Holder(holding=Holding(numbers, tuple(map(len, parts)), X[own], y[own], model=model)))
    lead = Lead(line(holders), holders[0])
    dealt = lead.deal(-(-len(X) // piece))
    rows = RowsElsewhere(lead, PiecePlaces(dealt, [holder._holding.lengths for holder in holders]), X.shape[1])
    return rows, ShapeElsewhere((len(rows),)), lead


def made_up(rows, columns, seed=0, classes=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns), np.float32)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    noise = rng.standard_normal(rows, np.float32) * np.float32(0.1)
    if classes is None:
        return X, np.sign(X[:, 0] + noise)
    return X, (X[:, :classes] + noise[:, None]).argmax(1)
