import math

import pytest

from peira.algorithms.fate import drift, group_gain, noise_free, pass_rate, predict, verdict_of
from peira.errors import ConfigError


@pytest.mark.parametrize(
    ("size", "at_05", "at_10", "at_50"),
    [
        (2, 1.0, 1.0, 1.0),
        (4, 1.7100, 1.6903, 1.6160),
        (8, 2.4731, 2.3277, 1.8557),
        (16, 3.2671, 2.8478, 1.9341),
        (64, 4.3364, 3.2548, 1.9842),
        (None, 4.5883, 3.3333, 2.0),
    ],
)
def test_the_gap_between_accepted_and_rejected(size, at_05, at_10, at_50):
    assert group_gain(0.05, size) == pytest.approx(at_05, abs=1e-4)
    assert group_gain(0.1, size) == pytest.approx(at_10, abs=1e-4)
    assert group_gain(0.5, size) == pytest.approx(at_50, abs=1e-4)
    assert group_gain(0.95, size) == pytest.approx(group_gain(0.05, size))


def test_the_gap_at_the_ends_is_its_limit():
    assert group_gain(0.0, 8) == pytest.approx(math.sqrt(7))
    assert group_gain(1.0, 8) == pytest.approx(group_gain(1 - 1e-12, 8), abs=1e-4)
    assert group_gain(0.0, None) == math.inf


RATES = [
    # fpr, fnr, drift at 1/2, then p at 10, 50, 200, 1000
    (0.0, 0.0, -0.125, (0.035762, 0.001592, 0.000100, 0.000004)),
    (0.2, 0.2, -0.075, (0.104174, 0.015783, 0.003526, 0.000676)),
    (0.4, 0.4, -0.025, (0.282691, 0.063055, 0.013562, 0.002520)),
    (0.5, 0.5, 0.0, (0.5, 0.5, 0.5, 0.5)),
    (0.6, 0.5, 0.012563, (0.620833, 0.866949, 0.971145, 0.994855)),
    (0.6, 0.6, 0.025, (0.717309, 0.936945, 0.986438, 0.997480)),
    (0.7, 0.0, -0.052511, (0.114011, 0.005576, 0.000338, 0.000013)),
    (0.0, 0.7, -0.052511, (0.178568, 0.034927, 0.008048, 0.001550)),
    (0.2, 0.1, -0.087941, (0.077646, 0.010440, 0.002283, 0.000436)),
]


@pytest.mark.parametrize(("positive", "negative", "slope", "masses"), RATES)
def test_drift_and_trajectory(positive, negative, slope, masses):
    noise = {"false_positive_rate": positive, "false_negative_rate": negative}
    assert drift(0.5, **noise) == pytest.approx(slope, abs=1e-6)
    assert predict(0.5, [10.0, 50.0, 200.0, 1000.0], **noise) == pytest.approx(masses, abs=2e-6)


def test_without_noise_the_closed_form_holds():
    times = [2.0, 4.0, 10.0, 50.0]
    got = predict(0.5, times, false_positive_rate=0.0, false_negative_rate=0.0)
    assert got == pytest.approx([0.276393, 0.146447, 0.035762, 0.001592], abs=1e-6)
    assert [noise_free(0.5, t) for t in times] == pytest.approx(got, rel=1e-5)
    # u = -1: 1/2 - 1/2 / sqrt(5)
    assert noise_free(0.5, 2.0) == pytest.approx(0.5 - 0.5 / math.sqrt(5))


def test_tails_follow_their_power_laws():
    late = predict(0.5, [5000.0], false_positive_rate=0.2, false_negative_rate=0.2)[0]
    assert 5000 * late == pytest.approx(0.6690, abs=1e-3)
    late = predict(0.5, [1000.0], false_positive_rate=0.2, false_negative_rate=0.0)[0]
    assert 1000**2 * late == pytest.approx(5.003, abs=5e-3)


def test_mirrored_noise_mirrors_the_trajectory():
    good = predict(0.5, [10.0], false_positive_rate=0.4, false_negative_rate=0.4)[0]
    bad = predict(0.5, [10.0], false_positive_rate=0.6, false_negative_rate=0.6)[0]
    assert good + bad == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("positive", "negative", "at_200", "at_2000"),
    [
        (0.2, 0.2, 0.1154, 0.0086),
        (0.4, 0.4, 0.2948, 0.0316),
        (0.6, 0.6, 0.7052, 0.9684),
        (0.6, 0.5, 0.6125, 0.9315),
        (0.0, 0.7, 0.2049, 0.0189),
        (0.7, 0.0, 0.1874, 0.0143),
    ],
)
def test_eight_rollouts_at_a_small_rate(positive, negative, at_200, at_2000):
    got = predict(
        0.5,
        [200.0, 2000.0],
        false_positive_rate=positive,
        false_negative_rate=negative,
        rate=0.05,
        group_size=8,
    )
    # the table was made in Euler steps of one update, which is what a run does; the curve is a little behind
    assert got == pytest.approx([at_200, at_2000], abs=1e-3)
    mass, seen = 0.5, []
    for step in range(1, 2001):
        mass += drift(
            mass, false_positive_rate=positive, false_negative_rate=negative, rate=0.05, group_size=8
        )
        if step in (200, 2000):
            seen.append(mass)
    assert seen == pytest.approx([at_200, at_2000], abs=6e-5)


def test_the_finite_group_narrows_the_gap_between_kinds_of_noise():
    # at p = .872 with J = .3: large groups -.00850 and -.01945, eight rollouts -.00751 and -.00938
    for size, by_positive, by_negative in ((None, -0.00850, -0.01945), (8, -0.00751, -0.00938)):
        got = drift(0.872, false_positive_rate=0.7, false_negative_rate=0.0, group_size=size)
        assert got == pytest.approx(by_positive, abs=1e-5)
        got = drift(0.872, false_positive_rate=0.0, false_negative_rate=0.7, group_size=size)
        assert got == pytest.approx(by_negative, abs=1e-5)


def test_pass_rate_and_absorbing_ends():
    assert pass_rate(0.5, false_positive_rate=0.2, false_negative_rate=0.2) == pytest.approx(0.5)
    assert drift(0.0, false_positive_rate=0.0, false_negative_rate=0.0) == 0.0
    assert drift(1.0, false_positive_rate=0.6, false_negative_rate=0.6) == 0.0


@pytest.mark.parametrize("mass", [0.0, 1.0, -0.1])
def test_a_start_at_the_edge_is_refused(mass):
    with pytest.raises(ConfigError, match="inside"):
        predict(mass, [1.0], false_positive_rate=0.0, false_negative_rate=0.0)


def test_times_must_rise():
    with pytest.raises(ConfigError, match="rise"):
        predict(0.5, [2.0, 1.0], false_positive_rate=0.0, false_negative_rate=0.0)


def test_fate_in_a_word():
    assert [verdict_of(0.1, 0.3), verdict_of(-0.3, -0.1), verdict_of(-0.1, 0.1)] == [
        "learns",
        "unlearns",
        "unknown",
    ]
