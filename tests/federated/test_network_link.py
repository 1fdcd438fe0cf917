"""The network below federated training: who is let in, who is heard, and what a stranger costs. Connections are real ones."""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import suppress

import pytest
from networks import ANY, LONG, Clients, certificate_of, key_of, opened_link

from noisewise.remote.clients import network, network_server
from noisewise.remote.clients.network import (
    LENGTH,
    Connection,
    ServerAddress,
    ServerEndpoint,
    frame,
    private_key,
    serve,
)
from noisewise.remote.clients.network_server import Link, public_keys, shown_certificate


def echo(answers=lambda number: number):
    """Answers a number with another."""
    return lambda history, question: b"%d" % answers(int(question))


def asked(link, questions):
    """What each client answers to so many questions; those that do not answer are left out."""
    ways = (link.ask(b"history", dict.fromkeys(range(link.clients), b"%d" % number)) for number in range(questions))
    return [{client: int(body) for client, body in way} for way in ways]  # fmt: skip


def gathered(link):
    link.gather(lambda many: None)
    return link


def test_clients_answer_in_the_order_in_which_they_came_and_are_told_when_it_is_over():
    link = Link(3)
    with opened_link(link) as address:
        clients = Clients(address)
        for factor in (1, 10, 100):
            clients.start(echo(lambda number, factor=factor: number * factor))
        heard = asked(gathered(link), 3)
    assert heard == [{0: n, 1: 10 * n, 2: 100 * n} for n in range(3)]
    assert clients.wait() == [True, True, True]


def test_a_client_hears_its_own_questions_alone():
    link, heard = Link(2), [[], []]

    def noting(client):
        return lambda history, question: heard[client].append((history, question)) or b"x"

    with opened_link(link) as address:
        clients = Clients(address)
        clients.start(noting(0))
        clients.start(noting(1))
        gathered(link)
        assert dict(link.ask(b"h", {1: b"one"})) == {1: b"x"} and dict(link.ask(b"", {})) == {}
        assert dict(link.ask(b"i", {0: b"two", 1: b"three"})) == {0: b"x", 1: b"x"}
    clients.wait()
    assert heard == [[(b"i", b"two")], [(b"h", b"one"), (b"i", b"three")]]


def test_a_run_that_fails_is_told_as_stopped():
    link = Link(1)
    with pytest.raises(ZeroDivisionError), opened_link(link) as address:
        clients = Clients(address)
        clients.start(echo())
        gathered(link)
        raise ZeroDivisionError
    assert clients.wait() == [False]


def test_who_comes_late_is_not_let_in():
    link = Link(1)
    with opened_link(link) as address:
        clients = Clients(address)
        clients.start(echo())
        gathered(link)
        clients.start(echo(lambda number: -1))
        heard = asked(link, 2)
    assert heard == [{0: 0}, {0: 1}]
    first, late = clients.wait()
    assert first is True and "begun without this one" in str(late)


def test_who_leaves_before_the_run_makes_room_for_another():
    link, there = Link(2), []
    with opened_link(link) as address:
        with socket.create_connection(address) as left:
            assert read(left)[0] == network.GREETING
            left.sendall(frame((b"", b"", b"")))
            assert read(left)[0] == network.JOINED
        clients = Clients(address)
        clients.start(echo())
        clients.start(echo(lambda number: 7))
        link.gather(there.append)
        heard = asked(link, 1)
    assert heard == [{0: 0, 1: 7}] and clients.wait() == [True, True] and there[-1] == 2


def test_a_client_with_another_version_is_refused(monkeypatch):
    with opened_link(Link(1)) as address:
        monkeypatch.setattr(network, "__version__", "0.0.7")
        clients = Clients(address)
        clients.start(echo())
        (error,) = clients.wait()
    assert "and this is 0.0.7; install the same" in str(error)


def test_no_server_is_one_line():
    with pytest.raises(ConnectionError, match=r"no server answers at 127\.0\.0\.1:9; start"):
        serve(echo(), ServerEndpoint(ServerAddress("127.0.0.1", 9), True, patience=0.5), lambda: None)


def test_a_server_that_goes_away_is_one_line():
    with socket.create_server(ANY) as listening:
        address, said = ServerAddress(*listening.getsockname()), []

        def short():
            connection = listening.accept()[0]
            with connection:
                connection.sendall(
                    frame((network.GREETING, network.__version__, b"nonce")) + frame((network.JOINED, b""))
                )

        thread = threading.Thread(target=short)
        thread.start()
        with pytest.raises(ConnectionError, match="is gone; nothing more is answered"):
            serve(
                echo(),
                ServerEndpoint(address, True, patience=0.5),
                lambda: said.append(thread.join(LONG) or listening.close()),
            )


@pytest.mark.parametrize(
    "message", [b"HTTP/1.1 400 Bad Request\r\n\r\n", frame("hello"), frame((b"other", "1", b"")), LENGTH.pack(1 << 40)]
)
def test_another_server_is_one_line(message):
    with socket.create_server(ANY) as listening:

        def say():
            with listening.accept()[0] as connection:
                connection.sendall(message)
                with suppress(ConnectionError):
                    connection.recv(1)

        thread = threading.Thread(target=say)
        thread.start()
        with pytest.raises(ValueError, match="this is no server of noisewise; check --server"):
            serve(echo(), ServerEndpoint(ServerAddress(*listening.getsockname()), True), lambda: None)
        thread.join(LONG)


def test_a_port_that_is_taken_is_one_line():
    taken = r"cannot listen at {}: address already in use; pass another --listen"
    with opened_link(Link(1)) as address, pytest.raises(ValueError, match=taken.format(address)):
        Link(1).listening(address, certificate=None, key=None, opened=print).__enter__()


class Meddling(Connection):
    """A client that answers badly: ``how`` says in which way."""

    how = ""

    def send(self, message):
        if not (type(message) is tuple and type(message[0]) is int):
            return super().send(message)
        number, body = message
        if self.how == "late":
            time.sleep(1.5)
        if self.how == "another":
            message = (number - 1, body)
        if self.how == "rubbish":
            message = (number, body.decode())
        if self.how == "much":
            self._connection.sendall(LENGTH.pack(network_server.MAX_ANSWER_BYTES + 1))
        super().send(message)
        if self.how == "twice":
            super().send((number, b"1000000000"))
        return None


@pytest.mark.parametrize(
    ("how", "hears"),
    [
        ("twice", [{0: 0}, {0: 1}]),
        ("late", [{}, {}]),
        ("another", [{}, {}]),
        ("rubbish", [{}, {}]),
        ("much", [{}, {}]),
    ],
)
def test_a_client_that_meddles_is_heard_once_or_not_at_all(how, hears, monkeypatch):
    monkeypatch.setattr(Meddling, "how", how)
    monkeypatch.setattr(network, "Connection", Meddling)
    link = Link(1, wait=0.6 if how == "late" else LONG)
    with opened_link(link) as address:
        clients = Clients(address)
        clients.start(echo())
        first, second = asked(gathered(link), 2)
    clients.wait()
    assert first == hears[0] and second in (hears[1], {})  # a second answer may come when the next one is due


def read(connection):
    """A message, on a plain socket."""
    connection.settimeout(LONG)
    return Connection(connection).receive()


def joined(address, token=b""):
    """A plain socket of a client that has joined, and its token."""
    connection = socket.create_connection(address)
    greeting, _, _ = read(connection)
    connection.sendall(frame((b"", b"", token)))
    word, token = read(connection)
    assert (greeting, word) == (network.GREETING, network.JOINED)
    return connection, token


def answers_of(link):
    """What the first client answers to a question that is asked in a thread."""
    found = []
    thread = threading.Thread(target=lambda: found.extend(link.ask(b"h", {0: b"q"})))
    thread.start()
    return thread, found


def test_who_comes_back_is_asked_again_and_its_former_connection_is_heard_no_more():
    link = Link(1, wait=LONG)
    with opened_link(link) as address:
        first, token = joined(address)
        gathered(link)
        thread, found = answers_of(link)
        number, history = read(first)
        assert (history, read(first)) == (b"h", b"q")
        second, _ = joined(address, token)
        with first, pytest.raises(OSError):
            first.sendall(frame((number, b"former")))
            read(first)
        assert (read(second), read(second)) == ((number, b"h"), b"q")
        second.sendall(frame((number, b"own")))
        thread.join(LONG)
        assert found == [(0, b"own")]
        second.sendall(frame(None))
        second.close()


def test_nobody_takes_the_place_of_a_client_that_lost_its_connection():
    link = Link(1)
    with opened_link(link) as address:
        first, _ = joined(address)
        gathered(link)
        first.close()
        with socket.create_connection(address) as stranger:
            read(stranger)
            stranger.sendall(frame((b"", b"", b"0" * 32)))
            assert read(stranger) == network.LATE


def test_who_is_lost_for_long_or_leaves_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(network_server, "SILENT_SECONDS", 0.2)
    link = Link(2)
    with opened_link(link) as address:
        lost, _ = joined(address)
        leaving, _ = joined(address)
        gathered(link)
        lost.close()
        leaving.sendall(frame(None))
        assert list(link.ask(b"", {0: b"0", 1: b"1"})) == []
        leaving.close()


@pytest.mark.parametrize(
    "message",
    [LENGTH.pack(1 << 20), frame("hello"), frame((b"", b"")), b"GET / HTTP/1.1\r\n\r\n", LENGTH.pack(1 << 63)],
)
def test_who_does_not_speak_the_protocol_is_not_heard(message):
    """Nothing beyond a few bytes is read of somebody who has not joined."""
    with opened_link(Link(1)) as address, socket.create_connection(address) as stranger:
        read(stranger)
        stranger.sendall(message)
        with pytest.raises(ConnectionError):
            read(stranger)


def test_strangers_who_say_nothing_keep_nobody_out(monkeypatch):
    monkeypatch.setattr(network_server, "JOIN_SECONDS", 0.3)
    monkeypatch.setattr(network_server, "MAX_JOINING", 2)
    link = Link(1)
    with opened_link(link) as address:
        silent = [socket.create_connection(address) for _ in range(5)]
        clients = Clients(address, patience=LONG)
        clients.start(echo())
        assert asked(gathered(link), 1) == [{0: 0}]
        for each in silent:
            with each, pytest.raises(ConnectionError):
                read(each)
                read(each)
    assert clients.wait() == [True]


def test_who_comes_last_is_served_before_those_who_have_long_said_nothing(monkeypatch):
    monkeypatch.setattr(network_server, "MAX_JOINING", 2)  # JOIN_SECONDS as they are: nobody's time is up
    link, clients = Link(1), None
    with opened_link(link) as address:
        silent = [socket.create_connection(address) for _ in range(5)]
        for each in silent[2:]:
            read(each)  # the greeting: it has been let in
        clients = Clients(address, patience=LONG)
        clients.start(echo())
        assert asked(gathered(link), 1) == [{0: 0}]
        for each in silent:
            each.close()
    assert clients.wait() == [True]


def test_only_clients_whose_keys_are_listed_take_part_in_the_order_of_the_list(tmp_path):
    lines = [key_of(tmp_path / name) for name in ("first", "second")]
    (tmp_path / "keys").write_text("# two clients\n" + "\n".join(lines) + "\n")
    key_of(tmp_path / "stranger")
    link = Link(2, public_keys(tmp_path / "keys"))
    with opened_link(link) as address:
        clients = Clients(address)
        clients.start(echo(lambda number: -1))
        clients.start(echo(lambda number: -1), key=tmp_path / "stranger")
        clients.start(echo(lambda number: 2), key=tmp_path / "second")
        clients.start(echo(lambda number: 1), key=tmp_path / "first")
        heard = asked(gathered(link), 1)
    nameless, stranger, *others = clients.wait()
    assert "pass one of them with --private-key" in str(nameless) and "with --private-key" in str(stranger)
    assert heard == [{0: 1, 1: 2}] and others == [True, True]


class Relaying(Connection):
    """A client that shows a listed key with a signature of another nonce, or for another server."""

    how = ""

    def send(self, message):
        if type(message) is tuple and message[0]:
            own = private_key(self.path)
            nonce, certificate = (b"0" * 32, b"") if self.how == "nonce" else (self.nonce, b"another server")
            message = (message[0], own.sign(network.to_sign(nonce, certificate), network.SIGNATURE), b"")
        super().send(message)

    def receive(self, limit=network.MAX_BYTES):
        message = super().receive(limit)
        if type(message) is tuple and message[0] == network.GREETING:
            self.nonce = message[2]
        return message


@pytest.mark.parametrize("how", ["nonce", "certificate"])
def test_a_signature_is_of_this_join_to_this_server(how, tmp_path, monkeypatch):
    (tmp_path / "keys").write_text(key_of(tmp_path / "key"))
    monkeypatch.setattr(Relaying, "how", how)
    monkeypatch.setattr(Relaying, "path", tmp_path / "key", raising=False)
    monkeypatch.setattr(network, "Connection", Relaying)
    with opened_link(Link(1, public_keys(tmp_path / "keys"))) as address:
        clients = Clients(address)
        clients.start(echo(), key=tmp_path / "key")
        assert "the server refused this client" in str(clients.wait()[0])


def test_keys_that_are_none_are_refused(tmp_path):
    path = tmp_path / "keys"
    path.write_text("ssh-rsa AAAA\n")
    with pytest.raises(ValueError, match="key 1 is not one of ssh-keygen -t ecdsa"):
        public_keys(path)
    path.write_text("\n")
    with pytest.raises(ValueError, match="has no key"):
        public_keys(path)
    with pytest.raises(ValueError, match="not a private key of ssh-keygen -t ecdsa"):
        private_key(path)


def test_with_a_certificate_all_is_encrypted_and_others_are_refused(tmp_path):
    certificate, key = certificate_of(tmp_path)
    (tmp_path / "keys").write_text(key_of(tmp_path / "client"))
    link = Link(1, public_keys(tmp_path / "keys"))
    with opened_link(link, certificate=certificate, key=key) as address:
        clients = Clients(address)
        clients.start(echo(), insecure=False)
        clients.start(echo(), patience=0.5)
        clients.start(echo(), insecure=False, certificate=certificate, key=tmp_path / "client")
        heard = asked(gathered(link), 1)
    stranger, open_, trusting = clients.wait()
    assert "its certificate cannot be trusted; pass that of its authority" in str(stranger)
    assert "no server answers" in str(open_) and trusting is True and heard == [{0: 0}]


def test_a_client_that_wants_encryption_does_not_go_without():
    refused = pytest.raises(ValueError, match="it does not speak TLS; start the server with --certificate")
    with opened_link(Link(1)) as address, refused:
        serve(echo(), ServerEndpoint(address, insecure=False, patience=1.0), lambda: None)


def test_files_that_are_no_certificate_are_refused(tmp_path):
    certificate, key = certificate_of(tmp_path)
    for files in ((tmp_path / "none.pem", key), (certificate, None), (key, certificate)):
        with pytest.raises(ValueError, match="or not with its private key; put both in this file"):
            shown_certificate(*files)
    with pytest.raises(ValueError, match="not a certificate in PEM"):
        serve(echo(), ServerEndpoint(ANY, insecure=False, certificate=key), lambda: None)


def test_an_answer_counts_also_of_who_left_after_it():
    link = Link(1)
    with opened_link(link) as address:
        clients = Clients(address)
        clients.start(echo(), answered=lambda: sys.exit())
        heard = asked(gathered(link), 2)
    assert heard == [{0: 0}, {}]
    clients.wait()


@pytest.mark.parametrize("message", [frame((1, 2)), frame(("1", b"")), frame("again"), frame((1, b"")) + frame(3)])
def test_what_is_no_question_is_not_answered(message):
    with socket.create_server(ANY) as listening:

        def say():
            with listening.accept()[0] as connection:
                connection.sendall(frame((network.GREETING, network.__version__, b"")) + frame((network.JOINED, b"")))
                connection.sendall(message)
                while connection.recv(1 << 10):
                    pass

        thread = threading.Thread(target=say)
        thread.start()
        with pytest.raises(ValueError, match="not a message of noisewise"):
            serve(echo(), ServerEndpoint(ServerAddress(*listening.getsockname()), True), lambda: None)
        thread.join(LONG)
