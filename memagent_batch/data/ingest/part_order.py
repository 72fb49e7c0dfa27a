"""The order of the rows of a document: by numbers, times or texts, and never by a mixture of them."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

from memagent_batch.errors import InputError

_NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)", re.IGNORECASE)
_TIME_WITH_OFFSET = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*(Z|[+-]\d\d:?\d\d)")
_JSON_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def order_rows(
    orders: Sequence[Sequence[str]], *, names: Sequence[str], document_id: str, place_of: Callable[[int], str]
) -> list[int]:
    """The numbers of the rows of a document in order.

    A column whose values in this document are all numbers counts as numbers, one whose values are all times with an
    offset as instants, else as texts.

    Args:
        orders: The values of `input.order_columns` in each row.
        names: These columns.
        document_id: The document, for messages.
        place_of: Says where a row stands, for messages.

    Raises:
        InputError: two rows have the same place in the order, or their values would be in a wrong order as texts.
    """
    columns = list(zip(*orders, strict=True))
    for name, values in zip(names, columns, strict=True):
        _require_one_order(values, name=name, document_id=document_id, place_of=place_of)
    keys = list(zip(*map(_ordered, columns), strict=True))
    order = sorted(range(len(orders)), key=keys.__getitem__)
    for one, other in pairwise(order):
        if keys[one] == keys[other]:
            raise InputError(
                f"document_id {document_id!r}: two rows have the same place in its order ({', '.join(names)}: "
                f"{', '.join(orders[one])}): {place_of(one)} and {place_of(other)}; drop one, or name further columns "
                "with input.order_columns"
            )
    return order


def _ordered(values: Sequence[str]) -> Sequence[Any]:
    if all(map(_JSON_NUMBER.fullmatch, values)):
        return [Decimal(value) for value in values]
    instants = [_instant(value) for value in values]
    return values if None in instants else instants


def _instant(value: str) -> datetime | None:
    """The instant that an ISO 8601 time with an offset names; None for any other text."""
    if not _TIME_WITH_OFFSET.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def _require_one_order(values: Sequence[str], *, name: str, document_id: str, place_of: Callable[[int], str]) -> None:
    """Refuses values that would be in a wrong order as texts: 1, 10, 2 beside 10a, or times with and without offset."""
    texts = [value for value in values if not _JSON_NUMBER.fullmatch(value)]
    if not texts:
        return
    local = [value for value in values if _instant(value) is None]
    if local and len(local) < len(values):
        odd, remedy = local[0], "have times with an offset; give this one an offset too"
    elif len(texts) == len(values):
        return
    elif all(map(_NOT_FINITE.fullmatch, texts)):
        odd, remedy = texts[0], "have numbers; give this one a number, or drop it"
    elif not _is_order_of_texts([value for value in values if _JSON_NUMBER.fullmatch(value)]):
        odd = texts[0]
        remedy = "have numbers, which would be ordered as texts (1, 10, 2); number all, or write 01, 02, 10"
    else:
        return
    raise InputError(
        f"document_id {document_id!r}: {place_of(values.index(odd))}: {name} is {odd}, and its other rows {remedy}"
    )


def _is_order_of_texts(numbers: Sequence[str]) -> bool:
    """Whether numbers have the same order as texts."""
    as_texts = sorted(numbers)
    return as_texts == sorted(as_texts, key=Decimal)
