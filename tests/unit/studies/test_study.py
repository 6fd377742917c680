"""What studies share: intervals, verdicts, changes, what is left behind."""

import json
import math

import pytest
from scipy.stats import binom

from peira.cli.main import main
from peira.errors import ConfigError
from peira.studies import STUDIES
from peira.studies.page import write_page
from peira.studies.study import (
    Claim,
    Expected,
    Findings,
    Line,
    Measured,
    Panel,
    Study,
    bootstrapped,
    configured,
    exact,
    find,
    over_seeds,
    run_study,
    share_of,
    write,
)


def between(low, high, value=None):
    return Measured(value=(low + high) / 2 if value is None else value, low=low, high=high, num_seeds=8)


def small_study(**changes):
    parts = {
        "name": "ustat",
        "setup": "Nothing.",
        "source": "none",
        "arms": {"one": {"name": "grpo"}, "two": {"name": "rloo"}},
        "claims": (
            Claim(name="up", text="It rises.", how="by looking", at_least=0.0),
            Claim(name="late", text="It ends.", how="by waiting", at_most=1.0),
        ),
        "run": lambda setting: Findings(
            measured={"up": between(0.1, 0.3)} | ({} if setting.quick else {"late": exact(2.0)}),
            expected=[Expected(name="height", value=5.0, tolerance=0.1, measured=exact(1.0))],
            panels=[
                Panel(
                    title="a curve",
                    x="step",
                    y="value",
                    lines=[Line(name="one", x=[0, 1], y=[0.0, 1.0], low=[0.0, 0.5], high=[0.1, 1.5])],
                ),
                Panel(title="bars", x="value", y="", bars={"open": between(-math.inf, math.inf, 0.0)}),
            ],
            notes=["a note"],
        ),
        "seeds": 8,
        "quick_seeds": 3,
    }
    return Study(**(parts | changes))


def test_the_interval_of_a_mean_is_students():
    # 1, 2, 3: mean 2, s = 1, standard error 1 / sqrt(3) = .577350, t(.975; 2) = 4.302653 -> half 2.484138
    found = over_seeds([1.0, 2.0, 3.0])
    assert found.value == 2.0
    assert found.low == pytest.approx(2 - 2.484138, abs=1e-5)
    assert found.high == pytest.approx(2 + 2.484138, abs=1e-5)
    assert found.num_seeds == 3


def test_equal_values_have_no_width_and_one_value_has_no_end():
    assert (over_seeds([0.5] * 4).low, over_seeds([0.5] * 4).high) == (0.5, 0.5)
    assert math.isinf(over_seeds([0.5]).high)


def test_the_interval_of_a_share_is_exact():
    found = share_of(13, 16)
    # Clopper-Pearson: at the ends, a result as extreme has the chance .025
    assert binom.sf(12, 16, found.low) == pytest.approx(0.025, abs=1e-6)
    assert binom.cdf(13, 16, found.high) == pytest.approx(0.025, abs=1e-6)
    assert found.low > 0.5 > share_of(12, 16).low


def test_a_bootstrap_is_seeded_and_paired():
    a, b = [1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 6.0, 8.0]
    found = bootstrapped(lambda x, y: float(x.mean() / y.mean()), a, b, paired=True)
    assert found.value == 0.5
    assert found.low == pytest.approx(0.5)  # pairs are drawn together: the ratio is .5 in every resample
    assert found.high == pytest.approx(0.5)
    spread = bootstrapped(lambda x: float(x.mean()), a)
    assert spread.low < 2.5 < spread.high
    assert spread == bootstrapped(lambda x: float(x.mean()), a)


def test_a_verdict_looks_at_the_whole_interval():
    claim = Claim(name="c", text="", how="", at_least=0.0, at_most=1.0)
    assert claim.verdict(between(0.2, 0.8)) == "holds"
    assert claim.verdict(between(0.0, 1.0)) == "holds"
    assert claim.verdict(between(-0.1, 0.8)) == "undecided"
    assert claim.verdict(between(-5, 5)) == "undecided"
    assert claim.verdict(between(1.1, 1.2)) == "does not hold"
    assert claim.verdict(between(-2, -0.1)) == "does not hold"
    assert claim.verdict(None) == "not measured"
    assert claim.verdict(exact(math.nan)) == "undecided"


def test_an_expected_number_is_compared_with_its_own_uncertainty():
    # half an interval of .2, times 1.6, plus a tolerance of .1: .42 is reached, .43 is not
    def agrees(value):
        return Expected(name="n", value=value, tolerance=0.1, measured=between(-0.2, 0.2)).agrees

    assert agrees(0.41)
    assert agrees(-0.41)
    assert not agrees(0.43)


def test_arms_can_be_changed_and_everything_else_is_refused():
    study = small_study()
    assert configured(study, ["one.clip_high=0.5"])["one"].clip_high == 0.5
    assert configured(study, ["one.kl.coefficient=0.5"])["one"].kl.coefficient == 0.5
    assert configured(study)["two"].baseline == "leave_one_out"
    for change, text in (
        ("three.scale=none", "an arm of one, two"),
        ("one", "arm.setting=value"),
        ("one.clip_hihg=0.5", "one.clip_hihg"),
        ("two.repair={kind: sign}", "scale"),
    ):
        with pytest.raises(ConfigError, match=text):
            configured(study, [change])


def test_an_unknown_study_gets_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean 'staleness'"):
        find("stalenes")


def test_one_seed_is_refused():
    with pytest.raises(ConfigError, match="expected 2 or more"):
        run_study(small_study(), num_seeds=1)


def test_a_quick_run_says_what_it_left_out_and_a_full_one_may_leave_out_nothing():
    result = run_study(small_study(), quick=True)
    assert result.setting.num_seeds == 3
    assert result.verdicts() == {"up": "holds", "late": "not measured"}
    with pytest.raises(AssertionError, match="late"):
        run_study(small_study(run=lambda setting: Findings(measured={"up": exact(1.0)})))


def test_record_plot_and_page_are_written(tmp_path):
    folder = tmp_path / "studies"
    data, picture = write(run_study(small_study(), changes=["one.clip_high=0.5"]), folder)
    record = json.loads(data.read_text())  # strict JSON: no NaN, no Infinity
    assert [claim["verdict"] for claim in record["claims"]] == ["holds", "does not hold"]
    assert record["arms"]["one"] == {"name": "grpo", "clip_high": 0.5}
    assert record["changed"] == ["one.clip_high=0.5"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    page = write_page(folder)
    text = page.read_text()
    assert page == tmp_path / "studies.md"
    assert "| It rises. | by looking | >= 0 | 0.2 [0.1, 0.3] | **holds** |" in text
    assert "| It ends. | by waiting | <= 1 | 2 | **does not hold** |" in text
    assert "1 holds, 1 does not hold" in text
    assert "0 of 1 numbers agree" in text
    assert "* height: 1, expected 5" in text
    assert "`one.clip_high=0.5`" in text
    assert "![ustat](studies/ustat.png)" in text


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_arms_that_build_and_claims_that_can_fail(name):
    study = find(name)
    assert study.name == name
    assert set(configured(study)) == set(study.arms)
    names = [claim.name for claim in study.claims]
    assert len(names) == len(set(names))
    for claim in study.claims:
        assert math.isfinite(claim.at_least) or math.isfinite(claim.at_most), claim.name
        assert claim.at_least <= claim.at_most


def test_the_command_prints_the_verdicts_and_ends_with_0_whatever_they_are(tmp_path, capsys, monkeypatch):
    import torch

    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    with pytest.raises(SystemExit) as caught:
        main(
            [
                "study",
                "fipo",
                "fipo.future_kl.low=0.8",
                "--seeds",
                "2",
                "--quick",
                "--out",
                str(tmp_path / "out"),
            ]
        )
    assert not caught.value.code
    text = capsys.readouterr().out
    assert "does not hold" in text
    assert "holds" in text
    assert "changed: fipo.future_kl.low=0.8" in text.replace("\n", " ")
    assert {path.name for path in tmp_path.rglob("*.*")} == {"fipo.json", "fipo.png", "out.md"}


def test_the_command_refuses_an_unknown_study(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["study", "colapse"])
    assert caught.value.code == 2
    assert "did you mean 'collapse'" in capsys.readouterr().err
