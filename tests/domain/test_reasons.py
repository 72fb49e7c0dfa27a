from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.loop.reasons import Reason, most_frequent, sum_up


def reason(message: str, *, kind: str = "DocumentError", num: int = 1) -> Reason:
    return Reason(error_type=kind, error_message=message, num_readings=num)


def test_most_frequent_adds_up_messages_that_differ_in_names_places_and_numbers_alone() -> None:
    reasons = [
        reason("s3://b/1.txt: the text can't be fetched (no such file), 7 tries"),
        reason("s3://b/2.txt: the text can't be fetched (no such file), 8 tries", num=2),
        reason("s3://b/3.txt: the text can't be fetched (access denied), 1 tries"),
        reason("question 'who?' is too long", kind="QuestionTooLongError"),
        reason("question 'and what?' is too long", kind="QuestionTooLongError"),
    ]
    first, second, third = most_frequent(reasons, limit=3)
    assert (first.num_readings, first.error_message) == (3, reasons[0].error_message)
    assert (second.num_readings, second.error_type) == (2, "QuestionTooLongError")
    assert third.num_readings == 1
    assert most_frequent(reasons, limit=1) == [first]


def test_most_frequent_tells_types_apart() -> None:
    assert len(most_frequent([reason("away"), reason("away", kind="E")], limit=5)) == 2


@given(st.lists(st.builds(reason, st.text(max_size=30), num=st.integers(1, 9)), max_size=20))
def test_most_frequent_loses_no_reading(reasons: list[Reason]) -> None:
    found = most_frequent(reasons, limit=len(reasons))
    assert sum(item.num_readings for item in found) == sum(item.num_readings for item in reasons)
    assert most_frequent(found, limit=len(reasons)) == found


def test_sum_up_is_one_line_of_bounded_length() -> None:
    line = sum_up([reason("two\nlines"), reason("x" * 10_000, num=3)])
    assert line.startswith("1 x DocumentError: two lines; 3 x DocumentError: xxx")
    assert len(line) < 500
