"""``noisewise federated server`` and ``client``: a run on the records of clients on other machines."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .federated import federated_of, refuse_with_clients
from .main import Decimal, JsonFlag, app, say
from .paying import DatasetName, LedgerUrl, payment_of
from .request import TrainingOptions, places
from .resuming import refuse_others
from .train import go_on, trained

if TYPE_CHECKING:
    from ...remote.clients.agreement import Agreed
    from ...remote.clients.client import Client
    from ...remote.clients.server import Carrier
    from ...tables.fit.fitted import Fitted

federated = typer.Typer(
    help="Training on records that stay on other machines: a server that asks, and clients that answer.",
    no_args_is_help=True,
)
app.add_typer(federated, name="federated")

HERE = "127.0.0.1:9092"
WAYS = "encrypt with --certificate FILE, or pass --insecure where the network is trusted"
WHAT_LEAVES = {
    "record": "how many rows {} has, sums over them in whole numbers and, if the schema drops rows without a label, which ones these are",
    "client": "of all rows of {} together one clipped vector for each question, or what one row adds to a statistic",
}
Insecure = Annotated[bool, typer.Option("--insecure", help="Without encryption: on one machine, or a trusted network.")]


@dataclass(frozen=True)
class ServerOptions:
    """Where a server listens, and how it and its clients prove who they are; contradictions are refused."""

    listen: str
    insecure: bool
    certificate: Path | None
    private_key: Path | None
    client_keys: Path | None

    def __post_init__(self) -> None:
        from ...remote.clients.network import ServerAddress

        ServerAddress.of(self.listen, "--listen")
        _refuse_no_way(self.insecure, self.certificate)
        if self.private_key is not None and self.certificate is None:
            raise ValueError("--private-key is that of a certificate; pass --certificate, too")
        if self.client_keys is not None and self.insecure:
            raise ValueError(
                "keys of clients prove nothing without encryption; pass --certificate instead of --insecure"
            )
        if self.certificate is not None:
            from ...remote.clients.network_server import shown_certificate

            shown_certificate(self.certificate, self.private_key)

    def over(self, clients: int) -> Callable[..., Fitted]:
        """What fits a model on clients that connect to this server."""
        from ...remote.clients.network import ServerAddress
        from ...remote.clients.network_server import Link, public_keys

        keys = [] if self.client_keys is None else public_keys(self.client_keys)
        if keys and len(keys) < clients:
            raise ValueError(f"{self.client_keys}: has {len(keys)} keys for {clients} clients; list one for each")

        def fitted(of: Callable[[Carrier], Fitted], report: Callable[..., None], wait: float | None) -> Fitted:
            def joined(count: int) -> None:
                report("waiting for clients", count / clients, news=f"{count} of {clients} are there")

            def opened(address: Any) -> None:
                say(f"listening at {address} for {clients} {'client' if clients == 1 else 'clients'}")

            link, where = Link(clients, keys, wait=wait), ServerAddress.of(self.listen, "--listen")
            with link.listening(where, certificate=self.certificate, key=self.private_key, opened=opened):
                link.gather(joined)
                say("all clients are there; further ones are not asked")
                return of(link)

        return fitted


@federated.command(cls=options.WithLosses)
def server(
    context: typer.Context,
    clients: Annotated[
        int | None, typer.Option(min=1, help="How many clients take part (required, but for --resume).")
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="What is protected: record, or client with all its rows (required).")
    ] = None,
    schema: options.SchemaFile = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to wait for clients.")] = HERE,
    insecure: Insecure = False,
    certificate: Annotated[
        Path | None, typer.Option(help="This server's TLS certificate (PEM), perhaps with its key in the same file.")
    ] = None,
    private_key: Annotated[Path | None, typer.Option(help="The certificate's private key (PEM).")] = None,
    client_keys: Annotated[
        Path | None,
        typer.Option(help="Public keys of the clients that may take part (ssh-keygen -t ecdsa), one in a line."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that a client has for an answer.")] = 600.0,
    target: options.TargetOption = None,
    public: options.PublicFiles = None,
    method: options.MethodName = None,
    loss: options.LossName = None,
    model: options.ModelName = "auto",
    protector: options.ProtectorName = None,
    protector_share: options.ProtectorShare = None,
    adjacency: options.Adjacency = "add_remove",
    max_grad_norm: options.MaxGradNorm = None,
    size_is_public: options.SizeIsPublic = False,
    local_steps: options.LocalSteps = None,
    local_rate: options.LocalRate = None,
    availability: options.Availability = None,
    seed: options.Seed = None,
    separator: options.Separator = None,
    decimal: Decimal = None,
    out: options.Out = Path("noisewise-run"),
    ledger: LedgerUrl = None,
    dataset: DatasetName = None,
    resume: options.Resume = None,
    json_output: JsonFlag = False,
) -> None:
    """Train on the records of clients that come over the network. Curator, budget and noise are here; rows stay there.

    Waits until all clients are there, trains, writes the run folder and tells the clients that the run is over.

    Example: [bold]noisewise federated server --clients 3 --unit record --schema schema.toml --epsilon 1 --delta 1e-6 --listen 127.0.0.1:9092 --insecure --out run[/bold]

    Over a network: [bold]noisewise federated server ... --listen 0.0.0.0:9092 --certificate server.pem --private-key server.key[/bold]

    After a crash: [bold]noisewise federated server --resume run --insecure[/bold], and the same clients
    """
    network = ("listen", "insecure", "certificate", "private_key", "client_keys")
    if resume is not None:
        refuse_others(context, network)
        served = ServerOptions(listen, insecure, certificate, private_key, client_keys)
        go_on(resume, ledger, json_output, served.over)
        return
    needed = {"--clients": clients, "--unit": unit, "--schema": schema, "--epsilon": epsilon, "--delta": delta}
    if missing := [name for name, value in needed.items() if value is None]:
        context.fail(f"Missing option '{missing[0]}'.")
    assert epsilon is not None and delta is not None and clients is not None
    asked = TrainingOptions(
        (), epsilon, delta, target, schema, places(public or ()), None, method, loss, model, protector, protector_share,
        adjacency, max_grad_norm, size_is_public, separator, decimal,
        federated=federated_of(True, unit, local_steps, local_rate, availability, timeout), clients=clients, seed=seed,
    )  # fmt: skip
    _ = asked.budget  # refused before the rest is imported
    served = ServerOptions(listen, insecure, certificate, private_key, client_keys)
    asked.check()
    refuse_with_clients(asked, tuning=False, several=False)
    payment = payment_of(ledger, dataset, free=seed is not None)
    trained(asked, out, payment=payment, json_output=json_output, network=served.over)


@federated.command()
def client(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="This client's own records: a CSV or Parquet file.")],
    unit: Annotated[
        str, typer.Option(help="Answer only if this is what the server protects: record, or client with all its rows.")
    ],
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the server listens.")] = HERE,
    schema: Annotated[
        Path | None, typer.Option(help="Answer only if this is the server's schema.", show_default="any")
    ] = None,
    max_clip: Annotated[
        float | None, typer.Option(help="Answer no question about gradients with a larger clip.", show_default="any")
    ] = None,
    max_questions: Annotated[
        int | None, typer.Option(help="Answer at most this many questions.", show_default="any number")
    ] = None,
    least_size: Annotated[
        float,
        typer.Option(
            help="Join only if the server's sums are over at least this many records, in expectation: the rate that it "
            "declares, times this client's rows (--unit record) or the declared number of clients (--unit client)."
        ),
    ] = 0.0,
    insecure: Insecure = False,
    certificate: Annotated[
        Path | None,
        typer.Option(help="Certificate (PEM) of the authority that signed the server's.", show_default="the system's"),
    ] = None,
    private_key: Annotated[
        Path | None, typer.Option(help="This client's key (ssh-keygen -t ecdsa), where the server lists clients.")
    ] = None,
    patience: Annotated[float, typer.Option(min=0, help="Seconds that the server may be away.")] = 60.0,
) -> None:
    """Answer a server's questions about one's own records, until it says that the run is over. Rows do not leave.

    Questions beyond --unit, --schema, --max-clip, --max-questions and --least-size are refused. Ctrl-C stops answering.

    Example: [bold]noisewise federated client mine.csv --unit record --server 127.0.0.1:9092 --insecure[/bold]

    Over a network: [bold]noisewise federated client mine.csv --unit client --server training.example:9092 --certificate authority.pem --max-questions 500[/bold]
    """
    from ...remote.clients.network import ServerAddress, ServerEndpoint, serve

    where = ServerAddress.of(server, "--server")
    if certificate is not None or insecure:
        _refuse_no_way(insecure, certificate)
    if private_key is not None and insecure:
        raise ValueError("a key proves nothing without encryption; leave --insecure out")
    from ...remote.clients.agreement import Agreed
    from ...tables.schema import read_schema

    wanted = None if schema is None else read_schema(schema)
    largest = math.inf if max_clip is None else max_clip
    own = _own(data, Agreed(wanted, unit, largest, max_questions, least_size))
    encrypted = "not encrypted" if insecure else "encrypted"
    leaves = WHAT_LEAVES[unit].format(data.name)
    say(f"what leaves this machine: {leaves}; for the server at {where}, which adds the noise; {encrypted}")
    endpoint = ServerEndpoint(where, insecure, certificate, private_key, patience)
    joined = partial(say, "joined; waiting for questions")
    well = serve(own.answer, endpoint, joined=joined, answered=partial(_stop_if_refused, own))
    say("the run is over" if well else "the server has stopped the run; nothing more is asked")
    if not well:
        raise typer.Exit(1)


def _own(data: Path, agreed: Agreed) -> Client:
    """This client; its file must have the columns of its schema."""
    from ...remote.clients.client import Client
    from ...tables.encode import Encoder
    from ...tables.files import open_source

    source = open_source(data)
    if agreed.schema is not None:
        Encoder(agreed.schema).check(source.columns)
    return Client(data, agreed)


def _stop_if_refused(own: Client) -> None:
    """Stop when this client has refused a question, and show why; the server is not told the reason."""
    if own.refusal:
        raise ValueError(own.refusal)


def _refuse_no_way(insecure: bool, certificate: Path | None) -> None:
    """Refuse neither and both of --insecure and --certificate."""
    if insecure and certificate is not None:
        raise ValueError("--insecure goes without encryption, and --certificate encrypts; leave one of them out")
    if not insecure and certificate is None:
        raise ValueError(f"neither --certificate nor --insecure is given; {WAYS}")
