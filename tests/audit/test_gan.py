"""A hostile client redraws a class that one client holds; noise for a record does not hide it, noise for a client does."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from noisewise import Budget
from noisewise.accounts import BudgetExhausted
from noisewise.evidence.audit.federation import CLIENT_CLIP, CLIENT_LEVEL, RECORD_LEVEL, SETTINGS, WITHOUT_NOISE, dealt
from noisewise.evidence.audit.gan import HeavyBallServer, Hostile, gan, mean_and_error
from noisewise.evidence.audit.gan_play import play
from noisewise.evidence.audit.shared_sum import network as made
from noisewise.evidence.audit.shared_sum import shared
from noisewise.tables.generated import digits
from noisewise.trusted.accountants.calibrate import calibrate, epsilon
from noisewise.trusted.events import Gaussian, Repeated

TABLE = digits()
X, Y = TABLE.X.to_numpy() / 16, TABLE.y
SIZES = (64, 6, 11)
BUDGET = Budget(8.0, 1e-5)
ROUNDS = 3


def sums(setting, *, there=True, rounds=ROUNDS, **settings):
    clients = dealt(X[:300], Y[:300], 3, **{"each": 10, "most": 150, **settings}, there=there)
    return clients, shared(clients, setting, BUDGET, sizes=SIZES, rounds=rounds, clip=0.5, seed=0)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return made(SIZES)


@pytest.fixture(scope="module")
def theta(network):
    return torch.nn.utils.parameters_to_vector(network.parameters()).detach().numpy()


def gradient(network, pictures, labels):
    """The mean gradient, by autograd."""
    scores = network(torch.as_tensor(pictures).float())
    loss = torch.nn.functional.cross_entropy(scores, torch.as_tensor(labels))
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, network.parameters())]).double().numpy()


def clipped(vector, clip=0.5):
    return vector * min(1.0, clip / np.linalg.norm(vector))


def test_the_victim_alone_holds_its_class():
    clients, without = (dealt(X, Y, 3, each=10, most=150, there=there) for there in (True, False))
    assert (clients.y[clients.holder == 0] == 3).all() and not (clients.y[clients.holder > 0] == 3).any()
    assert clients.pictures(3) == clients.most == 150 and 3 not in without.y
    assert without.count == clients.count - 1 and (clients.X[clients.holder > 0] == without.X).all()
    for one in range(1, clients.count):
        own = clients.y[clients.holder == one]
        assert 1 <= len(own) <= 10 and len(np.unique(own)) == 1
    many = dealt(X, Y, 3, each=10, most=150, holders=15)
    assert many.pictures(3) == 10 and many.count == clients.count + 14 and len(many.y) == len(clients.y)


def test_a_record_is_clipped_or_a_whole_client(network, theta):
    clients, by_record = sums(WITHOUT_NOISE)
    wanted = sum(clipped(gradient(network, x[None], [y])) for x, y in zip(clients.X, clients.y, strict=True))
    assert by_record.honest(theta) == pytest.approx(wanted, abs=1e-3)
    clients, by_client = sums(CLIENT_CLIP)
    parts = [(clients.X[clients.holder == one], clients.y[clients.holder == one]) for one in range(clients.count)]
    wanted = sum(clipped(gradient(network, *part)) for part in parts)
    assert by_client.honest(theta) == pytest.approx(wanted, abs=1e-4)
    assert by_client.size == clients.count < by_record.size == len(clients.y)


def test_one_client_moves_the_sum_by_one_clip_only_at_client_level(theta):
    moved = {
        setting.unit: np.linalg.norm(sums(setting)[1].honest(theta) - sums(setting, there=False)[1].honest(theta))
        for setting in (WITHOUT_NOISE, CLIENT_CLIP)
    }
    assert moved["client"] <= 0.5 * (1 + 1e-4) and moved["record"] > 5 * 0.5


def test_the_hostile_client_is_clipped_like_any_other(network, theta):
    fakes = 50 * np.random.default_rng(0).random((40, 64), np.float32)
    added, units = sums(WITHOUT_NOISE)[1].hostile(theta, fakes, 10)
    wanted = sum(clipped(gradient(network, fake[None], [10])) for fake in fakes)
    assert units == 40 and added == pytest.approx(wanted, abs=1e-3)
    added, units = sums(CLIENT_CLIP)[1].hostile(theta, fakes[:20], 10)
    assert units == 1 and np.linalg.norm(added) == pytest.approx(0.5, rel=1e-4)
    assert added == pytest.approx(clipped(gradient(network, fakes[:20], [10] * 20)), abs=1e-4)


@pytest.mark.parametrize("setting", [RECORD_LEVEL, CLIENT_LEVEL])
def test_the_rounds_are_paid_for_and_no_more_can_be_had(setting, theta):
    _, server = sums(setting)
    assert server.noise_multiplier == calibrate(BUDGET, steps=ROUNDS)
    assert epsilon(Repeated(Gaussian(server.noise_multiplier), ROUNDS), delta=1e-5) <= 8.0
    assert server.curator.simulation
    quiet = sums(CLIENT_CLIP if setting.unit == "client" else WITHOUT_NOISE)[1].honest(theta)
    noise = np.concatenate([server.honest(theta) - quiet for _ in range(ROUNDS)])
    assert noise.std() == pytest.approx(0.5 * server.noise_multiplier, rel=5 / math.sqrt(2 * len(noise)))
    with pytest.raises(BudgetExhausted):
        server.honest(theta)


def test_a_quick_game():
    def played(seed, settings=SETTINGS):
        server, hostile = HeavyBallServer(rounds=2, hidden=4), Hostile(steps=1, fakes=5)
        seen = []
        found = gan(
            X[:200], Y[:200], 3, BUDGET, repeats=2, server=server, hostile=hostile, seed=seed, settings=settings,
            progress=lambda done, total: seen.append((done, total)),
        )  # fmt: skip
        assert seen == [(number, 4 * len(settings)) for number in range(1, 4 * len(settings) + 1)]
        return found

    found = played(0)
    same, other = (played(seed, [RECORD_LEVEL]).runs for seed in (0, 1))
    own = tuple(run for run in found.runs if run.setting == RECORD_LEVEL)
    assert own == same and own != other
    assert [(row["setting"], row["victim_there"]) for row in found.rows()] == [
        (setting.name, there) for setting in SETTINGS for there in (True, False)
    ]
    for run in found.runs:
        assert min(run.picture) >= 0 and max(run.picture) <= 1 and len(run.picture) == 64
        assert 0 <= run.taken <= 1 and -1 <= run.likeness <= 1
    above, error = found.above_reference(WITHOUT_NOISE)
    pairs = zip(found.of(WITHOUT_NOISE), found.of(WITHOUT_NOISE, there=False), strict=True)
    assert (above, error) == mean_and_error([a.likeness - b.likeness for a, b in pairs])


def test_a_class_is_redrawn_in_a_short_game():
    """Two digits and the victim's, without noise: seconds, and the drawings follow the class where there is one."""
    some = np.isin(Y, [0, 1, 2])
    found = gan(
        X[some], Y[some], 0, BUDGET, settings=[WITHOUT_NOISE], repeats=2, server=HeavyBallServer(rounds=30, hidden=16)
    )
    (redrawn, never), (above, _) = found.rows(), found.above_reference(WITHOUT_NOISE)
    assert redrawn["taken"] > 0.9 and redrawn["likeness"] > 0.6 and above > 0.2
    assert redrawn["accuracy"] > 0.9 and redrawn["accuracy_of_victim"] > 0.5 and never["accuracy_of_victim"] == 0


def test_one_who_only_watches_adds_nothing(theta):
    _, server = sums(WITHOUT_NOISE)
    settings = HeavyBallServer(rounds=1, momentum=0.0, learning_rate=1.0)
    moved, _ = play(server, SIZES, 3, settings, Hostile(steps=1, fakes=0), seed=0)
    assert moved == pytest.approx(theta - server.honest(theta) / server.size, abs=1e-6)
    steered, _ = play(server, SIZES, 3, settings, Hostile(steps=1, fakes=5), seed=0)
    assert np.linalg.norm(steered - moved) > 1e-3


@pytest.mark.slow  # test_a_class_is_redrawn_in_a_short_game is the quick one
def test_noise_for_a_record_shows_the_class_and_noise_for_a_client_hides_it():
    found = gan(X, Y, 3, BUDGET, repeats=4)
    rows = {row["setting"]: row for row in found.rows() if row["victim_there"]}
    for setting in (WITHOUT_NOISE, RECORD_LEVEL):
        above, error = found.above_reference(setting)
        assert above > 0.3 and above > 3 * error
        assert rows[setting.name]["taken"] > 0.9 and rows[setting.name]["likeness"] > 0.7
    above, error = found.above_reference(CLIENT_LEVEL)
    assert above < 0.2 and rows["client level"]["likeness"] < 0.4
    assert rows["client level"]["accuracy"] > 0.7, "a model that the noise destroyed would hide everything"


@pytest.mark.slow  # the other side of the test before: the attack itself can see through this noise
def test_noise_for_a_client_does_not_hide_what_many_clients_hold():
    found = gan(X, Y, 3, BUDGET, settings=[CLIENT_LEVEL], repeats=6, holders=13)
    above, error = found.above_reference(CLIENT_LEVEL)
    assert above > 0.15 and above > 3 * error and found.rows()[0]["accuracy_of_victim"] > 0.5


def test_bad_input_is_one_line():
    with pytest.raises(ValueError, match="victim is 11; pass one of 0, 1"):
        gan(X, Y, 11, BUDGET)
    with pytest.raises(ValueError, match="holders is 900, more than there are pictures of 3"):
        gan(X, Y, 3, BUDGET, holders=900)
    with pytest.raises(ValueError, match="repeats"):
        gan(X, Y, 3, BUDGET, repeats=0)
