"""Modules as people write them: either norms and clipped sums are those of a loop, and no record has more than its part, or it is refused."""

from __future__ import annotations

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    built,
    by_loop,
    errors,
    half_clipped,
    labelled,
    largest_moves,
    rehearsal_of,
    rows,
    run,
)
from module_networks import Applied
from torch import nn

from noisewise.trusted.engine import Refused, rehearsed

REFUSED = [name for name, case in ARCHITECTURES.items() if case.refused]
TRAINED = [name for name, case in ARCHITECTURES.items() if not case.refused]
COUNT = 7


@pytest.mark.sample(52)
@pytest.mark.parametrize("name", TRAINED)
def test_norms_and_sums_are_those_of_a_loop_and_no_record_has_more_than_its_part(name):
    case = ARCHITECTURES[name]
    module, targets = built(case), labelled(case, COUNT)
    layout = rehearsal_of(case, module)
    for size in (1.0, 5.0):
        inputs = rows(case.inputs, COUNT, size=size)
        gradients = by_loop(module, case.loss, inputs, targets)
        clip = half_clipped(gradients)
        assert max(errors(run(module, case.loss, inputs, targets, layout), gradients, clip)) < 1e-12
        assert max(largest_moves(module, case.loss, inputs, targets, layout, clip)) <= 1 + 1e-9


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad", "ignore:.*weight_norm. is deprecated")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_trained_is_refused_with_what_to_do(name):
    case = ARCHITECTURES[name]
    with pytest.raises(Refused, match=case.refused):
        rehearsal_of(case, built(case))


@pytest.mark.sample(35)
@pytest.mark.parametrize("name", TRAINED)
def test_in_front_of_what_trains_it_may_be_frozen(name):
    """Then no rule books anything, and each function has to run as it is for single records."""
    case = ARCHITECTURES[name]

    def call(m, *inputs):
        found = m.frozen(*inputs)
        return m.scale * (found[0] if isinstance(found, tuple) else found)

    module = Applied(call, frozen=built(case).requires_grad_(False), scale=nn.Parameter(torch.ones(1).double()))
    assert rehearsed(module, case.inputs).names == ("scale",)
