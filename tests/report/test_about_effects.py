"""Effects in the report: a picture for each column, pairs, and words; nothing of it for a linear model."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import noisewise as nw
from noisewise.evidence import runs
from noisewise.evidence.report.charts import Series, line_chart
from noisewise.evidence.report.page import report_page
from noisewise.methods.additive import AdditiveDescent
from noisewise.tables.schema import Column, Schema

HOSTILE = "<script>alert(1)</script>"
rng = np.random.default_rng(0)
N, NUMBERS = 1500, 13
TABLE = pd.DataFrame({f"n{i}": rng.exponential(10, N) for i in range(NUMBERS)})
TABLE[HOSTILE] = rng.choice(["<b>", "nurse", *"abcdefgh"], N)
TABLE.loc[::4, "n0"] = np.nan
SCHEMA = Schema(
    (
        *(Column(f"n{i}", "number", low=0, high=1000) for i in range(NUMBERS)),
        Column(HOSTILE, "category", categories=("<b>", "nurse", *"abcdefgh")),
    )
)
METHOD = AdditiveDescent(steps=10, pairs=4, knots=9)
SCORE = TABLE["n0"].fillna(20) / 10 + (TABLE[HOSTILE] == "nurse")


def written(path, face, y, **settings):
    model = face(50.0, 1e-6, schema=SCHEMA, method=METHOD, random_state=0, **settings).fit(TABLE, y)
    nw.save(model, path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("effects") / "run"
    return written(place, nw.PrivateClassifier, np.where(SCORE > 1.5, "many", "few"))


@pytest.fixture(scope="module")
def page(folder):
    return report_page(folder)


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).replace("\u00a0", " ").split())


def test_every_column_has_its_picture_the_strongest_first(folder, page):
    effects = runs.load(folder).effects()
    assert page.count('id="effect-') == 2 * (NUMBERS + 1)
    shown, folded = page.split("<summary>2 weaker columns")
    assert shown.count('aria-labelledby="effect-') == 12 and folded.count('aria-labelledby="effect-') == 2
    (told,) = re.findall(r'id="strength-desc" hidden>([^<]+)', page)
    values = [float(part.rpartition(": ")[2].replace(",", "")) for part in told.split("; ")]
    assert len(values) == 12 and all(a >= b for a, b in pairwise(values))
    assert values[0] == pytest.approx(max(column.strength for column in effects.columns), rel=0.06)
    assert "The 12 strongest of 14." in page


def test_words_say_what_is_drawn(page):
    text = words(page)
    for part in (
        "What it found", "How strong each column is", "Each column, the strongest first", "A higher score speaks for y = many", "95 % of the privacy noise",
        "The 6 clearest of 10 categories", "Strongest pairs", "6 of 6 are listed", "noise alone",
        "Drawn where nearly all records are; its scale goes from 0 to 1,000", "Missing (2", "14 columns", "14, in ",
    ):  # fmt: skip
        assert part in text, part
    assert "coefficients" not in text.split("How it was done")[0]


def test_it_stays_small_and_escaped(folder, page):
    assert len(page) < 150_000 and HOSTILE not in page and page.count("<b>") == page.count('class="tile"')
    assert "&lt;script&gt;" in page and "&lt;b&gt;" in page
    assert not re.search(r"https?:|url\(|@import|javascript:| style=", page)
    assert "nan" not in re.sub(r"[a-z]*nan[a-z]+|[a-z]+nan", "", page.split("<main>")[1].split("The statement")[0])
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_a_folder_is_accepted_by_verify_as_by_the_report(folder):
    verdict = nw.verify(folder)
    assert verdict.seal == "intact" and "simulation" in verdict.reason


def test_a_regression_speaks_of_its_target(tmp_path):
    text = words(report_page(written(tmp_path / "run", nw.PrivateRegressor, SCORE, target_bounds=(0, 8))))
    assert (
        "Numbers are in the unit of y" in text
        and "change of y" in text
        and "score" not in text.split("What it found")[-1].split("What is promised")[0]
    )


def _seen(text):
    """Without what a chart tells those who do not see it."""
    return re.sub(r"Effect of n0 [^a-z]* change", "change", text)


def test_of_several_classes_the_one_that_moves_most_is_drawn(tmp_path):
    text = words(report_page(written(tmp_path / "run", nw.PrivateClassifier, pd.cut(SCORE, 3, labels=list("uvw")))))
    assert "A class has a score of its own" in text and re.search(r"n0 change of the score for [uvw]", _seen(text))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda made: made["gains"].pop(),
        lambda made: made["blocks"].pop(),
        lambda made: made["blocks"][0].update(knots=1),
        lambda made: made["blocks"][0].update(hats=99),
        lambda made: made.clear(),
    ],
)
def test_features_that_do_not_fit_are_one_clear_error(folder, tmp_path, spoil):
    document = json.loads((folder / "run.json").read_text())
    spoil(document["preprocessing"]["features"])
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "run.json").write_text(json.dumps(document))
    runs.reseal(tmp_path)
    with pytest.raises(ValueError, match="not a run that this version can read"):
        report_page(tmp_path)


def test_a_band_is_drawn_around_its_line_and_cut_at_the_limits():
    line = Series("x", [(0.0, 0.0), (1.0, 1.0)], band=[(-1.0, 1.0), (-50.0, 2.0)])
    chart = line_chart("c", [line], title="t", description="d", x_label="x", y_label="y", y_limits=(-1.0, 2.0))
    (area,) = re.findall(r'<path d="([^"]+)" class="fill', chart)
    heights = [float(part.split()[1]) for part in area.strip("MZ").split("L")]
    assert len(heights) == 4 and heights[0] == heights[1] == max(heights) and 'class="zero"' in chart
    broken = Series("x", [(0.0, 0.0), (1.0, 1.0)], band=[(-1.0, 1.0), (float("inf"), 2.0)])
    chart = line_chart("c", [broken], title="t", description="d", x_label="x", y_label="y")
    assert "fill" not in chart and "inf" not in chart


def test_a_column_without_effect_is_a_sentence_and_not_a_picture(folder, monkeypatch):
    fitted = runs.load(folder)
    columns = fitted.effects().columns
    still = replace(columns[3], effect=np.zeros_like(columns[3].effect), strength=0.0)
    made = replace(fitted.effects(), columns=(*columns[:3], still, *columns[4:]))
    monkeypatch.setattr(type(fitted), "effects", lambda self: made)
    page = report_page(folder)
    assert page.count('id="effect-') == 2 * NUMBERS and "The model makes no difference by n3 " in words(page)
