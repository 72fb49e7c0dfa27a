"""What a manifest says of the files of its run: a hash of each, and of the manifest of the run before."""

from typing import TypedDict


class RunBefore(TypedDict):
    """The finished run before, as its record was when this one closed."""

    run_id: str
    sha256: str
    """Of the bytes of its `runs/RUN_ID/manifest.json`, hex."""


class Seal(TypedDict):
    """A link of the chain over `runs/`."""

    before: RunBefore | None
    """None for the first run of an output."""
    files: dict[str, str]
    """SHA-256, hex, by name below the output: all table files, the files of `runs/RUN_ID/` but the manifest, the
    question list, and `run.json`. One of them, `log.parquet`, has the hashes of the turn log."""


class FileHash(TypedDict):
    """The hash of a file that a task has written."""

    file: str
    sha256: str
