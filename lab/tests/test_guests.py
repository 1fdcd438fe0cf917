import pytest

from noisewise_lab.guests import SPEC, guest_rows


def test_a_question_is_timed_as_an_object_and_as_a_guest():
    try:
        rows = guest_rows(5, questions=10, rounds=1)
    except ValueError as error:
        if "no sandbox" not in str(error):
            raise
        pytest.skip("no sandbox here: bubblewrap is missing or user namespaces are off")
    assert [row["method"] for row in rows] == ["object", "guest"] and rows[0]["more"] == 0
    assert SPEC.startswith("noisewise_lab.")
