"""What accounting costs: rows of jobs and milliseconds; nothing here is timed."""

from __future__ import annotations

from noisewise_lab import pricing


def test_a_row_per_job(monkeypatch):
    jobs = []
    monkeypatch.setattr(pricing, "_median", lambda run: float(len(jobs.append(run) or jobs)))
    rows = pricing.pricing_rows()
    assert len(rows) >= 4
    assert all(set(row) == {"job", "milliseconds"} and row["milliseconds"] > 0 for row in rows)
    assert len({row["job"] for row in rows}) == len(rows)
    assert any("1,000 distinct noise levels" in row["job"] for row in rows)
    for run in jobs[:3]:  # the quick ones
        run()


def test_the_median_of_five_runs_after_a_first_one():
    runs = []
    assert pricing._median(lambda: runs.append(1)) >= 0
    assert len(runs) == 6
