"""What a ledger costs is measured by doing it."""

from __future__ import annotations

from noisewise_lab.ledger_speed import ledger_rows


def test_rows_hold_rates_against_bare_commits():
    rows = ledger_rows(rounds=2, each=2)
    assert [row["job"].split()[0] for row in rows] == ["bare", "reserve", "claim"]
    assert rows[0]["rate_against_bare"] == 1 and all(row["ms"] > 0 and row["rate_against_bare"] > 0 for row in rows)
