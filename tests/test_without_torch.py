"""Where torch is not installed tables work, and what needs torch says so in one line, with nothing paid.

Every process here, and every process that it starts, finds no package that ``NOT_INSTALLED`` names: neither the module nor the
distribution. Each process does as much as it can, since starting one takes most of the time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MISSING_TORCH = 'noisewise: this needs PyTorch, which is not installed: pip install "noisewise[torch]"'
MISSING_SQLALCHEMY = 'noisewise: a ledger needs SQLAlchemy, which is not installed: pip install "noisewise[ledger]"'
BUDGET = ("--epsilon", "2", "--delta", "1e-6")
TRAIN = ("train", "private.csv", "--schema", "schema.toml", *BUDGET)
ACCOUNT = ("--ledger", "ledger.db", "--dataset", "people")
HIDE = """
import os, sys
from importlib.machinery import PathFinder

names = os.environ["NOT_INSTALLED"].split()

class Installed(PathFinder):
    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] in names else PathFinder.find_spec(name, path, target)
    def find_distributions(*context):
        return (one for one in PathFinder.find_distributions(*context) if one.name.lower() not in names)

sys.meta_path[sys.meta_path.index(PathFinder)] = Installed
"""
# Each command of a list as the shell would call it; afterwards its exit code, and which of the names it has imported.
COMMANDS = """
import json, sys, warnings
from noisewise.faces.cli import main
warnings.simplefilter("ignore")
commands, names = json.loads(sys.argv[1])
for words in commands:
    sys.argv = ["noisewise", *words]
    code = None
    try:
        main()
    except SystemExit as end:
        code = end.code
    print("\\nENDED", json.dumps([code, [name for name in names if name in sys.modules]]), flush=True)
"""


@pytest.fixture
def without(desk):
    """``without("torch", code, *arguments)``: a fresh Python that has all packages but these, in the folder of the desk."""
    (desk / "hide").mkdir()
    (desk / "hide" / "sitecustomize.py").write_text(HIDE)
    path = os.pathsep.join([str(desk / "hide"), str(Path(__file__).parent)])

    def call(hidden, code, *arguments, **environment):
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, "PYTHONPATH": path, "NOT_INSTALLED": hidden, **environment},
            capture_output=True,
            text=True,
        )

    return call


def ended(done) -> list[tuple[int, list[str]]]:
    lines = [line for line in done.stdout.splitlines() if line.startswith("ENDED ")]
    return [tuple(json.loads(line.removeprefix("ENDED "))) for line in lines]


def commands(without, hidden, *lists, names=(), **environment):
    """How each command ended, and all that they said on standard error."""
    done = without(hidden, COMMANDS, json.dumps([lists, names]), **environment)
    assert len(ended(done)) == len(lists), done.stderr
    return ended(done), done.stderr.splitlines()


def test_what_is_hidden_is_not_installed_for_children_either(without):
    code = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', sys.argv[1]]).returncode)"
    look = "from importlib import metadata, util; assert util.find_spec('{0}') is None; metadata.version('{0}')"
    done = without("torch", code, look.format("torch"))
    assert done.returncode == 1 and "PackageNotFoundError" in done.stderr


HEAVY = ("torch", "matplotlib", "sklearn", "pandas", "sqlalchemy", "joblib")


METHODS = ("auto", "additive", "descent", "dpsgd", "l2p")


def test_a_table_trains_and_imports_nothing_heavy(without):
    """From a file to a sealed run folder with its report, and what is made of that with numpy alone."""
    lists = [
        words
        for method in METHODS
        for words in (
            [*TRAIN, "--method", method, "--out", method],
            ["verify", method],
            ["evaluate", method, "public.csv", "--public-test"],
            ["report", method],
            ["export", method, "--to", "json", "--out", f"{method}.json"],
        )
    ]
    done, said = commands(without, "torch", *lists, names=HEAVY)
    assert done == [(0, [])] * len(lists), said
    for method in METHODS:
        run = json.loads(Path(method, "run.json").read_text())
        assert "torch" not in run["software"] and {"noisewise", "numpy"} <= set(run["software"])
        assert Path(method, "report.html").exists() and json.loads(Path(f"{method}.json").read_text())


def test_all_other_commands_run(without):
    lists = [
        [*TRAIN, "--out", "run"],
        ["predict", "run", "public.csv", "--out", "predicted.csv"],
        ["evaluate", "run", "private.csv", "--epsilon", "0.5"],
        ["effects", "run"],
        ["plan", *BUDGET, "--rows", "1000"],
        ["schema", "init", "public.csv", "--public", "--target", "income", "--out", "made.toml"],
        ["compare", "public.csv", "--schema", "schema.toml", *BUDGET, "--size", "1000", "--methods", "descent,dpsgd", "--repeats", "2", "--jobs", "1"],
        ["export", "run", "--to", "sklearn", "--out", "model.py"],
        ["protector", "list"],
        ["protector", "show", "clear"],
        ["methods"],
        ["ledger", "init", "--ledger", "ledger.db"],
    ]  # fmt: skip
    done, said = commands(without, "torch", *lists)
    assert [code for code, _ in done] == [0] * len(lists), said
    assert len(Path("predicted.csv").read_text().splitlines()) == 201


def test_estimators_fit(without):
    code = """
import sys, warnings
import desk
import noisewise as nw
from noisewise import PrivateClassifier, PrivateRegressor, PrivateSearchCV

warnings.simplefilter("ignore")
table, schema = desk.people(400, 1), nw.read_schema("schema.toml")
X, y = table.drop(columns="income"), table["income"]
for method in ("additive", "descent", "dpsgd", "l2p"):
    fitted = PrivateClassifier(epsilon=2, delta=1e-6, schema=schema, method=method, random_state=1).fit(X, y)
    assert fitted.score(X, y) > 0.7, method
    assert "torch" not in fitted.statement_.data["code"]["dependencies"]
nw.save(fitted, "saved")
assert nw.load("saved").score(X, y) == fitted.score(X, y)
PrivateRegressor(epsilon=2, delta=1e-6, bounds=[(17, 90)], target_bounds=(0, 99)).fit(X[["age"]].to_numpy(), X["hours"])
for name in ("PrivacyEngine", "ModuleValidator", "DPLSTM", "BatchMemoryManager", "fit", "load_module"):
    try:
        getattr(nw, name)
    except ImportError as error:
        assert type(error).__name__ == "MissingTorch", name
        print(error)
assert "torch" not in sys.modules
"""
    done = without("torch", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [MISSING_TORCH.removeprefix("noisewise: ")] * 6


TORCH_BY_NATURE = (  # modules and folders, below the package, of which every module says that it is torch which is missing
    *(
        "evidence.audit.deep_leakage",
        "evidence.audit.shared_sum",
        "evidence.audit.gan_play",
        "faces.pytorch",
    ),
    *(
        "learned.evaluate",
        "learned.meta_training",
        "learned.plots",
        "learned.tasks",
        "learned.trained",
        "learned.unroll",
    ),
    *(
        "protect.learned.inside",
        "protect.learned.parts",
        "remote.gloo",
        "trusted.engine",
        "trusted.models.module",
    ),
    *(
        "trusted.models.module_loss",
        "trusted.stores.modules",
        "trusted.stores.perceptron",
    ),
    *(
        "trusted.stores.perceptron_passes",
        "trusted.torch_extra",
    ),
)


def test_every_module_can_be_imported_or_says_what_to_install(without):
    code = """
import warnings
from importlib import import_module
from pkgutil import walk_packages
import noisewise

warnings.simplefilter("ignore")
for module in walk_packages(noisewise.__path__, "noisewise.", onerror=lambda name: None):
    try:
        module.name.endswith("__main__") or import_module(module.name)
    except ImportError as error:
        if error.name in (None, "torch"):
            print(module.name.removeprefix("noisewise."), type(error).__name__)
"""
    done = without("torch", code)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"{name} MissingTorch" for name in TORCH_BY_NATURE)


@pytest.fixture
def ledger(desk):
    """A ledger with an account of the desk's records."""
    import noisewise as nw

    made = nw.Ledger.create("ledger.db")
    made.register("people", nw.Budget(50.0, 1e-4))
    return made


def test_what_needs_torch_says_so_in_one_line_with_nothing_paid(without, ledger, shell):
    """Also where something would have been bought before the training, or candidates that fail count as worst."""
    settings = '[[candidate]]\nmodel = "mlp"\nmethod = "dpsgd"\n[[candidate]]\nmodel = "linear"\nmethod = "dpsgd"\n'
    Path("settings.toml").write_text(settings)
    schema = Path("schema.toml").read_text().replace("low = 17\nhigh = 90\n", "")
    Path("unbounded.toml").write_text(schema)
    bought = ["train", "private.csv", "--schema", "unbounded.toml", *BUDGET, "--bounds-epsilon", "0.5"]
    assert shell(*TRAIN, "--model", "4", "--method", "dpsgd", "--out", "net").code == 0  # here torch is installed
    before = list(ledger.history())
    lists = [
        [*TRAIN, *ACCOUNT, "--out", "run", "--model", "mlp", "--method", "dpsgd"],
        [*TRAIN, *ACCOUNT, "--out", "run", "--method", "l2p", "--protector", "private"],
        [*bought, *ACCOUNT, "--out", "run", "--model", "mlp", "--method", "dpsgd"],
        *([*TRAIN, *ACCOUNT, "--out", "run", "--tune", how, "--candidates", "settings.toml"] for how in ("selection", "exponential")),
        ["evaluate", "net", "private.csv", "--epsilon", "0.5", *ACCOUNT],
        ["protector", "plot", "clear", "--out", "plot.png"],
        ["protector", "train", "descent", "--out", "protector"],
        ["attack", "gan"],
        ["attack", "leakage"],
    ]  # fmt: skip
    done, said = commands(without, "torch", *lists)
    assert [code for code, _ in done] == [2] * len(lists) and said == [MISSING_TORCH] * len(lists)
    assert list(ledger.history()) == before
    assert not Path("run").exists() and not list(Path().glob("run.*")) and not Path("net/evaluation.json").exists()

    ranks = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29501"}
    done, said = commands(without, "torch", [*TRAIN, *ACCOUNT, "--out", "run"], **ranks)
    assert done[0][0] == 2 and said == [MISSING_TORCH] and list(ledger.history()) == before


def test_a_perceptron_of_elsewhere_predicts_without_torch(without, shell):
    assert shell(*TRAIN, "--model", "4", "--method", "dpsgd", "--out", "net").code == 0
    lists = [
        ["predict", "net", "public.csv", "--out", "predicted.csv"],
        ["evaluate", "net", "public.csv", "--public-test"],
        ["verify", "net"],
        ["report", "net"],
        ["export", "net", "--to", "json", "--out", "net.json"],
    ]
    done, said = commands(without, "torch", *lists)
    assert [code for code, _ in done] == [0] * len(lists), said


def test_a_ledger_needs_its_extra_and_nothing_else_does(without):
    lists = [
        ["ledger", "init", "--ledger", "ledger.db"],
        [*TRAIN, *ACCOUNT, "--out", "run"],
        ["plan", *ACCOUNT, "--rows", "1000"],
    ]
    done, said = commands(without, "torch sqlalchemy", *lists, [*TRAIN, "--out", "run"], ["verify", "run"])
    assert [code for code, _ in done] == [2, 2, 2, 0, 0]
    assert said[:3] == [MISSING_SQLALCHEMY] * 3 and not Path("ledger.db").exists()
