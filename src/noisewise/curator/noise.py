"""The name by which the room was always asked for its stream: :class:`noisewise.noise.Stream`."""

from ..noise import Stream

__all__ = ["Stream"]
