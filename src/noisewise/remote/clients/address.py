"""What both ends of the network know: addresses, and what the server says to a client that it does not serve."""

from __future__ import annotations

from typing import NamedTuple

SAID, VERSION = "noisewise-said", "noisewise-version"  # headers
OTHER, LATE, OVER, STOPPED = "another version", "late", "over", "stopped"


class ServerAddress(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str, option: str) -> ServerAddress:
        """``host:port``, also ``[::1]:9092``."""
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if (
            not host
            or not (port.isascii() and port.isdigit())
            or int(port) > 65535
            or any(sign in host for sign in "/@ ")
        ):
            raise ValueError(f"{option} is {text!r}; pass host:port, such as 127.0.0.1:9092")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
