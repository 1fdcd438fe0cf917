"""A notebook as a page: text as it is, cells as blocks of code, and what they printed, showed and gave below them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def as_markdown(text: str, name: str) -> str:
    """The page of a notebook; ``name`` is its file, which stands beside the page."""
    parts = [part for cell in json.loads(text)["cells"] for part in shown(cell)]
    title, *rest = parts
    heading, _, introduction = title.partition("\n")
    return (
        "\n\n".join([heading, f"*A notebook: [{name}]({name}), to run yourself.*", introduction.strip(), *rest]) + "\n"
    )


def shown(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```" if not source.startswith("!") else f"```sh\n{commands(source)}\n```"
    for output in cell["outputs"]:
        yield from printed(output)


def commands(source: str) -> str:
    """Lines of a shell without the mark that notebooks put before them."""
    return "\n".join(line.removeprefix("!") for line in source.splitlines())


def printed(output: dict[str, Any]) -> Iterator[str]:
    """Text as a block, a table as one, a picture inside of the page."""
    data = output.get("data", {})
    if output["output_type"] == "stream":
        yield block("".join(output["text"]))
    elif "image/png" in data:
        yield f'<p><img alt="The figure that this cell draws" src="data:image/png;base64,{data["image/png"].strip()}"></p>'
    elif "text/plain" in data:
        yield block("".join(data["text/plain"]))


def block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"
