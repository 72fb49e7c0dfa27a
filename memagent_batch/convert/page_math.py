"""Formulas of MathML in one line: `(a+b)/c`, `x^2`, `sqrt(x)`."""

from typing import Any

HIDDEN = frozenset({"annotation", "annotation-xml", "mphantom", "none", "mprescripts", "malignmark"})
SCRIPTED = {"mfrac": "{0}/{1}", "msubsup": "{0}_{1}^{2}", "munderover": "{0}_{1}^{2}"} | {
    **dict.fromkeys(("msup", "mover"), "{0}^{1}"),
    **dict.fromkeys(("msub", "munder"), "{0}_{1}"),
}
"""How elements with a fixed number of parts are written."""
WRAPPED = {"msqrt": ("sqrt(", "", ")"), "mroot": ("root(", ", ", ")"), "mtable": ("[", "; ", "]")} | {
    "mfenced": ("(", ", ", ")"),
    "mtr": ("", ", ", ""),
}
"""What stands before, between and after the parts of others."""
INVISIBLE = {ord(character): None for character in "\u2061\u2062\u2063\u2064\u200b"}
"""Operators that are not shown."""


def linear_math(element: Any) -> str:
    """Writes a formula of MathML in one line."""
    tag = element.tag.rpartition(":")[2].rpartition("}")[2].lower() if isinstance(element.tag, str) else ""
    if not tag or tag in HIDDEN:
        return ""
    if len(element) == 0:
        text = " ".join((element.text or "").translate(INVISIBLE).split())
        return f" {text} " if tag == "mo" and text and text in "=<>≤≥≠≈→+−±×·-" else text
    scripted = SCRIPTED.get(tag)
    parts = [linear_math(child).strip() if tag in WRAPPED else linear_math(child) for child in element]
    if scripted is not None and len(parts) == scripted.count("{"):
        text = scripted.format(*map(_grouped, parts))
    else:
        first, between, last = WRAPPED.get(tag, ((element.text or "").strip(), "", ""))
        text = f"{element.get('open', first)}{between.join(parts)}{element.get('close', last)}"
    return text.replace("  ", " ")


def _grouped(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 1 or text.isalnum() or (text[0], text[-1]) == ("(", ")") else f"({text})"
