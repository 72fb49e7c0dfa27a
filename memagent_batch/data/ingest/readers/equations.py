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
OFF = frozenset({"0", "off", "false"})
STRIKES = ("strikeH", "strikeV", "strikeBLTR", "strikeTLBR")
LEFT_OUT = frozenset({f"{W}del", f"{W}moveFrom"})
"""What a tracked change took away."""
LEAVES = frozenset({"mi", "mn", "mo", "mtext", "ms"})


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
    return shape(element) if shape else _mathml_row(element)


def words_left_out(equation: Any) -> str:
    """Returns the words of an equation that its text composes with an accent, or does not have."""
    hidden = equation.iter(*(f"{MATHML}{name}" for name in ("mphantom", "annotation")))
    accented = (each[0] for each in equation.iter(f"{M}acc", f"{MATHML}mover") if len(each))
    accented = (each.getnext() if each.tag == f"{M}accPr" else each for each in accented)
    return " ".join("".join(each.itertext()) for each in (*hidden, *accented) if each is not None)


def _joined(element: Any, write: Callable[[Any], str], shapes: Iterable[str], namespace: str) -> str:
    """Joins the texts of an element's children; what has a shape of its own does not run into its neighbours."""
    names = {*shapes, *LEAVES}
    runs = (Run(write(child), is_equation=str(child.tag).removeprefix(namespace) in names) for child in element)
    return join_runs(runs)


def _group(text: str) -> str:
    """Puts a text into parentheses unless it is one number, letter or word."""
    return text if not text or ATOM.fullmatch(text) else f"({text})"


def _fraction(numerator: str, denominator: str) -> str:
    return f"{_group(numerator)}/{_group(denominator)}"


def _with_scripts(base: str, *, lower: str = "", upper: str = "") -> str:
    """Writes what stands below and above at the end of a base: `x_i^2`."""
    return _group(base) + (subscript(lower) if lower else "") + (superscript(upper) if upper else "")


def _root(radicand: str, degree: str = "") -> str:
    return f"√{f'[{degree}]' if degree else ''}({radicand})"


def _accented(base: str, accent: str) -> str:
    """Writes an accent or a bar behind the letter that it is over."""
    return base + accent if len(base) == 1 else f"{_group(base)}{accent}"


def _matrix(rows: Iterable[Iterable[str]]) -> str:
    return f"[{'; '.join(', '.join(row) for row in rows)}]"


def _argument(element: Any, name: str) -> str:
    """Writes an argument of an element of Office's equations."""
    child = element.find(f"{M}{name}")
    return "" if child is None else office_equation(child)


def _setting(element: Any, path: str, default: str) -> str:
    child = element.find("/".join(f"{M}{name}" for name in path.split("/")))
    return default if child is None else str(child.get(f"{M}val", ""))


def _office_fraction(element: Any) -> str:
    top, bottom = _argument(element, "num"), _argument(element, "den")
    return f"{top} over {bottom}" if _setting(element, "fPr/type", "") == "noBar" else _fraction(top, bottom)


def _office_scripts(element: Any, base: str = "") -> str:
    """Writes a base with what stands below and above it; the bounds of a sum have an empty one."""
    return _with_scripts(base, lower=_argument(element, "sub"), upper=_argument(element, "sup"))


def _office_brackets(element: Any) -> str:
    names = {"begChr": "(", "sepChr": "|", "endChr": ")"}
    begin, separator, end = (_setting(element, f"dPr/{name}", sign) for name, sign in names.items())
    return begin + separator.join(map(office_equation, element.iterfind(f"{M}e"))) + end


def _office_box(element: Any) -> str:
    """Writes what is in a frame, which may have lines through it."""
    has_line = any(_setting(element, f"borderBoxPr/{line}", "off") not in OFF for line in STRIKES)
    return struck_out(_argument(element, "e")) if has_line else _argument(element, "e")


OFFICE_SHAPES: dict[str, Callable[[Any], str]] = {
    "f": _office_fraction,
    **dict.fromkeys(
        ("sSub", "sSup", "sSubSup"), lambda element: _office_scripts(element, base=_argument(element, "e"))
    ),
    "sPre": lambda element: _office_scripts(element) + _group(_argument(element, "e")),
    "limLow": lambda element: _with_scripts(_argument(element, "e"), lower=_argument(element, "lim")),
    "limUpp": lambda element: _with_scripts(_argument(element, "e"), upper=_argument(element, "lim")),
    "rad": lambda element: _root(_argument(element, "e"), _argument(element, "deg")),
    "nary": lambda element: (
        f"{_setting(element, 'naryPr/chr', '∫')}{_office_scripts(element)} {_argument(element, 'e')}"
    ),
    "d": _office_brackets,
    "func": lambda element: f"{_argument(element, 'fName')} {_argument(element, 'e')}",
    "m": lambda element: _matrix(map(office_equation, row.iterfind(f"{M}e")) for row in element.iterfind(f"{M}mr")),
    "eqArr": lambda element: "; ".join(map(office_equation, element.iterfind(f"{M}e"))),
    "acc": lambda element: _accented(_argument(element, "e"), _setting(element, "accPr/chr", "\u0302")),
    "borderBox": _office_box,
}


def _arguments(element: Any) -> list[str]:
    """Writes the arguments of an element of MathML; one that lacks some has empty ones."""
    return [mathml_equation(child) for child in element if isinstance(child.tag, str)] + [""] * 3


def _mathml_row(element: Any) -> str:
    return _joined(element, mathml_equation, MATHML_SHAPES, MATHML)


def _mathml_scripts(element: Any) -> str:
    base, first, second, *_ = _arguments(element)
    if element.tag.removeprefix(MATHML) in ("msup", "mover"):
        return _accented(base, first) if element.get("accent") == "true" else _with_scripts(base, upper=first)
    return _with_scripts(base, lower=first, upper=second)


def _mathml_prescripts(element: Any) -> str:
    children = [child for child in element if isinstance(child.tag, str)]
    border = next((at for at, child in enumerate(children) if child.tag == f"{MATHML}mprescripts"), len(children))
    base, *after = [*map(mathml_equation, children[:border])] or [""]
    before = [*map(mathml_equation, children[border + 1 :])]
    left = _with_scripts("", lower="".join(before[::2]), upper="".join(before[1::2]))
    return left + _with_scripts(base, lower="".join(after[::2]), upper="".join(after[1::2]))


def _mathml_fence(element: Any) -> str:
    inner = (element.get("separators", ",").strip() or ",")[0].join(filter(None, _arguments(element)))
    return f"{element.get('open', '(')}{inner}{element.get('close', ')')}"


def _mathml_enclosed(element: Any) -> str:
    text = _mathml_row(element)
    return struck_out(text) if "strike" in element.get("notation", "") else text


MATHML_SHAPES: dict[str, Callable[[Any], str]] = {
    "mfrac": lambda element: _fraction(*_arguments(element)[:2]),
    **dict.fromkeys(("msub", "msup", "msubsup", "munder", "mover", "munderover"), _mathml_scripts),
    "mmultiscripts": _mathml_prescripts,
    "msqrt": lambda element: _root(_mathml_row(element)),
    "mroot": lambda element: _root(*_arguments(element)[:2]),
    "mfenced": _mathml_fence,
    "mtable": lambda element: _matrix(map(mathml_equation, row) for row in element if isinstance(row.tag, str)),
    "menclose": _mathml_enclosed,
}
