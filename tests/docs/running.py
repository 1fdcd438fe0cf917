"""Running the blocks of a page: Python in one namespace, commands where they stand, output compared as it is shown."""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import math
import os
import re
import shlex
import subprocess
import sys
import tokenize
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pages import Block

FRAME = str.maketrans(dict.fromkeys("│╭╮╰╯─━┃┏┓┗┛", " "))
NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(e[-+]?\d+)?%?")
BESIDE = Path(sys.executable).parent  # where commands of this environment are


class Page:
    """What the blocks of a page share: a namespace, and the folder that is the current one."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def run(self, block: Block) -> None:
        """Run a block, and what comes before it; anything that differs from what is shown is an error that names it."""
        try:
            for language, code in block.before:
                self._do(language, code, block)
            if block.file is not None:
                Path(block.file).write_text(block.code, encoding="utf-8")
                return
            if block.language == "console":
                for command, output in transcript(block.code):
                    compare(shell(command, refused="noisewise: " in output), output, varies=block.varies)
                return
            said = self._do(block.language, block.code, block)
        except Exception as error:
            if block.output is None or not block.output.startswith(f"{type(error).__name__}: "):
                raise AssertionError(f"{block}: {type(error).__name__}: {error}") from error
            said = f"{type(error).__name__}: {error}"
        if block.output is not None:
            with named(block):
                compare(said, block.output, varies=block.varies)

    def _do(self, language: str, code: str, block: Block) -> str:
        if language == "sh":
            return "".join(shell(command) for command in commands(code))
        if code.lstrip().startswith(">>>"):
            return self._examples(code, str(block))
        told = io.StringIO()
        with contextlib.redirect_stdout(told), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a page warns of is said on the page
            self._statements(code, str(block))
        return told.getvalue()

    def _statements(self, code: str, name: str) -> None:
        shown = literals(code)
        for node in ast.parse(code, name).body:
            if isinstance(node, ast.Expr) and node.end_lineno in shown:
                value = eval(compile(ast.Expression(node.value), name, "eval", dont_inherit=True), self.names)
                expected, text = shown[node.end_lineno]
                assert alike(value, expected, text), f"{name}: {ast.unparse(node)} is {value!r}, not {text}"
            else:
                exec(compile(ast.Module([node], []), name, "exec", dont_inherit=True), self.names)

    def _examples(self, code: str, name: str) -> str:
        test = doctest.DocTestParser().get_doctest(code, self.names, name, name, 0)
        told = io.StringIO()
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        runner.run(test, out=told.write, clear_globs=False)
        assert runner.summarize(verbose=False).failed == 0, told.getvalue()
        self.names.update(test.globs)
        return ""


@contextlib.contextmanager
def named(block: Block) -> Iterator[None]:
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{block}: {error}") from None


def literals(code: str) -> dict[int, tuple[Any, str]]:
    """Values that a comment says a line has, by the number of the line."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            text = token.string.lstrip("# ")
            with contextlib.suppress(ValueError, SyntaxError):
                value = ast.literal_eval(text)
                if any(
                    character.isdigit() for character in re.sub(r"\"[^\"]*\"|'[^']*'", "", text)
                ):  # else a name, or several
                    found[token.start[0]] = (value, text)
    return found


def alike(value: Any, shown: Any, text: str) -> bool:
    """Whether a value is what is shown, numbers to as many places as it has."""
    if isinstance(shown, float):
        places = max((len(digits) for digits in re.findall(r"\.(\d+)", text)), default=0)
        return math.isclose(float(value), shown, abs_tol=0.51 * 10.0**-places, rel_tol=0)
    if isinstance(shown, tuple | list):
        return len(value) == len(shown) and all(alike(a, b, text) for a, b in zip(value, shown, strict=True))
    if isinstance(shown, Mapping):
        return value.keys() == shown.keys() and all(alike(value[name], shown[name], text) for name in shown)
    return bool(value == shown)


def commands(code: str) -> Iterator[str]:
    """The commands of a block, those over several lines as one."""
    gathered = ""
    for line in code.splitlines():
        gathered = f"{gathered}\n{line}" if gathered else line
        if gathered.endswith("\\"):
            continue
        try:
            words = shlex.split(gathered, comments=True)
        except ValueError:  # inside of quotes
            continue
        if words:
            yield gathered
        gathered = ""
    assert not gathered, f"a command does not end: {gathered}"


def transcript(code: str) -> Iterator[tuple[str, str]]:
    """`$ command` and what is printed then."""
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def shell(command: str, *, refused: bool = False) -> str:
    """What a command prints; ours run in this process, which has imported all it needs."""
    words = shlex.split(command, comments=True)
    if words[0] == "noisewise" and not {"|", ">", ">>", "<", "&&", ";"} & {*words}:
        return _ours(words[1:], refused)
    path = f"{BESIDE}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env={**os.environ, "PATH": path})
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout + done.stderr


def _ours(arguments: list[str], refused: bool) -> str:
    from noisewise.faces.cli import main

    told, before, code = io.StringIO(), sys.argv, 0
    sys.argv = ["noisewise", *arguments]
    try:
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = before
    said = told.getvalue()
    assert (code in (2, 3)) == refused and code in (0, 2, 3), (
        f"noisewise {shlex.join(arguments)}: exit code {code}, {said}"
    )
    return said


def compare(said: str, shown: str, *, varies: bool) -> None:
    """Words in their order, whatever the lines; "..." stands for anything."""
    parts = [plain(part, varies) for part in shown.split("...")]
    pattern = ".*".join(re.escape(part) for part in parts)
    if not shown.strip():
        return
    assert re.search(pattern.replace(r"\ ", r"\s+"), plain(said, varies), re.DOTALL), (
        f"shown is\n{shown}\nbut it says\n{said}"
    )


def plain(text: str, varies: bool) -> str:
    """Without frames, lines and spaces more than one; numbers as # where they vary."""
    text = " ".join(text.translate(FRAME).split())
    return NUMBER.sub("#", text) if varies else text
