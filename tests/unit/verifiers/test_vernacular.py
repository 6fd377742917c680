import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peira.verifiers.proof.vernacular import declares, refusal, sentences


def test_sentences_end_at_a_dot_before_white_space_and_nowhere_else():
    source = 'Definition a := Nat.add 1 2.\n(* x. (* y. *) " *) " z. *)Check "q. ""r. ". Show.'
    assert list(sentences(source)) == ["Definition a := Nat.add 1 2", 'Check "q. ""r. "', "Show"]


@pytest.mark.parametrize("source", ["Qed", "(* x", 'Check "x', "(* (* *)", '(* "*) ', "exact I.x"])
def test_what_has_no_end_is_unfinished(source):
    assert list(sentences(source))[-1] is None
    assert refusal(source).startswith("unfinished")


@pytest.mark.parametrize("source", ["", "  ", "{ }", "- ", "Proof. - exact I.\n}\n"])
def test_bullets_and_braces_need_no_dot(source):
    assert refusal(source) is None


@pytest.mark.parametrize(
    "source",
    [
        "Theorem t : True. Proof. exact I. Qed.",
        "Require Import Arith. From Coq Require Import Lia.",
        "#[local] Lemma t : True. Proof using. - exact I. Qed.",
        '#[deprecated(since="8.1", note="a ] b")] Definition a := 1.',
        "all: auto. 1: { auto. } 2-3: auto. [g]: auto. !: auto.",
        "Time Timeout 5 Fail Check nat.",
        "Ltac Solve := auto. Theorem t : True. Solve. Qed.",
        "Fixpoint f (n : nat) := 0. Set Implicit Arguments. Unset Printing Notations.",
        "(auto || easy). [> auto | auto].",
        "(* Declare ML Module. Redirect. *) Check nat.",
        "Admitted. Axiom a : False. Hypothesis b : False.",  # no proof, but no danger: the kernel tells
    ],
)
def test_ordinary_developments_pass(source):
    assert refusal(source) is None


@pytest.mark.parametrize(
    "source",
    [
        'Declare ML Module "x".',
        'Global Declare ML Module "x".',
        '#[local] Declare ML Module "x".',
        '(* *) {  - 1: Time Declare ML Module "x". }',
        'Redirect "x" Print nat.',
        'Time Redirect "x" Print nat.',
        'Extraction "x.ml" nat.',
        "Recursive Extraction nat.",
        'Load "x".',
        'Add LoadPath "x".',
        'Add ML Path "x".',
        'Cd "x".',
        'Print Universes "x".',
        'Require "x".',
        "Unset Guard Checking.",
        "Unset Positivity Checking.",
        "Unset Universe Checking.",
        "Local Unset Guard Checking.",
        "#[bypass_check(guard)] Fixpoint f (n : nat) : False := f n.",
        "#[ local , bypass_check(universes) ] Definition a := 1.",
        '#[deprecated(note="x"), bypass_check(guard)] Definition a := 1.',
        "#[unclosed Definition a := 1.",
        "Primitive int := #int63_type.",
        "Register nat as kernel.ind_bool.",
        "Drop.",
        "Quit.",
        "exact I. native_compute. Qed.",
        "\u0394eclare ML Module.",
    ],
)
def test_what_runs_code_touches_files_or_switches_checks_off_is_refused(source):
    assert refusal(source) is not None


def test_an_exception_is_named_command_or_attribute_by_name():
    assert refusal("Unset Guard Checking.", ("Unset Guard",)) is None
    assert refusal("#[bypass_check(guard)] Definition a := 1.", ("bypass_check", "guard")) is None


def test_a_declaration_is_told_from_a_mention():
    assert declares("#[local] Theorem foo : True", "foo")
    assert declares("Program Definition foo := 1", "foo")
    assert not declares("Theorem foo' : True", "foo")
    assert not declares("apply foo", "bar")
    assert not declares("Check nat foo", "foo")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ['"', "(*", "(", "#[", "- ", "{", "1:", 'x"" ', "*)", ". ", "Time ", "a."])
def test_hostile_repetition_takes_linear_time(piece):
    refusal(piece * 50_000)


PIECES = st.sampled_from(
    ["(*", "*)", '"', ". ", ".", "#[", "]", "{", "- ", "1:", "Declare ML Module", "Time", "x", "\n"]
)


@given(st.lists(PIECES | st.text(max_size=3), max_size=30).map("".join))
@settings(max_examples=500, deadline=None)
def test_any_text_at_all_is_refused_or_passed(text):
    assert refusal(text) is None or isinstance(refusal(text), str)


@given(st.lists(PIECES, max_size=12).map("".join))
@settings(max_examples=500, deadline=None)
def test_a_dangerous_command_is_never_passed_once_what_went_before_has_ended(text):
    # whatever the text was, an honest sentence end follows, then the command
    if list(sentences(text + " . "))[-1:] != [None]:
        assert refusal(f'{text} . Declare ML Module "x".') is not None
