"""The name by which the room was always asked for these: :mod:`noisewise.facts`."""

from ..facts import Answer, Facts, Released, facts_of

__all__ = ["Answer", "Facts", "Released", "facts_of"]
