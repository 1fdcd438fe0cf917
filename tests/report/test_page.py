"""The page: everything a run folder has is on it, nothing else is, strangers' names stay text, bad folders are one line."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

import noisewise as nw
from noisewise.evidence import runs
from noisewise.evidence.report import sentences as words
from noisewise.evidence.report.page import report_page, write_report
from noisewise.faces.cli.main import app, main
from noisewise.tables.generated import census

SECTIONS = ("How good the model is", "What it found", "What is promised", "How it was done")
PARTS = {  # with the file that each is made of, if it may be missing
    "All evaluations": "evaluation.json",
    "Compared with other methods": "comparison.json",
    "All 17 coefficients": None,
    "What it covers": None,
    "Audits": "audit.json",
    "Settings that were used": None,
    "Columns as they were declared": None,
    "What was prepared": None,
    "How the budget was spent": "trace.json",
    "Noise, clip and gradients at each step": "trace.json",
    "The statement in words": None,
    "The statement as JSON": None,
}
HOSTILE = [
    "<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "</style></title></svg></pre>", "x" * 3000,
    "العمر بالسنوات", "pay\u202egpj.exe", "a\x00b", "half \ud800 letter", "&amp;", "{{7*7}}", "年齢",
]  # fmt: skip


class Reader(HTMLParser):
    """Elements, attributes and text of a page; refuses elements that are closed in the wrong order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).replace("\u00a0", " ").split())

    @property
    def body(self) -> str:
        """Without the contents, which name all parts."""
        return self.text.split("The statement as JSON", 1)[1]

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def page(ready) -> Reader:
    return Reader(report_page(ready))


def test_every_section_is_there_in_the_order_of_its_readers(ready, page):
    assert re.findall(r"<h2 id=[^>]*>([^<]+)</h2>", report_page(ready)) == [*SECTIONS]
    places = [page.body.index(title) for title in PARTS]
    assert places == sorted(places)


def test_how_it_was_done_is_folded_and_raw_json_is_not_for_paper(ready):
    how = report_page(ready).split('<h2 id="how">')[1]
    assert how.count('<details class="fold') == how.count("<summary>") == 7 and " open" not in how
    (raw,) = re.findall(r'<details class="([^"]*)"><summary>The statement as JSON</summary>', how)
    assert raw == "fold unprinted"
    assert re.search(r"@media print.*\.unprinted \{ display: none; \}", how + report_page(ready), re.DOTALL)


def test_contents_lead_to_all_of_it(page):
    links = [a["href"] for a in page.all("a")]
    ids = [a["id"] for _, a in page.elements if a.get("id")]
    assert len(links) == len({*links}) >= len(SECTIONS) + len(PARTS)
    assert {link.removeprefix("#") for link in links} <= {*ids} and all(link.startswith("#") for link in links)


def test_the_title_says_data_target_date_quality_and_budget(changed):
    folder = changed("run.json", lambda run: run | {"data": ["people.csv", "more.csv"]})
    source = report_page(folder)
    (title,) = re.findall(r"<title>([^<]*)</title>", source)
    score = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))[-1]["value"]
    assert title == (
        f"income from people.csv and 1 more file, 1 March 2025, accuracy {words.percent(score)}, "
        "(1.1, 1.1\u00a0\u00d7\u00a010⁻⁶)-DP"
    )
    head = Reader(source.split("<nav")[0].split("<main>")[1].replace("</header>", "</header>")).text
    for part in ("Predicting income from people.csv and 1 more file", "1 March 2025", "epsilon = 1.1", "16 columns"):
        assert part in head, part


@pytest.mark.parametrize("name", ["trace.json", "evaluation.json", "comparison.json", "audit.json"])
def test_a_missing_part_is_simply_absent(changed, name):
    folder = changed("trace.json", lambda trace: trace | {"rows": []} if name == "trace.json" else None)
    if name != "trace.json":
        (folder / name).unlink()
        runs.reseal(folder)
    page = Reader(report_page(folder))
    for title, needs in PARTS.items():
        assert (f" {title} " in f" {page.text} ") == (needs != name), title
    assert ("for one private evaluation" in page.text) == (name != "evaluation.json")
    assert ("has not been measured yet: noisewise evaluate" in page.text) == (name == "evaluation.json")


def test_the_page_is_complete_in_itself(ready, page):
    source = report_page(ready)
    assert page.all("script") == [] and page.all("link") == [] and page.all("img") == [] and page.all("iframe") == []
    assert not [a for _, a in page.elements if any(name.startswith("on") or name in ("src", "style") for name in a)]
    assert all(a["href"].startswith("#") for a in page.all("a")), "links stay on the page"
    assert not re.search(r"https?:|url\(|@import|javascript:", source)
    assert "default-src 'none'" in next(a["content"] for a in page.all("meta") if a.get("http-equiv"))
    assert "prefers-color-scheme: dark" in source and "@media print" in source
    assert page.all("html")[0]["lang"] == "en"


def test_every_chart_is_told_in_words(ready, page):
    charts = [a for _, a in page.elements if a.get("role") == "img"]
    keys = [chart["aria-labelledby"].split()[0].removesuffix("-title") for chart in charts]
    assert keys == ["comparison", "coefficients", "beliefs", "trade-off", "norm"]
    source = report_page(ready)
    for chart in charts:
        for name in chart["aria-labelledby"].split():
            assert re.search(rf'id="{name}" hidden>[^<]{{4,}}<', source), name
    ids = re.findall(r' id="([^"]+)"', source)
    assert len(ids) == len(set(ids))


def test_a_constant_curve_is_a_sentence(page, changed):
    assert re.search(r"Clip norm: [\d.]+ at each of 60 steps", page.text) and "It was spent nearly evenly." in page.text
    assert not {"noise-title", "clip-title"} & {a.get("id") for _, a in page.elements}

    def falling(trace):
        for step, row in enumerate(trace["rows"]):
            row["clip"] = None if row["clip"] is None else 1.0 + step

    source = report_page(changed("trace.json", falling))
    assert 'id="clip-title"' in source and not re.search(r"Clip norm: [\d.]+ at each", source)


def test_the_promise_is_one_limit_and_which_one_counts_is_said(changed):
    (folder := changed("run.json", lambda run: None)).joinpath("evaluation.json").unlink()
    runs.reseal(folder)
    page = Reader(report_page(folder))
    for part in (
        "they are right at most 73.2 % of the time; blind guessing",
        "This is the limit that counts: that of epsilon = 1 and delta = 10⁻⁶, which the statement of this run promises",
        "factor of at most e^epsilon = 2.72",
        "1 in 1,000,000",
        "data sets differ in one record being there or not (add_remove)",
    ):
        assert part in page.text, part
    promise = page.body.split("What is promised")[1].split("How it was done")[0]
    assert "54.8" not in promise and "Gaussian DP" not in promise, (
        "what the noise would prove beyond it is no second limit"
    )
    assert "every answer was priced in Gaussian DP, mu = 0.237 in all" in page.text


def test_paid_evaluations_are_added_up_and_the_total_counts(page):
    total = "epsilon = 1.1 and delta = 1.1 \u00d7 10⁻⁶, 1 for training and 0.1 for one private evaluation"
    assert f"This is the limit that counts: that of {total}" in page.text
    assert "right at most 75.1 % of the time" in page.text and "73.2" not in page.text
    assert "private, for epsilon 0.1, delta 10⁻⁷" in page.text and "public, free" in page.text


def test_the_budget_is_told_question_by_question(ready, page):
    rows = json.loads((ready / "trace.json").read_text(encoding="utf-8"))["rows"]
    assert f"{len(rows)} questions;" in page.text and "100 % at the end" in page.text
    for question in ("the number of records", "the sum of the rows", "the mean gradient"):
        assert question in page.text
    std = rows[-1]["noise_std"]
    assert f"{float(f'{std:.4g}'):g} at each of 60 steps" in page.text
    assert "Dashed is what noise alone would give" in page.text and "root of 17 parameters" in page.text


def test_noise_that_is_not_the_same_everywhere_has_no_level(changed):
    def other(statement):
        statement["method"]["name"] = "public_subspace"

    assert "Dashed is what noise alone" not in Reader(report_page(changed("statement.json", other))).text


def test_coefficients_that_span_zero_are_called_noise(changed):
    def coefficients(run):
        values = [(1.0, 0.1), (-0.1, 0.1), (0.01, 0.001), (5.0, 10.0)]
        run["coefficients"] = [
            {"output": None, "feature": f"column {i}", "value": v, "standard_error": e}
            for i, (v, e) in enumerate(values)
        ]

    page = Reader(report_page(changed("run.json", coefficients)))
    assert "2 of 4 have a bar that spans zero" in page.text
    rows = re.findall(r"column \d", page.body.split("What each column does")[1])
    assert rows[:4] == ["column 0", "column 2", "column 3", "column 1"], "clear ones first, the largest first"
    faint = sum(a.get("class") == "row faint" for a in page.all("div"))
    assert faint == 2 + 1, "two that may be noise, and a method without privacy"


def test_coefficients_without_known_noise_are_not_called_effects(changed):
    def unknown(run):
        for row in run["coefficients"]:
            row["standard_error"] = None

    text = Reader(report_page(changed("run.json", unknown))).text
    assert "is not known for this method" in text and "spans zero (hollow)" not in text

    def none(run):
        run["coefficients"] = None

    text = Reader(report_page(changed("run.json", none))).text
    assert "The coefficients of this model are not in its folder" in text and "17 coefficients" not in text


def test_a_table_of_all_coefficients_and_a_chart_of_twenty(changed):
    def many(run):
        row = run["coefficients"][0]
        run["coefficients"] = [row | {"feature": f"column {i}", "output": "yes", "value": i + 1.0} for i in range(300)]

    page = Reader(report_page(changed("run.json", many)))
    assert "20 of 300, the clear ones first" in page.text and "All 300 coefficients" in page.text
    assert "column 0 " in page.text and "column 299" in page.text and "yes:" not in page.text, (
        "one class is not repeated"
    )


def test_a_linear_model_is_told_in_natural_units(ready, page):
    """From the lower to the upper bound: 2 coefficients where the scale is [-1, 1], one where it is [0, 1]."""
    run = json.loads((ready / "run.json").read_text(encoding="utf-8"))
    values = {row["feature"]: row["value"] for row in run["coefficients"]}
    source = report_page(ready)
    (told,) = re.findall(r'id="coefficients-desc" hidden>([^<]+)', source)
    shown = {part.rpartition(": ")[0]: part.rpartition(": ")[2].split(" ±")[0] for part in told.split("; ")}
    assert "(intercept)" not in shown and len(shown) == 16
    assert float(shown["age, 17 to 90"]) == pytest.approx(2 * values["age"], abs=0.06)
    assert float(shown["children, 0 to 6"]) == pytest.approx(values["children"], abs=0.06)
    assert float(shown["married"]) == pytest.approx(values["married"], abs=0.06)


def test_several_classes_have_a_chart_each(changed):
    def several(run):
        run["coefficients"] = [
            row | {"output": name, "value": row["value"] + k}
            for k, name in enumerate("abc")
            for row in run["coefficients"]
        ]

    page = Reader(report_page(changed("run.json", several)))
    assert "The 5 strongest columns of each class." in page.text and "All 51 coefficients" in page.text
    assert [f"coefficients-{k}-title" in {a.get("id") for _, a in page.elements} for k in range(4)] == [True] * 3 + [
        False
    ]


def test_a_simulation_has_a_banner_and_a_private_run_has_none(page, changed):
    assert page.text.count("NOT PRIVATE: a seeded simulation") == 1
    assert any(a.get("class") == "banner" and a.get("role") == "alert" for a in page.all("div"))

    def private(statement):
        statement["simulation"] = False

    text = Reader(report_page(changed("statement.json", private))).text
    assert "NOT PRIVATE" not in text and "simulation" not in text.split("Compared with")[0]
    assert "When this page was made: yes, the events cost no more than the promised budget" in text


def test_a_run_without_privacy_has_a_banner(changed):
    people = census(300)
    clf = nw.PrivateClassifier(schema=people.schema, method="nonprivate").fit(people.X, people.y)
    folder = changed("statement.json", lambda _: json.loads(clf.statement_.to_json()))
    text = Reader(report_page(folder)).text
    assert "NOT PRIVATE: trained without privacy" in text and "no privacy is promised" in text
    assert "Limit for any attacker" not in text and "the limit that counts" not in text


@pytest.mark.parametrize("how", [{"lower_bound": 1.5}, {"violation": True}, {"violates": True, "lower_bound": None}])
def test_an_audit_that_refutes_the_promise_has_a_banner(page, changed, how):
    assert "AN AUDIT CONTRADICTS" not in page.text
    text = Reader(report_page(changed("audit.json", lambda audits: [audits[0] | how]))).text
    assert "AN AUDIT CONTRADICTS THE PROMISE" in text


def test_strangers_words_stay_text(changed):
    def names(run):
        for row, name in zip(run["coefficients"], HOSTILE, strict=False):
            row["feature"] = row["output"] = name
        run |= {"data": HOSTILE, "target": HOSTILE[0], "classes": HOSTILE, "features": HOSTILE, "warnings": HOSTILE}
        run |= {"software": dict.fromkeys(HOSTILE, HOSTILE[1]), "preprocessing": {HOSTILE[2]: HOSTILE}}
        run |= {"settings": {HOSTILE[1]: HOSTILE}, "created": HOSTILE[1], "estimator": HOSTILE[0]}

    usual = [name for name, _ in Reader(report_page(changed("run.json", lambda run: None))).elements]
    folder = changed("run.json", names)
    changed("evaluation.json", lambda rows: [rows[0] | {"metric": HOSTILE[0], "file": HOSTILE[1], "when": HOSTILE[2]}])
    changed("audit.json", lambda rows: [rows[0] | {"kind": HOSTILE[0], "verdict": HOSTILE[1]}])
    changed("comparison.json", lambda c: c | {"rows": [row | {"method": HOSTILE[2]} for row in c["rows"]]})
    changed("statement.json", lambda s: s | {"hyper_parameters": HOSTILE[0], "assumed": HOSTILE[:6]})
    page = Reader(report_page(folder))
    assert {name for name, _ in page.elements} <= {*usual, "br"}, "no element came from a name"
    assert not [a for _, a in page.elements if any(name.startswith("on") or name == "src" for name in a)]
    assert all(re.fullmatch(r"#[a-z-]+", a["href"]) for a in page.all("a"))
    for name in ("<script>alert(1)</script>", "العمر بالسنوات", "{{7*7}}", "&amp;", "年齢"):
        assert name in page.text
    assert "\u202e" not in page.text and "\x00" not in page.text
    assert write_report(folder).read_bytes(), "half characters do not stop the writing"


def test_a_long_trace_makes_a_small_page(changed):
    def long(trace):
        row = trace["rows"][-1]
        trace["rows"] = [
            row | {"spent": i / 10_000, "norm": 1.0 + i % 7, "noise_std": 0.1 + i} for i in range(1, 10_001)
        ]

    source = report_page(changed("trace.json", long))
    assert len(source) < 200_000
    assert "10,000 questions" in Reader(source).text


def test_odd_numbers_do_not_reach_the_picture(changed):
    def odd(trace):
        for i, value in enumerate((float("nan"), float("inf"), -1.0, 1e308, 0.0)):
            trace["rows"][5 + i] |= {"norm": value, "noise_std": value, "clip": value}

    source = report_page(changed("trace.json", odd))
    pictures = " ".join(re.findall(r"<svg.*?</svg>", source))
    assert "nan" not in pictures.lower().replace("dominant", "") and "inf" not in pictures.lower()


def test_other_relations_plans_and_preparations_are_told(changed):
    people = census(400)
    clf = nw.PrivateClassifier(schema=people.schema, adjacency="replace_one", method="dpsgd", random_state=0)
    data = json.loads(clf.fit(people.X, people.y).statement_.to_json())
    text = Reader(report_page(changed("statement.json", lambda _: data))).text
    assert "having another value (replace_one)" in text and "Guessing which of two values the record has" in text
    assert "The plan was fixed and priced before the first question" in text


# --- bad folders ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("run.json", None, "lacks run.json"),
        ("statement.json", None, "lacks statement.json"),
        ("run.json", "{", "not a JSON document"),
        ("run.json", "[]", "not a JSON object"),
        ("run.json", "{}", "run.json lacks 'classes'"),
        ("trace.json", '{"rows": [{}]}', "trace.json: rows[0] lacks 'clip'"),
        ("trace.json", '{"rows": 3}', "trace.json: rows is not a list"),
        ("trace.json", "[" * 100_000, "not a JSON document"),
        ("evaluation.json", "{}", "not a JSON array"),
        ("evaluation.json", "[3]", "evaluation.json[0] is not a document with the fields metric"),
        ("comparison.json", "{}", "comparison.json lacks 'adjacency'"),
        ("audit.json", '[{"kind": 3}]', "audit.json[0] lacks 'claimed'"),
        ("statement.json", "{}", "statement"),
        ("statement.json", b"\xff\xfe", "not a JSON document"),
    ],
)
def test_a_bad_folder_is_one_line_that_names_the_file(changed, name, content, reason):
    folder = changed("run.json", lambda run: None)
    if content is None:
        (folder / name).unlink()
    elif isinstance(content, bytes):
        (folder / name).write_bytes(content)
    else:
        (folder / name).write_text(content, encoding="utf-8")
    runs.reseal(folder)
    with pytest.raises(ValueError, match=re.escape(reason)) as told:
        write_report(folder)
    assert name in str(told.value) and "\n" not in str(told.value)
    assert not (folder / "report.html").exists()


def test_a_folder_that_was_changed_is_refused(changed):
    folder = changed("run.json", lambda run: None)
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    (folder / "run.json").write_text(json.dumps(run | {"warnings": []}), encoding="utf-8")
    with pytest.raises(ValueError, match="json was changed since it was sealed"):
        report_page(folder)


def test_a_statement_that_does_not_hold_gets_no_report(changed):
    def stronger(statement):
        statement["promise"]["epsilon"] = 0.1

    with pytest.raises(ValueError, match="does not hold"):
        report_page(changed("statement.json", stronger))


def test_an_evaluation_on_private_rows_that_nobody_paid_for_is_refused(changed):
    for cost in (None, 0.0, -1.0, float("nan"), float("inf")):
        folder = changed(
            "evaluation.json", lambda rows, cost=cost: [row | {"rows": "private", "epsilon": cost} for row in rows]
        )
        with pytest.raises(ValueError, match="does not say what it cost"):
            report_page(folder)
    with pytest.raises(ValueError, match="'public' or 'private'"):
        report_page(changed("evaluation.json", lambda rows: [row | {"rows": "secret"} for row in rows]))


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_says_where_it_wrote(ready, tmp_path):
    out = tmp_path / "new" / "page.html"
    told = CliRunner().invoke(app, ["report", str(ready), "--out", str(out)])
    assert told.exit_code == 0 and told.stdout == f"Written: {out}\n"
    assert out.read_text(encoding="utf-8") == report_page(ready)
    assert [file.name for file in out.parent.iterdir()] == ["page.html"], "no half-written file stays"
    told = CliRunner().invoke(app, ["report", str(ready), "--out", str(out), "--json"])
    assert json.loads(told.stdout)["report"] == str(out)


def test_the_page_goes_into_the_run_folder_by_default(changed):
    folder = changed("run.json", lambda run: None)
    assert CliRunner().invoke(app, ["report", str(folder)]).exit_code == 0
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("arguments", [["missing"], ["."], ["RUN", "--out", "."]])
def test_bad_input_is_one_line_and_exit_code_2(ready, tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    chosen = [str(ready) if argument == "RUN" else argument for argument in arguments]
    monkeypatch.setattr("sys.argv", ["noisewise", "report", *chosen])
    with pytest.raises(SystemExit) as stopped:
        main()
    told = capsys.readouterr()
    assert stopped.value.code == 2 and told.out == "" and told.err.count("\n") == 1 and "pass" in told.err


def test_help_has_an_example():
    assert "Example: noisewise report" in CliRunner().invoke(app, ["report", "--help"]).output


def figured(rows):
    """Evaluations with figures, hostile ones among them."""
    metrics = {"accuracy": {"value": 0.8, "interval": [0.7, 0.9]}, "roc_auc": {"value": None, "interval": None}}
    more = {"log_loss": {"value": 0.4, "interval": [0.3, 0.5]}, "not a figure": {"value": 1.0, "interval": None}}
    curve = [{"predicted": 0.1, "observed": 0.2, "share": 0.5}, {"predicted": 0.9, "observed": 0.8, "share": 0.5}]
    confusion = {"classes": [HOSTILE[0], "b"], "counts": [[5, 1], [2, 7]]}
    told = {"metrics": metrics | more, "verdict": HOSTILE[1], "confusion": confusion, "calibration": curve}
    return [row | told for row in rows]


def test_all_figures_of_an_evaluation_are_shown_and_escaped(changed):
    page = report_page(changed("evaluation.json", figured))
    assert page.count("calibration-0-title") == page.count("calibration-1-title") == 2  # the latest, and the one before
    assert "Not to be had from these rows or this budget: ROC AUC." in page and "not a figure" not in page
    assert "80 to" not in page and "70 to 90\xa0%" in page and "predicted 10\xa0%, observed 20\xa0%" in page
    assert HOSTILE[0] not in page and HOSTILE[1] not in page


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("metrics", [1]), ("metrics", {"accuracy": 3}), ("metrics", {"accuracy": {"value": 1.0, "interval": [1.0]}}),
        ("verdict", 3), ("confusion", {"classes": ["a"], "counts": [[1, 2]]}), ("confusion", {"classes": ["a"], "counts": 3}),
        ("calibration", [{"predicted": "x", "observed": 0.1, "share": 1.0}]),
    ],
)  # fmt: skip
def test_figures_of_another_kind_are_refused(changed, name, value):
    with pytest.raises(ValueError, match=r"evaluation\.json"):
        report_page(changed("evaluation.json", lambda rows: [row | {name: value} for row in figured(rows)]))
