"""What docs/reference/methods.md goes on with: every registered method, by what its file says of it."""

from __future__ import annotations

ENTRY = """## {name}

*{summary}.*{paper}

::: {module}
    options:
      show_root_heading: false
      show_root_toc_entry: false
      members: false

::: {module}.{kind}
    options:
      heading_level: 3
      members: false
      inherited_members: false

"""
BASE = """## Every method

::: noisewise.methods.registry
    options:
      heading_level: 3

::: noisewise.methods.Method
    options:
      heading_level: 3
"""


def methods_listed() -> str:
    """The registry in its order, with the docstrings of each file and its class for mkdocstrings to fill in."""
    from noisewise.methods import registry

    entries = [
        ENTRY.format(
            name=name,
            summary=kind.summary,
            paper=f" ({kind.paper})" if kind.paper else "",
            module=kind.__module__,
            kind=kind.__name__,
        )
        for name, kind in registry().items()
    ]
    return "".join([*entries, BASE])
