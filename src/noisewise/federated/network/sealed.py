"""What goes over the network in one message: one record of bytes, with a salt of its own.

Flower keeps what messages are made of by the hash of its content, hands it to any client that names the hash, and tells
a client what is there already. Whoever could guess a content, such as the small sum of another client, could so find out
whether it was sent. With a salt in every message nothing can be guessed.
"""

from __future__ import annotations

import secrets

from flwr.app import ConfigRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as Packed

NAME, BODY, SALT = "sealed", "body", "salt"
SALTED = 16  # bytes


def sealed(content: RecordDict) -> RecordDict:
    """The content of a message as one record that nobody can guess."""
    body = recorddict_to_proto(content).SerializeToString()
    return RecordDict({NAME: ConfigRecord({BODY: body, SALT: secrets.token_bytes(SALTED)})})


def opened(content: RecordDict) -> RecordDict:
    """The content that was sealed; ValueError for anything else, whoever sent it."""
    try:
        body = content.config_records[NAME][BODY]
        if type(body) is not bytes:
            raise TypeError
        return recorddict_from_proto(Packed.FromString(body))
    except Exception:
        raise ValueError("a message is not as noisewise writes them") from None
