"""`docs/pictures/answer.svg`: one answer with its trace, drawn from the tables that the demo wrote.

`make demo`, then `python -m infra.docs.answer_picture --demo demo`.
"""

import argparse
import re
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import Any

import pyarrow.parquet as pq

from memagent_batch.domain.turns import ANSWER, UPDATE
from memagent_batch.runs.tables.table_files import table_files

PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "answer.svg"
DOCUMENT = "document-22"
"""The longest document of the demo that says what it is asked for."""
WIDTH, MARGIN, LEFT = 880, 24, 150
"""Pixels: the picture, the space around it, and where the second column begins."""
LINE = 19
"""Height of a line of text, pixels."""
LINE_CHARACTERS = 84
"""Characters in a line of the document's text."""
CONTEXT_CHARACTERS = 85
"""Characters that are shown before and after the sentence that brought the answer."""
STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de } text { fill: #1f2328; font: 14px system-ui, "Segoe UI", sans-serif }
  .note { fill: #59636e; font-size: 13px } .mono { font: 13px ui-monospace, "DejaVu Sans Mono", monospace }
  .title { font-size: 17px; font-weight: 600 } .answer { font-size: 19px; font-weight: 700; fill: #0a6640 }
  .chunk { fill: #d0d7de } .hit { fill: #1a7f37 } .mark { font-weight: 700; fill: #0a6640 } .rule { stroke: #d0d7de }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d } text { fill: #f0f6fc } .note { fill: #9198a1 }
    .answer, .mark { fill: #4ac776 } .chunk { fill: #3d444d } .hit { fill: #4ac776 } .rule { stroke: #3d444d }
  }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One reading, as the tables have it."""

    answer: dict[str, Any]
    """Its row of `answers`."""
    turns: list[dict[str, Any]]
    """Its rows of `memories`, in the order of reading, without closing turns."""
    text: str
    """The document."""

    @property
    def source(self) -> dict[str, Any]:
        """The first turn whose memory holds the answer."""
        return next(turn for turn in self.turns if self.answer["answer"] in turn["memory"])


def read_trace(demo: Path, *, document_id: str) -> Trace:
    """Reads one document's reading from the output of the demo."""
    output = str(demo / "run")
    answers = pq.read_table(table_files(output, "answers"), filters=[("document_id", "=", document_id)]).to_pylist()
    of_reading = [("document_id", "=", document_id), ("kind", "in", [UPDATE, ANSWER])]
    turns = pq.read_table(table_files(output, "memories"), filters=of_reading).to_pylist()
    texts = pq.read_table(demo / "documents", filters=[("document_id", "=", document_id)]).to_pylist()
    return Trace(answer=answers[0], turns=sorted(turns, key=lambda turn: turn["turn"]), text=texts[0]["text"])


def sentence_span(text: str, words: str, *, start: int, stop: int) -> tuple[int, int]:
    """First character, and the character after the last one, of the sentence that holds `words`."""
    place = text.index(words, start, stop)
    ends = [end.end() for end in re.finditer(r"[.!?]\s+", text[start:place])]
    last = text.find(".", place + len(words), stop)
    return start + (ends[-1] if ends else 0), (stop if last < 0 else last + 1)


def draw(trace: Trace) -> str:
    """The picture as SVG, readable on light and dark pages."""
    parts: list[str] = []
    y = _head(trace, parts)
    for turn in _shown_turns(trace):
        y = _turn(trace, turn, parts, y=y)
    y = _foot(trace, parts, y=y)
    body = "\n".join(parts)
    label = f"The question {trace.answer['question']} answered from a document of many chunks, turn by turn"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img" '
        f'aria-label="{escape(label)}">\n<style>{STYLE}</style>\n'
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{y - 1}" rx="8"/>\n{body}\n</svg>\n'
    )


def _head(trace: Trace, parts: list[str]) -> int:
    row = trace.answer
    parts.append(_text(MARGIN, 40, row["question"], kind="title"))
    facts = f"{row['document_id']}: {row['num_document_tokens']:,} tokens in {row['num_chunks']} chunks"
    parts.append(_text(MARGIN, 64, f"{facts}. Each bar is a chunk; green is where the answer came from.", kind="note"))
    pitch = (WIDTH - 2 * MARGIN) / row["num_chunks"]
    for chunk in range(row["num_chunks"]):
        is_source = chunk == trace.source["chunk_index"]
        top, height = (76, 26) if is_source else (80, 18)
        x, width = MARGIN + chunk * pitch, max(pitch * 0.7, 3.0 if is_source else 0.0)
        kind = "hit" if is_source else "chunk"
        parts.append(f'<rect class="{kind}" x="{x:.1f}" y="{top}" width="{width:.1f}" height="{height}"/>')
    return 132


def _shown_turns(trace: Trace) -> list[dict[str, Any] | str]:
    """The turns that changed the memory and the last one, with a line for the turns between two of them."""
    shown = [turn for turn in trace.turns if turn["changed"] or turn is trace.turns[-1]]
    lines: list[dict[str, Any] | str] = [shown[0]]
    for before, after in pairwise(shown):
        first, last = before["turn"] + 1, after["turn"] - 1
        if first <= last:
            lines.append(f"turns {first} to {last}" if first < last else f"turn {first}")
        lines.append(after)
    return lines


def _turn(trace: Trace, turn: dict[str, Any] | str, parts: list[str], *, y: int) -> int:
    if isinstance(turn, str):
        parts += [_text(MARGIN, y, turn, kind="note"), _text(LEFT, y, "memory unchanged", kind="note")]
        return y + LINE + 9
    parts.append(_text(MARGIN, y, f"turn {turn['turn']}"))
    if turn["kind"] != "update":
        parts.append(_text(LEFT, y, "the model answers from the memory alone:", kind="note"))
        parts.append(_text(LEFT, y + LINE, trace.answer["response"], kind="mono"))
        return y + 2 * LINE + 9
    if turn is trace.source:
        y = _source(trace, parts, y=y)
    return _memory(turn["memory"], parts, y=y)


def _source(trace: Trace, parts: list[str], *, y: int) -> int:
    turn = trace.source
    first, last = sentence_span(trace.text, trace.answer["answer"], start=turn["char_start"], stop=turn["char_end"])
    span = f"chunk {turn['chunk_index']}, characters {turn['char_start']:,} to {turn['char_end']:,} of the document:"
    parts.append(_text(LEFT, y, span, kind="note"))
    before = " ".join(trace.text[max(turn["char_start"], first - CONTEXT_CHARACTERS) : first].split()[1:])
    after = " ".join(trace.text[last : min(turn["char_end"], last + CONTEXT_CHARACTERS)].split()[:-1])
    sentence = " ".join(trace.text[first:last].split())
    for passage, kind in ((f"… {before}", "mono note"), (sentence, "mono mark"), (f"{after} …", "mono note")):
        for line in wrap(passage, LINE_CHARACTERS):
            y += LINE
            parts.append(_text(LEFT, y, line, kind=kind))
    return y + LINE + 3


def _memory(memory: str, parts: list[str], *, y: int) -> int:
    parts.append(_text(LEFT, y, "memory:", kind="note"))
    for line in wrap(memory, LINE_CHARACTERS - 8):
        parts.append(_text(LEFT + 62, y, line, kind="mono"))
        y += LINE
    return y + 9


def _foot(trace: Trace, parts: list[str], *, y: int) -> int:
    row = trace.answer
    parts.append(f'<line class="rule" x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y - 8}" y2="{y - 8}"/>')
    parts.append(_text(MARGIN, y + 22, "answer"))
    parts.append(_text(LEFT, y + 23, row["answer"], kind="answer"))
    counts = f"status {row['status']}, {row['num_turns']} turns, {row['num_prompt_tokens']:,} prompt tokens"
    parts.append(_text(WIDTH - MARGIN, y + 22, counts, kind="note", anchor="end"))
    return y + 44


def _text(x: int, y: int, words: str, *, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'


def main() -> None:
    """Draws the answer of one document of the demo."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--demo", type=Path, default=Path("demo"), help="folder that the demo wrote (default: demo)")
    options.add_argument("--document", default=DOCUMENT, help=f"document_id (default: {DOCUMENT})")
    options.add_argument("--to", type=Path, default=PICTURE, help="file to write")
    arguments = options.parse_args()
    arguments.to.write_text(draw(read_trace(arguments.demo, document_id=arguments.document)), encoding="utf-8")


if __name__ == "__main__":
    main()
