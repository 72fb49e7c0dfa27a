"""What a run leaves in `runs/RUN_ID/` when it closes: how its tables were made, and its list.

The list, `SHA256SUMS`, has the hash of every file that the run made and rests on, as `sha256sum -c` reads it. Paths are
relative to the output. The list of the run before is among the files, so that the lists form a chain. Files of the log
and of kept tables never change: their hashes are taken over from the list before.
"""

import logging
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import file_digest, sha256
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from memagent_batch.errors import OutputError, SettingsError, StorageError
from memagent_batch.logs import EventKind
from memagent_batch.runs.claim import named_files, require_claim
from memagent_batch.runs.history import FILES_FILE, INDEX_FILE, PLAN_FILE, REMOVED_FILE, RUNS_FOLDER, PastRun
from memagent_batch.runs.manifest import MANIFEST_FILE, PartReport
from memagent_batch.runs.projection import PROJECTION_FILE, Projection, projection_record
from memagent_batch.store.errors import FILE_ERRORS, storage_errors
from memagent_batch.store.json_files import json_bytes, write_json
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import LogIndex
from memagent_batch.store.turn_log.keys import FOLLOW_UPS_FOLDER, OUTCOMES_FOLDER, TURNS_FOLDER, list_folder
from memagent_batch.store.turn_log.question_list import ASKED_FOLDER

log = logging.getLogger(__name__)

SUMS_FILE = "SHA256SUMS"
SIGNATURE_FILE = f"{SUMS_FILE}.sig"
SIGNED_FOLDER = "review/signed"
"""Files with sign-offs, which people add at any time."""
SIGN_OFF_LOG_FOLDER = "log/signed"
"""For each of these a list with its hash, written with it: so none can be removed unnoticed before the next run, whose
list names them."""
SIGN_OFF_FOLDERS = (f"{SIGNED_FOLDER}/", f"{SIGN_OFF_LOG_FOLDER}/")
NAMESPACE = "memagent-batch"
"""What a signature is for: `ssh-keygen -n`."""
LOG_TABLES = (TURNS_FOLDER, OUTCOMES_FOLDER, FOLLOW_UPS_FOLDER)
HASH_THREADS = 16
"""Files read at once: enough to keep a core busy where a store answers in 50 ms."""
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")
RECORD_FILES = (PLAN_FILE, REMOVED_FILE, PROJECTION_FILE)
"""Files of `runs/RUN_ID/` beside the manifest and the list; the kept index is there for some runs."""


def record_file(run_id: str, name: str) -> str:
    """Name of a file in the record of a run, below the output."""
    return f"{RUNS_FOLDER}/{run_id}/{name}"


def write_record(
    past: PastRun,
    *,
    projection: Projection,
    sign: str | None,
    reports: Iterable[PartReport],
    log_files: Iterable[str],
    before: PastRun | None,
) -> None:
    """Writes the record of a run that is about to be published, its manifest excepted, which the list has already.

    With a key to `sign` by, the list has a signature beside it.

    Tables are hashed while they are written. What is read back here are the small files of the record, and the files
    of the log that the run before does not list.

    Raises:
        SettingsError: the key can't sign.
        StorageError: a file can't be written or read back.
        SupersededError: a newer attempt holds the claim, and has removed a file.
    """
    output, run_id = past.output, past.run_id
    write_json(output / record_file(run_id, PROJECTION_FILE), projection_record(projection))
    tables = named_files(past.manifest)
    kept = {*tables, *log_files}
    hashes = {
        name: value
        for name, value in {**_signed_before(output), **known_hashes(before)}.items()
        if name in kept or name.startswith(SIGN_OFF_FOLDERS)  # also what is gone by now: its loss is not forgotten
    }
    hashes |= {each["file"]: each["sha256"] for report in reports for each in report.get("hashes") or ()}
    record = [record_file(run_id, name) for name in (*RECORD_FILES, INDEX_FILE, FILES_FILE)]
    names = {
        *tables,
        *record,
        *log_files,
        *list_sign_offs(output),
        f"{ASKED_FOLDER}/{run_id}.parquet",
        *link_before(before),
    }
    optional = {record_file(run_id, name) for name in (INDEX_FILE, FILES_FILE)}
    for name, value in file_hashes(output, sorted(names - hashes.keys())):
        if value is not None:
            hashes[name] = value
        elif name not in optional and not name.startswith(LOG_TABLES):
            require_claim(output, run_id=run_id)  # else a newer attempt may have removed this one's files
            raise StorageError(f"{output / name} is gone before the run has closed; run the same command again")
    hashes[record_file(run_id, MANIFEST_FILE)] = sha256(json_bytes(past.manifest)).hexdigest()
    data = sums_bytes(hashes)
    (output / record_file(run_id, SUMS_FILE)).write_bytes(data)
    if sign is not None:
        (output / record_file(run_id, SIGNATURE_FILE)).write_bytes(signature(data, key=sign))


def sums_bytes(hashes: Mapping[str, str]) -> bytes:
    """A list, as `sha256sum` writes it."""
    return "".join(f"{value}  {name}\n" for name, value in sorted(hashes.items())).encode()


def parse_sums(data: bytes, *, name: str) -> dict[str, str]:
    """The hashes of a list, by name below the output.

    Raises:
        OutputError: a line is not one of `sha256sum`, or names a place outside the output.
    """
    lines = data.decode(errors="replace").splitlines()
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        match = _LINE.fullmatch(line)
        if match is None or not is_below(match[2]):
            raise OutputError(f"{name}: line {number} is not `HASH  PATH` of a file below the output; restore it")
        found[match[2]] = match[1]
    return found


def is_below(name: object) -> bool:
    """Whether a record's name of a file is one of a place below the output: not absolute, no `..`, a text."""
    if not isinstance(name, str) or not name or "\\" in name or "://" in name or "::" in name:
        return False
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def known_hashes(before: PastRun | None) -> dict[str, str]:
    """The list of the run before; empty if it is gone or damaged."""
    if before is None:
        return {}
    name = record_file(before.run_id, SUMS_FILE)
    place = before.output / name
    with storage_errors(place.uri, of=FILE_ERRORS):
        data = place.read_bytes_if_there()
    try:
        if data is not None:
            return parse_sums(data, name=name)
        problem = f"{name} is gone"
    except OutputError as error:
        problem = str(error)
    message = f"{problem}. The whole turn log is hashed again"
    log.warning(message, extra={"event": EventKind.RECORD_UNREADABLE})
    return {}


def link_before(before: PastRun | None) -> list[str]:
    """The file of the run before that a list names: its list, or its manifest if that is gone."""
    if before is None:
        return []
    names = (record_file(before.run_id, name) for name in (SUMS_FILE, MANIFEST_FILE))
    return [name for name in names if (before.output / name).exists()][:1]


def list_log(output: Location) -> Iterator[str]:
    """Names of the files of the turn log."""
    for folder in LOG_TABLES:
        start = len((output / folder).path) - len(folder)
        yield from (path[start:] for path in list_folder(output / folder))


def list_sign_offs(output: Location) -> Iterator[str]:
    """Names of the files of sign-offs, and of the lists of these."""
    for folder in (SIGNED_FOLDER, SIGN_OFF_LOG_FOLDER):
        start = len((output / folder).path) - len(folder)
        yield from (path[start:] for path in (output / folder).files())


def logged_sign_offs(output: Location) -> dict[str, str]:
    """Hashes of the files of sign-offs, as `memagent review sign` listed them.

    Raises:
        OutputError: a list is damaged.
    """
    names = [name for name in list_sign_offs(output) if name.startswith(f"{SIGN_OFF_LOG_FOLDER}/")]
    lists = (parse_sums((output / name).read_bytes(), name=name) for name in names)
    return {name: value for each in lists for name, value in each.items()}


def _signed_before(output: Location) -> dict[str, str]:
    try:
        return logged_sign_offs(output)
    except OutputError as error:
        log.warning(f"{error}; sign-offs are listed as they are", extra={"event": EventKind.RECORD_UNREADABLE})
        return {}


def used_files(output: Location, index: LogIndex) -> set[str]:
    """Names of the log files that an index was made of, as far as it names them."""
    start = len((output / TURNS_FOLDER).path) - len(TURNS_FOLDER)
    return {path[start:] for path in index.files()}


def file_hashes(output: Location, names: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Streams name and SHA-256 of files below an output; None for a file that is not there."""
    names = list(names)
    with ThreadPoolExecutor(HASH_THREADS) as threads:
        yield from zip(names, threads.map(lambda name: _file_hash(output, name), names), strict=True)


def _file_hash(output: Location, name: str) -> str | None:
    """SHA-256 of a file, hex. Files of the log are small: a store is asked once for each, and not block by block."""
    place = output / name
    with storage_errors(place.uri, of=FILE_ERRORS):
        try:
            if name.startswith(LOG_TABLES):
                return sha256(place.read_bytes()).hexdigest()
            with place.open() as stream:
                return file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type] # it has `readinto`
        except (FileNotFoundError, NotADirectoryError):
            return None


def signature(data: bytes, *, key: str) -> bytes:
    """The signature of a list by an SSH key, as `ssh-keygen -Y sign` makes it.

    `key` is a file with a private key without a passphrase, or with a public key whose private one an agent has.

    Raises:
        SettingsError: the key can't sign.
    """
    done = _ssh_keygen("sign", "-f", key, data=data)
    if done.returncode:
        raise SettingsError(f"record.sign: {key} can't sign: {_last_line(done)}; pass a key that ssh-keygen can use")
    return done.stdout


def signer_of(data: bytes, signed: bytes, *, allowed: Path) -> str:
    """Who of the allowed signers has signed a list.

    Raises:
        OutputError: the signature is not one of theirs, or not of these bytes.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / SIGNATURE_FILE
        file.write_bytes(signed)
        given = ("-f", str(allowed), "-s", str(file))
        found = _ssh_keygen("find-principals", *given, data=b"")
        name = found.stdout.decode(errors="replace").partition("\n")[0].strip()
        if found.returncode or not name:
            raise OutputError(f"it is not signed by one of {allowed}: {_last_line(found)}")
        done = _ssh_keygen("verify", "-I", name, *given, data=data)
    if done.returncode:
        raise OutputError(f"the signature of {name} does not hold: {_last_line(done)}")
    return name


def _ssh_keygen(action: str, *arguments: str, data: bytes) -> subprocess.CompletedProcess[bytes]:
    command = ["ssh-keygen", "-Y", action, "-n", NAMESPACE, *arguments]
    try:  # in its own session, it has no terminal to ask for a passphrase
        return subprocess.run(command, input=data, capture_output=True, start_new_session=True, check=False)
    except FileNotFoundError as error:
        raise SettingsError(
            "signatures need ssh-keygen, which is not installed; install OpenSSH 8.2 or later"
        ) from error


def _last_line(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no reason given"
