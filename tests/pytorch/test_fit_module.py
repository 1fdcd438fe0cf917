"""nw.fit: a data set handed over once, methods that drive modules, statements that verify, folders, clear refusals."""

from __future__ import annotations

import json
import math
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from noisewise.accounts import Budget, Terms
from noisewise.accounts.purse import Purse
from noisewise.evidence.runs import verify
from noisewise.faces.pytorch.fit import fit
from noisewise.faces.pytorch.fitted import load_module
from noisewise.faces.pytorch.handed_over import handed_over
from noisewise.faces.pytorch.requested import METHODS, Size, chosen, with_batches
from noisewise.methods.dpsgd import DpSgd

BUDGET, LAST, N = Budget(2.0, 1e-5), nn.CrossEntropyLoss(), 200


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def records(n=N, seed=0):
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 4, generator=g)
    return X, (X[:, 0] > 0).long()


def fitted(module=None, data=None, loss=LAST, **options):
    given = {"budget": BUDGET, "size_is_public": True, "steps": 3, "progress": False, **options}
    return fit(module or net(), loss, data or records(), **given)


class Counted(Dataset):
    """Counts how often it is asked."""

    def __init__(self, data):
        self.data, self.asked = data, 0

    def __len__(self):
        return len(self.data[0])

    def __getitem__(self, i):
        self.asked += 1
        return tuple(part[i] for part in self.data)


def test_the_data_set_is_read_once_and_its_code_never_runs_again():
    data = Counted(records())
    original = data.data[0].clone()

    def watch(step, steps, spent):
        data.data[0].fill_(math.nan)  # what becomes of it later is nobody's business
        assert data.asked == N

    run = fitted(data=data, random_state=0, progress=watch)
    assert data.asked == N and run.steps == 3
    again = fitted(data=(original, data.data[1]), random_state=0)
    assert torch.equal(run.module[0].weight, again.module[0].weight)


def test_every_way_to_hand_records_over_is_the_same():
    X, y = records()
    ways = [(X, y), TensorDataset(X, y), Counted((X, y)), [X, y], (X.numpy(), y.numpy())]
    found = [fitted(data=way, random_state=0).module[0].weight for way in ways]
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_the_users_module_stays_as_it_was():
    module = net()
    before = [part.clone() for part in module.parameters()]
    run = fitted(module, random_state=0)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert not torch.equal(run.module[0].weight, module[0].weight) and all(
        p.grad is None for p in run.module.parameters()
    )


@pytest.mark.parametrize("method", METHODS)
def test_methods_drive_modules_and_statements_verify(method):
    options = {"public": records(30, 1)} if method == "ppsgd" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a protector is far from where it was trained
        run = fitted(method=method, budget=Budget(5.0, 1e-4), **options)
    assert verify(run.statement).holds and run.trace
    assert run.statement.data["model"]["kind"] == "torch.nn.modules.container.Sequential"
    assert {line.question for line in run.trace} <= {"gradient", "gradient_norm"}


def test_a_clear_signal_is_learned():
    X, y = records(2000)
    run = fitted(data=(X, y), steps=40, random_state=0, budget=Budget(8.0, 1e-5))
    assert float((run.predict(X).argmax(1) == y).float().mean()) > 0.9


@pytest.mark.parametrize("options", [{"clipping": "per_layer"}, {"optimizer": "adam_bc"}, {"protector": "perceptron"}])
def test_options_reach_the_method(options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = fitted(**options)
    assert verify(run.statement).holds
    if "clipping" in options:
        assert {line.question for line in run.trace} == {"layered_gradient"}
        assert run.statement.data["method"]["settings"]["max_grad_norm"] == [0.5] * 4


def test_poisson_batches_have_a_rate_that_is_fixed_beforehand():
    public, guessed = Size(1000.0, None), Size(None, 500.0)
    made = with_batches(DpSgd(), public, steps=None, epochs=4, batch_size=100)
    assert made.sampling == ("poisson", 0.1) and made.steps == 40
    made = with_batches(DpSgd(), guessed, steps=7, epochs=None, batch_size=100)
    assert made.sampling == ("poisson", 0.2) and made.steps == 7
    assert with_batches(DpSgd(), public, steps=5, epochs=None, batch_size=5000).sampling == ("full",)
    with pytest.raises(ValueError, match="expected_size"):
        with_batches(DpSgd(), Size(None, None), steps=None, epochs=4, batch_size=100)


def test_a_private_size_is_bought_and_the_statement_says_what_was_guessed():
    run = fitted(size_is_public=False, expected_size=150, steps=2, batch_size=50)
    assert run.statement.data["size"] == "bought" and run.trace[0].question == "Count"
    assert any("150" in line for line in run.statement.data["assumed"]) and verify(run.statement).holds
    rates = {line.event.rate for line in run.trace[1:]}
    assert rates == {50 / 150}


def test_frozen_parameters_cost_nothing_and_are_named():
    module = net()
    for part in module[0].parameters():
        part.requires_grad_(False)
    run = fitted(module, random_state=0)
    assert run.statement.data["model"]["parameters"] == 18
    assert any("0.weight" in line and "frozen" in line for line in run.statement.data["assumed"])
    assert torch.equal(run.module[0].weight, module[0].weight) and not torch.equal(
        run.module[2].weight, module[2].weight
    )


class Adapted(nn.Module):
    """A frozen dense layer and a small product beside it, which trains (LoRA)."""

    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.into = nn.Parameter(torch.ones(rank, base.in_features) / 8)
        self.out = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + (x @ self.into.T) @ self.out.T


def test_adapters_train_alone_and_losses_may_be_functions():
    module = nn.Sequential(Adapted(nn.Linear(4, 8)), nn.ReLU(), Adapted(nn.Linear(8, 2)))
    run = fitted(module, loss=nn.functional.cross_entropy)
    assert run.statement.data["model"]["parameters"] == 2 * (4 + 8) + 2 * (8 + 2)
    assert torch.equal(run.module[0].base.weight, module[0].base.weight) and bool(run.module[0].out.any())
    assert run.statement.data["model"]["loss"] == "torch.nn.modules.loss.CrossEntropyLoss"


def test_records_that_are_not_finite_or_huge_do_no_harm():
    X, y = records()
    X[3], X[4], X[5] = math.nan, math.inf, 1e30
    run = fitted(data=(X, y))
    assert all(bool(torch.isfinite(part).all()) for part in run.module.parameters())


def test_the_grade_is_said():
    dense, conv = (
        fitted().statement.data["arithmetic"],
        nn.Sequential(nn.Conv1d(1, 2, 2), nn.Flatten(), nn.Linear(6, 2)),
    )
    X, y = records()
    other = fitted(conv, (X[:, None], y)).statement.data["arithmetic"]
    assert dense["grade"] == "bounded" and other["grade"] == "assumed"
    assert any("real numbers" in line for line in other["assumptions"])
    asked = fitted(conv, (X[:, None], y), arithmetic="bounded").statement.data["arithmetic"]
    assert asked["grade"] == "bounded" and any("100,000,000" in line for line in asked["assumptions"])


class Reader(nn.Module):
    """Words and a number: an embedding, attention with dropout, and a dense layer."""

    def __init__(self):
        super().__init__()
        self.words, self.last = nn.Embedding(20, 8), nn.Linear(9, 3)
        self.attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, words, number):
        return self.last(torch.cat([self.attention(self.words(words)).mean(1), number], 1))


def test_a_module_of_several_inputs_and_kinds_of_layers():
    g = torch.Generator().manual_seed(0)
    words, number = torch.randint(20, (60, 5), generator=g), torch.randn(60, 1, generator=g)
    run = fitted(Reader(), (words, number, torch.randint(3, (60,), generator=g)), budget=Budget(2.0, 1e-3))
    assert run.predict((words, number)).shape == (60, 3) and verify(run.statement).holds
    with pytest.raises(ValueError, match="words below the size"):
        fitted(Reader(), (words + 20, number, torch.zeros(60, dtype=torch.int64)), budget=Budget(2.0, 1e-3))


# --- the folder -------------------------------------------------------------------------------------------------------


def test_a_folder_verifies_reports_and_gives_the_weights_back(tmp_path):
    run = fitted()
    folder = run.save(tmp_path / "run")
    assert verify(folder).holds and verify(folder).seal == "intact"
    assert "<h1>" in (folder / "report.html").read_text()
    fresh = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    assert load_module(folder, fresh) is fresh and torch.equal(fresh[0].weight, run.module[0].weight)
    assert json.loads((folder / "run.json").read_text())["module"] == "torch.nn.modules.container.Sequential"
    with pytest.raises(ValueError, match="another module"):
        load_module(folder, nn.Linear(4, 2))
    (folder / "model.safetensors").write_bytes(b"something else")
    with pytest.raises(ValueError, match="changed"):
        load_module(folder, fresh)


# --- refusals: one clear error, before anything is paid ----------------------------------------------------------------


class Uneven(Counted):
    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return (x[: 3 + i % 2], y)


class Failing(Counted):
    def __getitem__(self, i):
        raise KeyError("a secret cell")


class Streamed(IterableDataset):
    def __iter__(self):
        yield from zip(*records(), strict=True)


def normed():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        return self.last(x - x.mean(0))


WRONG = {
    "shapes": ({"data": Uneven(records())}, "different shapes"),
    "failing": ({"data": Failing(records())}, "failed while its records were read"),
    "stream": ({"data": Streamed()}, "cannot be numbered"),
    "loader": ({"data": DataLoader(TensorDataset(*records()))}, "loader.dataset"),
    "alone": ({"data": (records()[0],)}, "inputs and a target"),
    "lengths": ({"data": (records()[0], records()[1][:5])}, "length"),
    "complex": ({"data": (records()[0] * 1j, records()[1])}, "complex"),
    "text": ({"data": Counted((records()[0], ["a"] * N))}, "str where a tensor"),
    "labels": ({"data": (records()[0], records()[1] + 5)}, "number classes from 0"),
    "batch norm": ({"module": normed()}, "GroupNorm"),
    "mixing": ({"module": Mixing()}, "mixes records"),
    "width": ({"module": nn.Linear(5, 2)}, "fails on made-up r"),
    "nothing trains": ({"module": net().requires_grad_(False)}, "requires_grad"),
    "method": ({"method": "sufficient_statistics"}, "pass one of"),
    "no method": ({"method": "what"}, "pass one of"),
    "nonprivate": ({"method": "nonprivate"}, "torch.optim"),
    "both": ({"epochs": 2.0}, "steps and epochs"),
    "setting": ({"settings": {"speed": 3}}, "no setting"),
    "batches": ({"method": "descent", "batch_size": 5}, "all records"),
    "clipping": ({"clipping": "per_layer", "method": "dynamic"}, "flat"),
    "norms": ({"settings": {"max_grad_norm": (1.0, 2.0)}}, "clip norms"),
    "delta": ({"budget": Budget(1.0, 0.1)}, "delta"),
    "arithmetic": ({"arithmetic": "exact"}, "bounded"),
    "public": ({"public": (records()[0][:, :2], records()[1])}, "same kind"),
    "no public": ({"method": "ppsgd"}, "public"),
    "physical": ({"max_physical_batch_size": 0}, "max_physical_batch_size"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_once_and_costs_nothing(case):
    options, words = WRONG[case]
    purse = Purse(Budget(10.0, 0.2), Terms.adaptive("gdp"))
    with pytest.raises((ValueError, TypeError, RuntimeError), match=words) as error:
        fitted(purse=purse, **options)
    assert "secret" not in str(error.value) and (error.value.__cause__ is None or case == "width")
    assert purse.entries == ()


def test_questions_about_rows_are_refused_before_they_are_paid(monkeypatch):
    from noisewise.curator import Curator, FirstMoment
    from noisewise.trusted.events import Gaussian

    purse = Purse(BUDGET)

    def step(self, state, private, public):
        with pytest.raises(ValueError, match="records are tensors"):
            private.statistic(FirstMoment(), noise_multiplier=1.0)
        with pytest.raises(ValueError, match="records are tensors"):
            private.change_basis(torch.eye(4))
        raise KeyboardInterrupt

    monkeypatch.setattr(DpSgd, "step", step)
    with pytest.raises(KeyboardInterrupt):
        fitted(purse=purse)
    assert purse.entries[0].events == () and Curator and Gaussian


def test_chosen_names():
    assert chosen(None, None).name == "dpsgd" and chosen(None, "perceptron").name == "l2p"
    with pytest.raises(ValueError, match="one of them"):
        chosen("dpsgd", "perceptron")


def test_a_mode_of_torch_that_was_left_on_sees_nothing():
    from torch.overrides import TorchFunctionMode

    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.extend(tuple(part.shape) for part in args if isinstance(part, torch.Tensor))
            return function(*args, **(kwargs or {}))

    class Peeping(DpSgd):
        def step(self, state, private, public):
            with Mode():
                assert torch.ones(7).neg().sum() == -7  # the mode is on
                return super().step(state, private, public)

    fitted(method=Peeping(steps=2))
    assert (7,) in seen and not any(shape[:1] == (N,) for shape in seen)


def test_tensors_that_are_handed_over_are_copied():
    """Whoever changes them afterwards, in another thread perhaps, changes nothing that was measured."""
    X, y = torch.randn(5, 3), torch.arange(5)
    for given in ((X, y), torch.utils.data.TensorDataset(X, y), (X.numpy(), y.numpy())):
        before = X.clone()
        rows = handed_over(given)
        X.add_(1.0)
        assert torch.equal(rows.inputs[0], before) and torch.equal(rows.targets[0], y)
