from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.loop.texts.locators import LocatedRow, located, locators

ROWS = [
    LocatedRow(char_start=0, char_end=5, locator="page 1"),
    LocatedRow(char_start=7, char_end=7, locator="page 2"),
    LocatedRow(char_start=9, char_end=12, locator="page 3"),
]


def test_located_names_one_place_or_the_first_and_the_last() -> None:
    assert located(ROWS, char_start=1, char_end=5) == "page 1"
    assert located(ROWS, char_start=4, char_end=10) == "page 1 to page 3"
    assert located(ROWS, char_start=5, char_end=9) is None
    unnamed = [LocatedRow(char_start=0, char_end=5, locator=""), *ROWS[1:]]
    assert located(unnamed, char_start=1, char_end=5) is None
    assert located(unnamed, char_start=1, char_end=12) == "page 3"


@given(
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=8), span=st.tuples(st.integers(0, 40), st.integers(0, 40))
)
def test_locators_are_those_of_the_characters(lengths: list[int], span: tuple[int, int]) -> None:
    rows, owners = [], list[str | None]()
    for number, length in enumerate(lengths):
        rows.append(LocatedRow(char_start=len(owners), char_end=len(owners) + length, locator=str(number)))
        owners += [str(number)] * length + [None]
    start, end = span
    wanted = dict.fromkeys(owner for owner in owners[start:end] if owner is not None)
    assert locators(rows, char_start=start, char_end=end) == tuple(wanted)
