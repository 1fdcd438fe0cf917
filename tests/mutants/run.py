"""``make mutants``: one constant, sign or comparison of the trust base changed at a time; a test must notice each.

A mutant is a piece of text that occurs exactly once in ``src/`` (in the files that ``where`` names), what takes its place,
and the tests that should notice. It is put into a temporary copy of the tree; if those tests pass, the wider list is tried,
and if that passes too the mutant has survived and this fails. Before any mutant the tests must pass on the copy as it is.
Arguments choose mutants by a part of their name. Kernels run in the reference arithmetic: one whose source has changed is
compiled anew, which takes longer than any test here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("src", "tests", "pyproject.toml")
LAW = "tests/laws/test_curator_laws.py::test_no_record_moves_a_total_further_than_its_noise_allows_for"
PERSONS = "tests/laws/test_person_laws.py::test_no_person_moves_a_total_further_than_its_noise_allows_for"
BATCH = "tests/laws/test_curator_laws.py::test_a_batch_is_summed_as_if_it_were_the_data_set"
TABLES = "tests/attacks/test_tables.py::"
ONE_SHOT = "tests/curator/test_oneshot.py::test_"
METER = ("tests/laws/test_meter_edges.py", "tests/test_budget.py")
WIDER = (
    *("tests/laws/test_curator_laws.py", "tests/curator", "tests/noise", "tests/test_budget.py"),
    *("tests/laws/test_meter_laws.py", "tests/records"),
)


@dataclass(frozen=True)
class Mutant:
    """A change that makes a promise false, and the tests that should notice it first."""

    name: str
    old: str
    new: str
    tests: tuple[str, ...]
    where: str = "**/*.py"


def law(*cases: str) -> tuple[str, ...]:
    return tuple(f"{LAW}[{case}]" for case in cases)


def persons(*cases: str) -> tuple[str, ...]:
    return tuple(f"{PERSONS}[{case}]" for case in cases)


def one_shot(*names: str) -> tuple[str, ...]:
    return tuple(ONE_SHOT + name for name in names)


MUTANTS = (
    Mutant(
        "a replaced record moves a gradient by the clip norm, not twice",
        "return terms.row(self.clip), 2 * terms.row(self.clip)",
        "return terms.row(self.clip), terms.row(self.clip)",
        law("Gradient-logistic"),
        "**/questions/gradient.py",
    ),
    Mutant(
        "a replaced record moves a norm by one unit, not two",
        "return unit, 2 * unit",
        "return unit, unit",
        law("GradientNorm-logistic"),
    ),
    Mutant(
        "the square of a norm has the slope m C, not 2 m C",
        "-(-2 * cap * total.ones // coarse)",
        "-(-cap * total.ones // coarse)",
        law("GradientNorm-logistic"),
    ),
    Mutant(
        "a choice under replace_one at the scale of add_remove",
        'totals[0].ones * terms.rows * (2 if terms.adjacency == "replace_one" else 1)',
        "totals[0].ones * terms.rows",
        law("Choice-weighted"),
    ),
    Mutant(
        "a replaced row moves the first moment by 1, not 2",
        "moves = always(1.0, 2.0)",
        "moves = always(1.0, 1.0)",
        law("FirstMoment-logistic"),
    ),
    Mutant(
        "a replaced row moves the second moment by 1, not sqrt(2)",
        "return 1.0, math.nextafter(math.sqrt(2), 2)",
        "return 1.0, 1.0",
        law("SecondMoment-logistic"),
    ),
    Mutant(
        "a replaced record moves the cross moment by the bound, not twice",
        "return self.bound, 2 * self.bound",
        "return self.bound, self.bound",
        law("CrossMoment-squared"),
    ),
    Mutant(
        "half the unit of what is counted at a theta",
        "moves = always(0.5, 1.0)",
        "moves = always(0.25, 0.5)",
        law("NormAtMost-logistic", "Correct-logistic"),
    ),
    Mutant(
        "a replaced record moves histograms by sqrt(m), not sqrt(2 m)",
        "math.sqrt(2 * terms.features)",
        "math.sqrt(terms.features)",
        law("Histograms-logistic"),
    ),
    Mutant(
        "a replaced record moves levels of columns by sqrt(K L), not sqrt(2 K L)",
        "math.nextafter(math.sqrt(2 * cells), 1e9)",
        "math.nextafter(math.sqrt(cells), 1e9)",
        law("ColumnLevels-table"),
    ),
    Mutant(
        "levels of columns priced as if there were one level",
        "moved(len(self.scales) * self.levels)",
        "moved(len(self.scales))",
        law("ColumnLevels-table"),
    ),
    Mutant(
        "levels of all records at the price of a batch",
        "for here in self.parts(drawn, CHUNK)",
        "for here in self.parts(Drawn(), CHUNK)",
        (BATCH + "[ColumnLevels-table]",),
    ),
    Mutant(
        "a bound on centred rows that forgets the centre",
        "row_bound=times * (1 + float(np.linalg.norm(middle)) + 2.0**-4)",
        "row_bound=times",
        (TABLES + "test_rows_are_never_longer_than_the_bound_that_walks_rely_on",),
    ),
    Mutant(
        "a bound on prepared rows that is half of it",
        "resized(self.__facts, model, row_bound=1.0)",
        "resized(self.__facts, model, row_bound=0.5)",
        (TABLES + "test_rows_are_never_longer_than_the_bound_that_walks_rely_on",),
    ),
    Mutant(
        "centred rows clipped by their length before",
        "(x * (x - 2 * centre[places[here]])).sum(1) + middle",
        "(x * x).sum(1)",
        law("Gradient-centred table"),
    ),
    Mutant(
        "an answer about rows that a question was not checked for",
        "if records is not self.records:",
        "if False:",
        (TABLES + "test_another_thread_that_asks_for_other_features_between_the_check_and_the_answer",),
    ),
    Mutant(
        "a record that joins a Poisson batch is forgotten under replace_one",
        "(max(added, replaced / 2) if",
        "(replaced / 2 if",
        law("Count-logistic", "SecondMoment-logistic"),
    ),
    Mutant(
        "a person's rows are forgotten in what one adds or removes",
        "return self.rows * added",
        "return added",
        persons("Count-logistic", "Gradient-logistic"),
    ),
    Mutant(
        "a person's rows are forgotten in what one replaces",
        "return self.rows * (max(added",
        "return (max(added",
        persons("FirstMoment-logistic", "SecondMoment-logistic"),
    ),
    Mutant(
        "a person's rows are each clipped to the person's norm, with the noise of one",
        "return clip / self.rows",
        "return clip",
        (f"{PERSONS.rpartition('::')[0]}::test_a_clip_is_a_persons[add_remove]",),
    ),
    Mutant(
        "a choice forgets the rows of a person",
        "totals[0].ones * terms.rows * (2",
        "totals[0].ones * (2",
        persons("Choice-weighted"),
    ),
    Mutant(
        "noise of 0.99 times its deviation",
        "std = multiplier * (unit / total.one)",
        "std = 0.99 * multiplier * (unit / total.one)",
        law("FirstMoment-logistic"),
    ),
    Mutant(
        "noise rounded down by the last bits, not up",
        "total.ones * (1 + 2.0**-49)",
        "total.ones * (1 - 2.0**-49)",
        law("Count-logistic", "Correct-logistic"),
    ),
    Mutant(
        "half the noise in units of its grid",
        "Grid(shift, 64 * mantissa",
        "Grid(shift, 32 * mantissa",
        ("tests/noise/test_on_grid.py::test_the_grid_is_public_and_near_a_thirty_second_of_the_noise",),
    ),
    Mutant(
        "those who stay away from a large Poisson batch drawn at the rate of those who join",
        "each_with_probability(words, 1 - rate, of, joined)",
        "each_with_probability(words, rate / 2, of, joined)",
        ("tests/noise/test_discrete.py::test_all_eight_batches_of_three_records_have_their_probabilities",),
    ),
    Mutant(
        "Poisson batches at twice the rate that is paid for",
        "return stream.each_with_probability(rate, len(records))",
        "return stream.each_with_probability(min(1.0, 2 * rate), len(records))",
        ("tests/curator/test_sampling.py::test_poisson_batches_are_independent_coin_flips",),
    ),
    Mutant(
        "fixed batches rounded up, beyond their price",
        "int(rate * records * (1 + 1e-12))",
        "int(rate * records * (1 + 1e-12)) + 1",
        ("tests/curator/test_sampling.py::test_a_fixed_batch_is_never_larger_than_its_price",),
    ),
    Mutant(
        "gradients of one sign are not clipped",
        "np.minimum(np.maximum(np.rint(slope * (reach * gain)), -most), most)",
        "np.maximum(np.rint(slope * (reach * gain)), -most)",
        law("Gradient-logistic", "Gradient-squared"),
    ),
    Mutant(
        "a meter that rounds prices down, not up",
        "return -(-top * ",
        "return (top * ",
        METER,
    ),
    Mutant(
        "delta spent twice by a perturbed objective",
        "whole.delta / 2",
        "whole.delta",
        one_shot("the_terms_of_a_perturbed_objective_add_up"),
    ),
    Mutant(
        "the Hessian's epsilon given to the gradient, not taken from it",
        "e_gradient = epsilon - e_hessian - e_output",
        "e_gradient = epsilon + e_hessian - e_output",
        one_shot("the_terms_of_a_perturbed_objective_add_up"),
    ),
    Mutant(
        "half the sensitivity of a descent",
        "unit = L * series / walk.l2 / size",
        "unit = L * series / walk.l2 / size / 2",
        one_shot("the_sensitivity_of_a_descent_is_reached_and_half_of_it_is_not_enough"),
    ),
    Mutant(
        "one pass amplified by K, not by its root",
        "walk.noise_multiplier * L / math.sqrt(amplification)",
        "walk.noise_multiplier * L / amplification",
        one_shot("the_noise_of_one_pass_follows_from_the_public_steps_after_it"),
    ),
    Mutant(
        "a descent without the weight of too many records",
        "return 1 - n / (4 * most) if n <= 2 * most else most / n",
        "return 1.0",
        one_shot("the_weight_bounds_what_a_record_more_does_and_what_all_do"),
    ),
    Mutant(
        "several sums of a batch at the price of the noisiest",
        "precision = math.fsum(",
        "precision = min(",
        (
            "tests/curator/test_gradient_options.py::"
            "test_the_worst_neighbours_reach_what_the_event_says_and_the_parts_alone_say_less",
        ),
    ),
    Mutant(
        "a question that is answered without being paid for",
        "            self.pay(event, records)\n            drawn",
        "            drawn",
        ("tests/curator/test_answers.py::test_every_question_is_paid_for_before_a_record_is_used",),
    ),
    Mutant(
        "a meter that keeps its last unit",
        "return self._spent + units <= ",
        "return self._spent + units < ",
        METER,
    ),
    Mutant(
        "a meter that counts half of what is spent",
        "return self._spent + units <= ",
        "return self._spent // 2 + units <= ",
        METER,
    ),
    Mutant(
        "one-shots beyond their share of delta",
        "self._delta_spent + delta <= Fraction(self._one_shot_delta)",
        "delta <= Fraction(self._one_shot_delta)",
        ("tests/test_budget.py::test_one_shots_need_and_use_their_share_of_delta",),
    ),
    Mutant(
        "a replaced record costs as much as an added one",
        'return 2.0 if adjacency == "replace_one" else 1.0',
        "return 1.0",
        ("tests/test_budget.py::test_replacing_costs_four_times_adding",),
    ),
)


def main(chosen: list[str]) -> int:
    mutants = [mutant for mutant in MUTANTS if not chosen or any(part in mutant.name for part in chosen)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="noisewise-mutants-") as folder:
        tree = Path(folder)
        copied(tree)
        noticed = failed(tree, tuple(dict.fromkeys(test for mutant in mutants for test in mutant.tests)))
        if noticed:
            raise SystemExit(f"{noticed} fails without any mutant; nothing would be shown")
        print("| mutant | noticed by | seconds |\n|---|---|---|")
        survivors = [mutant for mutant in mutants if not noticed_by_a_test(tree, mutant)]
    caught = len(mutants) - len(survivors)
    print(f"\n{caught} of {len(mutants)} mutants caught in {time.monotonic() - began:.0f} s.")
    return 1 if survivors or not mutants else 0


def copied(tree: Path) -> None:
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / part, tree / part)


def noticed_by_a_test(tree: Path, mutant: Mutant) -> bool:
    began, path = time.monotonic(), home(tree, mutant)
    source = path.read_text()
    path.write_text(source.replace(mutant.old, mutant.new))
    try:
        test = failed(tree, mutant.tests) or failed(tree, WIDER)
    finally:
        path.write_text(source)
    print(f"| {mutant.name} | {test or '**nothing**'} | {time.monotonic() - began:.0f} |", flush=True)
    return bool(test)


def home(tree: Path, mutant: Mutant) -> Path:
    """The one file with the text of a mutant, where it occurs once."""
    paths = [path for path in (tree / "src" / "noisewise").glob(mutant.where) if mutant.old in path.read_text()]
    if len(paths) != 1 or paths[0].read_text().count(mutant.old) != 1:
        places = ", ".join(str(path.relative_to(tree)) for path in paths) or "no file"
        raise SystemExit(
            f"{mutant.old!r} is in {places}; a mutant needs a text that occurs once: adapt {mutant.name!r}"
        )
    return paths[0]


def failed(tree: Path, tests: tuple[str, ...]) -> str:
    """The first test that fails in the copy; empty if all pass."""
    environment = os.environ | {
        "PYTHONPATH": str(tree / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",  # what was compiled a second ago would hide a change
        "NOISEWISE_KERNELS": "reference",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode != 1 or not found:
        raise SystemExit(f"pytest stopped with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found[1].removeprefix("tests/")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
