"""Commands of other packages: found by entry point, listed without being imported, imported when they are called.

A package registers one in its ``pyproject.toml``; the value is a typer app, or a function for a single command::

    [project.entry-points."noisewise.commands"]
    bench = "noisewise_lab.commands:bench"
"""

from __future__ import annotations

import re
from importlib import metadata
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

ENTRY_POINT_GROUP = "noisewise.commands"
NAME = re.compile(r"[a-z][a-z0-9-]*")
ELSEWHERE = {"bench": ("noisewise-lab", "./lab")}  # commands of ours in packages of their own, and where these lie
# What is not named here comes last in the list of commands.
FIRST = "demo verify methods predict evaluate audit compare plan report export train ledger bench schema protector attack theory"
HELP_ORDER = tuple(FIRST.split())


class Commands(TyperGroup):
    """Our own commands, then those of other packages, which cannot take the name of one of ours."""

    def list_commands(self, ctx: Any) -> list[str]:
        try:
            outside = {point.name for point in _points()}
        except ValueError:  # it is said when such a command is called
            outside = set()
        names = [*self.commands, *sorted((outside | set(ELSEWHERE)) - set(self.commands))]
        return sorted(names, key=lambda name: HELP_ORDER.index(name) if name in HELP_ORDER else len(HELP_ORDER))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if (ours := self.commands.get(cmd_name)) is not None:
            return ours
        try:
            points = [point for point in _points() if point.name == cmd_name]
        except ValueError as problem:
            return Outside(cmd_name, [], problem)
        return Outside(cmd_name, points) if points or cmd_name in ELSEWHERE else None


class Outside(TyperCommand):
    """Stands for a command in the list of commands; parsing its arguments imports it."""

    def __init__(self, name: str, points: list[metadata.EntryPoint], problem: ValueError | None = None) -> None:
        super().__init__(name, help=escape(str(problem)) if problem else _summary(name, points))
        self.points, self.problem = points, problem

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if self.problem is not None:
            raise self.problem
        return _loaded(str(self.name), self.points).make_context(info_name, args, parent, **extra)


def _points() -> list[metadata.EntryPoint]:
    try:
        return [point for point in metadata.entry_points(group=ENTRY_POINT_GROUP) if NAME.fullmatch(point.name)]
    except Exception as error:
        raise ValueError(f"what installed packages say about themselves cannot be read ({_brief(error)})") from None


def _summary(name: str, points: list[metadata.EntryPoint]) -> str:
    """What the package says of itself: the help of the command would have to be imported."""
    if not points:
        return f"Needs the package {ELSEWHERE[name][0]}, which is not installed."
    try:
        return escape(str(points[0].dist.metadata["Summary"] or ""))  # type: ignore[union-attr]
    except Exception:
        return ""


def _loaded(name: str, points: list[metadata.EntryPoint]) -> Any:
    if not points:
        package, folder = ELSEWHERE[name]
        raise ValueError(
            f"the command {name} is in a package of its own; "
            f"install it with pip install {package}, or from a checkout with pip install {folder}"
        )
    if len({point.value for point in points}) > 1:
        whose = " and ".join(_package(point) for point in points)
        raise ValueError(f"the command {name} is registered by {whose}; uninstall one of them")
    try:
        return _command(name, points[0].load())
    except (Exception, SystemExit) as error:
        whose = _package(points[0])
        raise ValueError(f"the command {name} of {whose} does not load ({_brief(error)}); reinstall {whose}") from None


def _command(name: str, target: Any) -> Any:
    shelf = typer.Typer(add_completion=False)
    if isinstance(target, typer.Typer):
        shelf.add_typer(target, name=name)
    elif callable(target):
        shelf.command(name)(target)
    else:
        raise TypeError(f"{ENTRY_POINT_GROUP} wants a typer app or a function, not {type(target).__name__}")
    return typer.main.get_group(shelf).commands[name]


def _package(point: metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def _brief(error: BaseException) -> str:
    """The error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
