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


def test_searches_of_many_candidates_are_priced(monkeypatch):
    monkeypatch.setattr(pricing, "CANDIDATES", 3)
    found = {job: run() for job, run in pricing.search_jobs().items()}
    prices = [value for job, value in found.items() if job.startswith("price")]
    agreed = [value for job, value in found.items() if job.startswith("agree")]
    assert len(prices) == 2 and all(price > 0 for price in prices)
    assert [len(one.runs) for one in agreed] == [3, 3]
    assert all(run.promise.epsilon < pricing.BUDGET.epsilon for one in agreed for run in one.runs)


def test_what_is_calibrated_is_never_asked_for_twice():
    budgets = pricing.new_budgets()
    first, second = next(budgets), next(budgets)
    assert first != second and pricing.calibrate(first, steps=10) > pricing.calibrate(second, steps=10)


def test_the_median_of_five_runs_after_a_first_one():
    runs = []
    assert pricing._median(lambda: runs.append(1)) >= 0
    assert len(runs) == 6
