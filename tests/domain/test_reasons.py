from memagent_batch.loop.reasons import Reason, sum_up


def reason(message: str, *, kind: str = "DocumentError", num: int = 1) -> Reason:
    return Reason(error_type=kind, error_message=message, num_readings=num)


def test_key_is_the_same_for_messages_that_differ_in_names_places_and_numbers_alone() -> None:
    first = reason("s3://b/1.txt: the text can't be fetched (no such file), 7 tries")
    assert reason("s3://b/2.txt: the text can't be fetched (no such file), 8 tries", num=2).key == first.key
    assert reason("s3://b/3.txt: the text can't be fetched (access denied), 1 tries").key != first.key
    assert reason(first.error_message, kind="QuestionTooLongError").key != first.key
    assert reason("question 'who?' is too long").key == reason("question 'and what?' is too long").key


def test_sum_up_is_one_line_of_bounded_length() -> None:
    line = sum_up([reason("two\nlines"), reason("x" * 10_000, num=3)])
    assert line.startswith("1 x DocumentError: two lines; 3 x DocumentError: xxx")
    assert len(line) < 500
