"""One page, in whatever state the run is, whatever the policy wrote."""

import math
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from peira.errors import RunError
from peira.plots.report import verdict, write_report
from peira.runs.evaluation import Estimate, EvalRecord
from peira.runs.ledger import Count, LedgerEntry
from peira.runs.writer import RunWriter
from tests.unit.plots.synthetic_run import write_eval, write_run


class Page(HTMLParser):
    """Elements and visible words of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words = ""
        self.source = path.read_text(encoding="utf-8")
        self._inside = ""
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.words += " ".join(data.split()) + " "

    @property
    def text(self) -> str:
        return " ".join(self.words.split())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "addition"
    write_run(folder, steps=40, groups=4, members=6, resume_at=25)
    return folder


@pytest.fixture(scope="module")
def page(finished: Path) -> Page:
    return Page(write_report(finished, changed={"optimizer.lr": (1e-5, 1e-6), "data.sources": ([], ["x"])}))


def test_the_verdict_is_the_held_out_change_with_its_intervals(page: Page, finished: Path) -> None:
    from peira.runs.reader import RunReader

    first, *_, last = RunReader(finished).evals()
    before, after = first.headline_estimate, last.headline_estimate
    assert (
        f"Held-out accuracy {100 * before.value:.1f} % → {100 * after.value:.1f} % "
        f"{100 * (after.value - before.value):+.1f} points" in page.text
    )
    assert f"95 % interval {100 * after.low:.1f} % to {100 * after.high:.1f} %" in page.text
    assert "finished, 40 of 40 steps taken" in page.text


def test_the_ledger_is_shown_as_a_sum(page: Page, finished: Path) -> None:
    from peira.runs.reader import RunReader

    total = RunReader(finished).ledger().total
    assert f"{total.generated.rollouts:,} generated = {total.trained.rollouts:,} trained on" in page.text
    assert "✓ balances" in page.text
    assert f"sum of the above {total.generated.rollouts:,} {total.generated.tokens:,}" in page.text
    assert "Resumes took out 72 further rollouts" in page.text  # 3 steps of 4 groups of 6


def test_what_was_not_finite_is_pointed_out(page: Page) -> None:
    assert "policy/grad_norm was not a finite number" in page.text
    assert "at step 13" in page.text


def test_settings_away_from_their_default_are_listed(page: Page) -> None:
    assert "optimizer.lr 1e-05 1e-06" in page.text


def test_the_page_asks_nothing_of_the_network(page: Page) -> None:
    assert "default-src 'none'" in page.source
    outside = [
        (tag, name, value)
        for tag, name, value in page.attributes
        if name in ("src", "srcset", "data", "action", "poster")
        or (name == "href" and not value.startswith("#"))
    ]
    assert outside == []
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest", page.source)


def test_nothing_the_policy_wrote_becomes_markup(page: Page) -> None:
    assert page.tags.count("script") == 2  # the payload and the page's own
    assert not {"img", "iframe", "object", "i-hostile"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert "document.title='owned'" not in page.source


def test_every_chart_says_in_words_what_it_shows(page: Page) -> None:
    labels = [value for tag, name, value in page.attributes if tag == "svg" and name == "aria-label"]
    assert len(labels) == page.tags.count("svg") > 20
    assert all(len(label) > 20 for label in labels)


def test_an_empty_folder_has_a_page(tmp_path: Path) -> None:
    page = Page(write_report(tmp_path))
    assert "Nothing has been measured yet" in page.text
    assert "empty" in page.text
    assert "payload" not in [value for _, name, value in page.attributes if name == "id"]


def test_a_missing_folder_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="expected a folder"):
        write_report(tmp_path / "nothing")


def test_a_run_under_way_has_a_page(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, "steps: 10\n") as run:
        run.write_metrics(1, {"reward/mean": 0.25, "time/step_s": 2.0})
        page = Page(write_report(tmp_path))
    assert "running, 1 of 10 steps taken" in page.text
    assert "Training reward 0.25" in page.text


def test_a_killed_run_says_so(tmp_path: Path) -> None:
    run = RunWriter.create(tmp_path, "steps: 10\n")
    run.write_metrics(1, {"reward/mean": 0.25})
    run._lock.release()  # as the kernel does when a process dies
    page = Page(write_report(tmp_path))
    assert "killed after 1 of 10 steps" in page.text
    assert "The run did not end as planned" in page.text


def test_a_run_that_stopped_says_why(tmp_path: Path) -> None:
    run = RunWriter.create(tmp_path, "steps: 10\n")
    run.write_metrics(1, {"reward/mean": 0.25})
    run.close(KeyError("<b>why</b>"))
    page = Page(write_report(tmp_path))
    assert "stopped after 1 of 10 steps with exit code 1" in page.text
    assert "KeyError: '<b>why</b>'" in page.text


def test_a_folder_with_one_evaluation_has_a_page(tmp_path: Path) -> None:
    import random

    with RunWriter.create(tmp_path, "model: x\n") as run:
        write_eval(run, 0, 0.4, random.Random(0))
    page = Page(write_report(tmp_path))
    assert re.search(r"Held-out accuracy \d+\.\d %", page.text)
    assert "Held-out questions 120" in page.text
    assert "Where every sample went" not in page.text


def test_a_ledger_that_does_not_balance_is_a_grave_finding(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, "a: 1") as run:
        run.write_ledger(LedgerEntry(step=1, generated=Count(4, 8), trained=Count(4, 8)))
    file = tmp_path / "ledger.jsonl"
    file.write_text(file.read_text().replace('"trained":4', '"trained":3'))
    page = Page(write_report(tmp_path))
    assert "The ledger does not balance" in page.text
    assert "✗ does not balance" in page.text
    assert "4 generated ≠ 3 trained on" in page.text


def test_nothing_but_nan_has_a_page(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, "a: 1") as run:
        for step in (1, 2):
            run.write_metrics(step, {"reward/mean": math.nan, "policy/loss": math.inf})
    page = Page(write_report(tmp_path))
    assert "reward/mean was not a finite number" in page.text
    assert "nothing recorded" in page.text


def test_settings_that_are_not_yaml_are_shown_as_they_are(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, "a: [1\n</pre><script>x</script>"):
        pass
    page = Page(write_report(tmp_path))
    assert page.tags.count("script") == 1
    assert "</pre><script>x</script>" in page.text


def test_metrics_of_another_version_are_shown_rather_than_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "time": 0, "old/name": 3.0}\n')
    assert "old/name" in Page(write_report(tmp_path)).text


def test_a_large_run_fits_into_fifteen_megabytes(tmp_path: Path) -> None:
    write_run(tmp_path / "run", steps=12, groups=6, members=6, evals=False, hostile_step=0)
    page = write_report(tmp_path / "run", budget_bytes=40_000)
    assert page.stat().st_size < 40_000 + 250_000  # the charts and the page itself
    assert "To keep this page small it leaves out" in Page(page).text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs the program chromium")
def test_the_browser_of_rollouts_works_in_a_browser(finished: Path, tmp_path: Path) -> None:
    """Runs the page's script: opens the hostile group by its link and reads the document back."""
    path = write_report(finished, out=tmp_path / "page.html")
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=6000", "--dump-dom",
        f"{path.as_uri()}#g/20/0",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    shown = tmp_path / "shown.html"
    shown.write_text(done.stdout, encoding="utf-8")
    page = Page(shown)
    assert "Step 20, group 0" in page.text
    assert "</script><script>document.title='owned'</script><img src=x" in page.text
    assert "<title>addition · peira report</title>" in done.stdout
    assert "img" not in page.tags
    assert page.attributes.count(("section", "class", "card full ")) == 2  # rewards 0 1 0 1 0


def evaluation(step: int, right: int, number: int) -> EvalRecord:
    share = right / number
    return EvalRecord(
        step=step,
        policy_version=step,
        headline="accuracy",
        estimates={
            "accuracy": Estimate(value=share, low=share - 0.2, high=share + 0.2, num_questions=number)
        },
        num_questions=number,
        num_completions=number,
    )


@pytest.mark.parametrize(
    ("learnt", "lost", "better"),
    [
        (6, 0, True),  # two-sided sign test: 2 / 2^6 = 0.031 < 0.05
        (5, 0, None),  # 2 / 2^5 = 0.0625
        (0, 6, False),
        (9, 2, None),  # 2 (1 + 11 + 55) / 2^11 = 0.0654
        (10, 2, True),  # 2 (1 + 12 + 66) / 2^12 = 0.0386
        (0, 0, None),
    ],
)
def test_a_change_counts_as_real_by_the_questions_that_changed(
    learnt: int, lost: int, better: bool | None
) -> None:
    records = [evaluation(0, 20, 40), evaluation(9, 20 + learnt - lost, 40)]
    found = verdict([], records, (learnt, lost))
    assert found.better is better
    assert f"{learnt} questions learnt, {lost} lost" in found.small_print
    assert ("may be chance" in found.small_print) == (better is None and learnt + lost > 0)


def test_without_the_questions_intervals_that_overlap_are_said_to() -> None:
    overlap = verdict([], [evaluation(0, 20, 40), evaluation(9, 30, 40)])  # 0.3 to 0.7, 0.55 to 0.95
    apart = verdict([], [evaluation(0, 8, 40), evaluation(9, 30, 40)])  # 0.0 to 0.4
    assert (overlap.better, apart.better) == (None, True)
    assert "The intervals overlap" in overlap.small_print
