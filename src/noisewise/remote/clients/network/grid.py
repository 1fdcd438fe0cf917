"""Flower's Grid in the process that holds the SuperLink: questions go to its state, replies come from there.

A message goes whole, with its content, under a name that is drawn at random. Flower's usual way, parts that are kept by the hash
of their content for whoever names it, would let a client find out by guessing what another one has sent. A reply is known by
the question that it answers, which was put to one client; what it says of itself does not count.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable

from flwr.app import Error, Message, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import ErrorCode
from flwr.proto.message_pb2 import ObjectTree
from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from flwr.serverapp import Grid
from flwr.supercore.run import Run

PULL = 0.01  # seconds between two looks for replies
NOTHING = Error(ErrorCode.MESSAGE_UNAVAILABLE, "no answer that can be read")


class LinkGrid(Grid):
    """Asks the clients of one run."""

    def __init__(self, state: InMemoryLinkState, run: Run) -> None:
        self._state, self._run = state, run
        self._nodes: tuple[int, ...] = ()
        self._asked: dict[str, int] = {}  # of which client, by question
        self._lost: dict[str, Message] = {}  # questions that could not even be put
        self.due: set[int] = set()  # clients that have a question to fetch

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def take(self, nodes: tuple[int, ...]) -> None:
        """These clients are asked, in this order, and no others."""
        self._nodes = nodes

    def get_node_ids(self) -> list[int]:
        return [*self._nodes]

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Put questions; those that were put before and not answered are withdrawn."""
        self._forget({*self._asked})
        self._asked.clear()
        self._lost.clear()
        self._state.delete_sessions_in_run(self._run.run_id)
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        name, node = secrets.token_hex(32), message.metadata.dst_node_id
        message.metadata.__dict__["_message_id"] = name
        session = self._state.start_session(self._run.run_id)
        stored, _ = self._state.store_message_and_object_tree(message, ObjectTree(object_id=name), session)
        self._asked[name] = node
        if stored:
            self.due.add(node)
        else:  # a client that has left for good
            self._lost[name] = Message(NOTHING, reply_to=message)
        return name

    def again(self, node: int) -> None:
        """A client that asks for a question has no other in hand: one that it fetched and did not answer was lost on the way."""
        with self._state.lock:
            for name, asked in [*self._asked.items()]:
                message = self._state.message_ins_store.get(name)
                if asked == node and message and name not in self._state.message_ins_id_to_message_res_id:
                    message.metadata.delivered_at = ""
                    self.due.add(node)

    def _forget(self, names: set[str]) -> None:
        self._state.delete_messages(names)
        for name in names:
            self._state.object_store.delete(name)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Replies to questions that still stand: each once. One that is an error stands for none."""
        wanted = {name for name in message_ids if name in self._asked}
        replies = {name: self._lost.pop(name) for name in wanted & self._lost.keys()}
        with self._state.lock:
            answered = self._state.message_ins_id_to_message_res_id
            there = (
                wanted & answered.keys()
            )  # also of clients that have left since, of which Flower says that there is none
            replies |= {name: self._state.message_res_store[answered[name]] for name in there}
            waiting = (wanted - there) & self._state.message_ins_store.keys()
            gone = self._state.get_message_res(waiting, self._run.run_id) if waiting else []
        replies |= {reply.metadata.reply_to_message_id: reply for reply in gone}
        return [self._taken(name, reply) for name, reply in replies.items()]

    def _taken(self, name: str, reply: Message) -> Message:
        self._forget({name})
        self._state.object_store.delete(reply.metadata.message_id)
        reply.metadata.__dict__["_src_node_id"] = self._asked.pop(name)  # also where Flower says that there is none
        return reply if reply.has_content() else make_message(reply.metadata, error=NOTHING)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Ask and wait until all have answered or the time is up."""
        open_, end = {*self.push_messages(messages)}, None if timeout is None else time.monotonic() + timeout
        replies: list[Message] = []
        while open_ & self._asked.keys():
            replies += self.pull_messages(open_)
            if end is not None and time.monotonic() >= end:
                break
            time.sleep(PULL)
        return replies
