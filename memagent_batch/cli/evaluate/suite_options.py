"""The options that `memagent evaluate run` and `memagent evaluate score` share."""

from memagent_batch.cli.options import OptionParser


def add_suite_options(parser: OptionParser) -> None:
    """Adds the suite, its format, and which text is scored."""
    from memagent_batch.domain.scoring.scores import ScoreOn
    from memagent_batch.evaluation.suites.foreign import ForeignFormat

    parser.add_argument(
        "--suite",
        metavar="PATH",
        required=True,
        help="folder of `evaluate make`, or files of a foreign suite (required)",
    )
    parser.add_argument(
        "--format", choices=[*ForeignFormat], help="format of a foreign suite (default: by its records)"
    )
    parser.add_argument(
        "--score-on",
        choices=[ScoreOn.METRIC, ScoreOn.RESPONSE, ScoreOn.ANSWER],
        default=ScoreOn.METRIC,
        help="score the whole response, the answer taken out of it, or what each metric's authors score: the response "
        "by `all` and `any` (RULER), the answer by the others (default: metric)",
    )
