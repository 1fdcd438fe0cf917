"""No function of the list mixes records: torch's operator table, in ordinary and in hostile company."""

from __future__ import annotations

import operator_table as checks
import pytest
import torch
from torch import Tensor

from noisewise.trusted.engine import allowed

FEW = """index_add scatter __getitem__ where sort matmul softmax var
prod roll linalg.solve nn.functional.conv2d
nn.functional.embedding nn.functional.cross_entropy nn.functional.dropout"""


def found(work) -> checks.Verdict:
    return checks.Verdict(checks.apart(work, at_once=2))


def test_some_functions_keep_records_apart():
    named = {entry.name: entry for entry in checks.table()}
    verdict = found(checks.jobs([named[name] for name in FEW.split()], count=1, forms=1))
    assert not verdict.bad()
    assert verdict.calls > 1000
    assert {name.rpartition(".")[2] for name in verdict.raises()} <= {*allowed.RAISES}


def test_functions_that_the_table_leaves_out():
    verdict = found(checks.further_jobs(few=10))
    assert not verdict.bad()
    assert verdict.calls > 400


@pytest.mark.slow
def test_all_functions_keep_records_apart():
    verdict = found(checks.jobs(checks.table()) | checks.further_jobs())
    assert not verdict.bad()
    assert {name.rpartition(".")[2] for name in verdict.raises()} <= {*allowed.RAISES}
    assert not checks.untested(verdict), "what was never tested is not allowed"


# --- the harness itself


def told(call, *arguments, engine=False, **options) -> list[str]:
    """What the harness says of one call, by torch alone or as the engine runs it."""
    case = checks.Case("made up", call, arguments, options)
    return found({"one": lambda tell: checks.examine([case], tell, permitted=engine)}).bad()


def x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_mixing_is_noticed():
    assert told(torch.index_fill, x(4, 5), 0, torch.tensor([0, 2]), 1.5)
    assert told(Tensor.select_scatter, x(4, 5), x(5), 0, 1)
    assert not told(torch.add, x(4, 5), x(4, 5))


def test_memory_of_others_is_noticed():
    assert told(Tensor.resize_, torch.arange(6), (4,))
    assert told(torch.poisson, x(4, 5).abs())  # random numbers that another record would have had


@pytest.mark.parametrize("call, value", [(torch.roll, ()), (torch.prod, (4,)), (torch.nn.functional.hardtanh, (2, 5))])
def test_torch_s_own_form_of_a_guarded_function_mixes(call, value):
    arguments = (1,) if call is torch.roll else ()
    assert told(call, x(*value), *arguments) and not told(call, x(*value), *arguments, engine=True)


class Sum(torch.autograd.Function):
    """A sum over all records, made by hand."""

    generate_vmap_rule = False

    @staticmethod
    def forward(value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        pass

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient

    @staticmethod
    def vmap(info, dimensions, value: Tensor) -> tuple[Tensor, int]:
        return value + 1e-6 * value.sum(dimensions[0], keepdim=True), dimensions[0]


def test_a_little_mixing_is_noticed():
    assert told(Sum.apply, x(4, 5))


def test_an_exception_on_values_is_no_mixing():
    case = checks.Case("made up", torch.gather, (x(4, 5), 0, torch.tensor([[0, 1]])))
    verdict = found({"one": lambda tell: checks.examine([case], tell, permitted=False)})
    assert not verdict.bad() and verdict.raises() == {"torch.gather"}


def test_a_crash_is_noticed():
    def crash(tell):
        tell({"entry": "crash", "names": ["crash"], "calls": 0, "begun": True})
        checks.os.kill(checks.os.getpid(), checks.signal.SIGSEGV)

    assert found({"crash": crash}).bad()


# --- the list


def test_the_list_is_sorted_and_resolves():
    for space, names in allowed.NAMES.items():
        assert names.split() == sorted(set(names.split())), space
        missing = [name for name in names.split() if not hasattr(checks.SPACES[space], name)]
        assert not missing, f"{space} has no {missing} in torch {torch.__version__}"
    listed = {name for names in allowed.NAMES.values() for name in names.split()}
    assert not listed & {*allowed.WITHHELD}
    assert not {*allowed.NAMES["torch.Tensor"].split()} & {*allowed.FACTS}
    assert {*allowed.RAISES} | {*allowed.GUARDED} <= listed
    assert allowed.functions()[torch.add] == "torch.add"
    assert torch.Tensor.item not in allowed.functions() and torch.index_fill not in allowed.functions()
