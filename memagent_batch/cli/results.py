"""`memagent results`: the answers of an output with those of second passes over it."""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from memagent_batch.cli.settings import StorageCommand
from memagent_batch.config.section import Text
from memagent_batch.errors import SettingsError

if TYPE_CHECKING:
    from memagent_batch.data.store.location import Location


class Results(StorageCommand):
    """Writes the answers of an output, replaced by those of second passes over it. The column `output` says where each
    answer is from.
    """

    command = "memagent results"
    examples = (
        "memagent results --over out/ second/ --to merged.parquet",
        "memagent results --over s3://bucket/scan/ s3://bucket/second/ --to s3://bucket/merged/",
    )
    pages = ("docs/how-to/second-pass.md",)

    over: tuple[Text, ...]
    """The first output, and those of second passes."""
    to: Text
    """A file that ends in .parquet, or a folder for answers.parquet."""

    def run(self) -> None:
        if len(self.over) < 2:
            raise SettingsError("--over: name the first output and at least one second pass")
        target = self.locate(self.to if self.to.endswith(".parquet") else f"{self.to.rstrip('/')}/answers.parquet")
        counts = _write_answers([self.locate(output) for output in self.over], target)
        print(json.dumps({"file": str(target), **counts}))


def _write_answers(outputs: Sequence["Location"], target: "Location") -> dict[str, int]:
    """Writes the merged answers, whole or not at all; returns how many there are, and how many are of second passes."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from memagent_batch.masking import mask_url
    from memagent_batch.run.second_pass import merged_batches

    rows = replaced = 0
    writer: pq.ParquetWriter | None = None
    with TemporaryDirectory() as folder:
        file = Path(folder) / "merged"
        for batch in merged_batches(outputs):
            writer = writer or pq.ParquetWriter(file, batch.schema, compression="zstd")
            writer.write_batch(batch)
            rows += batch.num_rows
            replaced += pc.sum(pc.not_equal(batch["output"], mask_url(outputs[0].uri))).as_py() or 0
        if writer is not None:
            writer.close()
            target.write_file(file)
    return {"rows": rows, "of_second_passes": replaced}
