"""What lists all that a file of each kind contains."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from memagent_batch.data.ingest.counts.packages import office_contents
from memagent_batch.data.ingest.counts.words import Content
from memagent_batch.data.ingest.readers.kinds import FileKind

CONTENTS: Mapping[str, Callable[[Path], Iterator[Content]]] = {
    FileKind.SLIDES: office_contents,
}
"""Kinds without an entry have no words that could be counted, such as pictures."""
