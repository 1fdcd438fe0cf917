"""What the tests of clients share: files of clients, fits of them, and carriers whose clients misbehave."""

from __future__ import annotations

import numpy as np
from desk import SCHEMA, people

from noisewise.accounts import Budget
from noisewise.remote.clients.server import Crowd, DirectCarrier, fit_of_clients, ready_clients
from noisewise.remote.federation import Federated
from noisewise.tables.fit.build import fit_of_files, ready_files
from noisewise.tables.schema import read_schema
from noisewise.trusted.noise import Stream
from noisewise.trusted.stores.totals import Drawn

CLIENTS = 6


def client_files(folder, clients=CLIENTS, rows=15, text=SCHEMA):
    """A file for each client, of different lengths, and a schema, in a folder."""
    (folder / "clients").mkdir()
    table, at = people(clients * rows + clients * clients, 3), 0
    for client in range(clients):
        length = rows + (client - clients // 2)
        table[at : at + length].to_csv(folder / "clients" / f"{client:03}.csv", index=False)
        at += length
    people(80, 4).to_csv(folder / "public.csv", index=False)
    (folder / "schema.toml").write_text(text)
    return sorted((folder / "clients").iterdir())


def a_fit(folder, method="dpsgd", *, seed=1, budget=None, size_is_public=True, **options):
    schema = read_schema(folder / "schema.toml")
    how = {"loss": "auto", "model": "auto", **options}
    return fit_of_files(schema, budget or Budget(4.0, 1e-5), method, size_is_public=size_is_public, seed=seed, **how)


class NoNoise(DirectCarrier):
    """Clients of this process, that may draw no noise."""

    def ask(self, history, questions):
        drawn, Stream.__init__ = Stream.__init__, _refused
        try:
            yield from list(super().ask(history, questions))
        finally:
            Stream.__init__ = drawn


def _refused(*_, **__):
    raise AssertionError("a client makes a stream of noise")


def on_clients(fit, paths, federated, *, carrier=NoNoise, public=None, **how):
    """The fit on clients of this process."""
    crowd = Crowd(carrier(paths) if isinstance(carrier, type) else carrier, federated)
    return ready_clients(fit_of_clients(fit, federated), crowd, public=public).run(**how)


def alone(fit, paths, public=None):
    return ready_files(fit, paths, public=public).run()


class Meddling(DirectCarrier):
    """Clients of this process, one of which (2) is hostile once training has begun: ``change`` makes what it sends of what it should."""

    def __init__(self, paths, change, hostile=2, after=1):
        super().__init__(paths)
        self.change, self.hostile, self.after, self.asked = change, hostile, after, 0
        self.earlier = {}

    def ask(self, history, questions):
        self.asked += 1
        for client, body in super().ask(history, questions):
            if client == self.hostile and self.asked > self.after:
                yield from self.change(self, client, body)
            else:
                yield client, body
            self.earlier[client] = body


def totals_of(fit, paths, federated, carrier, name="gradients", *arguments):
    """One total over all clients, exact, and the records that it is asked of."""
    asked = fit_of_clients(fit, federated)
    crowd = Crowd(carrier, federated)
    rows = ready_clients(asked, crowd).private.X
    records = rows.held(fit.model, None, None)
    arguments = arguments or (np.full(fit.model.dimension, 0.1), 0.5)
    return getattr(records, name)(Drawn(), *arguments), records, crowd


def equal(one, other):
    return np.array_equal(one.theta, other.theta) and one.trace == other.trace


RECORD, CLIENT = Federated("record"), Federated("client")
INDEPENDENT = Federated("record", "independent")
