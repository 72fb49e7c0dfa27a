"""What a tagged PDF says to people who do not see its pages."""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import pypdfium2.raw as pdfium

from memagent_batch.data.ingest.readers.pdf_annotations import wide_text

MAX_DEPTH, MAX_ELEMENTS = 100, 10_000
"""Elements inside elements, and elements of a page, that are looked at."""
TEXTS = (
    pdfium.FPDF_StructElement_GetAltText,
    pdfium.FPDF_StructElement_GetActualText,
    pdfium.FPDF_StructElement_GetExpansion,
)


def page_descriptions(page: Any) -> list[str]:
    """Reads what the elements of a page say: texts for pictures, words that are drawn otherwise, and abbreviations.

    There are none if the file is not tagged.
    """
    tree, texts = pdfium.FPDF_StructTree_GetForPage(page), list[str]()
    if not tree:
        return texts
    for element in islice(_elements(tree), MAX_ELEMENTS):
        texts += [" ".join(wide_text(partial(get, element)).split()) for get in TEXTS]
    pdfium.FPDF_StructTree_Close(tree)
    return list(dict.fromkeys(filter(None, texts)))


def _elements(tree: Any) -> Iterator[Any]:
    roots = (
        pdfium.FPDF_StructTree_GetChildAtIndex(tree, at) for at in range(pdfium.FPDF_StructTree_CountChildren(tree))
    )
    waiting = [(root, 1) for root in roots if root][::-1]
    while waiting:
        element, depth = waiting.pop()
        yield element
        count = pdfium.FPDF_StructElement_CountChildren(element) if depth < MAX_DEPTH else 0
        children = (pdfium.FPDF_StructElement_GetChildAtIndex(element, at) for at in range(count))
        waiting += [(child, depth + 1) for child in children if child][::-1]
