"""How often an audit catches half the noise, for every method at its small setting: prints a table for the docs.

python tests/audit/power_of_every_method.py --trials 20 --jobs 2
"""

from __future__ import annotations

import argparse
import os
import time

import broken_variants as broken
import numpy as np

from noisewise.evidence.audit import epsilon_lower_bound, small_setting
from noisewise.methods import registry


def trial(name: str, seed: int, halved: bool) -> tuple[float, bool, float]:
    """The lower bound of one audit, whether it is a confirmed violation, and the seconds it took."""
    os.environ["OMP_NUM_THREADS"] = "1"
    setting, started = small_setting(name), time.process_time()
    with broken.less_noise(0.5 if halved else 1.0):
        audit = epsilon_lower_bound(
            setting.method, epsilon=setting.epsilon, delta=setting.delta, adjacency=setting.adjacency,
            runs=setting.runs, confidence=setting.confidence, seed=1000 + seed,
        )  # fmt: skip
    return audit.lower_bound, audit.violation, time.process_time() - started


def main() -> None:
    from joblib import Parallel, delayed

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("methods", nargs="*", default=[name for name, kind in registry().items() if kind.private])
    wish = parser.parse_args()
    print("| method | claimed | delta | runs | confidence | median bound | accused | half the noise: median | caught |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in wish.methods:
        setting = small_setting(name)
        work = [delayed(trial)(name, seed, halved) for halved in (False, True) for seed in range(wish.trials)]
        told = np.array([(bound, violation) for bound, violation, _ in Parallel(n_jobs=wish.jobs)(work)])
        found, above = told[:, 0].reshape(2, -1), told[:, 1].reshape(2, -1).astype(int).sum(1)
        print(
            f"| {name} | {setting.epsilon:g} | {setting.delta:g} | {setting.runs:,} | {100 * setting.confidence:g} % | "
            f"{np.median(found[0]):.2f} | {above[0]} of {wish.trials} | {np.median(found[1]):.2f} | "
            f"{above[1]} of {wish.trials} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
