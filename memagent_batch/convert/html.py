"""HTML by trafilatura: the text of the page without navigation and scripts."""

from collections.abc import Iterator
from pathlib import Path

from memagent_batch.convert.converter import WHOLE, Attachment, Part, package_version

FEW_SHARE = 0.25
"""Where the main text has less than this share of all visible characters, all of them are taken: a page without a clear
main text, such as a list or a form, would lose most of it."""


WARM_UP = "<html><body><p>A short page, for which every method is tried.</p></body></html>"


def warm_up() -> None:
    """Loads the library with its lists of words, for all processes of files; they take a quarter of a second."""
    html_text(WARM_UP)


class HtmlConverter:
    """A page is one part. Nothing is fetched."""

    def version(self) -> str:
        """Its own number and trafilatura's."""
        return package_version("trafilatura", own=1)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """One part."""
        text, note = html_text(file.read_bytes())
        yield Part(locator=WHOLE, text=text, reason=note)


def html_text(data: bytes | str) -> tuple[str, str | None]:
    """The text of a page, and what to know of it."""
    import trafilatura

    if not data.strip():
        return "", None
    everything: str = trafilatura.html2txt(data) or ""
    main = trafilatura.extract(data, favor_recall=True, include_tables=True, include_comments=True) or ""
    if len(main) >= FEW_SHARE * len(everything):
        return main, None
    return everything, "no main text found: all visible text is taken"
