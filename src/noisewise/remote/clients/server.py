"""The server's side: clients as ranks that hold one piece each, asked through any carrier of messages.

A client is asked only if rows of its own were drawn. The carrier knows who answered; the answer itself does not count for that. Of each
client the first answer that fits counts: it has the right number and shape, and no more than the client's records could add up to
(:mod:`noisewise.trusted.stores.protocol`). Other answers, and late ones, are dropped.

*Clients that do not answer.* Unit client: such a client contributes nothing, and nothing is rescaled by who answered; the sum has one
record less, which the price covers. Unit record: a record that keeps its client from answering would take the client's other records
along, so the question fails whole, its charge stays and nothing more is asked; unless availability is declared independent of the
records, which the statement then lists as an assumption.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from ...methods import Method, makes_a_promise
from ...methods.growing_batch import GrowingBatch
from ...tables.files import Dialect, Paths, Share
from ...tables.fit.build import public_rows
from ...tables.fit.fit import Fit
from ...train import Records
from ...trusted.events import FULL
from ...trusted.stores.grid import MAX_ROWS
from ...trusted.stores.protocol import SUMS
from ...trusted.stores.totals import Integers, IntegerTotal
from ..federation import Declared, Federated
from ..holder import History, Request
from ..processes import Lead, PiecePlaces, RowsElsewhere, ShapeElsewhere
from ..transport import STAYS, RankLost, Transport
from .client import MAKER, Client, arrays_of, holder_of
from .messages import pack_history, pack_question, read_answer, refused

NEXT_TIME = ("hold", "change", "forget")  # what clients do when they are asked the next question
MAX_RECORDS = MAX_ROWS // 2  # of all clients, whatever each claims: sums of their most fit into 64 bits
SUMS_ONLY = "take one that asks for sums, e.g. additive, descent, dpsgd, agd, adaptive_clip or l2p"


class Carrier(Protocol):
    """Carries a question to clients, numbered from 0, and their answers back."""

    clients: int

    def ask(self, history: bytes, questions: Mapping[int, bytes]) -> Iterable[tuple[int, Any]]:
        """Hand each client its question; who sent back what, until all have answered or the time is up."""

    def name(self, client: int) -> str:
        """A client's name in messages."""

    def close(self) -> None: ...


class DirectCarrier:
    """Carries messages to clients that are objects of this process, one file each."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths, self._members = [*paths], [Client(path) for path in paths]
        self.clients = len(self._members)

    def ask(self, history: bytes, questions: Mapping[int, bytes]) -> Iterable[tuple[int, bytes]]:
        for client, question in questions.items():
            yield client, self._members[client].answer(history, question)

    def name(self, client: int) -> str:
        return str(self._paths[client])

    def close(self) -> None:
        """Nothing is open."""


class Crowd(Lead):
    """Clients behind a curator: client c is rank c + 1; rank 0 holds no rows and knows the zero of every sum."""

    def __init__(self, carrier: Carrier, federated: Federated) -> None:
        super().__init__(cast(Transport, carrier), holder_of(None), holds=False)
        self._carrier, self._federated, self._history = carrier, federated, History()
        self._lengths = [0] * carrier.clients
        self._unlabelled = False

    @property
    def world_size(self) -> int:
        return self.clients + 1

    @property
    def clients(self) -> int:
        """The number of clients."""
        return self._carrier.clients

    def places(self, maker: str, *arguments: Any, unlabelled: bool) -> PiecePlaces:
        """Where records lie, once every client has made its rows; ``unlabelled``: some may have no label."""
        self._unlabelled = unlabelled
        dealt = self.deal(self._carrier.clients)
        self.everyone("make", maker, *arguments, dealt=dealt)
        return PiecePlaces(dealt, [(), *((length,) for length in self._lengths)], MAX_RECORDS)

    def _asked(self, act: str, requests: list[Request]) -> list[Any]:
        """The answers to a request: sums and rows come from clients; they hear of anything else with the next question."""
        try:
            if act == "total":
                return [self._total(requests)]
            if act == "make":
                return self._make(requests)
            if act == "counted":
                return self._counted(requests)
            if act in NEXT_TIME:
                return self._noted(requests[0])
            raise ValueError("rows stay with their clients, and walks over them need them in one place; ask for a sum")
        except ValueError:
            raise  # refused before anybody was asked
        except BaseException as error:
            self._broken = str(error) if isinstance(error, RankLost) else f"a question was not answered{STAYS}"
            raise

    def check(self) -> None:
        """Refuse the result of a run in which a question failed, also if its method went on without the answer."""
        if self._broken:
            raise RankLost(self._broken)

    def _zero(self, request: Request) -> Any:
        """The answer of a holder without rows."""
        reply = self._holder.reply(request)
        if reply.trouble is not None:
            assert self._holder.error is not None
            raise self._holder.error
        return reply.value

    def _noted(self, request: Request) -> list[Any]:
        known = self._zero(request)
        self._history.note(request)
        return [known] if known is None else [known, (sum(self._lengths), *known[1:])]

    def _make(self, requests: list[Request]) -> list[Any]:
        self._zero(requests[0])
        self._history.note(requests[0])
        clients, together = range(self._carrier.clients), self._federated.unit == "client"
        late = self._federated.wait is not None  # then a run may start without some of its clients
        lenient = (together and late) or self._federated.availability == "independent"
        found: dict[int, int] = {}
        for client, body in self._carrier.ask(self._packed, self._questions(requests, clients)):
            if refused(body, self._number) and not (lenient and together):  # because of its records, not of the network
                raise ValueError(
                    f"{self._carrier.name(client)}: does not fit the schema, or has not agreed to this run; `noisewise schema check` "
                    "on it, or the client itself, says why. Nothing was spent"
                )
            answer = read_answer(body, self._number, [(1,)])
            if answer is not None and 0 <= int(answer[0][0]) <= MAX_RECORDS:
                found.setdefault(client, int(answer[0][0]))
        if (absent := sorted(set(clients) - set(found))) and (not lenient or not found):
            raise ValueError(
                f"{self._carrier.name(absent[0])}: could not read its rows, or did not answer; nothing was spent"
            )
        # a client that is not there now may be there later
        self._lengths = [1 if together else found.get(client, 0) for client in clients]
        return [(), *((length,) for length in self._lengths)]

    def _counted(self, requests: list[Request]) -> list[Any]:
        if not self._unlabelled or self._federated.unit == "client":  # a client that is one record drops its own rows
            return [None]
        shapes = {client: [(length,)] for client, length in enumerate(self._lengths) if length}
        masks: list[Any] = [np.zeros(length, np.bool_) for length in self._lengths]
        for client, (mask,) in self._answers(requests, shapes).items():
            masks[client] = mask != 0
        return [np.empty(0, np.bool_), *masks]

    def _total(self, requests: list[Request]) -> Any:
        """The sum over all clients that were drawn: of those that answered, where that is enough."""
        zero, (_, name, _, arguments, *_) = self._zero(requests[0]), requests[0].arguments
        totals = [array.copy() for array in arrays_of(zero)]
        shapes = [array.shape for array in totals]
        drawn = {client: request.arguments[2] for client, request in enumerate(requests[1:])}
        asked = {client: count for client, part in drawn.items() if (count := part.count(self._lengths[client]))}

        def checked(client: int, answer: list[Integers]) -> bool:
            return SUMS[name].fits(answer, zero, arguments, asked[client])

        for answer in self._answers(requests, dict.fromkeys(asked, shapes), checked).values():
            for total, part in zip(totals, answer, strict=True):
                total += part
        return _like(zero, iter(totals))

    def _answers(
        self, requests: list[Request], shapes: Mapping[int, Sequence[tuple[int, ...]]], checked: Any = None
    ) -> dict[int, list[Integers]]:
        """The first answer of each client that fits; fails if one is missing that must not be."""
        found: dict[int, list[Integers]] = {}
        try:
            for client, body in self._carrier.ask(self._packed, self._questions(requests, shapes)):
                if client in found or client not in shapes:
                    continue
                answer = read_answer(body, self._number, shapes[client])
                if answer is not None and (checked is None or checked(client, answer)):
                    found[client] = answer
        except ValueError:  # of the carrier: some clients may have heard the question, so it was not refused
            raise RankLost(f"a question was not carried to all clients{STAYS}") from None
        may_be_absent = self._federated.unit == "client" or self._federated.availability == "independent"
        if len(found) < len(shapes) and not may_be_absent:
            raise RankLost(
                f"a client did not answer, or not as it could; with unit record the question fails whole{STAYS}. Where "
                "answering does not depend on the records, --availability independent says so"
            )
        return found

    @property
    def _packed(self) -> bytes:
        return pack_history(self._history.needed())

    @staticmethod
    def _questions(requests: list[Request], clients: Iterable[int]) -> dict[int, bytes]:
        """Each client's question as bytes; the same one is packed once."""
        packed: dict[tuple[int, ...], bytes] = {}
        questions = {}
        for client in clients:
            request = requests[client + 1]
            same = tuple(map(id, request.arguments))
            if same not in packed:
                packed[same] = pack_question(request)
            questions[client] = packed[same]
        return questions

    def stop(self, result: Any = None) -> None:
        """Ask nothing more."""
        if not self._stopped:
            self._stopped, self._broken = True, self._broken or "the run is over; nothing more is asked"
            self._carrier.close()


def _like(zero: Any, arrays: Any) -> Any:
    """Arrays in place of those of a zero."""
    if isinstance(zero, list):
        return [_like(part, arrays) for part in zero]
    return replace(zero, values=next(arrays)) if isinstance(zero, IntegerTotal) else next(arrays)


# -- a fit on clients: what cannot be asked of them is refused before anything is read or paid for ------------------------


def fit_of_clients(asked: Fit, federated: Federated) -> Fit:
    """The same fit on records that lie with clients; refused where it needs rows in one place."""
    method = asked.method
    if not makes_a_promise(method):
        raise ValueError(f"{method.name} sees plain rows, which stay with their clients; {SUMS_ONLY}")
    if method.walks:
        raise ValueError(f"{method.name} goes over rows one by one, and they stay with their clients; {SUMS_ONLY}")
    if asked.persons is not None:
        raise ValueError("a schema's unit counts rows of persons over all files; with clients, leave unit out of it")
    if asked.preparation is not None:
        raise ValueError("bounds are bought where all rows are; declare them in a schema, or pass --public")
    return replace(asked, federated=federated, settings={**asked.settings, "federated": federated.to_dict()})


def least_rate(method: Method) -> float | None:
    """The least share of the records that a method asks about, in expectation; None where that is not known beforehand.

    >>> from noisewise.methods import method_named
    >>> least_rate(method_named("descent")), least_rate(method_named("dpsgd").with_settings(sampling=("poisson", 0.2)))
    (1.0, 0.2)
    """
    if isinstance(method, GrowingBatch):
        return min(method.rates())
    if not type(method).__module__.startswith("noisewise."):
        return None
    match getattr(method, "sampling", FULL):
        case ("full",):
            return 1.0
        case (_, float() as rate):
            return rate
    return None


def ready_clients(
    asked: Fit,
    crowd: Crowd,
    *,
    public: Paths | None = None,
    separator: str | Dialect | None = None,
    reading: Share | None = None,
) -> Fit:
    """The fit with the rows of clients: each has read its file and found it fit, with nothing paid."""
    assert asked.encoder is not None and asked.federated is not None
    schema, integers, federated = asked.encoder.schema, asked.model.loss.task == "classes", asked.federated
    # the number of clients is public if it was declared so, or fixed beforehand
    known = federated.unit == "client" and (asked.size_is_public or federated.wait is not None)
    declared = Declared(least_rate(asked.method), crowd.clients if known else None)
    arguments: tuple[Any, ...] = (schema, asked.scaling, asked.labels, integers, separator, federated, declared)
    places = crowd.places(MAKER, *arguments, unlabelled=schema.target_missing == "drop")
    if places.records == 0:
        raise ValueError("no client has rows; pass files with records")
    if reading is not None:
        reading(1.0)
    rows = RowsElsewhere(crowd, places, asked.scaling.features)
    given = None if public is None else public_rows(asked, public, separator=separator)
    return asked.on(Records(rows, ShapeElsewhere((len(rows),))), given)
