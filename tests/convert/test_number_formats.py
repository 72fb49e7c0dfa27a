"""Number formats, as Excel displays them in English; test_libreoffice_formats.py compares many with LibreOffice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.data.ingest.readers.format_codes import is_translated
from memagent_batch.data.ingest.readers.number_formats import NumberFormat, parse_number

DISPLAYS = [
    # Digits
    ("0", "1234.5", "1235"),
    ("0.00", "1.005", "1.01"),
    ("#,##0.00", "-1234.5", "-1,234.50"),
    ("#.##", "0.5", ".5"),
    ("#.##", "5", "5."),
    ("0,000", "5", "0,005"),
    (r"000\-00\-0000", "12345678", "012-34-5678"),
    ("(###) ###-####", "5551234567", "(555) 123-4567"),
    ("[<=9999999]###-####;(###) ###-####", "5551234567", "(555) 123-4567"),
    ("#,##0.00_);(#,##0.00)", "1234.5", "1,234.50"),
    ("#,##0.00_);(#,##0.00)", "-1234.5", "(1,234.50)"),
    # Scale and percent
    ('$#,##0.0,,"M"', "2500000", "$2.5M"),
    ("0.00%", "0.12345", "12.35%"),
    ('0.0"%"', "12.5", "12.5%"),
    # Sections
    ('0 "Dr";0 "Cr"', "-500", "500 Cr"),
    ('"profit "0;"loss "0;"even"', "0", "even"),
    ("@", "12", "12"),
    ('0;"minus "0', "-3", "minus 3"),
    ('_-* #,##0.00_-;-* #,##0.00_-;_-* "-"??_-;_-@_-', "0", "-"),
    ('_(* #,##0_);_(* \\(#,##0\\);_(* "-"_);_(@_)', "-1200", "(1,200)"),
    # Conditions
    ('[>=1000000]0.0,,"M";[>=1000]0.0,"K";0', "1500000", "1.5M"),
    ('[>=1000000]0.0,,"M";[>=1000]0.0,"K";0', "500", "500"),
    ("[>=100]0;0.00", "99.5", "99.50"),
    ('[=1]"one";[=2]"two";0', "2", "two"),
    ('[<0]"below "0;0', "-4", "below 4"),
    ('[<=-1000]-0.0,"K";0', "-2500", "-2.5K"),
    # Currencies and words
    ("[$-409]#,##0.00", "1234.5", "1,234.50"),
    ("_-* #,##0.00 [$₽-419]_-", "1234.5", "1,234.50 ₽"),
    ('#,##0.00\\ "Mio. €"', "1234.5", "1,234.50 Mio. €"),
    ('0" - "0', "12", "1 - 2"),
    ('"a;b "0', "1", "a;b 1"),
    ("[>=-1]0;0", "-2", "2"),
    ("[>=1]0;0", "-2", "-2"),
    ("[<-10]0;[>=100]0.0;0.00", "-25", "25"),
    ("[>=100]0;[<=-100]-0;0.00", "-3.96", "-3.96"),
    # Fractions and exponents
    ("# ??/??", "-1.75", "-1 3/4"),
    ('# ?/8" inches"', "2.5", "2 4/8 inches"),
    ("# ?/10", "0.25", "3/10"),
    ("# ?/?", "0.02", "0"),
    ("0 0/0", "2", "2 0/1"),
    ("0.00E+00", "123456", "1.23E+05"),
    ("##0.0E+0", "999960", "1.0E+6"),
    ("0.0E-0%", "0.125", "1.3E1%"),
    # Dates, times and durations
    ("dddd, d. mmm yy", "46054", "Sunday, 1. Feb 26"),
    ("yyyy-mm-dd hh:mm", "46054.75", "2026-02-01 18:00"),
    ('yyyy"T"hh:mm:ss', "46054.999994", "2026T23:59:59"),
    ("yyyy-mm-dd", "61", "1900-03-01"),
    ("dddd d mmm yyyy", "60", "Wednesday 29 Feb 1900"),
    ("ddd d.m.", "1", "Sun 1.1."),
    ("aaaa d.m.", "46054", "Sunday 1.2."),
    (r"[$-F800]dddd\,\ mmmm\ dd\,\ yyyy", "46054", "Sunday, February 1, 2026"),
    ("[$-x-systime]h:mm:ss AM/PM", "0.75", "6:00:00 PM"),
    ("h:mm AM/PM", "0.75", "6:00 PM"),
    ("h A/P", "0.25", "6 A"),
    ("[mm]:ss", "0.0625", "90:00"),
    ("mm:ss.0", "0.0006597", "00:57.0"),
    ("h:mm:ss", "0.9999999", "0:00:00"),
    ('d" days "h" h"', "3.5", "3 days 12 h"),
]


@pytest.mark.parametrize(("code", "value", "display"), DISPLAYS)
def test_number_is_displayed_as_in_excel(code: str, value: str, display: str) -> None:
    assert NumberFormat(code).display(parse_number(value)) == display


PIECES = (
    "0",
    "#",
    "?",
    ".",
    ",",
    "%",
    "/",
    "E+",
    "@",
    ";",
    '"a"',
    "\\x",
    "_)",
    "* ",
    "[Red]",
    "[>=10]",
    "[$€-407]",
    "16",
    "aaaa",
)
DATE_PIECES = ("[h]", "[mm]", "yyyy", "m", "mmm", "d", "h", "ss", ".0", "AM/PM", "General", "-", "16", '"', "\\", "[")


@given(
    pieces=st.lists(st.sampled_from(PIECES + DATE_PIECES), max_size=9),
    value=st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**20), 10**20),
    epoch_1904=st.booleans(),
)
def test_any_number_is_described_in_any_format(pieces: list[str], value: float, epoch_1904: bool) -> None:
    assert NumberFormat("".join(pieces), epoch_1904=epoch_1904).describe(parse_number(str(value))).strip()


@pytest.mark.parametrize(
    ("code", "is_other"),
    [
        ("[$-407]d. mmmm yyyy", True),
        ("[$-de-DE]dddd", True),
        ("[$-409]d mmm yyyy", False),
        ("[$-en-GB]dddd", False),
        ("[$-407]dd.mm.yyyy", False),
        ("[$-411]h:mm AM/PM", True),
        ("[$-D07041E]d/m/yyyy", True),
        ("[DBNum1][$-804]General", True),
        ('ggge"年"m"月"', True),
        ("#,##0.00 [$€-407]", False),
        ("0.00E+00", False),
        ("[$-F800]dddd, mmmm dd, yyyy", False),
    ],
)
def test_format_of_another_language_is_known(code: str, is_other: bool) -> None:
    assert is_translated(code) == is_other


@pytest.mark.parametrize(
    ("code", "shown"),
    [("@", "abc"), ("0", "abc"), ('"Ref "@', "Ref abc"), (";;;", "abc"), ('0;0;0;"n/a"', "n/a (abc)")],
)
def test_text_is_shown_as_its_format_says(code: str, shown: str) -> None:
    assert NumberFormat(code).describe_text("abc") == shown
