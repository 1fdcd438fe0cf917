"""``noisewise train CLIENTS/ --federated``: training on clients in Flower's simulation, each with a file of its own; and what
``noisewise federated server`` shares with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...remote.federation import Federated
from .request import TrainingOptions

if TYPE_CHECKING:
    from ...remote.clients.server import Carrier
    from ...tables.files import Dialect
    from ...tables.fit.fit import Fit
    from ...tables.fit.fitted import Fitted

NetworkFit = Callable[[int], Callable[..., "Fitted"]]  # of a number of clients: fits a model on that many


def federated_of(
    federated: bool, unit: str | None, local_steps: int | None, local_rate: float | None, availability: str | None,
    wait: float | None = None,
) -> Federated | None:  # fmt: skip
    """How clients are asked; None without --federated. Options that do not go together are refused."""
    given = {"--unit": unit, "--local-steps": local_steps, "--local-rate": local_rate, "--availability": availability}
    if not federated:
        if named := [name for name, value in given.items() if value is not None]:
            raise ValueError(f"{named[0]} is about clients; pass --federated, too")
        return None
    if unit is None:
        raise ValueError("--unit is missing; say what is protected: --unit record, or --unit client with all its rows")
    if unit == "record" and (local_steps is not None or local_rate is not None):
        raise ValueError("local steps mix the rows of a client; pass --unit client, or leave --local-steps out")
    if unit == "client" and availability is not None:
        raise ValueError("with --unit client, who does not answer contributes nothing; leave --availability out")
    steps, rate = 1 if local_steps is None else local_steps, 1.0 if local_rate is None else local_rate
    return Federated(unit, availability or "required", steps, rate, wait)


def names_shown(asked: TrainingOptions) -> list[str]:
    """File names for the run folder. Where a client is protected, names of client files and their number are left out."""
    names = [place.absolute().name for place in asked.data]
    if asked.federated is None or asked.federated.unit != "client":
        return names
    return names if [isinstance(place, Path) and place.is_dir() for place in asked.data] == [True] else []


def refuse_with_clients(asked: TrainingOptions, *, tuning: bool, several: bool) -> None:
    """Refuse options that need all rows in one place or process, and training without Flower."""
    if asked.federated is None:
        return
    if several:
        raise ValueError("--federated asks clients from one process; leave torchrun out")
    if tuning:
        raise ValueError("--tune searches where all rows are; leave it out with --federated")
    if asked.bounds_epsilon is not None:
        raise ValueError("bounds are bought where all rows are; declare them in a schema, or pass --public instead")
    if not all(isinstance(place, Path) for place in asked.data):
        raise ValueError("a client reads a file of its own; pass files of this machine with --federated")
    if asked.records is not None:
        raise ValueError("--federated has its own place for records, the clients; leave --records out")
    if asked.cache is not None:
        raise ValueError("--cache is for rows in one place; leave it out with --federated")
    if asked.clients is None:
        from ...remote.clients.flower import require_flower

        require_flower()


def refuse_without(network: NetworkFit | None, asked: TrainingOptions, out: Path) -> None:
    """Refuse to resume a run on clients without its network, or another run over a network."""
    if asked.clients is not None and network is None:
        raise ValueError(
            f"{out}: its clients are asked over a network; go on with noisewise federated server --resume {out}"
        )
    if asked.clients is None and network is not None:
        raise ValueError(f"{out}: its records are files of this machine; go on with noisewise train --resume {out}")


def fitted_on_clients(
    fit: Fit, asked: TrainingOptions, written: Dialect, report: Callable[..., None], how: dict[str, Any],
    over: Callable[..., Fitted] | None,
) -> Fitted:  # fmt: skip
    """A model fitted on clients: those of a network (``over``), or of Flower's simulation with one client per file."""
    from ...remote.clients.flower import simulated
    from ...remote.clients.server import Crowd, ready_clients
    from ...tables.files import find_files

    federated = fit.federated
    assert federated is not None
    reading: dict[str, Any] = {
        "public": asked.public or None,
        "separator": written,
        "reading": partial(report, "reading"),
    }

    def fitted(carrier: Carrier) -> Fitted:
        crowd = Crowd(carrier, federated)
        try:
            report("starting clients", 1.0)
            ended = ready_clients(fit, crowd, **reading).run(**how)
            crowd.check()
            return ended
        finally:
            crowd.stop()

    if over is not None:
        return over(fitted, report, federated.wait)
    report("starting clients", 0.0)
    files = [place for place in find_files(asked.data) if isinstance(place, Path)]  # others were refused
    fit.method.refuse_readable(files)
    with simulated(files) as carrier:
        return fitted(carrier)
