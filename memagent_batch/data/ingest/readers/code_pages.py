"""Code pages of Windows, by their numbers."""

CODE_PAGES = {
    708: "iso8859-6",
    936: "gb18030",
    949: "cp949",
    950: "big5hkscs",
    1361: "johab",
    1200: "utf-16-le",
    1201: "utf-16-be",
    12000: "utf-32-le",
    12001: "utf-32-be",
    65000: "utf-7",
    65001: "utf-8",
    10000: "mac_roman",
    10001: "shift_jis",
    10002: "big5",
    10003: "euc_kr",
    10004: "mac_arabic",
    10006: "mac_greek",
    10007: "mac_cyrillic",
    10008: "gb2312",
    10010: "mac_romanian",
    10029: "mac_latin2",
    10079: "mac_iceland",
    10081: "mac_turkish",
    10082: "mac_croatian",
    20127: "ascii",
    20261: "latin-1",
    20866: "koi8-r",
    21866: "koi8-u",
    20932: "euc_jp",
    20936: "gb18030",
    20949: "cp949",
    20000: "big5",
    **{28590 + part: f"iso8859-{part}" for part in (*range(1, 12), *range(13, 17))},
    38598: "iso8859-8",
    **dict.fromkeys((50220, 50221, 50222), "iso2022_jp_ext"),
    50225: "iso2022_kr",
    50227: "gb18030",
    51932: "euc_jp",
    51936: "gb18030",
    51949: "cp949",
    51950: "big5hkscs",
    52936: "hz",
    54936: "gb18030",
    37: "cp037",
}
"""Python's encodings of the code pages whose names in Python are not their numbers."""


def code_page_label(page: int) -> str:
    """Returns the name of an encoding; one that Python may not know."""
    return CODE_PAGES.get(page, f"cp{page}")
