"""Mutants of accounts, purses, ledgers and journals: what a run reserves, takes and gives back."""

from mutant import Mutant

PURSE = "tests/budget/test_purse.py::test_"
ACCOUNT = "tests/budget/test_account.py::test_"

MUTANTS = (
    Mutant(
        "a run of persons is paid by an account of records",
        "if unit != self._unit:",
        "if False:",
        (ACCOUNT + "a_fit_of_another_relation_or_unit_is_refused_and_takes_nothing",),
        "accounts/account.py",
    ),
    Mutant(
        "a forked copy spends from its parent's account",
        "    def _check_process(self) -> None:\n        if this_process() != self._process:",
        "    def _check_process(self) -> None:\n        if False:",
        (ACCOUNT + "a_forked_copy_refuses_and_cannot_enter",),
        "accounts/account.py",
    ),
    Mutant(
        "more is handed out than rounding explains",
        "ROUNDING = Fraction(1, 10**10)",
        "ROUNDING = Fraction(1, 10)",
        (ACCOUNT + "no_other_lack_is_rounded_away",),
        "accounts/account.py",
    ),
    Mutant(
        "what an earlier process used of a part is forgotten",
        "        if self._unknown and not self.meter.closed:\n            self.meter.forfeit(1.0)\n",
        "",
        ("tests/budget/test_claims.py::test_what_another_process_used_of_a_part_is_not_known_and_counts_whole",),
        "accounts/spending_file.py",
    ),
    Mutant(
        "an epsilon beyond reason is not mentioned",
        "    if epsilon > MAX_USUAL_EPSILON:",
        "    if False:",
        ("tests/budget/test_concerns.py::test_what_is_said_of_which_budget",),
        "accounts/budget_warnings.py",
    ),
    Mutant(
        "a run that claimed is settled as what it says",
        "return Amount(max(spent.cost, least), spent.delta if shown else reserved.delta)",
        "return spent",
        ("tests/budget/test_claims.py::test_a_run_without_a_journal_takes_at_least_what_it_claimed",),
        "accounts/purse.py",
    ),
    Mutant(
        "a run in another currency gets its rest back",
        "        elif own and isinstance(meter, AdditiveMeter):\n            spent = _amount(*meter.charged)",
        "        elif isinstance(meter, AdditiveMeter):\n            spent = _amount(*meter.charged)",
        (PURSE + "a_promise_does_not_come_back_in_part_but_whole_when_nothing_was_asked",),
        "accounts/purse.py",
    ),
    Mutant(
        "a part is held twice",
        "            for earlier in before:\n                earlier.close()\n",
        "",
        ("tests/fuzz/test_found.py::test_a_part_that_is_taken_up_again_has_one_holder",),
        "accounts/purse.py",
    ),
    Mutant(
        "a purse reserves more than it has",
        "if entry.reserved.cost > cost or entry.reserved.delta > delta:",
        "if entry.reserved.delta > delta:",
        (PURSE + "neither_epsilon_nor_delta_alone_can_be_overdrawn",),
        "accounts/spending_file.py",
    ),
    Mutant(
        "a damaged file is taken for an empty one",
        "            raise self._damaged(type(error).__name__) from None",
        "            return ()",
        (PURSE + "a_damaged_file_is_refused_and_left_as_it_is",),
        "accounts/spending_file.py",
    ),
    Mutant(
        "two processes take up the same run",
        'if here is None or here.state != "reserved" or here.claimed != before or before == after:',
        'if here is None or here.state != "reserved":',
        ("tests/budget/test_claims.py::test_only_one_of_two_that_take_up_a_run_gets_the_next_block",),
        "accounts/spending_file.py",
    ),
    Mutant(
        "the step of somebody's object is run on the records",
        "        method = NonPrivate(**{field.name: getattr(method, field.name) for field in fields(NonPrivate)})\n",
        "",
        ("tests/attacks/test_moved_walls.py::test_nonprivate_runs_the_librarys_own_step",),
        "train.py",
    ),
    Mutant(
        "a method ends with an array that it still holds",
        "plain = np.array(given) if isinstance(given, np.ndarray) else None\n    if plain is",
        "plain = given\n    if plain is",
        ("tests/test_terms.py::test_what_is_released_is_a_plain_array_of_ones_own",),
        "train.py",
    ),
)
