"""Exporting rollouts: the table of `memagent collect` in, files that another trainer reads out. Streams; no Ray."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from memagent_batch.domain.scoring.advantages import Advantage
from memagent_batch.errors import InputError, SettingsError
from memagent_batch.files.claims import claimed_record
from memagent_batch.files.json_files import write_json
from memagent_batch.files.location import Location
from memagent_batch.training.bridges.bridge import OVERRIDES_FILE, Bridge, Exported
from memagent_batch.training.bridges.exports import (
    EXPORT_FILE,
    EXPORT_FOLDER,
    EXPORT_FORMAT,
    PROMPTS_FILE,
    ExportCounts,
    ExportRecord,
    ExportWriter,
)
from memagent_batch.training.bridges.skyrl import SkyrlBridge
from memagent_batch.training.bridges.trl import TrlBridge
from memagent_batch.training.bridges.verl import AGENT_LOOP_FILE, VerlBridge
from memagent_batch.training.rollouts.reader import read_rollouts_record, read_samples

BRIDGES: Mapping[str, Bridge] = {"verl": VerlBridge(), "trl": TrlBridge(), "skyrl": SkyrlBridge()}
"""Trainers that can be exported to."""


def export(rollouts: Location, output: Location, *, to: str) -> ExportRecord:
    """Writes a rollouts table for the trainer `to`, and returns what `export.json` says.

    An export that is there is replaced once the new one's turns are whole.

    Raises:
        OutputError: the output holds something that is no export.
        SettingsError: there is no such trainer, or it can't make the table's advantages.
        InputError: the table is not whole, or holds nothing to learn from.
    """
    if to not in BRIDGES:
        raise SettingsError(f"--to: there is no bridge to {to!r}; choose one of {', '.join(BRIDGES)}")
    bridge, table = BRIDGES[to], read_rollouts_record(rollouts)
    advantage = Advantage(str(table["rollouts"]["advantage"]))
    bridge.settings(_exported(ExportCounts(), output=output, advantage=advantage))  # refuses before anything is written
    claimed_record(output, EXPORT_FILE, layout=EXPORT_FORMAT)
    export_id = uuid.uuid4().hex[:12]
    try:
        writer, prompts = _write_turns(rollouts, output, bridge=bridge, files=table["files"], export_id=export_id)
    except BaseException:
        _remove_turns(output, of_export=lambda name: export_id in name)
        raise
    settings = bridge.settings(_exported(writer.counts, output=output, advantage=advantage))
    (output / PROMPTS_FILE).write_bytes(prompts)
    for name, text in settings.items():
        (output / name).write_bytes(text.encode())
    record: ExportRecord = {
        "format": EXPORT_FORMAT,
        "to": to,
        "rollouts": str(rollouts),
        "run_id": table["run_id"],
        "advantage": advantage,
        "counts": writer.counts.as_record(),
        "files": writer.files,
        "settings": list(settings),
        "finished_at": datetime.now(UTC).isoformat(),
    }
    write_json(output / EXPORT_FILE, record)
    _remove_turns(output, of_export=lambda name: name.startswith("part-") and export_id not in name)
    for name in {OVERRIDES_FILE, AGENT_LOOP_FILE} - settings.keys():
        (output / name).delete()
    return record


def _write_turns(
    rollouts: Location, output: Location, *, bridge: Bridge, files: Sequence[str], export_id: str
) -> tuple[ExportWriter, bytes]:
    """Writes the turns beside those of an older export; returns the writer and the content of `PROMPTS_FILE`.

    Raises:
        InputError: the table holds nothing to learn from.
    """
    writer = ExportWriter(output, bridge=bridge, export_id=export_id)
    for sample in read_samples(rollouts, files=files):
        writer.add(sample)
    prompts = writer.close()
    if not writer.counts.samples:
        raise InputError(
            f"{rollouts.uri}: none of its {writer.counts.samples_left_out} samples has an advantage: all "
            "failed or have no reward; see error_message in answers/ and reward_error in rollouts/, and collect again "
            "with --retry-failed"
        )
    return writer, prompts


def _remove_turns(output: Location, *, of_export: Callable[[str], bool]) -> None:
    folder = output / EXPORT_FOLDER
    folder.delete_files([path for path in folder.files(temporary=True) if of_export(path.rsplit("/", 1)[-1])])


def _exported(counts: ExportCounts, *, output: Location, advantage: Advantage) -> Exported:
    """The export as settings name it; a local one by its absolute path, since trainers run in folders of their own."""
    return Exported(
        uri=output.path if output.is_local else output.uri,
        advantage=advantage,
        group_size=counts.group_size,
        longest_prompt_tokens=counts.longest_prompt_tokens,
        longest_response_tokens=counts.longest_response_tokens,
    )
