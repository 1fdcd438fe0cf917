"""Options that several training commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

Epsilon = Annotated[float | None, typer.Option(help="Budget: epsilon (required, but for --resume).")]
Delta = Annotated[float | None, typer.Option(help="Budget: delta, well below 1/records (required, but for --resume).")]
TargetOption = Annotated[str | None, typer.Option(help="The column to predict, if no schema says.")]
SchemaFile = Annotated[Path | None, typer.Option(help="What the columns are: see noisewise schema init.")]
PublicFiles = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", help="Public rows of the same columns: bounds, categories, help for training."),
]
MethodName = Annotated[
    str | None,
    typer.Option(help="See noisewise methods; or package.module:Class, of another package.", show_default="auto"),
]
IsolationName = Annotated[
    str, typer.Option(help="Where a method of another package runs: sandbox, or process (trusted not to look).")
]
LossName = Annotated[str | None, typer.Option(help="See noisewise.losses.", show_default="by the target")]
ModelName = Annotated[str, typer.Option(help="auto, linear, mlp, or hidden sizes such as 64,32.")]
ProtectorName = Annotated[
    str | None,
    typer.Option(
        help="For l2p: a protector's name, a file, or private: trained on these records.", show_default="auto"
    ),
]
ProtectorShare = Annotated[
    float | None, typer.Option(help="Share of the budget that trains a private protector.", show_default="0.2")
]
Adjacency = Annotated[str, typer.Option(help="add_remove or replace_one.")]
MaxGradNorm = Annotated[float | None, typer.Option(help="Clip norm.", show_default="by the method")]
SizeIsPublic = Annotated[
    bool, typer.Option("--size-is-public", help="The number of records may be known; else a noisy count is bought.")
]
Seed = Annotated[int | None, typer.Option(min=0, help="A simulation: reproducible, NOT private.")]
Separator = Annotated[str | None, typer.Option(help="Separator of a CSV.", show_default="comma")]
Out = Annotated[Path, typer.Option(help="New folder for model, statement, trace and report.")]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        help="Go on with the run that was to be written to RUN and was stopped; no other options but --ledger.",
    ),
]
FederatedFlag = Annotated[
    bool, typer.Option("--federated", help="Each file is a client's, and its rows stay there: Flower's simulation.")
]
UnitOption = Annotated[
    str | None,
    typer.Option(help="With --federated: what is protected, record or client (all its rows).", show_default=False),
]
LocalSteps = Annotated[
    int | None,
    typer.Option(help="With --unit client: steps of a client between questions.", show_default="1"),
]
LocalRate = Annotated[float | None, typer.Option(help="Their step size.", show_default="1")]
Availability = Annotated[
    str | None,
    typer.Option(
        help="With --unit record: independent, if who answers does not depend on the records.", show_default="required"
    ),
]


class WithLosses(TyperCommand):
    """Lists the losses only when help is shown: listing them needs numpy, which other commands start without."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from ...trusted.losses import loss_names

        next(option for option in self.params if option.name == "loss").help = f"{', '.join(loss_names())}."  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)
