"""``--ledger URL`` and ``--dataset NAME`` of commands that spend: which account of a ledger pays."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .main import say

if TYPE_CHECKING:
    from ...accounts.ledger.receipt import Payment

ENVIRONMENT = "NOISEWISE_LEDGER"
LedgerUrl = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="URL",
        help="The ledger: a file, or postgresql://...; see docs/ledger.md.",
        show_default=ENVIRONMENT,
    ),
]
DatasetName = Annotated[
    str | None,
    typer.Option("--dataset", metavar="NAME", help="The account in the ledger that pays.", show_default=False),
]

NoAccount = Annotated[str | None, typer.Option(hidden=True)]  # of commands that no account can pay for


def refuse_account(ledger: str | None, dataset: str | None) -> None:
    """Refuse an account for figures about private rows that no budget can pay for."""
    if ledger is not None or dataset is not None:
        raise ValueError(
            "what an attack computes from private rows has no price, so no account can pay for it: it is for the eyes of who "
            "holds the records; leave --ledger and --dataset out"
        )


def named_account(ledger: str | None, dataset: str | None) -> bool:
    """Whether an account is named; a ledger alone names none."""
    if dataset is None and ledger is not None:
        raise ValueError("--ledger holds accounts of data sets; say which one: --dataset NAME")
    return dataset is not None


def payment_of(ledger: str | None, dataset: str | None, *, free: bool) -> Payment | None:
    """The account that pays for a run; None for a ``free`` run, or where no account is named."""
    if not named_account(ledger, dataset):
        if not free and os.environ.get(ENVIRONMENT):
            say(f"no account pays for this: {ENVIRONMENT} names a ledger, --dataset NAME would name the account in it")
        return None
    from ...accounts.ledger import Ledger
    from ...accounts.ledger.receipt import Payment

    assert dataset is not None
    paid = Payment.from_account(Ledger(ledger), dataset)  # for a free run, too, so that a wrong name is found
    return None if free else paid


def payment_again(ledger: str | None, kept: dict[str, Any]) -> Payment:
    """The payment of a resumed run; its journal records where the ledger is, but no password."""
    from ...accounts.ledger import Ledger, LedgerUnreachable
    from ...accounts.ledger.database import ledger_url, shown
    from ...accounts.ledger.receipt import Payment

    said = os.environ.get(ENVIRONMENT)
    if ledger is None:
        ledger = said if said and shown(ledger_url(said)) == kept["ledger"] else kept["ledger"]
    try:
        return Payment.from_account(Ledger(ledger), kept["dataset"], kept["run"])
    except LedgerUnreachable as error:
        raise LedgerUnreachable(
            f"{error}; if it wants a password, pass --ledger URL again, or set {ENVIRONMENT}"
        ) from None


def kept_of(payment: Payment) -> dict[str, Any]:
    """What a journal records of a payment: where to find it, without a password."""
    return {"dataset": payment.dataset, "ledger": payment.ledger.name, "run": payment.run}
