"""Equations of Office (OMML) and of OpenDocument (MathML) on one line: `1/12`, `10^6`, `(a+b)/(c)`, `√(2)`."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from memagent_batch.data.ingest.readers.marks import Run, join_runs, struck_out, subscript, superscript

M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
MATHML = "{http://www.w3.org/1998/Math/MathML}"
ATOM = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+|\([^()]*\)")
"""A text that needs no parentheses beside a sign."""


def office_equation(element: Any) -> str:
    """Writes an equation of Office, or a part of one."""
    name = element.tag.removeprefix(M) if isinstance(element.tag, str) else ""
    if name in ("t", f"{W}t"):
        return element.text or ""
    if name.endswith("Pr") or name in LEFT_OUT:
        return ""
    shape = OFFICE_SHAPES.get(name)
    return shape(element) if shape else _joined(element, office_equation, OFFICE_SHAPES, M)


def mathml_equation(element: Any) -> str:
    """Writes an equation of MathML, or a part of one."""
    name = element.tag.removeprefix(MATHML) if isinstance(element.tag, str) else ""
    if name in LEAVES:
        return " ".join("".join(element.itertext()).split())
    if not name or name in ("annotation", "annotation-xml", "mphantom"):
        return ""
    shape = MATHML_SHAPES.get(name)
    return shape(element) if shape else _joined(element, mathml_equation, MATHML_SHAPES, MATHML)


def _joined(element: Any, write: Callable[[Any], str], shapes: Iterable[str], namespace: str) -> str:
    """Joins the texts of an element's children; what has a shape of its own does not run into its neighbours."""
    return join_runs(Run(write(child), is_equation=_is_shape(child, shapes, namespace)) for child in element)


def _is_shape(element: Any, shapes: Iterable[str], namespace: str) -> bool:
    name = str(element.tag).removeprefix(namespace)
    return name in shapes or name in LEAVES


def _group(text: str) -> str:
    """Puts a text into parentheses unless it is one number, letter or word."""
    return text if not text or ATOM.fullmatch(text) else f"({text})"


def fraction(numerator: str, denominator: str) -> str:
    """Writes a fraction on one line: `1/12`, `(a+b)/2`."""
    return f"{_group(numerator)}/{_group(denominator)}"


def with_scripts(base: str, *, lower: str = "", upper: str = "") -> str:
    """Writes what stands below and above at the end of a base: `x_i^2`."""
    return _group(base) + (subscript(lower) if lower else "") + (superscript(upper) if upper else "")


def root(radicand: str, degree: str = "") -> str:
    """Writes a root: `√(2)`, `√[3](2)`."""
    return f"√{f'[{degree}]' if degree else ''}({radicand})"


def accented(base: str, accent: str) -> str:
    """Writes an accent or a bar behind the letter that it is over."""
    return base + accent if len(base) == 1 else f"{_group(base)}{accent}"


def _argument(element: Any, name: str) -> str:
    """Writes an argument of an element of Office's equations."""
    child = element.find(f"{M}{name}")
    return "" if child is None else office_equation(child)


def _setting(element: Any, path: str, default: str) -> str:
    child = element.find("/".join(f"{M}{name}" for name in path.split("/")))
    return default if child is None else str(child.get(f"{M}val", ""))


def _office_fraction(element: Any) -> str:
    top, bottom = _argument(element, "num"), _argument(element, "den")
    return f"{top} over {bottom}" if _setting(element, "fPr/type", "") == "noBar" else fraction(top, bottom)


def _office_scripts(element: Any) -> str:
    base = _argument(element, "e")
    lower, upper = _argument(element, "sub"), _argument(element, "sup")
    match element.tag.removeprefix(M):
        case "sPre":
            return with_scripts("", lower=lower, upper=upper) + _group(base)
        case "limLow":
            return with_scripts(base, lower=_argument(element, "lim"))
        case "limUpp":
            return with_scripts(base, upper=_argument(element, "lim"))
    return with_scripts(base, lower=lower, upper=upper)


def _office_operator(element: Any) -> str:
    """Writes a sum, an integral or the like, with its bounds."""
    sign = _setting(element, "naryPr/chr", "∫")
    bounds = with_scripts("", lower=_argument(element, "sub"), upper=_argument(element, "sup"))
    return f"{sign}{bounds} {_argument(element, 'e')}"


def _office_brackets(element: Any) -> str:
    signs = (
        _setting(element, f"dPr/{name}", sign) for name, sign in (("begChr", "("), ("sepChr", "|"), ("endChr", ")"))
    )
    begin, separator, end = signs
    return begin + separator.join(office_equation(each) for each in element.iterfind(f"{M}e")) + end


def _office_function(element: Any) -> str:
    return f"{_argument(element, 'fName')} {_argument(element, 'e')}"


def _office_matrix(element: Any) -> str:
    rows = ([office_equation(cell) for cell in row.iterfind(f"{M}e")] for row in element.iterfind(f"{M}mr"))
    return f"[{'; '.join(', '.join(row) for row in rows)}]"


def _office_lines(element: Any) -> str:
    return "; ".join(office_equation(line) for line in element.iterfind(f"{M}e"))


def _office_accent(element: Any) -> str:
    return accented(_argument(element, "e"), _setting(element, "accPr/chr", "\N{COMBINING CIRCUMFLEX ACCENT}"))


def _office_box(element: Any) -> str:
    """Writes what is in a frame, which may have lines through it."""
    text = _argument(element, "e")
    has_line = any(_setting(element, f"borderBoxPr/{line}", "off") not in OFF for line in STRIKES)
    return struck_out(text) if has_line else text


OFF = frozenset({"0", "off", "false"})
STRIKES = ("strikeH", "strikeV", "strikeBLTR", "strikeTLBR")
LEFT_OUT = frozenset({f"{W}del", f"{W}moveFrom"})
"""What a tracked change took away."""
OFFICE_SHAPES: dict[str, Callable[[Any], str]] = {
    "f": _office_fraction,
    **dict.fromkeys(("sSub", "sSup", "sSubSup", "sPre", "limLow", "limUpp"), _office_scripts),
    "rad": lambda element: root(_argument(element, "e"), _argument(element, "deg")),
    "nary": _office_operator,
    "d": _office_brackets,
    "func": _office_function,
    "m": _office_matrix,
    "eqArr": _office_lines,
    "acc": _office_accent,
    "borderBox": _office_box,
}


def _written(element: Any) -> list[str]:
    """Writes the arguments of an element of MathML; one that lacks some has empty ones."""
    return [mathml_equation(child) for child in element if isinstance(child.tag, str)] + [""] * 3


def _row(element: Any) -> str:
    return _joined(element, mathml_equation, MATHML_SHAPES, MATHML)


def _mathml_scripts(element: Any) -> str:
    base, first, second, *_ = _written(element)
    name = element.tag.removeprefix(MATHML)
    if name in ("msup", "mover"):
        return accented(base, first) if element.get("accent") == "true" else with_scripts(base, upper=first)
    return with_scripts(base, lower=first, upper=second)


def _mathml_prescripts(element: Any) -> str:
    texts, split = list[str](), None
    for child in element:
        if child.tag == f"{MATHML}mprescripts":
            split = len(texts)
        else:
            texts.append(mathml_equation(child))
    after, before = (texts[1:], []) if split is None else (texts[1:split], texts[split:])
    left, right = (("".join(each[::2]), "".join(each[1::2])) for each in (before, after))
    base = texts[0] if texts else ""
    return with_scripts("", lower=left[0], upper=left[1]) + with_scripts(base, lower=right[0], upper=right[1])


def _mathml_fence(element: Any) -> str:
    inner = (element.get("separators", ",").strip() or ",")[0].join(filter(None, _written(element)))
    return f"{element.get('open', '(')}{inner}{element.get('close', ')')}"


def _mathml_table(element: Any) -> str:
    rows = ([mathml_equation(cell) for cell in row] for row in element if isinstance(row.tag, str))
    return f"[{'; '.join(', '.join(row) for row in rows)}]"


def _mathml_enclosed(element: Any) -> str:
    return struck_out(_row(element)) if "strike" in element.get("notation", "") else _row(element)


LEAVES = frozenset({"mi", "mn", "mo", "mtext", "ms"})
MATHML_SHAPES: dict[str, Callable[[Any], str]] = {
    "mfrac": lambda element: fraction(*_written(element)[:2]),
    **dict.fromkeys(("msub", "msup", "msubsup", "munder", "mover", "munderover"), _mathml_scripts),
    "mmultiscripts": _mathml_prescripts,
    "msqrt": lambda element: root(_row(element)),
    "mroot": lambda element: root(*_written(element)[:2]),
    "mfenced": _mathml_fence,
    "mtable": _mathml_table,
    "menclose": _mathml_enclosed,
}
