import json
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.trusted.events import (
    ApproximateDP,
    AtOrder,
    BoundedRange,
    Composed,
    FixedBatch,
    Gaussian,
    InvalidEvent,
    Poisson,
    PoissonRepetitions,
    Repeated,
    Selection,
    TruncatedNegativeBinomial,
    from_dict,
    leaves,
    rebuilt,
    sampled,
    to_dict,
)

positive = st.floats(1e-6, 1e6)
rates = st.floats(1e-6, 1.0)
mechanisms = st.one_of(
    st.builds(Gaussian, positive),
    st.builds(BoundedRange, st.floats(1e-6, 500)),
    st.builds(ApproximateDP, st.floats(1e-6, 500), st.floats(0, 0.99)),
)
repetitions = st.one_of(
    st.builds(TruncatedNegativeBinomial, st.floats(1e-6, 10), st.floats(1e-6, 1)),
    st.builds(PoissonRepetitions, st.floats(1e-3, 1e6)),
)
plain_leaves = st.one_of(
    mechanisms,
    st.builds(Poisson, rates, mechanisms),
    st.builds(FixedBatch, rates, mechanisms),
    st.builds(AtOrder, st.integers(2, 1024), st.floats(1e-6, 1e3)),
)
candidates = st.one_of(plain_leaves, st.builds(Repeated, plain_leaves, st.integers(0, 5)), st.just(Composed(())))
selections = st.builds(Selection, st.lists(candidates, min_size=1, max_size=3).map(tuple), repetitions)
leaf_events = st.one_of(plain_leaves, selections)
events = st.recursive(
    leaf_events,
    lambda inner: st.one_of(
        st.builds(Repeated, inner, st.integers(0, 5)),
        st.builds(Composed, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


def unrolled(event):
    """Leaves counted the slow way, one by one."""
    if isinstance(event, Repeated):
        return sum((unrolled(event.event) for _ in range(event.count)), Counter())
    if isinstance(event, Composed):
        return sum((unrolled(inner) for inner in event.events), Counter())
    return Counter([event])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(events)
def test_counts_multiply_and_json_keeps_everything(event):
    assert leaves(event) == unrolled(event)
    assert from_dict(json.loads(json.dumps(to_dict(event)))) == event


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.inf, math.nan])
def test_a_noise_multiplier_out_of_range_is_refused(sigma):
    with pytest.raises(InvalidEvent, match="noise_multiplier"):
        Gaussian(sigma)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan, 5e-324, math.nextafter(2.0**-40, 0.0)])
@pytest.mark.parametrize("kind", [Poisson, FixedBatch])
def test_a_rate_out_of_range_is_refused(kind, rate):
    with pytest.raises(InvalidEvent, match="rate"):
        kind(rate, Gaussian(1.0))


@pytest.mark.parametrize("kind", [Poisson, FixedBatch])
def test_the_least_rate_is_taken_and_less_is_refused_wherever_it_comes_from(kind):
    assert kind(2.0**-40, Gaussian(1.0)).rate == 2.0**-40
    how = "poisson" if kind is Poisson else "fixed"
    data = to_dict(kind(0.5, Gaussian(1.0))) | {"rate": 2.0**-41}
    for made in (lambda: sampled((how, 2.0**-41), Gaussian(1.0)), lambda: from_dict(data)):
        with pytest.raises(InvalidEvent, match=r"from 2\^-40 to 1"):
            made()


def test_other_fields_out_of_range_are_refused():
    with pytest.raises(InvalidEvent, match="epsilon"):
        BoundedRange(0.0)
    with pytest.raises(InvalidEvent, match="delta"):
        ApproximateDP(1.0, 1.0)
    with pytest.raises(InvalidEvent, match="count"):
        Repeated(Gaussian(1.0), -1)
    with pytest.raises(InvalidEvent, match="count"):
        Repeated(Gaussian(1.0), True)


def test_things_that_are_not_events_are_refused_by_name():
    with pytest.raises(TypeError, match="not an event"):
        leaves("Gaussian")
    with pytest.raises(TypeError, match="not an event"):
        leaves([Gaussian(1.0), 3.0])
    with pytest.raises(InvalidEvent, match="unknown event kind"):
        from_dict({"kind": "Laplace", "scale": 1.0})
    with pytest.raises(InvalidEvent, match="no field"):
        from_dict({"kind": "Gaussian", "noise_multiplier": 1.0, "secret": 2})


def test_sampling_makes_the_event():
    assert sampled(("full",), Gaussian(2.0)) == Gaussian(2.0)
    assert sampled(("fixed", 0.5), Gaussian(2.0)) == FixedBatch(0.5, Gaussian(2.0))
    assert sampled(("poisson", 0.25), Gaussian(2.0)) == Poisson(0.25, Gaussian(2.0))
    with pytest.raises(ValueError, match="sampling"):
        sampled(("shuffle", 0.1), Gaussian(1.0))


# -- selections ---------------------------------------------------------------------------------------------------

LAW = TruncatedNegativeBinomial(1.0, 0.1)


@pytest.mark.parametrize(
    ("made", "message"),
    [(lambda: TruncatedNegativeBinomial(-1.0, 0.5), "eta"), (lambda: TruncatedNegativeBinomial(math.nan, 0.5), "eta"),
     (lambda: TruncatedNegativeBinomial(1e-9, 0.5), "eta"), (lambda: TruncatedNegativeBinomial(True, 0.5), "eta"),
     (lambda: TruncatedNegativeBinomial(101.0, 0.5), "eta"), (lambda: TruncatedNegativeBinomial(1.0, 0.0), "gamma"),
     (lambda: TruncatedNegativeBinomial(1.0, 1.1), "gamma"), (lambda: PoissonRepetitions(0.0), "mean"),
     (lambda: PoissonRepetitions(math.inf), "mean"), (lambda: AtOrder(1, 0.5), "order"), (lambda: AtOrder(2.0, 0.5), "order"),
     (lambda: AtOrder(8, 0.0), "rdp"), (lambda: AtOrder(8, math.inf), "rdp"), (lambda: Selection((), LAW), "candidates"),
     (lambda: Selection([Gaussian(1.0)], LAW), "candidates"), (lambda: Selection((Gaussian(1.0), 5.0), LAW), "float"),
     (lambda: Selection((Gaussian(1.0),), Gaussian(1.0)), "repetitions"),
     (lambda: Selection((Composed((Selection((Gaussian(1.0),), LAW),)),), LAW), "another Selection"),
     (lambda: Poisson(0.1, Selection((Gaussian(1.0),), LAW)), "Poisson.event"),
     (lambda: FixedBatch(0.1, AtOrder(8, 1.0)), "FixedBatch.event")],
)  # fmt: skip
def test_selections_out_of_range_are_refused(made, message):
    with pytest.raises(InvalidEvent, match=message):
        made()


class SlyLaw(PoissonRepetitions):
    pass


class SlySelection(Selection):
    pass


class SlyFloat(float):
    def __mul__(self, other):
        return 0.0


def test_only_exact_selections_are_made_anew():
    for wrong in (Selection((Gaussian(1.0),), SlyLaw(2.0)), SlySelection((Gaussian(1.0),), LAW)):
        with pytest.raises(TypeError, match="is not"):
            rebuilt(wrong)
    event = rebuilt(Selection((Gaussian(SlyFloat(5.0)), AtOrder(8, SlyFloat(1.0))), PoissonRepetitions(SlyFloat(3.0))))
    numbers = [event.candidates[0].noise_multiplier, event.candidates[1].rdp, event.repetitions.mean]
    assert [type(value) for value in numbers] == [float] * 3
    changed = Selection((Gaussian(1.0),), LAW)
    object.__setattr__(changed, "candidates", [Gaussian(1.0)])
    with pytest.raises(TypeError, match="is not an event"):
        rebuilt(changed)


def test_the_number_of_runs_is_no_event_and_an_event_is_no_number_of_runs():
    data = to_dict(Selection((Gaussian(2.0),), LAW))
    for wrong in (data["repetitions"], data | {"repetitions": to_dict(Gaussian(2.0))}, data | {"candidates": [data]}):
        with pytest.raises(InvalidEvent):
            from_dict(wrong)
    with pytest.raises(TypeError, match="not an event"):
        leaves(LAW)
