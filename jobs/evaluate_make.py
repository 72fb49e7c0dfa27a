"""`memagent evaluate make`: writes a suite of documents and questions, at any list of lengths, from a seed."""

import argparse
import re
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from jobs.arguments import run_command
from jobs.options import OptionParser
from memagent_batch.errors import SettingsError

if TYPE_CHECKING:
    from memagent_batch.evaluation.tasks.make import SuitePlan

_LENGTH = re.compile(r"([0-9]+|[0-9]+\.[0-9]+)([KM]?)", re.IGNORECASE)
_UNITS = {"": 1, "K": 1024, "M": 1024**2}


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes the suite; returns the exit code."""
    return run_command(partial(_make, sys.argv[1:] if arguments is None else arguments))


def parse_length(text: str) -> int:
    """A length in tokens: a number, or one with K (1,024) or M (1,048,576).

    Raises:
        SettingsError: it is no such number, or too small for a suite.
    """
    from memagent_batch.evaluation.tasks.lengths import SHORTEST_TOKENS

    found = _LENGTH.fullmatch(text)
    if found is None:
        raise SettingsError(f"--lengths: {text!r} is no length in tokens; write it as 4096, 8K, 3.5M")
    length = round(float(found[1]) * _UNITS[found[2].upper()])
    if length < SHORTEST_TOKENS:
        raise SettingsError(f"--lengths: {text!r} is too short; documents have {SHORTEST_TOKENS} tokens or more")
    return length


def _make(arguments: Sequence[str]) -> None:
    known = _options().parse_args(arguments)
    from memagent_batch.evaluation.tasks.inputs import read_inputs
    from memagent_batch.evaluation.tasks.make import make_suite
    from memagent_batch.files.location import Location

    plan = _plan(known)
    storage_options = known.storage_options
    inputs = read_inputs(
        model=known.model,
        essays=known.essays,
        hotpotqa=known.hotpotqa,
        squad=known.squad,
        storage_options=storage_options,
    )
    output = Location(uri=known.output, storage_options=storage_options)
    made = make_suite(plan, inputs.materials, output, inputs=inputs.record, say=partial(print, flush=True))
    if made:
        print(f"read it with: memagent evaluate run --suite {output} --output FOLDER --model {known.model}")
    else:
        print(f"{output} holds this suite already; nothing to do")


def _options() -> OptionParser:
    options = OptionParser(prog="memagent evaluate make", description=__doc__)
    options.add_argument("--output", required=True, help="the suite's folder, or any fsspec URL")
    options.add_argument("--model", default="tiny", help="whose tokens count: `tiny`, a model folder or hub name")
    options.add_argument("--tasks", nargs="+", default=["all"], help="names, or all that have their file (default)")
    options.add_argument("--lengths", nargs="+", default=[], help="tokens of a document: 4096, 8K (x1,024), 3.5M")
    options.add_argument("--samples", type=int, default=20, help="documents of each task and length (default: 20)")
    options.add_argument("--seed", type=int, default=0, help="the same seed makes the same suite (default: 0)")
    options.add_argument(
        "--essays", help="folder of .txt or .md files to hide needles in; the project's own without it"
    )
    options.add_argument("--hotpotqa", help="HotpotQA file, JSON; for qa_hotpot and ruler_hqa")
    options.add_argument("--squad", help="SQuAD file, JSON; for qa_squad")
    options.add_argument("--num-documents", type=int, nargs="+", default=[], help="lengths for ruler_hqa: 50 to 25600")
    options.add_storage_options()
    return options


def _plan(known: argparse.Namespace) -> "SuitePlan":
    from memagent_batch.evaluation.tasks.make import SuitePlan, all_tasks
    from memagent_batch.evaluation.tasks.tasks import TASKS

    given = [name for name in ("hotpotqa", "squad") if getattr(known, name)]
    tasks = all_tasks(given=given) if known.tasks == ["all"] else tuple(dict.fromkeys(known.tasks))
    if known.tasks == ["all"] and not known.num_documents:
        tasks = tuple(name for name in tasks if not TASKS[name].by_documents)
    unknown = [name for name in tasks if name not in TASKS]
    if unknown:
        raise SettingsError(f"--tasks: there is no task {unknown[0]!r}; choose from {', '.join(TASKS)}, or all")
    if known.samples < 1 or any(number < 1 for number in known.num_documents):
        raise SettingsError("--samples and --num-documents must be 1 or more")
    for by_documents, knob in ((False, "lengths"), (True, "num-documents")):
        needing = [name for name in tasks if TASKS[name].by_documents is by_documents]
        if needing and not getattr(known, knob.replace("-", "_")):
            raise SettingsError(f"--{knob}: missing; {needing[0]} needs at least one")
    return SuitePlan(
        tasks=tasks,
        lengths=tuple(sorted({parse_length(text) for text in known.lengths})),
        num_documents=tuple(sorted(set(known.num_documents))),
        samples=known.samples,
        seed=known.seed,
    )


if __name__ == "__main__":
    sys.exit(main())
