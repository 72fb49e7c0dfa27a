"""`memagent results`: the answers of an output with those of second passes over it."""

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser
from memagent_batch.errors import SettingsError
from memagent_batch.files.location import Location

MANUAL = Manual(
    command="memagent results",
    about="Writes the answers of an output, with those of second passes over it in their place. An answer of a later\n"
    "output stands if it can be used and is of the same text. The column `output` says where each answer is from.",
    examples=(
        "memagent results --over out/ second/ --to merged.parquet",
        "memagent results --over s3://bucket/scan/ s3://bucket/second/ --to s3://bucket/merged/",
    ),
    page="docs/how-to/second-pass.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the merged answers; returns the exit code."""
    return run_command(partial(_results, sys.argv[1:] if arguments is None else arguments))


def _results(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    parser.add_argument(
        "--over", nargs="+", required=True, metavar="OUTPUT", help="the first output, and those of second passes"
    )
    parser.add_argument(
        "--to", required=True, metavar="PATH", help="a file (.parquet or .arrow), or a folder for answers.parquet"
    )
    parser.add_storage_options()
    options = parser.parse_args(arguments)
    if len(options.over) < 2:
        raise SettingsError("--over: name the first output and at least one second pass")
    locate = partial(Location, storage_options=options.storage_options)
    target = options.to if options.to.endswith((".parquet", ".arrow")) else f"{options.to.rstrip('/')}/answers.parquet"
    counts = _write([locate(uri=output) for output in options.over], locate(uri=target))
    print(json.dumps({"file": target, **counts}))


def _write(outputs: Sequence[Location], target: Location) -> dict[str, int]:
    """Writes the merged answers, whole or not at all; returns how many there are, and how many are of second passes."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from memagent_batch.masking import shown
    from memagent_batch.runs.tables.merged import merged_batches

    rows = replaced = 0
    writer: pq.ParquetWriter | pa.ipc.RecordBatchFileWriter | None = None
    with TemporaryDirectory() as folder:
        file = Path(folder) / "merged"
        for batch in merged_batches(outputs):
            if writer is None and target.path.endswith(".arrow"):
                writer = pa.ipc.new_file(str(file), batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))
            elif writer is None:
                writer = pq.ParquetWriter(file, batch.schema, compression="zstd")
            writer.write_batch(batch)
            rows += batch.num_rows
            replaced += pc.sum(pc.not_equal(batch["output"], shown(outputs[0].uri))).as_py() or 0
        if writer is not None:
            writer.close()
            target.write_file(file)
    return {"rows": rows, "of_second_passes": replaced}


if __name__ == "__main__":
    sys.exit(main())
