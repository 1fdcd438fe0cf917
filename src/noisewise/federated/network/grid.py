"""Flower's Grid in the process that holds the SuperLink: questions go to its state, replies come from there.

A reply is known by the question that it answers, which was put to one client; what it says of itself does not count.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from flwr.app import Error, Message, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.constant import ErrorCode
from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run

from .sealed import opened, sealed

PULL = 0.01  # seconds between two looks for replies
NOTHING = Error(ErrorCode.MESSAGE_UNAVAILABLE, "no answer that can be read")


class LinkGrid(Grid):
    """Asks the clients of one run."""

    def __init__(self, state: InMemoryLinkState, run: Run) -> None:
        self._state, self._run = state, run
        self._nodes: tuple[int, ...] = ()
        self._asked: dict[str, int] = {}  # of which client, by question
        self._arriving: dict[str, Message] = {}  # replies of which parts may still be to come, by question
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
        self._withdraw()
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        with no_object_id_recompute():
            closed = make_message(message.metadata, sealed(message.content))
            name = closed.object_id
            closed.metadata.__dict__["_message_id"] = name
            parts = get_all_nested_objects(closed)
            session = self._state.start_session(self._run.run_id)
            stored, missing = self._state.store_message_and_object_tree(
                remove_content_from_message(closed), get_object_tree(closed), session
            )
            for part in missing:
                self._state.store_object(self._run.run_id, session, part, parts[part].deflate())
        node = message.metadata.dst_node_id
        self._asked[name] = node
        if stored:
            self.due.add(node)
        else:  # a client that has left for good
            self._arriving[name] = Message(NOTHING, reply_to=closed)
        return name

    def _withdraw(self) -> None:
        for name in self._asked:
            self._state.object_store.delete(name)
        for reply in self._arriving.values():
            self._state.object_store.delete(reply.metadata.message_id)
        self._state.delete_messages({*self._asked})
        self._asked.clear()
        self._arriving.clear()

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Replies that are whole, to questions that still stand: each once."""
        wanted = {name for name in message_ids if name in self._asked}
        looked = {name for name in wanted - self._arriving.keys() if name in self._state.message_ins_store}
        for reply in self._state.get_message_res(looked, self._run.run_id) if looked else ():
            self._arriving[reply.metadata.reply_to_message_id] = reply
        return [message for name in wanted & self._arriving.keys() if (message := self._whole(name)) is not None]

    def _whole(self, name: str) -> Message | None:
        """The reply to a question, once all of it has come; one that cannot be read is an error, as if there was none."""
        reply = self._arriving[name]
        store, key = self._state.object_store, reply.metadata.message_id
        content: RecordDict | None = None
        if not reply.has_error():
            try:
                tree = [part.object_id for part in iterate_object_tree(store.get_object_tree(key))]
                parts = {part: store.get(part) or b"" for part in tree}
                if not all(parts.values()):
                    return None
                said: Any = inflate_object_from_contents(key, parts)
                content = opened(said.content)
            except Exception:  # whatever a client sent
                content = None
        del self._arriving[name]
        reply.metadata.__dict__["_src_node_id"] = self._asked.pop(name)  # also where Flower says that there is no reply
        store.delete(key)
        self._state.delete_messages({name})
        return make_message(reply.metadata, content, None if content is not None else NOTHING)

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
