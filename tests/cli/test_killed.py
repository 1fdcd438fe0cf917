"""kill -9 at random moments of ``noisewise train``: what was released is charged, the run goes on, nothing half-written stays."""

from __future__ import annotations

import random
import time

import pytest
from killed import KINDS, RESUME, Moment, drawn, entries, finished, holds_after_a_kill, laid_out, lines, ran, warm


@pytest.fixture(scope="module")
def lengths(tmp_path_factory):
    """How long each kind of run takes, in seconds and in calls of the system."""
    found = {}
    warm(laid_out(tmp_path_factory.mktemp("warm") / "desk"))
    for kind, arguments in KINDS.items():
        place = laid_out(tmp_path_factory.mktemp("whole") / "desk")
        began = time.monotonic()
        assert ran(place, arguments, counted=place / "tmp/calls") == 0, (place / "said.log").read_text()
        found[kind] = time.monotonic() - began, int((place / "tmp/calls").read_text())
    return found


def a_moment(chance, seconds, calls):
    if chance.random() < 0.5:
        return Moment(seconds=chance.uniform(0, seconds))
    return Moment(call=chance.randint(1, calls), after=chance.random() < 0.5)


def killed_and_taken_up(tmp_path, lengths, number, seed):
    """A run is killed at a random moment, perhaps when it goes on as well, and then goes on to its end."""
    chance, kind = random.Random(seed), list(KINDS)[number % len(KINDS)]
    place, how = laid_out(tmp_path / "desk"), a_moment(chance, *lengths[kind])
    print(f"seed {seed}, {kind}: {how}")
    ran(place, KINDS[kind], how)
    holds_after_a_kill(place)
    while chance.random() < 0.3 and (place / "run.journal/settings.json").exists():
        again = a_moment(chance, *lengths[kind])
        print(f"and again: {again}")
        ran(place, RESUME, again)
        holds_after_a_kill(place)
    finished(place, kind)


@pytest.mark.sample(6)
@pytest.mark.parametrize("number", range(20))
def test_killed_at_a_random_moment(tmp_path, lengths, number):
    killed_and_taken_up(tmp_path, lengths, number, seed=number)


@pytest.mark.slow  # the same as above, at other moments
@pytest.mark.parametrize("number", range(200))
def test_killed_at_many_more_random_moments(tmp_path, lengths, number):
    killed_and_taken_up(tmp_path, lengths, number, seed=random.SystemRandom().randrange(2**32))


def test_the_checks_would_notice(tmp_path, lengths):
    """A draw that no claim covers, a file that stays, a record in one, half a file: each is found."""
    place = laid_out(tmp_path / "desk")
    ran(place, KINDS["filter"], Moment(call=lengths["filter"][1] * 3 // 4))
    assert drawn(place) and entries(place) and lines(place)
    holds_after_a_kill(place)
    log = place / "drawn.log"
    once = log.read_text()
    log.write_text(once * 3)
    with pytest.raises(Exception, match=r"asked for|assert"):
        holds_after_a_kill(place)
    log.write_text(once)
    for name, content in ((".run-abc", ""), ("run.journal/x", "PLANTED-7f3a91"), ("run.journal/bounds.json", "{")):
        (place / name).write_text(content)
        with pytest.raises((AssertionError, ValueError)):
            holds_after_a_kill(place)
        (place / name).unlink()
    holds_after_a_kill(place)
