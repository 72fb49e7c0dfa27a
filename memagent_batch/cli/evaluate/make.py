"""`memagent evaluate make`: writes a suite of documents and questions, from a seed, or of a user's own questions."""

import argparse
import re
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser, nearest_name
from memagent_batch.errors import SettingsError

if TYPE_CHECKING:
    from memagent_batch.evaluation.tasks.make import SuitePlan

MANUAL = Manual(
    command="memagent evaluate make",
    about="Writes a suite of documents and questions: at any list of lengths, from a seed; or your own questions.",
    examples=(
        "memagent evaluate make --output suite/ --lengths 8K 128K 1M",
        "memagent evaluate make --output suite/ --from-questions gold.jsonl --documents lake/",
    ),
    page="docs/how-to/evaluation.md",
)

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

    match = _LENGTH.fullmatch(text)
    if match is None:
        raise SettingsError(f"--lengths: {text!r} is no length in tokens; write it as 4096, 8K, 3.5M")
    length = round(float(match[1]) * _UNITS[match[2].upper()])
    if length < SHORTEST_TOKENS:
        raise SettingsError(f"--lengths: {text!r} is too short; documents have {SHORTEST_TOKENS} tokens or more")
    return length


def _make(arguments: Sequence[str]) -> None:
    options = _make_parser().parse_args(arguments)
    if options.from_questions:
        _make_own(options)
        return
    if options.documents:
        raise SettingsError("--documents: they belong to --from-questions, which is missing")
    from memagent_batch.evaluation.tasks.inputs import read_suite_inputs
    from memagent_batch.evaluation.tasks.make import make_suite
    from memagent_batch.files.location import Location

    plan = _suite_plan(options)
    storage_options = options.storage_options
    inputs = read_suite_inputs(
        model=options.model,
        essays=options.essays,
        hotpotqa=options.hotpotqa,
        squad=options.squad,
        storage_options=storage_options,
    )
    output = Location(uri=options.output, storage_options=storage_options)
    is_new = make_suite(plan, inputs.materials, output, inputs=inputs.record, say=partial(print, flush=True))
    _print_next(output, is_new=is_new, model=options.model)


def _make_own(options: argparse.Namespace) -> None:
    for name in ("lengths", "num_documents", "essays", "hotpotqa", "squad", "typed"):
        if getattr(options, name):
            raise SettingsError(f"--{name.replace('_', '-')}: it does not belong to --from-questions; leave it out")
    if options.tasks != ["all"]:
        raise SettingsError("--tasks: they are made from a seed, and --from-questions is not; leave one of them out")
    if not options.documents:
        raise SettingsError("--documents: missing; name what the questions of --from-questions are asked of")
    from memagent_batch.config.sources import InputConfig
    from memagent_batch.domain.scoring.scores import Metric
    from memagent_batch.evaluation.suites.own import OwnSuite, make_own_suite
    from memagent_batch.files.location import Location

    locate = partial(Location, storage_options=options.storage_options)
    columns = {"document_id_column": options.document_id_column, "text_column": options.text_column}
    own = OwnSuite(
        documents=tuple(locate(uri=uri) for uri in options.documents),
        questions=locate(uri=options.from_questions),
        settings=InputConfig(**columns),
        metric=Metric(options.metric),
    )
    output = locate(uri=options.output)
    is_new = make_own_suite(own, output, say=partial(print, flush=True))
    _print_next(output, is_new=is_new, model=options.model)


def _print_next(output: object, *, is_new: bool, model: str) -> None:
    if is_new:
        print(f"read it with: memagent evaluate run --suite {output} --output FOLDER --model {model}")
    else:
        print(f"{output} holds this suite already; nothing to do")


def _make_parser() -> OptionParser:
    parser = OptionParser(MANUAL)
    parser.add_argument("--output", required=True, help="the suite's folder, or any fsspec URL")
    parser.add_argument(
        "--model",
        default="tiny",
        help="lengths are counted in tokens of this model: `tiny`, a model folder or hub name",
    )
    parser.add_argument("--tasks", nargs="+", default=["all"], help="names, or all that have their file (default)")
    parser.add_argument("--lengths", nargs="+", default=[], help="tokens of a document: 4096, 8K (x1,024), 3.5M")
    parser.add_argument("--samples", type=int, default=20, help="documents of each task and length (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed makes the same suite (default: 0)")
    parser.add_argument("--typed", action="store_true", help="ask for a number or a label where a task's answer is one")
    parser.add_argument("--essays", help="folder of .txt or .md files to hide needles in; the project's own without it")
    parser.add_argument("--hotpotqa", help="HotpotQA file, JSON; for qa_hotpot and ruler_hqa")
    parser.add_argument("--squad", help="SQuAD file, JSON; for qa_squad")
    parser.add_argument("--num-documents", type=int, nargs="+", default=[], help="lengths for ruler_hqa: 50 to 25600")
    _add_own_options(parser)
    parser.add_storage_options()
    return parser


def _add_own_options(parser: OptionParser) -> None:
    from memagent_batch.domain.scoring.scores import TEXT_METRICS, Metric

    parser.add_argument("--from-questions", metavar="LIST", help="your own question list, each with references")
    parser.add_argument("--documents", nargs="+", default=[], help="what these are asked of: files, folders, globs")
    parser.add_argument(
        "--metric",
        choices=[*TEXT_METRICS],
        default=Metric.SUB_EM,
        help="metric of these, where they ask for no type (default: sub_em)",
    )
    parser.add_argument(
        "--input.document-id-column",
        dest="document_id_column",
        default="document_id",
        metavar="NAME",
        help="column of the documents with their ids (default: document_id)",
    )
    parser.add_argument(
        "--input.text-column",
        dest="text_column",
        default="text",
        metavar="NAME",
        help="column of the documents with their texts (default: text)",
    )


def _suite_plan(options: argparse.Namespace) -> "SuitePlan":
    from memagent_batch.evaluation.tasks.make import SuitePlan, all_tasks
    from memagent_batch.evaluation.tasks.tasks import TASKS

    sources = [name for name in ("hotpotqa", "squad") if getattr(options, name)]
    tasks = all_tasks(given=sources) if options.tasks == ["all"] else tuple(dict.fromkeys(options.tasks))
    if options.tasks == ["all"] and not options.num_documents:
        tasks = tuple(name for name in tasks if not TASKS[name].by_documents)
    unknown = [name for name in tasks if name not in TASKS]
    if unknown:
        near = nearest_name(unknown[0], TASKS)
        advice = f"did you mean {near}?" if near else f"choose from {', '.join(TASKS)}, or all"
        raise SettingsError(f"--tasks: there is no task {unknown[0]!r}; {advice}")
    if options.samples < 1 or any(number < 1 for number in options.num_documents):
        raise SettingsError("--samples and --num-documents must be 1 or more")
    for by_documents, knob in ((False, "lengths"), (True, "num-documents")):
        needing = [name for name in tasks if TASKS[name].by_documents is by_documents]
        if needing and not getattr(options, knob.replace("-", "_")):
            raise SettingsError(f"--{knob}: missing; {needing[0]} needs at least one")
    return SuitePlan(
        tasks=tasks,
        lengths=tuple(sorted({parse_length(text) for text in options.lengths})),
        num_documents=tuple(sorted(set(options.num_documents))),
        samples=options.samples,
        seed=options.seed,
        typed=options.typed,
    )


if __name__ == "__main__":
    sys.exit(main())
