"""The ledger attacked by an analyst with SQL, and by odd settings of a server."""

from __future__ import annotations

import psycopg
import pytest
from pg_server import ANALYST, OFFICER

from noisewise.accounts import Budget, Terms
from noisewise.accounts.ledger import Ledger
from noisewise.accounts.ledger.verify import verified

GDP, RUN, BUDGET = Terms.adaptive("gdp"), Budget(1.0, 1e-6), Budget(3.0, 1e-5)


@pytest.fixture
def place(server):
    name = server.database()
    officer = Ledger.create(server.url(name))
    officer.register("patients", BUDGET)
    officer.allow(ANALYST)
    return name, officer


@pytest.mark.slow
def test_an_operator_of_ones_own_is_not_used_instead(server, place):
    """Where everybody may create in the schema, as on servers before version 15, a closer match of types would win."""
    name, _ = place
    server.sql("GRANT CREATE ON SCHEMA public TO PUBLIC", name)
    for statement in (
        "CREATE TABLE public.seen (who text)",
        "GRANT ALL ON public.seen TO PUBLIC",
        "CREATE FUNCTION public.spied(a varchar, b text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO public.seen VALUES (current_user); RETURN a::text OPERATOR(pg_catalog.=) b; END $$",
        "CREATE OPERATOR public.= (LEFTARG = varchar, RIGHTARG = text, PROCEDURE = public.spied)",
    ):
        server.sql(statement, name, ANALYST)
    server.sql("SELECT public.noisewise_reserve('patients', 'k', '{}', 1, 0)", name, ANALYST)
    server.sql("SELECT public.noisewise_claim('patients', 0, 0, 0.5)", name, ANALYST)
    assert (OFFICER,) not in server.sql("SELECT who FROM public.seen", name)


@pytest.mark.slow
def test_a_session_with_few_digits_leaves_a_true_history(server, place):
    name, officer = place
    part = Ledger(server.url(name, ANALYST)).account("patients").part(GDP, RUN)
    with psycopg.connect(server.url(name, ANALYST), autocommit=True) as connection:
        connection.execute("SET extra_float_digits = -15")
        connection.execute(f"SELECT noisewise_claim('patients', {part.number}, 0, 0.123456789)")
    assert verified(officer).wrong == ()


@pytest.mark.slow
def test_what_is_noted_is_on_the_disk_whatever_the_role_is_set_to(server, place):
    name, _ = place
    server.sql(f"ALTER ROLE {ANALYST} SET synchronous_commit = off")
    try:
        ledger = Ledger(server.url(name, ANALYST))
        with ledger._database.writing() as connection:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar_one() != "off"
    finally:
        server.sql(f"ALTER ROLE {ANALYST} RESET synchronous_commit")


@pytest.mark.slow
def test_who_may_create_in_the_schema_is_not_let_in(server):
    name = server.database()
    officer = Ledger.create(server.url(name))
    server.sql("GRANT CREATE ON SCHEMA public TO PUBLIC", name)
    with pytest.raises(PermissionError, match="REVOKE CREATE"):
        officer.allow(ANALYST)
