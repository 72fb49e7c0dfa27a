"""Shows cells of workbooks by their number formats, and notes what differs from the display of Excel."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache

from memagent_batch.data.ingest.readers.date_formats import DAY_0
from memagent_batch.data.ingest.readers.format_codes import is_translated
from memagent_batch.data.ingest.readers.marks import struck_out
from memagent_batch.data.ingest.readers.number_formats import NumberFormat, general, parse_number

REMEMBERED_NUMBERS = 1 << 14
"""Size of the cache of displayed numbers of a format: cells often repeat."""
LOCAL_CURRENCY = "some numbers have the currency of the computer on which they are shown; none is written here"
TRANSLATED = "some dates and numbers are shown in another language, calendar or digits; they are written in English"
HIDDEN = "the formats of some cells show nothing, or #### in place of a date: their values are read as they are stored"


class CellFormat:
    """The number format of cells."""

    def __init__(
        self,
        code: str,
        *,
        epoch_1904: bool,
        is_struck: bool = False,
        has_local_currency: bool = False,
        symbol_font: str | None = None,
    ) -> None:
        self._format, self._epoch_1904 = NumberFormat(code, epoch_1904=epoch_1904), epoch_1904
        self._is_general, self._is_struck = code.lower() == "general", is_struck
        self._is_translated, self._has_local_currency, self._is_used = is_translated(code), has_local_currency, False
        self.symbol_font = symbol_font
        """Name of the font of the cells if its letters are symbols, such as Wingdings."""
        self.number = lru_cache(maxsize=REMEMBERED_NUMBERS)(self._number)
        """Returns what Excel displays of a stored number."""

    def notes(self) -> Iterator[str]:
        """Yields notes on how the cells that were read with this format differ from the display of Excel."""
        if self._is_used and self._has_local_currency:
            yield LOCAL_CURRENCY
        if self._is_used and self._is_translated:
            yield TRANSLATED
        if self._format.has_hidden:
            yield HIDDEN

    def _number(self, value: str) -> str:
        self._is_used = True
        try:
            text = general(value) if self._is_general else self._format.describe(parse_number(value))
        except ValueError:
            text = value
        return self._marked(" ".join(text.split()))

    def text(self, text: str) -> str:
        """Returns a text as Excel displays it."""
        return self._marked(self._format.describe_text(text))

    def _marked(self, text: str) -> str:
        return struck_out(text) if self._is_struck else text

    def date(self, value: str) -> str:
        """Returns what Excel displays of a date that is stored as `2026-02-01T18:00:00`."""
        try:
            days = (datetime.fromisoformat(value).replace(tzinfo=None) - DAY_0[self._epoch_1904]) / timedelta(days=1)
        except ValueError:
            return value
        return value if self._is_general else self.number(str(days))
