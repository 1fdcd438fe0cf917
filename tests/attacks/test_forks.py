"""A fork whose process number is that of its ancestor: numbers are used again, after 149 forks in 17 s where this was tried."""

import os
import pickle

import pytest
import torch

import noisewise as nw
from noisewise.accounts.journal import Journal
from noisewise.budget import AdditiveMeter, Budget, PlanMeter, Terms
from noisewise.budget.purse import Purse
from noisewise.trusted.events import Gaussian
from noisewise.trusted.noise import Stream

BUDGET = Budget(1.0, 1e-6)


def in_a_fork(attempt):
    """What ``attempt`` comes to in a forked process that has the number of this one: its result, or the error's text."""
    number, (reading, writing) = os.getpid(), os.pipe()
    if (child := os.fork()) == 0:
        os.getpid = lambda: number
        try:
            found = ("done", attempt())
        except Exception as error:
            found = ("refused", str(error))
        os.write(writing, pickle.dumps(found))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(found)


@pytest.mark.parametrize(
    "meter",
    [lambda: AdditiveMeter(BUDGET, "gdp"), lambda: PlanMeter(BUDGET, (Gaussian(20.0),), "gdp")],
    ids=["filter", "plan"],
)
def test_a_forked_meter_spends_nothing(meter):
    mine = meter()
    how, why = in_a_fork(lambda: mine.spend(Gaussian(20.0)))
    assert how == "refused" and "another process" in why


def test_a_forked_purse_has_no_parts():
    purse = Purse(BUDGET)
    how, why = in_a_fork(lambda: purse.part(Terms.adaptive("gdp")).number)
    assert how == "refused" and "another process" in why


def test_an_account_is_not_spent_in_a_fork():
    with nw.spending(1.0, 1e-6, dataset="mine") as account:
        how, why = in_a_fork(lambda: repr(account.admitted(BUDGET, persons=False)))
        assert how == "refused" and "another process" in why


def test_a_forked_journal_is_not_written(tmp_path):
    journal = Journal(tmp_path / "run", {})
    how, why = in_a_fork(lambda: journal._write("journal.jsonl", b"{}\n"))
    journal.close()
    assert how == "refused" and "this process" in why


def test_a_forked_run_of_a_module_takes_no_step():
    module, rows = torch.nn.Linear(3, 1), torch.utils.data.TensorDataset(torch.zeros(8, 3), torch.zeros(8, 1))
    engine = nw.PrivacyEngine()
    *_, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        criterion=torch.nn.MSELoss(),
        data_loader=torch.utils.data.DataLoader(rows, batch_size=4),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        epochs=1,
    )
    how, why = in_a_fork(lambda: len(next(iter(loader))))
    assert how == "refused" and "process" in why


@pytest.mark.guard("noise of a fork was drawn anew, by the counter alone")
def test_a_forked_stream_draws_other_noise():
    stream = Stream()
    how, theirs = in_a_fork(lambda: stream.released(torch.zeros(4, dtype=torch.int64).numpy(), 1e9, 1.0).tolist())
    assert how == "done" and theirs != stream.released(torch.zeros(4, dtype=torch.int64).numpy(), 1e9, 1.0).tolist()
