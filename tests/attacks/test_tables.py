"""What a stranger can do with features, centres and scales of a table's columns, and with cells that are odd."""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import math
import pickle
import shutil
import warnings
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import noisewise as nw
from noisewise.budget import AdditiveMeter, Budget
from noisewise.curator import Curator, Descent, FirstMoment
from noisewise.trusted.losses import Logistic, Softmax, Squared

from .house import private_quality
from .test_moved_walls import Seeing

with contextlib.suppress(ImportError):  # there are no tables in older versions; every attack here is a guard
    from noisewise import runs
    from noisewise.statements.seal import reseal
    from noisewise.trusted.features import Codes, Features, Hats, Product, TableColumn, even
    from noisewise.trusted.models import Additive
    from noisewise.trusted.process import own_settings
    from noisewise.trusted.questions.columns import ColumnLevels
    from noisewise.trusted.stores import records_of, tables
    from noisewise.trusted.stores.totals import Drawn
    from noisewise.trusted.walks.oneshot import OnePass

pytestmark = pytest.mark.guard("there were no tables")

ROWS = 40
SCALE = (0.0, 1.0), (0.0, 1.0)
rng = np.random.default_rng(0)
CELLS = np.column_stack([rng.uniform(0, 1, (ROWS, 2)), rng.integers(0, 3, ROWS)])
LABELS = rng.choice([-1.0, 1.0], ROWS).astype(np.float32)


def columns():
    return (TableColumn("a", *SCALE), TableColumn("b", *SCALE), TableColumn("c", groups=(0, 1, 0)))


def curator_of(cells=CELLS, labels=LABELS, *, relation="add_remove", size=ROWS, **options):
    meter = AdditiveMeter(
        Budget(100.0, 1e-6, relation), options.pop("accountant", "gdp"), order=options.pop("order", None)
    )
    model = Additive(1, options.pop("loss", Logistic()), options.pop("outputs", 1), columns=columns())
    return Curator(cells, labels, model=model, meter=meter, size=size, row_bound=1.0, seed=1, **options)


def held(model, cells, labels):
    """Records as a curator holds them; its desk is closed while it lays them out."""
    with own_settings():
        return records_of(model, cells, labels)


def blocks():
    return (Hats(0, *SCALE, 4), Codes(2, (0, 1, 0)), Product(Hats(1, *SCALE, 3), Codes(2, (0, 0, 1))))


def usual():
    return even(blocks())


def answer_of(private, features=None):
    """What a curator says at one theta with hardly any noise: the same numbers for the same rows."""
    if features is not None:
        private.prepare(features)
    theta = np.linspace(-1, 1, private.facts.dimension, dtype=np.float32)
    return private.gradient(theta, clip=1.0, noise_multiplier=1.0).value


def untouched(private, before):
    assert private.meter.spent_fraction == 0 and private.trace == ()
    assert repr(private.facts) == repr(before)


# -- features that are not what they seem ---------------------------------------------------------------------------


def spying(kind):
    """A subclass that keeps what it is called with."""

    class Spy(kind):
        seen = []  # noqa: RUF012

        def __call__(self, table):
            Spy.seen.append(table)
            return super().__call__(table)

    return Spy


def subclassed():
    hats, codes, product, features = (spying(kind) for kind in (Hats, Codes, Product, Features))
    plain = Hats(0, *SCALE, 4)
    return [
        (features, features(blocks(), usual().gains)),
        (hats, even((hats(0, *SCALE, 4),))),
        (codes, even((codes(2, (0, 1, 0)),))),
        (product, even((product(plain, plain),))),
        (hats, even((Product(plain, hats(1, *SCALE, 4)),))),
    ]


def test_a_subclass_is_not_run_on_rows():
    private = curator_of()
    before = private.facts
    for spy, features in subclassed():
        with pytest.raises(TypeError, match="pass"):
            private.prepare(features)
        assert not spy.seen
    untouched(private, before)


class Fickle(float):
    """One number when it is looked at first, another ever after."""

    def __new__(cls, first, later):
        made = super().__new__(cls, later)
        made.left = [first]
        return made

    def __float__(self):
        return self.left.pop() if self.left else float.__float__(self)


class Changing:
    """An array that is another one the second time."""

    def __init__(self, first, later):
        self.arrays = [later, first]
        self.shape = first.shape

    def __array__(self, dtype=None, copy=None):
        return self.arrays.pop() if len(self.arrays) > 1 else self.arrays[0]


def poisoned(features):
    """The same features with everything that Python lets one write into them."""
    later = np.full(features.width, 1e30)
    for block in features.blocks:
        for part in (block, getattr(block, "first", block), getattr(block, "second", block)):
            for name, lie in (
                ("width", 10**6),
                ("entries", 7),
                ("_scale", (np.zeros(2), np.zeros(2))),
                ("roundness", 9),
            ):
                if not isinstance(getattr(type(part), name, None), property):
                    part.__dict__[name] = lie
            if isinstance(part, Hats):
                object.__setattr__(part, "points", (Fickle(0.0, 0.9), Fickle(1.0, 0.95)))
    features.__dict__["width"], features.__dict__["spans"] = 3, (slice(0, 1),)
    object.__setattr__(features, "gains", Changing(features.gains, later))
    object.__setattr__(features, "blocks", iter(features.blocks))
    return features


def test_features_are_made_anew_of_plain_numbers():
    honest, theirs = curator_of(), poisoned(usual())
    private = curator_of()
    expected = answer_of(honest, usual())
    assert np.array_equal(answer_of(private, theirs), expected)
    for name in ("gains", "blocks"):
        object.__setattr__(theirs, name, None)
    assert np.array_equal(*(answer_of(one) for one in (private, honest)))


def test_what_is_changed_after_the_call_changes_nothing():
    honest, private, features = curator_of(), curator_of(), usual()
    for one in (honest, private):
        one.prepare(features)
    features.gains[:] = 1e-3
    shown = private.features
    shown.gains[:] = 7.0
    object.__setattr__(shown.blocks[0], "points", (0.5, 0.6))
    assert np.array_equal(private.features.gains, usual().gains)
    assert np.array_equal(*(answer_of(one) for one in (private, honest)))


def test_the_columns_that_are_shown_are_copies():
    private = curator_of()
    for facts in (private.facts, private.facts):
        object.__setattr__(facts.table[2], "groups", ())
        object.__setattr__(facts.table[0], "groups", (0, 1, 2))
    with pytest.raises(ValueError, match="column"):
        private.prepare(even((Codes(0, (0, 1, 2)),)))
    assert private.facts.table == columns()
    model = Additive(1, Logistic(), columns=columns())
    from noisewise.trusted.facts import facts_of

    object.__setattr__(facts_of(model, Budget(1.0, 1e-6), size=1.0, row_bound=1.0).table[0], "name", "z")
    assert model.columns[0].name == "a"


def hostile_features():
    """What cannot even be described is made of parts and then written over, as a stranger would."""
    narrow = even((Hats(0, *SCALE, 4),))

    def with_(features, **parts):
        for name, value in parts.items():
            object.__setattr__(features, name, value)
        return features

    def hats(**parts):
        return with_(even((Hats(0, *SCALE, 4),)), blocks=(with_(Hats(0, *SCALE, 4), **parts),))

    gains = {
        "NaN": math.nan, "infinite": math.inf, "none": 0.0, "negative": -1.0,
    }  # fmt: skip
    for word, value in gains.items():
        yield f"gain {word}", with_(even(blocks()), gains=np.where(np.arange(usual().width) == 3, value, 0.1))
    yield "too few gains", with_(even(blocks()), gains=np.ones(2))
    yield "gains in a square", with_(even(blocks()), gains=np.ones((usual().width, 1)))
    yield "points that shrink", hats(points=(1.0, 0.0))
    yield "points that stay", hats(points=(0.0, 0.0))
    yield "points of NaN", hats(points=(0.0, math.nan))
    yield "points too far apart", hats(points=(-1.7e308, 1.7e308))
    yield "points too near", hats(points=(0.0, 5e-324))
    yield "ranks beyond 1", hats(ranks=(0.0, 2.0))
    yield "ranks that are not as many", hats(ranks=(0.0, 0.5, 1.0))
    yield "one knot", hats(knots=1)
    yield "very many knots", hats(knots=10**9)
    yield "another column", hats(column=3)
    yield "a column from the end", hats(column=-1)
    yield "a category as a number", hats(column=2)
    yield "a number as a category", even((Codes(1, (0, 1, 0)),))
    yield "more categories", even((Codes(2, (0, 1, 2, 3)),))
    yield (
        "a gap in groups",
        with_(even((Codes(2, (0, 1, 0)),)), blocks=(with_(Codes(2, (0, 1, 0)), groups=(0, 10**12, 1)),)),
    )
    inner = Product(Hats(0, *SCALE, 4), Hats(1, *SCALE, 4))
    yield "a product of products", with_(narrow, blocks=(Product(inner, inner),))
    wide = Hats(0, *SCALE, 1024)
    yield "enormous", with_(even((Hats(0, *SCALE, 4),)), blocks=(Product(wide, wide),) * 3)
    yield "no blocks", with_(even((Hats(0, *SCALE, 4),)), blocks=None)
    yield "a function", len
    yield "a look-alike", SimpleNamespace(blocks=blocks(), gains=usual().gains)


def test_hostile_features_are_refused_and_change_nothing():
    private = curator_of()
    before = private.facts
    for what, features in hostile_features():
        with pytest.raises((TypeError, ValueError)) as told:
            private.prepare(features)
        assert "\n" not in str(told.value), what
        untouched(private, before)
    assert private.features.blocks == ()


# -- how far one record reaches -------------------------------------------------------------------------------------


def random_features(generator):
    some = [
        Hats(0, *SCALE, int(generator.integers(2, 9))), Hats(1, (0.0, 0.1, 1.0), (0.0, 0.7, 1.0), 3), Codes(2, (0, 0, 1)),
        Product(Hats(0, *SCALE, 3), Hats(1, *SCALE, 3)), Product(Codes(2, (0, 1, 2)), Hats(1, *SCALE, 5)),
    ]  # fmt: skip
    chosen = tuple(some[i] for i in generator.permutation(5)[: generator.integers(1, 6)])
    width = sum(block.width for block in chosen) + 1
    return Features(chosen, np.exp(generator.normal(0, generator.choice([0.1, 1.0, 20.0]), width)))


ODD = [math.nan, math.inf, -math.inf, 1e300, -1e300, 5e-324, -0.0, 0.0, 1.0, 0.5, 2.0, 1.7, -3.0, 1e9]


def odd_cells(generator, count):
    return generator.choice(ODD, (count, 3))


@pytest.mark.parametrize("loss, outputs", [(Logistic(), 1), (Squared(), 1), (Softmax(), 3)])
def test_one_record_moves_sums_by_at_most_the_clip_in_integers(loss, outputs):
    """Random features, centres, thetas and cells: added, removed or replaced."""
    generator = np.random.default_rng(5)
    model = Additive(1, loss, outputs, columns=columns())
    for _ in range(25):
        features, cells = random_features(generator), np.vstack([CELLS[:5], odd_cells(generator, 4)])
        labels = generator.integers(0, 3, len(cells)) if outputs > 1 else LABELS[: len(cells)] * 1e3
        centre = generator.normal(size=features.width)
        centre *= generator.choice([0.0, 0.3, 1.0]) / np.linalg.norm(centre)
        scale = float(generator.choice([1e-3, 1.0, 1e4]))
        theta = generator.normal(size=features.width * outputs) * generator.choice([0.1, 1e3, 1e20])

        def sums(which, features=features, cells=cells, labels=labels, centre=centre, scale=scale, theta=theta):
            records = held(model, cells[which], labels[which]).prepared(features)
            records = records.centred(centre, scale)
            found = [records.gradients(Drawn(), theta, 0.7), records.row_sum(Drawn())]
            return [([int(value) for value in total.values], int(total.ones)) for total in found]

        everyone = list(range(len(cells)))
        whole, alone = sums(everyone), [sums([i]) for i in everyone]
        for i in everyone:
            for (all_, ones), (less, _), (mine, _) in zip(
                whole, sums([*everyone[:i], *everyone[i + 1 :]]), alone[i], strict=True
            ):
                assert [a - b for a, b in zip(all_, less, strict=True)] == mine
                assert sum(part * part for part in mine) <= ones**2


def test_rows_are_never_longer_than_the_bound_that_walks_rely_on():
    generator = np.random.default_rng(6)
    for trial in range(12):
        private, features = curator_of(), random_features(generator)
        private.prepare(features)
        assert private.facts.row_bound == 1 and private.facts.dimension == features.width
        centre = generator.normal(size=features.width)
        centre /= np.linalg.norm(centre) * generator.choice([1.0, 2.0])
        scale = float(10 ** generator.uniform(-3, 3))
        if trial % 3:
            private.centre(centre, scale)
        model = Additive(1, Logistic(), columns=columns())
        records = held(model, CELLS, LABELS).prepared(features)
        records = records.centred(centre, scale) if trial % 3 else records
        lengths = np.linalg.norm(records.float_rows().rows, axis=1)
        assert lengths.max() <= private.facts.row_bound * (1 + 1e-12)
        walk = Descent(np.zeros(features.width), 2, 0.1 / private.facts.row_bound**2, 1e3)
        assert private.last_iterate(walk).value.shape == (features.width,)


def test_a_wide_centre_is_within_the_bound_though_rounding_lengthens_it():
    private, features = curator_of(), even((Hats(0, *SCALE, 1024),) * 41)
    private.prepare(features)
    centre = np.zeros(features.width)
    centre[: int((2**14 / 80.5001) ** 2)] = 80.5001 / 2**14  # each entry is rounded up
    private.centre(centre, 1.0)
    whole = np.rint(centre * 2**14) / 2**14
    assert np.linalg.norm(centre) <= 1 < 1.006 < np.linalg.norm(whole)
    assert 1 + np.linalg.norm(whole) <= private.facts.row_bound


def test_hostile_centres_are_refused_and_change_nothing():
    private = curator_of()
    private.prepare(usual())
    width, before = usual().width, private.facts
    zeros = np.zeros(width)
    centres = [
        np.full(width, math.nan), np.full(width, 1e30), np.ones(width), zeros[:-1], np.zeros(width + 1),
        np.zeros(1), np.zeros((width, 1)), np.array(0.0), None, "0", np.full(width, math.inf),
    ]  # fmt: skip
    for centre in centres:
        with pytest.raises((TypeError, ValueError)):
            private.centre(centre, 1.0)
    for scale in (0.0, -1.0, math.nan, math.inf, 1e7, 1e-7, None, np.ones(2), "1"):
        with pytest.raises((TypeError, ValueError)):
            private.centre(zeros, scale)
    untouched(private, before)
    honest = curator_of()
    honest.prepare(usual())
    assert np.array_equal(*(answer_of(one) for one in (private, honest)))


def test_a_centre_is_copied_and_its_scale_is_one_number():
    honest, private = curator_of(), curator_of()
    for one in (honest, private):
        one.prepare(usual())
    middle = np.full(usual().width, 0.1)
    honest.centre(middle, 2.0)
    theirs = middle.copy().view(Seeing)
    Seeing.seen.clear()
    private.centre(theirs, Fickle(2.0, 5e5))
    theirs[:] = 0.0
    assert not Seeing.seen and honest.facts.row_bound == private.facts.row_bound
    assert np.array_equal(*(answer_of(one) for one in (private, honest)))


# -- rows that change while a question is on its way ----------------------------------------------------------------


class Acting(float):
    """A number that does something when it is looked at."""

    def __new__(cls, value, act):
        made = super().__new__(cls, value)
        made.act = act
        return made

    def __float__(self):
        self.act()
        return float.__float__(self)


@pytest.mark.parametrize("wider", [False, True])
def test_a_number_that_asks_for_other_features_while_it_is_read(wider):
    """A theta that is longer than the rows would be written beyond the end of an array."""
    private = curator_of()
    private.prepare(usual())
    other = even((Hats(0, *SCALE, 900),)) if wider else even(())
    theta = np.zeros(usual().width)
    with pytest.raises((ValueError, RuntimeError)):
        private.gradient(theta, clip=1.0, noise_multiplier=Acting(5.0, lambda: private.prepare(other)))
    assert private.meter.spent_fraction == 0
    private.prepare(usual())
    walk = Descent(theta, 2, 0.1, 50.0)
    object.__setattr__(walk, "step_size", Acting(0.1, lambda: private.prepare(other)))
    with pytest.raises((ValueError, RuntimeError)) as told:  # numpy would name the number of records
        private.last_iterate(walk)
    assert str(ROWS) not in str(told.value) and private.meter.spent_fraction == 0


def test_another_thread_that_asks_for_other_features_between_the_check_and_the_answer(monkeypatch):
    import noisewise.trusted.curator as room

    private = curator_of()
    private.prepare(usual())
    counted = room.expected_size

    def meanwhile(*asked, **options):
        private.prepare(even(()))
        return counted(*asked, **options)

    monkeypatch.setattr(room, "expected_size", meanwhile)
    with pytest.raises(RuntimeError, match="ask it again"):
        private.gradient(np.zeros(usual().width), clip=1.0, noise_multiplier=5.0)
    assert private.meter.spent_fraction == 0
    monkeypatch.undo()
    assert private.gradient(np.zeros(1), clip=1.0, noise_multiplier=5.0).value.shape == (1,)


def test_rows_are_not_changed_while_a_question_is_answered(monkeypatch):
    import noisewise.trusted.gate as room

    private, draw, told = curator_of(), room.draw, []

    def within(*asked):
        for change in (lambda: private.prepare(usual()), lambda: private.centre(np.zeros(1), 2.0)):
            with pytest.raises(RuntimeError) as error:
                change()
            told.append(str(error.value))
        return draw(*asked)

    monkeypatch.setattr(room, "draw", within)
    private.gradient(np.zeros(1), clip=1.0, noise_multiplier=5.0)
    assert len(told) == 2 and private.facts.dimension == 1


def test_a_table_has_no_other_basis():
    """Rows in another basis would have no table any more, and what is asked of it would fail when it is paid for."""
    private = curator_of()
    private.prepare(usual())
    before = private.facts
    with pytest.raises(TypeError, match="prepare"):
        private.change_basis(np.eye(usual().width))
    untouched(private, before)
    theta = np.ones(usual().width)
    assert private.in_first_basis(theta) is theta
    private.centre(np.zeros(usual().width), 2.0)
    private.prepare(even(()))
    assert private.facts.row_bound == 1 and private.facts.dimension == private.facts.features == 1
    assert private.in_first_basis(np.ones(1)).tolist() == [1.0]


def test_one_pass_over_a_table_takes_public_rows_of_features():
    private = curator_of(relation="replace_one")
    private.prepare(usual())
    width = usual().width
    walk = OnePass(np.zeros(width), rng.random((5, width)), np.ones(5), 0.05, 5.0)
    assert private.last_iterate(walk).value.shape == (width,)


# -- levels of columns ----------------------------------------------------------------------------------------------


def levels_of(*scales, levels=3.0):
    return ColumnLevels(tuple(scales), levels)


def test_levels_that_cannot_be_asked_are_refused_before_they_are_paid_for():
    private, number = curator_of(), (0.0, *SCALE)
    before = private.facts
    far, near = ((-1.7e308, 1.7e308), SCALE[1]), ((0.0, 5e-324, 1.0), (0.0, 0.5, 1.0))
    bad = [
        ((2.0, *SCALE),), ((3.0, *SCALE),), ((-1.0, *SCALE),), ((math.nan, *SCALE),), ((0.5, *SCALE),), ((1e300, *SCALE),),
        ((np.zeros(1), *SCALE),), ((0.0, SCALE[0], (0.0, 2.0)),), ((0.0, SCALE[0], (0.5, 1.0)),), ((0.0, (1.0, 0.0), SCALE[1]),),
        ((0.0, (0.0, math.nan), SCALE[1]),), ((0.0, *far),), ((0.0, *near),), ((0.0, (0.0,), (0.0,)),), ((0.0, (), ()),), (),
        ((0.0, np.array([0.0, 1.0]), np.array([[0.0], [1.0]])),), ((0.0, ((0.0, 1.0), (2.0, 3.0)), SCALE[1]),), (number[:2],),
    ]  # fmt: skip
    for scales in bad:
        with pytest.raises((TypeError, ValueError)):
            private.ask(ColumnLevels(scales, 3.0), noise=5.0)
    for levels in (0.0, 2.5, 21.0, math.nan, math.inf, -1.0, True, None):
        with pytest.raises((TypeError, ValueError)):
            private.ask(ColumnLevels((number,), levels), noise=5.0)
    untouched(private, before)

    class Cheaper(ColumnLevels):
        def moves(self, terms):
            return 1e-9, 1e-9

    with pytest.raises(TypeError, match="not a question"):
        private.ask(Cheaper((number,), 3.0), noise=5.0)
    untouched(private, before)


def test_levels_are_asked_of_a_table_alone():
    from noisewise.trusted.models import Linear

    meter = AdditiveMeter(Budget(100.0, 1e-6), "gdp")
    private = Curator(np.zeros((9, 3)), np.ones(9), model=Linear(3, Logistic()), meter=meter, size=9.0, row_bound=1.0)
    with pytest.raises(ValueError, match="table"):
        private.ask(levels_of((0.0, *SCALE)), noise=5.0)
    for change in (lambda: private.prepare(even(())), lambda: private.centre(np.zeros(3), 1.0)):
        with pytest.raises(TypeError, match="table"):
            change()
    assert private.features is None and private.meter.spent_fraction == 0


def test_the_levels_of_a_batch_are_those_of_the_batch():
    """A batch is cheaper than all records, so an answer about all of them at that price would not be paid for."""
    cells = np.tile(CELLS, (500, 1))
    private = curator_of(cells, np.tile(LABELS, 500), accountant="rdp", order=8, size=float(len(cells)))
    asked = levels_of((0.0, *SCALE), levels=1.0)
    counts = private.ask(asked, noise=20.0, sampling=("poisson", 1e-3)).value
    assert float(counts.sum()) < 1000  # 20 expected, of 20,000; noise of 28


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("rows", [None, 1, 3])
def test_levels_move_by_at_most_their_unit(relation, rows):
    """Repeated columns are counted as often as they are asked about, and paid for as often."""
    model = Additive(1, Logistic(), columns=columns())
    asked = levels_of((0.0, *SCALE), (0.0, *SCALE), (1.0, (0.0, 0.5, 1.0), (0.0, 0.9, 1.0)), levels=4.0)
    private = curator_of(relation=relation, rows_per_unit=rows)
    noise = private.ask(asked, noise=8.0).noise_std
    k = rows or 1
    people = [np.tile([a, b, 0.0], (k, 1)) for a in ODD for b in (0.0, 0.51, 1.0, math.nan)]
    ends = []
    for person in people:
        records = held(model, np.vstack([CELLS, person]), np.ones(ROWS + k))
        ends.append(records.levels(Drawn(), asked.scales, 4).ravel())
    base = held(model, CELLS, LABELS).levels(Drawn(), asked.scales, 4).ravel()
    most = max(int(((end - base) ** 2).sum()) for end in ends)
    apart = 1
    if relation == "replace_one":
        most, apart = max(int(((one - other) ** 2).sum()) for one in ends for other in ends), 2
    assert most == 12 * k * k * apart
    assert Fraction(most) <= (apart * Fraction(noise) / 8) ** 2


# -- cells that are odd ---------------------------------------------------------------------------------------------


def tables_of_odd_cells():
    generator = np.random.default_rng(1)
    yield "usual", CELLS
    for value in ODD:
        yield repr(value), np.full((ROWS, 3), value)
    yield "mixed", odd_cells(generator, ROWS)
    yield "single precision", CELLS.astype(np.float32)
    yield "beyond single precision", np.full((ROWS, 3), 3.5e38)


@pytest.mark.parametrize("loss, outputs", [(Logistic(), 1), (Softmax(), 3)])
def test_no_cell_raises_warns_or_changes_what_is_public(loss, outputs):
    seen, usual_settings = set(), np.geterr()
    labels = LABELS if outputs == 1 else np.arange(ROWS) % 3
    for _, cells in [*tables_of_odd_cells(), ("one", CELLS[:1]), ("none", CELLS[:0])]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.seterr(all="raise")
            try:
                private = curator_of(cells, labels[: len(cells)], loss=loss, outputs=outputs)
                asked = levels_of((0.0, *SCALE), (1.0, (0.0, 1e-300, 1.0), (0.0, 1e-9, 1.0)), levels=5.0)
                answers = [private.ask(asked, noise=9.0), private.ask(FirstMoment(), noise=9.0)]
                private.prepare(Features(blocks(), np.exp(np.linspace(-50, 50, usual().width))))
                private.centre(np.full(usual().width, 0.1), 3.0)
                theta = np.full(private.facts.dimension, 1e10)
                answers += [
                    private.gradient(theta, clip=1.0, noise_multiplier=9.0),
                    private.ask(FirstMoment(), noise=9.0),
                ]
                answers.append(private.last_iterate(Descent(np.zeros(len(theta)), 2, 1e-3, 90.0)))
            finally:
                np.seterr(**usual_settings)
        trace = [(line.question, str(line.event), line.noise_std, line.spent) for line in private.trace]
        seen.add(
            repr((private.facts, [(tuple(a.value.shape), a.noise_std) for a in answers], trace, private.arithmetic))
        )
    assert len(seen) == 1


def test_a_row_has_the_same_bits_whatever_its_company(monkeypatch):
    generator = np.random.default_rng(2)
    model, features = Additive(1, Logistic(), columns=columns()), random_features(generator)
    cells = np.vstack([CELLS, odd_cells(generator, 60), generator.normal(0.5, 0.5, (100, 3))])
    labels = np.ones(len(cells))

    def laid_out(which):
        rows = held(model, cells[which], labels[: len(which)]).prepared(features).rows
        return [
            (p.tobytes(), v.tobytes(), bool(a)) for p, v, a in zip(rows.places, rows.values, rows.alive, strict=True)
        ]

    everyone = list(range(len(cells)))
    whole = laid_out(everyone)
    order = generator.permutation(len(cells)).tolist()
    assert [whole[i] for i in order] == laid_out(order)
    assert [laid_out([i])[0] for i in everyone[::7]] == whole[::7]
    for height in (1, 3, 17):
        monkeypatch.setattr("noisewise.trusted.stores.sparse.ROWS_PER_CHUNK", height)
        monkeypatch.setattr(tables, "ROWS_PER_CHUNK", height)
        assert laid_out(everyone) == whole
        records = held(model, cells, labels)
        counts = [records.levels(Drawn(rows), ((0.0, *SCALE),), 3) for rows in (None, np.array(order))]
        assert np.array_equal(*counts)


def test_rows_of_a_table_are_copied():
    cells = CELLS.copy()
    private, honest = curator_of(cells), curator_of()
    cells[:] = 0.0
    assert np.array_equal(answer_of(private, usual()), answer_of(honest, usual()))


# -- what is left behind --------------------------------------------------------------------------------------------


def reachable(thing):
    """Arrays and tensors that can be reached from something, without modules, classes and code."""
    seen, waiting = set(), [thing]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | type(gc)) or hasattr(one, "__code__"):
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray | torch.Tensor):
            yield one
        waiting.extend(gc.get_referents(one))


def fitted(**settings):
    labels = (CELLS[:, 0] > 0.5).astype(int)
    many = np.tile(CELLS[:, :2], (50, 1))
    return nw.PrivateClassifier(
        2.0, 1e-5, **{"method": "additive", "bounds": (0, 1), "random_state": 0, **settings}
    ).fit(many, np.tile(labels, 50))


def test_nothing_that_is_left_of_a_run_holds_cells():
    n, face = 50 * ROWS, fitted()
    assert face.fitted_.made is not None
    assert not [found.shape for found in reachable(face.fitted_) if n in found.shape]
    assert len(pickle.dumps(face.fitted_.made)) < 1 << 20


def test_a_method_is_not_handed_cells():
    from noisewise.methods.additive import AdditiveDescent

    seen = []

    class Curious(AdditiveDescent):
        def step(self, state, private, public):
            seen.append(public)
            for name in dir(private):
                with contextlib.suppress(AttributeError):
                    value = getattr(private, name)
                    assert not isinstance(value, np.ndarray | torch.Tensor)
            for held in (private, private.facts):
                with contextlib.suppress(TypeError):
                    pickle.dumps(copy.deepcopy(held))
                    assert held is not private
            return super().step(state, private, public)

    fitted(method=Curious(steps=3, pairs=0))
    assert seen and set(seen) == {None}


def test_a_curator_of_a_table_says_nothing_of_its_cells():
    secret = 0.7316529
    private = curator_of(np.full((ROWS, 3), secret))
    private.prepare(usual())
    private.ask(levels_of((0.0, *SCALE)), noise=5.0)
    said = f"{private!r} {private.facts!r} {private.trace!r} {private.features!r}"
    assert str(secret) not in said and "0.73" not in said
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            way(private)


# -- a stranger's run folder ----------------------------------------------------------------------------------------


def tampered(place, change):
    path = place / "run.json"
    document = json.loads(path.read_text())
    change(document["preprocessing"])
    path.write_text(json.dumps(document))
    reseal(place)
    return place


def deep(levels):
    block = {"codes": 0, "groups": [0]}
    for _ in range(levels):
        block = {"product": [block, block]}
    return block


WIDE = {"hats": 0, "points": [0, 1], "ranks": [0, 1], "knots": 1024}
CHANGES = {
    "none": lambda saved: saved.pop("features"),
    "no gains": lambda saved: saved["features"].pop("gains"),
    "gains of text": lambda saved: saved["features"].update(gains="x"),
    "gains of NaN": lambda saved: saved["features"].update(gains=[math.nan] * len(saved["features"]["gains"])),
    "a gain less": lambda saved: saved["features"]["gains"].pop(),
    "a block less": lambda saved: saved["features"]["blocks"].pop(),
    "another column": lambda saved: saved["features"]["blocks"][0].update(hats=9),
    "a column from the end": lambda saved: saved["features"]["blocks"][0].update(hats=-1),
    "infinite knots": lambda saved: saved["features"]["blocks"][0].update(knots=math.inf),
    "very many knots": lambda saved: saved["features"]["blocks"][0].update(knots=10**12),
    "points that shrink": lambda saved: saved["features"]["blocks"][0].update(points=[1, 0], ranks=[0, 1]),
    "points in a square": lambda saved: saved["features"]["blocks"][0].update(points=[[0, 1]], ranks=[[0, 1]]),
    "a gap in groups": lambda saved: saved["features"]["blocks"].__setitem__(0, {"codes": 0, "groups": [0, 10**12]}),
    "no groups": lambda saved: saved["features"]["blocks"].__setitem__(0, {"codes": 0, "groups": []}),
    "another kind": lambda saved: saved["features"]["blocks"].__setitem__(0, {"codes": 0, "groups": [0, 1, 2, 3]}),
    "products of products": lambda saved: saved["features"]["blocks"].__setitem__(0, deep(9)),
    "an empty block": lambda saved: saved["features"]["blocks"].__setitem__(0, {}),
    "a list": lambda saved: saved.update(features=[]),
    "enormous": lambda saved: saved["features"]["blocks"].extend([{"product": [WIDE, WIDE]}] * 3),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return runs.save(fitted().fitted_, tmp_path_factory.mktemp("runs") / "run")


@pytest.mark.parametrize("what", CHANGES)
def test_a_folder_with_hostile_features_is_one_clear_error(folder, tmp_path, what):
    place = tampered(shutil.copytree(folder, tmp_path / "run"), CHANGES[what])
    with pytest.raises(ValueError, match="not a run that this version can read") as told:
        runs.load(place)
    assert "\n" not in str(told.value) and len(str(told.value)) < 600


@pytest.mark.parametrize("clip", ["0.5", math.nan, [1.0], {}])
def test_a_trace_with_a_clip_that_is_no_number_is_refused(folder, tmp_path, clip):
    """Probabilities are read by it."""
    place = shutil.copytree(folder, tmp_path / "run")
    document = json.loads((place / "trace.json").read_text())
    for row in document["rows"]:
        row["clip"] = None if row["clip"] is None else clip
    (place / "trace.json").write_text(json.dumps(document))
    reseal(place)
    with pytest.raises(ValueError, match="run"):
        runs.load(place)


def test_a_strangers_model_is_scored_within_its_budget(folder):
    """Whatever gains and theta a folder brings: one histogram, and the number of records."""
    made = runs.load(folder)
    far = made.theta * np.float32(1e20)
    object.__setattr__(made, "theta", far)
    made.made.gains[:] = 1e200
    found = private_quality(made, CELLS[:, :2], (CELLS[:, 0] > 0.5).astype(int), Budget(1.0, 1e-6), seed=1)
    assert len(found.events) == 2 and found.interval[0] <= found.value <= found.interval[1]
