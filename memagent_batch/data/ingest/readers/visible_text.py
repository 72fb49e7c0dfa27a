"""What a reader of a page sees, and why some of it may be wrong."""

from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_NAMED, NAME_CHARACTERS = 5, 60
"""Rules, style sheets and words that a doubt names, and the longest name there."""


@dataclass(slots=True, kw_only=True)
class VisibleText:
    """What a reader of a page sees, and may see after a click."""

    text: str = ""
    left_out: list[str] = field(default_factory=list)
    """What the page says and `text` does not: repeated names, and choices that were not made."""
    title: str = ""
    pictures: list[bytes] = field(default_factory=list)
    """Pictures that the page holds."""
    outside_pictures: list[str] = field(default_factory=list)
    """Addresses of pictures that it shows and does not hold."""
    media: list[str] = field(default_factory=list)
    """What it plays or draws: `video`, `audio`, `canvas`."""
    inner_pages: bool = False
    """Whether it shows other pages, which are not in it."""
    has_script: bool = False
    unread_rules: list[str] = field(default_factory=list)
    """Selectors of rules by which its style sheets write, number, raise or strike out words, and which are not read."""
    outside_style_sheets: list[str] = field(default_factory=list)
    """Addresses of style sheets that it links to and that are not known."""
    run_together: list[str] = field(default_factory=list)
    """Words that those may set apart."""
    failure: str | None = None

    @property
    def doubt(self) -> str | None:
        """Why some of its text may be wrong."""
        reasons = list[str]()
        if self.unread_rules:
            rules = _named(self.unread_rules)
            reasons.append(
                f"rules of its style sheets that may write, number or strike out words are not read: {rules}"
            )
        if self.run_together:
            sheets, words = _named(self.outside_style_sheets), _named(self.run_together)
            reasons.append(f"style sheets that it links to and does not hold ({sheets}) may set words apart in {words}")
        return f"{'; '.join(reasons)}; save it as PDF to be sure" if reasons else None


def _named(names: Sequence[str]) -> str:
    """Returns some names in a line, each once."""
    names = [*dict.fromkeys(name[-NAME_CHARACTERS:] for name in names)]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"
