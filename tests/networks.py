"""What the tests of the network share: a server in this process and clients in its threads; every request is a real one."""

from __future__ import annotations

import threading
from contextlib import contextmanager

from noisewise.federated.address import Address
from noisewise.federated.client import Client
from noisewise.federated.flower import FlowerCarrier, client_app
from noisewise.federated.network.link import Link, listening
from noisewise.federated.network.node import Server, serve

ANY = Address("127.0.0.1", 0)
LONG = 20.0  # seconds; far more than anything here takes


class Clients:
    """Clients in threads, and how they ended."""

    def __init__(self, address, **how):
        self.address, self.how, self.threads, self.ends = address, {"insecure": True, "patience": 2.0, **how}, [], {}

    def start(self, app, answered=lambda: None, **how):
        name, joined = len(self.threads), threading.Event()

        def run():
            try:
                self.ends[name] = serve(app, Server(self.address, **{**self.how, **how}), joined.set, answered)
            except (Exception, SystemExit) as error:
                self.ends[name] = error
            joined.set()

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()
        assert joined.wait(LONG)

    def wait(self):
        for thread in self.threads:
            thread.join(LONG)
        return [self.ends[name] for name in range(len(self.threads))]


@contextmanager
def opened_link(link, **how):
    """The address of a link that listens."""
    found = []
    with listening(link, ANY, **{"certificate": None, "key": None, "opened": found.append, **how}):
        yield found[0]


@contextmanager
def over_network(paths, *, clients=None, wait=None):
    """A carrier to a client for each file; ``clients``: others than honest ones, by their number."""
    link = Link(len(paths))
    with opened_link(link) as address:
        there = Clients(address)
        for number, path in enumerate(paths):
            own = (clients or {}).get(number) or Client(path)
            there.start(client_app(lambda context, member, own=own: own if member == 0 else None))
        link.gather(lambda many: None)
        members = [(node, 0) for node in link.grid.get_node_ids()]
        yield FlowerCarrier(link.grid, members, [f"client {number + 1}" for number in range(len(paths))], wait=wait)
    there.wait()
