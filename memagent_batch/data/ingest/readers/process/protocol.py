"""What a converter server and its owner agree on. The owner has no need of the packages that read files."""

from collections.abc import Mapping
from typing import Any

PARTS_FILE = "parts.jsonl"
"""The kind of the file, what it says of itself, and what its converter gave: a JSON object a line, each attachment with
the name of its file in the folder, None beyond `MAX_DOCUMENTS`; then what it did not give, and how many words the file
has."""
PICTURE = "picture-"
"""Begins the names of files with pictures for OCR."""
SOURCE_TIMES = 2
"""A file with all its attachments may unpack to this many times the limit of one process."""
RECORD_BYTES = 512
"""What a part or attachment costs beside its content, bytes: its row."""
MAX_DOCUMENTS = 1000
"""Most documents from one file, attachments of attachments included. Of further attachments only the names are kept."""

Request = Mapping[str, Any]
"""What the owner asks: a `file` to convert into a `folder`, with the `limits` and the `output_bytes` that may still
come out of it; the `converters` are import paths by kind or ending, the `settings` those that they may be made with."""
