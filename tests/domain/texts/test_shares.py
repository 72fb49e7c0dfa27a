import pytest

from memagent_batch.loop.texts.shares import percent


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (0.000001, "0.01 %"),
        (0.5, "50.0 %"),
        (0.9996, "99.96 %"),
        (0.999999, "99.99 %"),
        (1, "100 %"),
        (None, "not known"),
        (1 - 2**-53, "100 %"),
    ],
)
def test_percent_is_certain_only_where_it_is(share: float | None, text: str) -> None:
    assert percent(share) == text
