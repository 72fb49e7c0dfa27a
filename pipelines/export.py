"""Exporting rollouts: the table of `memagent collect` in, files that another trainer reads out. Streams; no Ray."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from memagent_batch.bridges.bridge import OVERRIDES_FILE, Bridge, Exported
from memagent_batch.bridges.exports import (
    EXPORT_FILE,
    EXPORT_FORMAT,
    PROMPTS_FILE,
    TURNS_FOLDER,
    ExportCounts,
    ExportWriter,
)
from memagent_batch.bridges.skyrl import SkyrlBridge
from memagent_batch.bridges.trl import TrlBridge
from memagent_batch.bridges.verl import AGENT_LOOP_FILE, VerlBridge
from memagent_batch.domain.advantages import Advantage
from memagent_batch.errors import InputError, SettingsError
from memagent_batch.storage.location import Location
from memagent_batch.storage.manifest import write_json
from memagent_batch.storage.rollouts_reader import read_rollouts_record, read_samples

BRIDGES: Mapping[str, Bridge] = {"verl": VerlBridge(), "trl": TrlBridge(), "skyrl": SkyrlBridge()}
"""Trainers that can be exported to."""


def export(rollouts: Location, output: Location, *, to: str) -> dict[str, Any]:
    """Writes a rollouts table for the trainer `to`, and returns what `export.json` says.

    Raises:
        SettingsError: there is no such trainer, or it can't make the table's advantages.
        InputError: the table is not whole, or holds nothing to learn from.
    """
    if to not in BRIDGES:
        raise SettingsError(f"--to: there is no bridge to {to!r}; choose one of {', '.join(BRIDGES)}")
    bridge, table = BRIDGES[to], read_rollouts_record(rollouts)
    advantage = Advantage(table["rollouts"]["advantage"])
    bridge.settings(_exported(ExportCounts(), output=output, advantage=advantage))  # refuses before anything is written
    for name in (EXPORT_FILE, PROMPTS_FILE, TURNS_FOLDER, OVERRIDES_FILE, AGENT_LOOP_FILE):
        (output / name).delete()
    writer = ExportWriter(output, bridge=bridge)
    for sample in read_samples(rollouts, files=table["files"]):
        writer.add(sample)
    writer.close()
    if not writer.counts.samples:
        raise InputError(
            f"{rollouts.uri}: none of its {writer.counts.samples_left_out} samples has an advantage: all "
            "failed or have no reward; see error_message in answers/ and reward_error in rollouts/, and collect again "
            "with --retry-failed"
        )
    settings = bridge.settings(_exported(writer.counts, output=output, advantage=advantage))
    for name, text in settings.items():
        (output / name).write_bytes(text.encode())
    record = {
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
    return record


def _exported(counts: ExportCounts, *, output: Location, advantage: Advantage) -> Exported:
    """The export as settings name it; a local one by its absolute path, since trainers run in folders of their own."""
    return Exported(
        uri=output.path if output.is_local else output.uri,
        advantage=advantage,
        group_size=counts.group_size,
        longest_prompt_tokens=counts.longest_prompt_tokens,
        longest_response_tokens=counts.longest_response_tokens,
    )
