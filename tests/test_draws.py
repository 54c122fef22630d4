"""Cases that share a test fail by name, all of them, and none goes untried."""

import pytest
from tests.draws import together

tried = []


def odd(number):
    tried.append(number)
    assert number % 2 == 0, "odd"
    if number == 8:
        raise KeyError("eight")


def test_every_case_of_a_test_is_tried_and_all_that_fail_are_said():
    test = together("number", range(1, 12), size=5, called=lambda number: f"no. {number}")(odd)
    (mark,) = test.pytestmark
    assert (mark.args[0], mark.args[1]) == ("number", [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11]])
    assert mark.kwargs["ids"] == ["no. 1 and 4 more", "no. 6 and 4 more", "no. 11 and 0 more"]
    said = []
    for part in mark.args[1]:
        with pytest.raises(AssertionError) as failed:
            test(number=part)
        said += [line for line in str(failed.value).splitlines() if line.startswith("no. ")]
    assert tried == list(range(1, 12))
    assert [line.split(":")[0] for line in said] == ["no. 1", "no. 3", "no. 5", "no. 7", "no. 8", "no. 9", "no. 11"]
    assert said[4] == "no. 8: KeyError: 'eight'"
    test(number=[2, 4])


def test_fixtures_are_given_to_every_case(tmp_path):
    seen = []

    def looks(name, tmp_path):
        seen.append((name, tmp_path))

    together("name", "ab")(looks)(name=["a", "b"], tmp_path=tmp_path)
    assert seen == [("a", tmp_path), ("b", tmp_path)]
