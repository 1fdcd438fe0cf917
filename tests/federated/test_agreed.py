"""What a client agrees to keeps no honest server from its answers, and what a server declares is so for every method."""

from __future__ import annotations

import pytest
from crowds import CLIENT, CLIENTS, RECORD, NoNoise, a_fit, client_files, equal, on_clients
from desk import SCHEMA
from test_clients_law import REFUSED, a_method, budget_for, every

from noisewise.methods import method_named, registry
from noisewise.remote.clients.agreement import Agreed
from noisewise.remote.clients.client import Client
from noisewise.remote.clients.server import least_rate
from noisewise.remote.federation import Declared
from noisewise.remote.transport import RankLost

pytestmark = pytest.mark.filterwarnings("ignore::noisewise.protect.learned.zoo.OutsideRange")
UNKNOWN = {"projected_sgd"}  # whose rate is made of the size


def agreeing(agreed):
    """Carries messages to clients that all agreed to the same."""

    class Agreeing(NoNoise):
        def __init__(self, paths):
            super().__init__(paths)
            self._members = [Client(path, agreed) for path in paths]

    return Agreeing


@pytest.mark.parametrize("name", every(sorted(set(registry()) - REFUSED - UNKNOWN)))
def test_every_method_asks_about_as_many_rows_as_it_declares(name, tmp_path):
    """A client that pins a size holds a server that declares to ask about all rows to that."""
    paths, fit = client_files(tmp_path), a_fit(tmp_path, a_method(name), budget=budget_for(name))
    public = tmp_path / "public.csv" if fit.method.needs_public else None
    agreed = Agreed(fit.encoder.schema, "record", max_clip=1e6, max_questions=10_000, least_size=1e-3)
    pinned, free = (on_clients(fit, paths, RECORD, carrier=c, public=public) for c in (agreeing(agreed), NoNoise))
    assert equal(pinned, free)


def test_rows_without_a_label_are_not_missed(tmp_path):
    paths = client_files(tmp_path, text=SCHEMA.replace("[columns", 'target_missing = "drop"\n[columns', 1))
    head, first, *rest = paths[0].read_text().splitlines()
    paths[0].write_text("\n".join([head, first.rpartition(",")[0] + ",", *rest]) + "\n")
    fit, agreed = a_fit(tmp_path, a_method("descent")), Agreed(unit="record", least_size=5)
    assert equal(*(on_clients(fit, paths, RECORD, carrier=c) for c in (agreeing(agreed), NoNoise)))


def test_a_rate_that_is_not_known_is_not_declared():
    declared = {name: least_rate(method_named(name)) for name in ("projected_sgd", "descent", "growing_batch")}
    assert declared == {"projected_sgd": None, "descent": 1.0, "growing_batch": 0.05}
    strange = type("Strange", (type(method_named("dpsgd")),), {"__module__": "elsewhere"})
    assert least_rate(strange()) is None


def test_a_client_without_a_declared_size_stays_away_where_it_wants_one(tmp_path):
    paths, fit = client_files(tmp_path), a_fit(tmp_path, a_method("dpsgd"), size_is_public=False)
    with pytest.raises(ValueError, match=r"has not agreed to this run.*Nothing was spent"):
        on_clients(fit, paths, CLIENT, carrier=agreeing(Agreed(unit="client", least_size=2)))


@pytest.mark.parametrize(("least", "joins"), [(CLIENTS, True), (CLIENTS + 0.5, False)])
def test_with_unit_client_the_number_of_clients_counts(least, joins, tmp_path):
    paths, fit = client_files(tmp_path), a_fit(tmp_path, a_method("dpsgd"))
    carrier = agreeing(Agreed(unit="client", least_size=least))
    if joins:
        assert on_clients(fit, paths, CLIENT, carrier=carrier).trace
        return
    with pytest.raises(ValueError, match="has not agreed to this run"):
        on_clients(fit, paths, CLIENT, carrier=carrier)


def test_beyond_what_was_agreed_unit_record_stops_and_unit_client_goes_on(tmp_path):
    paths, fit = client_files(tmp_path), a_fit(tmp_path, a_method("dpsgd"))
    with pytest.raises(RankLost, match="fails whole"):
        on_clients(fit, paths, RECORD, carrier=agreeing(Agreed(unit="record", max_questions=2)))
    assert len(on_clients(fit, paths, CLIENT, carrier=agreeing(Agreed(unit="client", max_questions=2))).trace) == 6


@pytest.mark.parametrize("wrong", [{"rate": 0.0}, {"rate": 2.0}, {"rate": 1}, {"clients": 0}, {"clients": 1.5}])
def test_what_is_declared_is_a_share_and_a_number(wrong):
    with pytest.raises(ValueError, match="the declared"):
        Declared(**wrong)
