"""Words of RTF: which groups hold text, what words show, and the encodings of fonts."""

from memagent_batch.data.ingest.readers.marks import Script

PLACES = {
    **dict.fromkeys(("header", "headerl", "headerr", "headerf"), "header"),
    **dict.fromkeys(("footer", "footerl", "footerr", "footerf"), "footer"),
    "annotation": "comments",
}
"""Groups that are parts of their own."""
CAPTURED_GROUPS = frozenset(
    {"fldinst", "sn", "sv", "atnid", "atnauthor", "footnote", "ffl", "formfield", "pict", "objdata"}
)
"""Groups that are taken as a whole when they end."""
READ_GROUPS = frozenset({*PLACES, *CAPTURED_GROUPS, "field", "ud"})
READ_GROUPS |= {"shpinst", "shppict", "mmath", "moMath", "moMathPara", "nesttableprops"}
"""Groups that programs may pass over (`\\*`), and that hold text all the same."""
SKIPPED_GROUPS = frozenset(
    {"colortbl", "stylesheet", "info", "nonshppict", "shprslt", "objclass", "filetbl", "nonesttables", "upr"}
    | {"listtable", "revtbl", "atndate", "bkmkstart", "bkmkend", "xe", "tc", "tcn", "mmathPr", "sp", "ffname"}
    | {"ffdeftext", "ffformat", "ffhelptext", "ffstattext", "ffentrymcr", "ffexitmcr"}
)
"""Groups whose text is not one of the document."""
SHOWN_WORDS = {
    **dict.fromkeys(("par", "line", "sect", "page", "column"), "\n"),
    **dict.fromkeys(("row", "nestrow"), "\n"),
    **dict.fromkeys(("cell", "nestcell"), " | "),
    "tab": "\t",
    "emdash": "\u2014",
    "endash": "\u2013",
    "bullet": "\u2022",
    "lquote": "\u2018",
    "rquote": "\u2019",
    "ldblquote": "\u201c",
    "rdblquote": "\u201d",
    "zwj": "\u200d",
    "zwnj": "\u200c",
    **dict.fromkeys(("emspace", "enspace", "qmspace"), " "),
}
SHOWN_SYMBOLS = {b"~": " ", b"_": "-", b"\\": "\\", b"{": "{", b"}": "}", b"\n": "\n", b"\r": "\n"}
WRAPPED_GROUPS = {"mnum": ("(", ")"), "mden": ("/(", ")"), "mrad": ("\u221a(", ")")}
"""What stands before and behind the parts of an equation."""
SCRIPT_GROUPS = {"msup": Script.SUPER, "msub": Script.SUB}
CHARSETS = {
    128: "cp932",
    129: "cp949",
    130: "johab",
    134: "gb18030",
    136: "big5hkscs",
    161: "cp1253",
    162: "cp1254",
} | {
    163: "cp1258",
    177: "cp1255",
    178: "cp1256",
    186: "cp1257",
    204: "cp1251",
    222: "cp874",
    238: "cp1250",
    254: "cp437",
    255: "cp850",
    77: "mac_roman",
}
"""Encodings of fonts, by their numbers."""
SYMBOL_CHARSET = 2
FILE_PAGES = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}
INVISIBLE = {0xAD: None, 0xA0: " "}
