"""Options that `review plan` and `review make` share: which readings, and how many labels."""

from argparse import Namespace

from memagent_batch.cli.options import OptionParser
from memagent_batch.errors import SettingsError


def add_asked_options(parser: OptionParser) -> None:
    """Adds them."""
    parser.add_argument("output", help="the output of `memagent answer`: a folder or any fsspec URL")
    parser.add_argument("--question", required=True, metavar="ID", help="question_id of the question that is reviewed")
    parser.add_argument(
        "--flagged",
        metavar="CONDITION",
        help='what the scan found, as in "value_bool = true" (the '
        "default), \"value_label in ('red', 'amber')\" or \"answer ~ '(?i)^yes'\"",
    )
    parser.add_argument("--by", metavar="COLUMN", help="review each value of a column apart, as of value_label")
    parser.add_argument(
        "--unsure", type=float, metavar="P", help="confidence below which what was not flagged is a stratum of its own"
    )
    parser.add_argument(
        "--labels",
        default="750",
        metavar="N",
        help="labels in all, or of each stratum as in flagged=150,not_flagged=600 (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the draw (default: %(default)s)")
    parser.add_storage_options()


def check_asked(options: Namespace) -> str | None:
    """The condition that is meant.

    Raises:
        SettingsError: the options don't fit each other.
    """
    if options.by and (options.flagged or options.unsure is not None):
        raise SettingsError("--by: it divides by values; take out --flagged and --unsure")
    if options.unsure is not None and not 0 < options.unsure <= 1:
        raise SettingsError(f"--unsure: {options.unsure} is no confidence; give more than 0, at most 1")
    return None if options.by else options.flagged or "value_bool = true"
