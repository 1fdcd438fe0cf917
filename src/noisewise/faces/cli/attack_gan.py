"""``noisewise attack gan``: a client of shared training redraws another client's class, at three levels of privacy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ..progress import bar
from .attacks import Data, Out, Seed, attack, load_pictures
from .main import JsonFlag, errors, print_json, table_of

if TYPE_CHECKING:
    from ...evidence.audit.gan import Redrawing

CLEAR = 3.0  # standard errors above the reference; less may be chance
SHOWS = 0.2  # of likeness above the reference; less is no picture
DESTROYED = 0.5  # of the accuracy without noise


@attack.command()
def gan(
    json_output: JsonFlag = False,
    victim: Annotated[int, typer.Option(min=0, max=9, help="The digit that one client alone holds.")] = 3,
    epsilon: Annotated[float, typer.Option(help="Epsilon of a picture (record level), or of a client.")] = 8.0,
    delta: Annotated[float, typer.Option(help="Delta of the same.")] = 1e-5,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of shared training; all of them are priced.")] = 60,
    pictures: Annotated[int, typer.Option(min=1, help="Pictures of an honest client, all of one digit.")] = 10,
    holders: Annotated[
        int, typer.Option(min=1, help="Clients among whom the victim's pictures are shared out: a control.")
    ] = 1,
    fakes: Annotated[int, typer.Option(min=0, help="Drawings it sends in every round; 0: it only watches.")] = 40,
    hidden: Annotated[int, typer.Option(min=1, help="Hidden units of the shared model.")] = 32,
    repeats: Annotated[int, typer.Option(min=2, help="Runs of each kind, for the standard errors.")] = 6,
    rows: Annotated[int, typer.Option(min=200, help="Pictures to share out and to judge by, at most.")] = 5000,
    data: Data = None,
    out: Out = Path("noisewise-attacks"),
    seed: Seed = 0,
) -> None:
    """What does a client learn of another's data? Redraw a class that only the victim holds (Hitaj et al. 2017).

    A hostile client trains a generator against the shared model, and sends its drawings in under a label of its own, so
    that the victim shows more. Beside it, the same attack where nobody holds the class: what beats that was learnt.

    Record-level privacy does not cover what a class looks like: that is what training is for, and a client's n pictures
    together have n times epsilon. Client-level privacy covers all that one client adds, at a price in accuracy.
    The runs are simulations with a seed, on public pictures.

    Example: [bold]noisewise attack gan --victim 3 --epsilon 8 --out attacks[/bold]
    """
    from ...trusted.accountants.terms import Budget

    budget = Budget(epsilon, delta)
    from ...evidence.audit.gan import HeavyBallServer, Hostile
    from ...evidence.audit.gan import gan as redraw
    from ...evidence.audit.plots import plot_gan
    from ...learned.evaluate import on_one_thread

    shown = load_pictures(data, rows, seed)
    X = shown.X / shown.top
    with bar("runs") as progress, on_one_thread():
        redrawing = redraw(
            X,
            shown.y,
            victim,
            budget,
            repeats=repeats,
            each=pictures,
            holders=holders,
            hostile=Hostile(fakes=fakes),
            server=HeavyBallServer(rounds=rounds, hidden=hidden),
            seed=seed,
            progress=progress,
        )
    whose = "another client" if holders == 1 else f"{holders} other clients"
    title = f"Redrawing the {victim} of {whose}: {shown.name}, {redrawing.clients} honest clients, {rounds} rounds"
    path = out / "attack-gan.png"
    plot_gan(redrawing, X[shown.y == victim], shown.shape, path, title=title)
    if json_output:
        print_json({"title": title, "data": shown.name, "rounds": rounds, **redrawing.to_dict()})
    else:
        head = f"{title}\nMeans of {repeats} runs, with standard errors; simulations, not private\n"
        head += f"Accuracy: of the shared model on held-out pictures, of other digits and of {victim}s"
        Console().print(table_of([_line(row, victim) for row in redrawing.rows()], head))
        Console().print(in_words(redrawing), highlight=False)
    errors.print(f"Written: {path}", highlight=False, soft_wrap=True)


def _line(row: dict[str, Any], victim: int) -> dict[str, Any]:
    return {
        "setting": row["setting"] if row["victim_there"] else "",
        "victim": "there" if row["victim_there"] else "never",
        "accuracy": f"{row['accuracy']:.2f}",
        f"on {victim}s": f"{row['accuracy_of_victim']:.2f}",
        f"taken for a {victim}": f"{row['taken']:.2f} ± {row['taken_error']:.2f}",
        "likeness": f"{row['likeness']:.2f} ± {row['likeness_error']:.2f}",
    }


def in_words(redrawing: Redrawing) -> str:
    """What was found, setting by setting, and what each promise covers."""
    from ...evidence.audit.federation import CLIENT_LEVEL, RECORD_LEVEL, WITHOUT_NOISE

    rows = {row["setting"]: row for row in redrawing.rows() if row["victim_there"]}
    lines = []
    for setting in redrawing.settings:
        above, error = redrawing.above_reference(setting)
        found = "no clear sign of it"
        if above > CLEAR * error:
            found = "the class shows" if above > SHOWS else "a trace of the class"
        if rows[setting.name]["accuracy"] < DESTROYED * rows[WITHOUT_NOISE.name]["accuracy"]:
            found += ", but the noise destroyed the model: that hides everything"
        lines.append(f"{setting.name}: likeness {above:+.2f} ± {error:.2f} against never there: {found}.")
    epsilon, n = redrawing.budget.epsilon, redrawing.pictures
    record, client = (rows[level.name] for level in (RECORD_LEVEL, CLIENT_LEVEL))
    lines += [
        f"Record level promises epsilon {epsilon:g} for one picture, {n} x {epsilon:g} for {n} of one client together. What they "
        "have in common is what training is for: no class is covered.",
        f"Client level promises epsilon {epsilon:g} for all that one client adds. Accuracy there: {client['accuracy']:.2f} "
        f"(record level {record['accuracy']:.2f}), on the {redrawing.victim}s {client['accuracy_of_victim']:.2f} "
        f"({record['accuracy_of_victim']:.2f}).",
    ]
    return "\n".join(lines)
