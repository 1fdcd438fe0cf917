"""On PostgreSQL an analyst can reserve, claim and settle, through functions that check the sum, and nothing else."""

from __future__ import annotations

import psycopg
import pytest
from pg_server import ANALYST, OFFICER, WORD

from noisewise.accounts import Budget, BudgetExhausted, Terms
from noisewise.accounts.ledger import Ledger, LedgerUnreachable
from noisewise.accounts.ledger.ledger import rights
from noisewise.accounts.ledger.verify import verified
from noisewise.trusted.events import Gaussian

BUDGET, RUN, GDP = Budget(3.0, 1e-5), Budget(1.0, 1e-6), Terms.adaptive("gdp")


@pytest.fixture
def place(server):
    return server.database()


@pytest.fixture
def officer(server, place):
    ledger = Ledger.create(server.url(place))
    ledger.register("patients", BUDGET)
    return ledger


@pytest.fixture
def analyst(server, place, officer):
    officer.allow(ANALYST)
    return Ledger(server.url(place, ANALYST))


def test_an_analyst_spends_looks_and_checks(analyst, officer):
    account = analyst.account("patients")
    with account.part(GDP, RUN) as part:
        part.claim(0.5)
        part.meter.spend(Gaussian(part.meter.noise_for(0.5)))
    assert analyst.state("patients").owners == (ANALYST,) and verified(analyst).holds and verified(officer).holds
    account.part(GDP, account.left)
    with pytest.raises(BudgetExhausted):
        account.part(GDP, RUN)


@pytest.mark.slow
def test_who_was_not_let_in_does_nothing(server, place, officer):
    with pytest.raises(PermissionError, match="ask who keeps the ledger"):
        Ledger(server.url(place, ANALYST))


@pytest.mark.slow
@pytest.mark.parametrize(
    "act",
    [
        lambda ledger: ledger.grant("patients", Budget(9.0, 1e-5)),
        lambda ledger: ledger.register("mine", Budget(9.0, 1e-5)),
        lambda ledger: ledger.allow("postgres"),
    ],
    ids=["grant", "register", "allow"],
)
def test_an_analyst_cannot_grant(analyst, officer, act):
    with pytest.raises(PermissionError):
        act(analyst)
    assert (
        officer.datasets() == ("patients",) and officer.state("patients").budget == BUDGET and verified(officer).holds
    )


STATEMENTS = [
    "UPDATE noisewise_accounts SET cap = cap * 2",
    "UPDATE noisewise_accounts SET taken = 0",
    "UPDATE noisewise_runs SET spent = 0, state = 'spent'",
    "DELETE FROM noisewise_runs",
    "INSERT INTO noisewise_history SELECT seq + 100, at, account, number, kind, body, previous, md5(hash) FROM noisewise_history",
    "DELETE FROM noisewise_history",
    "TRUNCATE noisewise_history",
    "UPDATE noisewise_ledger SET seq = 0",
    "SELECT noisewise_add('patients', 0, 'granted', '{}')",
    "SELECT noisewise_own('patients', 0)",
    "ALTER TABLE noisewise_history DISABLE TRIGGER ALL",
    "DROP TABLE noisewise_history",
    "CREATE OR REPLACE FUNCTION noisewise_reserve(of_account text, of_key text, of_terms text, cost bigint, cost_delta bigint) "
    "RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'",
]


@pytest.mark.slow
@pytest.mark.parametrize("statement", STATEMENTS)
def test_an_analyst_cannot_edit(server, place, analyst, officer, statement):
    analyst.account("patients").part(GDP, RUN)
    before = officer.export()
    with pytest.raises(psycopg.Error):
        server.sql(statement, place, ANALYST)
    assert officer.export() == before


CALLS = [
    "SELECT noisewise_reserve('patients', 'k', '{}', -1, 0)",
    "SELECT noisewise_reserve('patients', 'k', '{}', 0, -1)",
    "SELECT noisewise_reserve('patients', 'k', '{}', NULL, 0)",
    "SELECT noisewise_reserve('nobody', 'k', '{}', 1, 0)",
    "SELECT noisewise_settle('patients', 0, 0, -5, 0, 'spent', '[]', NULL)",
    "SELECT noisewise_settle('patients', 0, 0, 9223372036854775807, 0, 'spent', '[]', NULL)",
    "SELECT noisewise_settle('patients', 0, 0, 0, 0, 'reserved', '[]', NULL)",
    "SELECT noisewise_settle('patients', 0, 0.5, 0, 0, 'spent', '[]', NULL)",
    "SELECT noisewise_settle('patients', 7, 0, 0, 0, 'spent', '[]', NULL)",
    "SELECT noisewise_settle('patients', 0, 0, NULL, 0, 'spent', '[]', NULL)",
]


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_odd_calls_change_nothing(server, place, analyst, officer, call):
    analyst.account("patients").part(GDP, RUN)
    before = officer.export()
    with pytest.raises(psycopg.Error):
        server.sql(call, place, ANALYST)
    assert officer.export() == before


@pytest.mark.slow
@pytest.mark.parametrize("claim", ["0.25, 0.5", "0, 1.5", "0, -1", "0, 'NaN'", "NULL, 0.5", "0, 0"])
def test_odd_claims_are_not_taken(server, place, analyst, officer, claim):
    analyst.account("patients").part(GDP, RUN)
    assert server.sql(f"SELECT noisewise_claim('patients', 0, {claim})", place, ANALYST) == [(False,)]
    assert officer.state("patients").entries[0].claimed == 0


@pytest.mark.slow
def test_more_than_is_left_is_refused_by_the_server_itself(server, place, analyst, officer):
    (most,) = server.sql("SELECT cap FROM noisewise_accounts", place)[0]
    for cost, delta in ((most + 1, 0), (1 << 62, 0), ((1 << 63) - 1, 0), (0, 1 << 62)):
        assert server.sql(
            f"SELECT noisewise_reserve('patients', 'k{cost}', '{{}}', {cost}, {delta})", place, ANALYST
        ) == [(None,)]
    assert server.sql(f"SELECT noisewise_reserve('patients', 'all', '{{}}', {most}, 0)", place, ANALYST) == [(0,)]
    assert server.sql("SELECT noisewise_reserve('patients', 'more', '{}', 1, 0)", place, ANALYST) == [(None,)]


@pytest.mark.slow
def test_a_run_belongs_to_who_reserved_it_and_to_who_keeps_the_ledger(server, place, analyst, officer):
    part = officer.account("patients").part(GDP, RUN)
    for call in (
        "noisewise_claim('patients', 0, 0, 0.5)",
        "noisewise_settle('patients', 0, 0, 0, 0, 'failed', '[]', NULL)",
    ):
        with pytest.raises(psycopg.Error, match="belongs to another user"):
            server.sql(f"SELECT {call}", place, ANALYST)
    part.settle()
    theirs = analyst.account("patients").part(GDP, RUN)
    officer.account("patients").part(GDP, RUN, number=theirs.number).settle("failed")
    assert verified(officer).holds


@pytest.mark.slow
def test_a_function_of_the_analysts_own_is_not_called_instead(server, place, analyst, officer):
    """Who may make tables or functions of a schema on the search path could stand in for ours."""
    for statement in (
        "CREATE TEMP TABLE noisewise_accounts (name text, cap bigint, taken bigint)",
        "SET search_path = pg_temp, public",
    ):
        with psycopg.connect(server.url(place, ANALYST), autocommit=True) as connection:
            connection.execute(statement)
            got = connection.execute(
                f"SELECT public.noisewise_reserve('patients', 'x', '{{}}', {1 << 62}, 0)"
            ).fetchall()
            assert got == [(None,)]
    assert not officer.state("patients").entries


def test_the_documented_sql_is_what_is_granted():
    said = rights(ANALYST, "public")
    assert any("GRANT EXECUTE" in line and "noisewise_reserve" in line for line in said)
    assert not any(word in " ".join(said) for word in ("INSERT", "UPDATE", "DELETE", "noisewise_add", "ALL"))


@pytest.mark.slow
def test_an_odd_role_is_refused(officer):
    with pytest.raises(ValueError, match="plain name"):
        officer.allow('x"; DROP TABLE noisewise_history; --')


@pytest.mark.slow
def test_a_server_that_is_gone_in_the_middle(own_server):
    server = own_server
    officer = Ledger.create(server.url(server.database()))
    officer.register("patients", BUDGET)
    account = officer.account("patients")
    part = account.part(GDP, RUN)
    part.claim(0.25)
    server.stop("immediate")
    try:
        with pytest.raises(LedgerUnreachable, match="does not answer") as told:
            part.claim(0.5)
        assert WORD not in str(told.value) and OFFICER in str(told.value)
        with pytest.raises(LedgerUnreachable):
            account.part(GDP, RUN)
    finally:
        server.start()
    assert part.claimed == 0.25
    part.claim(0.5)  # as if nothing had been
    part.meter.spend(Gaussian(part.meter.noise_for(0.2)))
    part.settle()
    assert verified(officer).holds


@pytest.mark.slow
def test_a_wrong_password_is_not_repeated(server, place, officer):
    wrong = server.url(place).replace(WORD, "wr0ng-one")
    with pytest.raises(LedgerUnreachable) as told:
        Ledger(wrong)
    assert "wr0ng-one" not in str(told.value) and "wr0ng-one" not in repr(told.value.__context__ or "")
