"""What docs/reference/commands.md goes on with: the command line, from the help of the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

BOLD = re.compile(r"\[bold\](.*?)\[/bold\]", re.DOTALL)


def commands_listed() -> str:
    """Every command with its arguments, options and examples; those of the laboratory too."""
    import typer

    import noisewise.faces.cli  # noqa: F401  adds the commands
    from noisewise.faces.cli.main import app

    from ..commands import bench

    group = typer.main.get_group(app)
    top = group.context_class(group, info_name="noisewise")
    parts: list[str] = []
    for name in group.list_commands(top):
        command: Any = typer.main.get_group(bench) if name == "bench" else group.get_command(top, name)
        parts += described(command, command.context_class(command, info_name=name, parent=top))
    return "\n".join(parts)


def described(command: Any, context: Any) -> Iterator[str]:
    """A command, then those inside of it."""
    level = "##" if context.parent.parent is None else "###"
    yield f"{level} {context.command_path}\n\n{prose(command.help or '')}\n"
    inner = getattr(command, "commands", {})
    if not inner:
        yield f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```\n"
        yield options(command, context)
    for name, one in inner.items():
        yield from described(one, one.context_class(one, info_name=name, parent=context))


def prose(help_text: str) -> str:
    """Help with its marks as Markdown: what is bold there is a command."""
    text = BOLD.sub(lambda found: f"`{' '.join(found[1].split())}`", help_text)
    return re.sub(r"\\\[", "[", text)


def options(command: Any, context: Any) -> str:
    records = [parameter.get_help_record(context) for parameter in command.params]
    rows = [f"| `{cell(name)}` | {cell(prose(words))} |" for name, words in filter(None, records)]
    return "\n".join(["| argument or option | |", "|---|---|", *rows, ""]) if rows else ""


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
