"""``noisewise attack``: membership inference, gradient leakage and model inversion, with pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ..progress import bar
from .common import note, numbers
from .main import JsonFlag, app, print_json, table_of
from .paying import NoAccount, refuse_account

if TYPE_CHECKING:
    from ...evidence.audit.membership import Membership
    from ...evidence.audit.roc import Rate

attack = typer.Typer(
    help="Attack models and gradients: who was in the data, what a gradient or a model gives away.",
    no_args_is_help=True,
)
app.add_typer(attack, name="attack")

PEOPLE = (3, 5, 8)  # the digits whose writers become classes of their own
Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder with mnist.npz.", show_default="embedded digits of 8 x 8 pixels", exists=True, file_okay=False
    ),
]
Out = Annotated[Path, typer.Option(help="Folder for the picture.", file_okay=False)]
Delta = Annotated[float, typer.Option(help="Delta of the private model.")]
Hidden = Annotated[int, typer.Option(min=0, help="Hidden units of the model; 0 for a linear one.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the data's order, the models and the noise.")]


@dataclass(frozen=True)
class Pictures:
    """Pictures as rows of pixels between 0 and ``top``, shuffled."""

    name: str
    X: Any
    y: Any
    top: float
    shape: tuple[int, int]


def load_pictures(data: Path | None, rows: int | None, seed: int) -> Pictures:
    """The embedded digits, or the training pictures of a folder's mnist.npz; ``rows`` of them, at random."""
    import numpy as np

    if data is None:
        from ...tables.generated import digits

        table = digits()
        X, y, top, shape, name = table.X.to_numpy(), table.y, 16.0, (8, 8), "digits"
    else:
        try:
            with np.load(data / "mnist.npz") as file:
                X, y = file["X_train"], file["y_train"].astype(np.int64)
        except (OSError, KeyError, ValueError):
            raise ValueError(f"{data} has no mnist.npz with X_train and y_train; leave --data out for digits") from None
        top, shape, name = 255.0, (int(X.shape[1]), int(X.shape[2])), "MNIST"
    chosen = np.random.default_rng(seed).permutation(len(y))[:rows]
    return Pictures(name, X.reshape(len(X), -1)[chosen].astype(float), y[chosen], top, shape)


def classifier(pictures: Pictures, hidden: int, **settings: Any) -> Any:
    """An unfitted classifier of the pictures; without an epsilon it is not private."""
    from ...methods.nonprivate import NonPrivate
    from ..sklearn import PrivateClassifier

    if "epsilon" not in settings:
        settings = {"method": NonPrivate(l2=settings.pop("l2", 1e-6)), **settings}
    return PrivateClassifier(bounds=(0.0, pictures.top), model=(hidden,) if hidden else "linear", **settings)


@attack.command()
def membership(
    json_output: JsonFlag = False,
    epsilon: Annotated[float, typer.Option(help="Epsilon of the private model.")] = 1.0,
    delta: Delta = 1e-5,
    rows: Annotated[int, typer.Option(min=20, help="Candidates; each is in a model by a coin flip.")] = 600,
    hidden: Hidden = 32,
    targets: Annotated[int, typer.Option(min=1, help="Models that are attacked, of each kind.")] = 4,
    shadows: Annotated[int, typer.Option(min=2, help="Models of the attacker's own, an even number.")] = 16,
    label_noise: Annotated[
        float, typer.Option(min=0, max=1, help="Share of labels replaced at random: wrong ones are learned by heart.")
    ] = 0.0,
    run: Annotated[Path | None, typer.Option(help="Attack a finished run folder instead.", show_default=False)] = None,
    members: Annotated[
        Path | None, typer.Option(help="With --run: CSV or Parquet with rows it was trained on.", show_default=False)
    ] = None,
    non_members: Annotated[
        Path | None, typer.Option(help="With --run: rows it was not trained on.", show_default=False)
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="With --run: the label's column.", show_default="the schema's")
    ] = None,
    method: Annotated[
        str,
        typer.Option("--attack", help="With --run: loss, or shadow, lira, lira_offline with models of its settings."),
    ] = "loss",
    members_public: Annotated[
        bool,
        typer.Option(
            "--members-public",
            help="With --run: the member rows are public or planted, so the outcome "
            "goes into the folder's report. Nothing pays for figures about private rows.",
        ),
    ] = False,
    data: Data = None,
    out: Out = Path("noisewise-attacks"),
    seed: Seed = 0,
    ledger: NoAccount = None,
    dataset: NoAccount = None,
) -> None:
    """Who was in the training data? Four attacks, on a model without privacy and on a private one.

    Trains the models it attacks (simulations) and writes ROC curves beside what (epsilon, delta) allows. With --run it
    attacks one finished model; then it reads your rows, and what it prints is not covered by any budget.

    Example: [bold]noisewise attack membership --epsilon 1 --out attacks[/bold]

    Example: [bold]noisewise attack membership --run RUN --members in.csv --non-members out.csv --target income[/bold]
    """
    refuse_account(ledger, dataset)
    if run is not None:
        if members is None or non_members is None:
            raise ValueError("--run needs --members FILE and --non-members FILE")
        how = {"target": target, "attack": method, "shadows": shadows, "seed": seed}
        _finished(run, members, non_members, how, public=members_public, json_output=json_output, out=out)
        return
    if members is not None or non_members is not None or target is not None:
        raise ValueError("--members, --non-members and --target belong to --run RUN; pass the run folder, too")
    import numpy as np

    from ...evidence.audit.membership import membership_game
    from ...evidence.audit.plots import plot_roc

    pictures = load_pictures(data, rows, seed)
    rng = np.random.default_rng(seed)
    wrong = rng.random(len(pictures.y)) < label_noise
    y = np.where(wrong, rng.integers(0, 10, len(wrong)), pictures.y)
    kinds = {
        "without privacy": classifier(pictures, hidden),
        f"epsilon {epsilon:g}, delta {delta:g}": classifier(pictures, hidden, epsilon=epsilon, delta=delta),
    }
    games: dict[str, dict[str, Membership]] = {}
    for name, estimator in kinds.items():
        with bar(f"models {name}") as progress:
            games[name] = membership_game(
                estimator, pictures.X, y, targets=targets, shadows=shadows, seed=seed, progress=progress
            )
    noise = f", {label_noise:.0%} of the labels replaced" if label_noise else ""
    title = f"Membership inference: {len(y)} pictures of {pictures.name}{noise}, {targets} models of each kind"
    path = out / "attack-membership.png"
    plot_roc(games, path, title=title)
    if json_output:
        documents = {name: [one.to_dict() for one in results.values()] for name, results in games.items()}
        print_json({"title": title, "models": documents})
    else:
        for name, results in games.items():
            Console().print(table_of(_shown(results.values()), f"{title}\nModels {name}"))
            best = max(results.values(), key=lambda one: one.advantage.low)
            words = f"Best attack: {best.attack}; {best.verdict}.\n"
            if violation := next((one for one in results.values() if one.violates), None):
                words = f"[bold]VIOLATION[/bold]: {violation.verdict}"
            Console().print(words, highlight=False)
    note(f"Written: {path}")


def _shown(results: Iterable[Membership]) -> list[dict[str, Any]]:
    """Three lines for each attack, on at most 80 columns."""
    rows = []
    for result in results:
        for number, point in enumerate(result.points):
            first = "", "", ""
            if not number:
                first = result.attack, f"{result.auc:.3f}", _between(result.advantage)
            allowed = "-" if point.allowed is None else f"{point.allowed:.3f}"
            cells = (*first, f"{100 * point.at:g} %", _between(point.tpr), allowed)
            rows.append(dict(zip(("attack", "AUC", "advantage", "at FPR", "TPR", "allowed"), cells, strict=True)))
    return rows


def _between(rate: Rate) -> str:
    return f"{rate.value:.3f} ({rate.low:.3f}..{rate.high:.3f})"


def _finished(
    run: Path, members: Path, non_members: Path, how: dict[str, Any], *, public: bool, json_output: bool, out: Path
) -> None:
    """Attack the model of a run folder; ``how``: by which attack, with which models of the attacker's own."""
    from ...evidence import runs
    from ...evidence.audit.plots import plot_roc
    from ...trusted.units import UNIT
    from ..sklearn import load
    from ..sklearn.finished import attack_run, entry, read_table

    with bar("shadow models") as progress:
        tables, model = (read_table(members), read_table(non_members)), load(run)
        result = attack_run(model, *tables, progress=progress, **how)
    if public:
        from ...evidence.report.page import refresh

        runs.append(run, "audit.json", entry(result, (model.statement_.data["promise"] or {}).get("unit", UNIT)))
        refresh(run)
    path = out / "attack-membership-run.png"
    plot_roc({run.name: {result.attack: result}}, path, title=f"Membership inference on {run.name}")
    if json_output:
        print_json({"run": str(run), "recorded": public, **result.to_dict()})
    else:
        Console().print(table_of(_shown([result]), f"Membership inference on {run}"))
        Console().print(result.verdict, highlight=False)
    kept = f"Added to {run / 'audit.json'}" if public else "Not added to the run folder: nothing pays for figures about"
    note(kept if public else f"{kept} private rows; --members-public if they are not")
    note(f"Written: {path}")


@attack.command()
def leakage(
    json_output: JsonFlag = False,
    method: Annotated[
        str, typer.Option("--attack", help="deep (match the gradient, Zhu et al. 2019) or closed (rank-one formula).")
    ] = "deep",
    noise: Annotated[str, typer.Option(help="Comma-separated noise multipliers.")] = "0,0.001,0.01,0.1,1,10",
    clip: Annotated[float, typer.Option(help="Clip norm of a record's gradient.")] = 1.0,
    records: Annotated[int, typer.Option(min=1, help="Records to attack.")] = 6,
    hidden: Hidden = 20,
    label: Annotated[str, typer.Option(help="infer it from the gradient's signs, or optimise it too.")] = "infer",
    data: Data = None,
    out: Out = Path("noisewise-attacks"),
    seed: Seed = 0,
) -> None:
    """What does a released gradient give away? Rebuild pictures from their own clipped and noised gradients.

    The noise multiplier is the standard deviation of the noise over the clip norm. Recovered pictures are shown beside
    the truth and beside an average picture, the guess of an attacker who has no gradient.

    Example: [bold]noisewise attack leakage --records 4 --out attacks[/bold]
    """
    import numpy as np

    from ...evidence.audit.leakage import leakage as attack_gradients
    from ...evidence.audit.plots import plot_leakage
    from ...tables.rows import Scaling
    from ...trusted.losses import Softmax
    from ...trusted.models import MLP, Linear

    levels = numbers(noise, "noise")
    pictures = load_pictures(data, records + 1000, seed)
    chosen = _one_of_each(pictures.y, records)
    width = pictures.X.shape[1]
    scaling = Scaling(np.zeros(width), np.full(width, pictures.top), unit_rows=True)
    model = MLP((width + 1, hidden, 10), Softmax()) if hidden else Linear(width + 1, Softmax(), 10)
    with bar("gradients") as progress:
        leaked = attack_gradients(
            model, model.start(), scaling(pictures.X[chosen]), pictures.y[chosen], attack=method, noise_multipliers=levels,
            clip=clip, label=label, seed=seed, progress=progress,
            blind=(np.delete(pictures.X, chosen, axis=0) / pictures.top).mean(axis=0),
        )  # fmt: skip
    kind = f"perceptron with {hidden} hidden units" if hidden else "linear model"
    title = f"What a released gradient gives away: {kind}, one record, clip {clip:g}"
    path = out / f"attack-leakage-{'mlp' if hidden else 'linear'}-{method}.png"
    plot_leakage(leaked, pictures.shape, path, title=title)
    if json_output:
        print_json({"title": title, "data": pictures.name, **leaked.to_dict()})
    else:
        shown = [_recovered(row) for row in leaked.rows()]
        Console().print(table_of(shown, f"{title}\nMedians over records; the last row guesses an average picture"))
    note(f"Written: {path}")


def _recovered(row: dict[str, Any]) -> dict[str, Any]:
    noise, labels = row["noise_multiplier"], row["labels"]
    return {
        "noise multiplier": "no gradient" if noise is None else f"{noise:g}",
        "records": row["records"],
        "mean squared error": f"{row['error']:.2g}",
        "PSNR, dB": f"{row['psnr']:.1f}",
        "similarity": f"{row['similarity']:.3f}",
        "labels found": "-" if labels is None else f"{labels:.0%}",
    }


@attack.command()
def inversion(
    json_output: JsonFlag = False,
    epsilons: Annotated[str, typer.Option(help="Comma-separated budgets of the private models.")] = "10,1,0.1",
    delta: Delta = 1e-5,
    hidden: Hidden = 20,
    people: Annotated[int, typer.Option(min=0, max=3, help="Classes of one record: a class that is a person.")] = 3,
    rows: Annotated[int, typer.Option(min=100, help="Records to train on, at most.")] = 5000,
    data: Data = None,
    out: Out = Path("noisewise-attacks"),
    seed: Seed = 0,
) -> None:
    """What does a trained model give back? Ask it for the purest example of each class.

    The average of a digit is a fact about many records; no promise hides it. A few records become classes of their own:
    there the average is the record, which a private model must not give back.

    Example: [bold]noisewise attack inversion --epsilons 10,1 --out attacks[/bold]
    """
    import numpy as np

    from ...evidence.audit.inversion import class_means, with_a_class_of_one
    from ...evidence.audit.inversion import inversion as invert
    from ...evidence.audit.plots import plot_inversion

    budgets = numbers(epsilons, "epsilons")
    pictures = load_pictures(data, rows, seed)
    who = [int(np.flatnonzero(pictures.y == digit)[0]) for digit in PEOPLE[:people]]
    X, y = np.delete(pictures.X, who, axis=0), np.delete(pictures.y, who)
    for number, place in enumerate(who):
        X, y = with_a_class_of_one(X, y, pictures.X[place], 10 + number)
    persons = list(range(10, 10 + len(who)))
    models = {"no privacy": classifier(pictures, hidden, l2=1e-4, random_state=seed)}
    models |= {
        f"epsilon {epsilon:g}": classifier(pictures, hidden, epsilon=epsilon, delta=delta, random_state=seed)
        for epsilon in budgets
    }
    inverted, table = {}, []
    with bar("models") as progress:
        for name, model in models.items():
            model.fit(X, y)
            inverted[name] = invert(model, compare=(X, y), shape=pictures.shape)
            own = [one.similarity or 0.0 for one in inverted[name].inputs if one.label in persons]
            digit = [one.similarity or 0.0 for one in inverted[name].inputs if one.label not in persons]
            row: dict[str, Any] = {"model": name, "accuracy": float(model.score(X, y))}
            row["similarity_to_digits"] = float(np.median(digit))
            row["similarity_to_people"] = float(np.median(own)) if own else None
            table.append(row)
            progress(len(table), len(models))
    title = f"What a trained model gives back: {len(y)} pictures of {pictures.name}, delta {delta:g}"
    path = out / "attack-inversion.png"
    plot_inversion(inverted, class_means(X, y), pictures.shape, path, people=persons, title=title)
    if json_output:
        details = {name: one.to_dict() for name, one in inverted.items()}
        print_json({"title": title, "rows": table, "people": persons, "models": details})
    else:
        shown = [{key: "-" if value is None else value for key, value in row.items()} for row in table]
        Console().print(table_of(shown, f"{title}\nMedian correlation with the class mean; accuracy on these rows"))
    note(f"Written: {path}")


def _one_of_each(y: Any, count: int) -> list[int]:
    """Places of ``count`` records, the digits taking turns."""
    seen: Counter[int] = Counter()
    turns = []
    for place, digit in enumerate(y.tolist()):
        seen[digit] += 1
        turns.append((seen[digit], digit, place))
    return [place for _, _, place in sorted(turns)[:count]]
