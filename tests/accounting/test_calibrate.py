import math
import subprocess
import sys

import numpy as np
import pytest

from noisewise.accounts import AdditiveMeter, Budget
from noisewise.trusted.accountants import Unpriceable
from noisewise.trusted.accountants.calibrate import _even, calibrate, epsilon
from noisewise.trusted.events import ApproximateDP, BoundedRange, FixedBatch, Gaussian, Poisson, Repeated, sampled

RATE = 1000 / 26048
BUDGET = Budget(0.5, 1e-8)
REPLACE = Budget(0.5, 1e-8, "replace_one")


def repriced(budget, noise, steps, sampling, accountant="auto"):
    events = Repeated(sampled(sampling, Gaussian(noise)), steps)
    return epsilon(events, delta=budget.delta, adjacency=budget.adjacency, accountant=accountant)


@pytest.mark.parametrize(
    ("budget", "sampling", "accountant", "noise"),
    [
        (BUDGET, ("full",), "auto", 0.00656 * 26048),
        (BUDGET, ("poisson", RATE), "auto", 6.73),
        (BUDGET, ("poisson", RATE), "rdp", 7.13),
        (REPLACE, ("fixed", RATE), "tcdp", 58.6),
        (REPLACE, ("fixed", RATE), "ctcdp", 58.6),
    ],
)
def test_known_noise(budget, sampling, accountant, noise):
    found = calibrate(budget, steps=300, sampling=sampling, accountant=accountant)
    assert found == pytest.approx(noise, rel=1e-3)
    assert repriced(budget, found, 300, sampling, accountant) <= budget.epsilon


@pytest.mark.sample(5)
@pytest.mark.parametrize("accountant", ["auto", "gdp", "rdp", "zcdp", "pld", "advanced"])
@pytest.mark.parametrize(
    ("budget", "sampling"),
    [(Budget(2.0, 1e-6), ("poisson", 0.05)), (Budget(0.3, 1e-5, "replace_one"), ("fixed", 0.02))],
)
def test_results_keep_within_the_budget_and_use_it(budget, sampling, accountant):
    noise = calibrate(budget, steps=50, sampling=sampling, accountant=accountant)
    assert budget.epsilon * 0.999 < repriced(budget, noise, 50, sampling, accountant) <= budget.epsilon
    try:
        less = repriced(budget, noise * 0.99, 50, sampling, accountant)
    except Unpriceable:
        less = math.inf
    assert less > budget.epsilon


def test_the_order_of_accountants():
    noise = {
        name: calibrate(BUDGET, steps=300, sampling=("poisson", RATE), accountant=name)
        for name in ("pld", "rdp", "advanced", "gdp", "zcdp")
    }
    assert list(noise) == sorted(noise, key=noise.get)


def test_shapes_keep_their_proportions_and_the_budget():
    shape = np.linspace(1, 3, 12)
    for sampling in (("full",), ("poisson", 0.1)):
        noise = calibrate(Budget(1.0, 1e-5), steps=12, sampling=sampling, shape=shape)
        assert noise / shape == pytest.approx(np.full(12, noise[0]))
        events = [sampled(sampling, Gaussian(sigma)) for sigma in noise.tolist()]
        assert 0.99 < epsilon(events, delta=1e-5) <= 1.0


def test_a_constant_shape_is_the_constant_plan():
    plain = calibrate(BUDGET, steps=10)
    assert calibrate(BUDGET, steps=10, shape=[2.0] * 10) == pytest.approx(np.full(10, plain), rel=1e-6)


def test_other_events_of_the_plan_are_covered():
    alone = calibrate(BUDGET, steps=100)
    covered = calibrate(BUDGET, steps=100, also=Gaussian(20.0))
    assert covered > alone
    assert epsilon([Repeated(Gaussian(covered), 100), Gaussian(20.0)], delta=1e-8) <= 0.5
    mixed = calibrate(Budget(1.0, 1e-6), steps=20, also=[BoundedRange(0.1), ApproximateDP(0.1, 1e-7)])
    events = [Repeated(Gaussian(mixed), 20), BoundedRange(0.1), ApproximateDP(0.1, 1e-7)]
    assert epsilon(events, delta=1e-6) <= 1.0
    with pytest.raises(ValueError, match="also alone costs"):
        calibrate(BUDGET, steps=100, also=Gaussian(1.0))


def test_the_gdp_meter_affords_what_was_calibrated():
    for steps in (1, 7, 1000):
        for budget in (BUDGET, Budget(3.0, 1e-5, "replace_one")):
            meter = AdditiveMeter(budget, "gdp")
            meter.spend(Repeated(Gaussian(calibrate(budget, steps=steps)), steps))
            assert meter.spent_fraction > 0.999


def test_a_lone_one_shot_costs_exactly_what_it_says():
    assert epsilon(ApproximateDP(0.5, 1e-8), delta=1e-8) == 0.5


def test_small_deltas_fall_back_to_rdp():
    events = Repeated(Poisson(0.01, Gaussian(5.0)), 100)
    assert epsilon(events, delta=1e-14) == epsilon(events, delta=1e-14, accountant="rdp")
    noise = calibrate(Budget(1.0, 1e-14), steps=100, sampling=("poisson", 0.01))
    assert repriced(Budget(1.0, 1e-14), noise, 100, ("poisson", 0.01)) <= 1.0


def test_gdp_is_the_last_resort():
    """No order up to 1,024 can promise this little at this delta; unsampled GDP can."""
    budget = Budget(0.001, 1e-14)
    noise = calibrate(budget, steps=10, sampling=("poisson", 0.01))
    assert noise == pytest.approx(calibrate(budget, steps=10), rel=1e-6)
    assert repriced(budget, noise, 10, ("poisson", 0.01)) <= 0.001


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "steps"),
        ({"steps": 3, "accountant": "magic"}, "accountant"),
        ({"steps": 3, "shape": [1.0, 2.0]}, "shape"),
        ({"steps": 3, "shape": [1.0, -2.0, 1.0]}, "shape"),
        ({"steps": 3, "sampling": ("shuffle", 0.1)}, "sampling"),
        ({"steps": 3, "sampling": ("fixed", 0.1)}, "add_remove"),
        ({"steps": 300, "accountant": "moments"}, "epsilon=0.5"),
    ],
)
def test_errors_name_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        calibrate(BUDGET, **arguments)


def test_epsilon_validates():
    with pytest.raises(ValueError, match="delta"):
        epsilon(Gaussian(1.0), delta=0.0)
    with pytest.raises(ValueError, match="adjacency"):
        epsilon(Gaussian(1.0), delta=1e-5, adjacency="both")
    with pytest.raises(Unpriceable, match="add_remove"):
        epsilon(FixedBatch(0.1, Gaussian(1.0)), delta=1e-5)
    assert epsilon([], delta=1e-5) == 0


def test_accounting_needs_neither_torch_nor_sklearn():
    code = (
        "import sys, noisewise.accounts, noisewise.trusted.accountants.calibrate as c\n"
        "from noisewise.trusted.events import Gaussian\n"
        "assert 'dp_accounting' not in sys.modules\n"
        "c.epsilon(Gaussian(1.0), delta=1e-5)\n"
        "print([name for name in ('torch', 'sklearn', 'pandas', 'dp_accounting') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_equal_steps_need_the_noise_of_a_flat_shape_and_are_calibrated_once(monkeypatch):
    budget = Budget(0.7, 1e-7)
    first = calibrate(budget, steps=7, also=Gaussian(50.0))
    assert calibrate(budget, steps=7, shape=[1.0] * 7, also=Gaussian(50.0))[0] == pytest.approx(first, rel=1e-6)
    monkeypatch.setattr("noisewise.trusted.accountants.calibrate.least_noise", lambda *_: 1e9)
    assert calibrate(Budget(0.7, 1e-7), steps=7, also=[Gaussian(50.0)]) == first
    assert calibrate(budget, steps=7, also=Gaussian(51.0)) == 1e9, "another plan is another calibration"
    assert calibrate(Budget(0.7, 1e-7, "replace_one"), steps=7, also=Gaussian(50.0)) == 1e9, "and so another relation"
    monkeypatch.undo()
    _even.cache_clear()
