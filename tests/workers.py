"""What the tests of workers share: a cluster of this process, whose workers die, hang or lie when they are told to."""

from __future__ import annotations

import random

from ranks import PIECE, refused

from noisewise.remote.holder import Holder, Holding
from noisewise.remote.processes import Lead, PiecePlaces, RowsElsewhere, ShapeElsewhere
from noisewise.remote.workers import Gone, Sealed, Worker, WorkerLine
from noisewise.trusted.noise import Stream


class Here:
    """A cluster of this process. ``fails``: whether the n-th request of all is lost, and how."""

    def __init__(self, holder, workers, fails=lambda number: None):
        self.workers, self._holder, self._fails = workers, holder, fails
        self.asked, self.ended, self.late, self.requests, self.closed = 0, [], [], [], False
        self.sent, self.started = [], []

    def start(self):
        self.started.append(Worker(self._holder))
        return self.started[-1]

    def ask(self, worker, what, *said):
        if what == "meet":
            return lambda: worker.meet(*said)
        self.asked += 1
        self.sent.append(said[0])
        how = self._fails(self.asked)
        self.requests.append(worker._sealed.open(said[0], b"asked"))
        if how == "dies":
            return self._dead
        if how == "late":  # it answers, when nobody waits any more
            self.late.append((worker, said))
            return self._dead
        return lambda: self._answer(worker, *said)

    def _answer(self, worker, *said):
        drawn, Stream.__init__ = Stream.__init__, refused
        try:
            answer = worker.answer(*said)
        finally:
            Stream.__init__ = drawn
        self.sent.append(answer)
        return answer

    @staticmethod
    def _dead():
        raise Gone("gone")

    def wait(self, ticket, seconds):
        return ticket()

    def end(self, worker):
        self.ended.append(worker)

    def close(self):
        self.closed = True


class Shuffled(Lead):
    """Deals pieces in another order, some workers none."""

    def deal(self, pieces):
        order = random.Random(pieces).sample(range(pieces), pieces)
        shares = [sorted(order[rank::2]) for rank in range(2)]
        self._dealt = ((), *map(tuple, shares), *((),) * (self.world_size - 3))
        return self._dealt


def held(X, y, workers, *, fails=lambda number: None, made=None, lead=Lead, line=WorkerLine, cluster=Here):
    """Rows at workers, the labels, the lead and the cluster. ``made``: what makes the rows of given pieces."""

    def cut(numbers):
        own = [row for number in numbers for row in range(number * PIECE, min((number + 1) * PIECE, len(X)))]
        lengths = tuple(min(PIECE, len(X) - number * PIECE) for number in numbers)
        return Holding(tuple(numbers), lengths, X[own], y[own])

    there = cluster(lambda: Holder({"rows": made or cut}, said=(ValueError,)), workers, fails)
    leader = lead(line(there), Holder({"rows": cut}), holds=False)
    dealt = leader.deal(-(-len(X) // PIECE))
    lengths = leader.each("make", [("rows", numbers) for numbers in dealt])
    rows = RowsElsewhere(leader, PiecePlaces(dealt, lengths), X.shape[1])
    return rows, ShapeElsewhere((len(rows),)), leader, there


__all__ = ["Here", "Sealed", "Shuffled", "held"]
