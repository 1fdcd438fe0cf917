"""What the tests of the network share: a server in this process and clients in its threads; every request is a real one."""

from __future__ import annotations

import datetime
import ipaddress
import threading
from contextlib import contextmanager

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from noisewise.remote.clients.client import Client
from noisewise.remote.clients.network import ServerAddress, ServerEndpoint, serve
from noisewise.remote.clients.network_server import Link

ANY = ServerAddress("127.0.0.1", 0)
LONG = 20.0  # seconds; far more than anything here takes


class Clients:
    """Clients in threads, and how they ended."""

    def __init__(self, address, **how):
        self.address, self.how, self.threads, self.ends = address, {"insecure": True, "patience": 2.0, **how}, [], {}

    def start(self, answer, answered=lambda: None, **how):
        name, joined = len(self.threads), threading.Event()

        def run():
            try:
                self.ends[name] = serve(
                    answer, ServerEndpoint(self.address, **{**self.how, **how}), joined.set, answered
                )
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
    with link.listening(ANY, **{"certificate": None, "key": None, "opened": found.append, **how}):
        yield found[0]


@contextmanager
def over_network(paths, *, clients=None, wait=None):
    """A carrier to a client for each file; ``clients``: others than honest ones, by their number."""
    link = Link(len(paths), wait=wait)
    with opened_link(link) as address:
        there = Clients(address)
        for number, path in enumerate(paths):
            there.start(((clients or {}).get(number) or Client(path)).answer)
        link.gather(lambda many: None)
        yield link
    there.wait()


def key_of(path):
    """A key as ssh-keygen writes it: the private one in a file, the public one as a line."""
    key = ec.generate_private_key(ec.SECP384R1())
    coding = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(*coding))
    return key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def certificate_of(folder):
    """A certificate of this machine, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "here")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    coding = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "server.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "server.key").write_bytes(key.private_bytes(*coding))
    return folder / "server.pem", folder / "server.key"
