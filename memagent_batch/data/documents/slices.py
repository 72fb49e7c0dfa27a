"""Which slice of a corpus a document is in: by a permanent random number of its id, whatever else there is."""

from memagent_batch.config.sources import InputConfig
from memagent_batch.loop.addresses import permanent_number

DIGITS = 15
"""Hex digits of the number that say which slice a document is in: 60 bits."""


def is_in_slice(settings: InputConfig, document_id: str) -> bool:
    """Returns whether a document is in `input.slice`; each one is if there is none."""
    if settings.slice is None:
        return True
    number, count = map(int, settings.slice.split("/"))
    return int(permanent_number("slice", document_id)[:DIGITS], 16) % count == number - 1
