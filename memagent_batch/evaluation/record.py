"""`evaluation.json`: which suite was read by which variants, and where their runs and scores lie."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from memagent_batch.domain.scoring.scores import ScoreOn
from memagent_batch.errors import OutputError
from memagent_batch.files.claims import claimed_record
from memagent_batch.files.json_files import write_json
from memagent_batch.files.location import Location
from memagent_batch.masking import shown

EVALUATION_FILE = "evaluation.json"
EVALUATION_FORMAT = "memagent-evaluation/1"
"""Changes with every change of layout that an older version can't read."""

VARIANT_RUNS_FOLDER = "runs"
SCORES_FOLDER = "scores"
CONVERTED_FOLDER = "suite"
"""Where a foreign suite lies in this project's layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRecord:
    """A variant that has been read and scored."""

    name: str
    """Its name."""
    run: str
    """Output of its run, below the evaluation."""
    scores: str
    """File of its scores, below the evaluation."""
    model: str
    """The model that read."""
    policy: str
    """Kind of the policy."""
    knobs: dict[str, object]
    """What sets it apart from the base settings, without secrets."""
    seconds: float
    """Wall clock of its run, seconds; of all attempts that came to an end."""
    reader_fingerprint: str
    """The reader."""
    run_id: str
    """Its run, as in the manifest."""
    suite_sha256: str
    """Hash of the suite's description and questions when it was read, hex."""
    finished_at: str
    """When its run ended, ISO 8601, UTC."""
    score_on: str = ScoreOn.ANSWER.value
    """Which text of a reading its scores are of, a `ScoreOn`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What an evaluation's output says of itself."""

    suite: str
    """URI of the suite, without credentials."""
    suite_folder: str
    """Where its questions and documents lie in this project's layout: the suite itself, or `CONVERTED_FOLDER`."""
    variants: tuple[VariantRecord, ...]
    """Variants that have been read, in the order in which they were first read."""

    def of(self, name: str) -> VariantRecord | None:
        """The record of a variant."""
        return next((variant for variant in self.variants if variant.name == name), None)

    def with_variant(self, record: VariantRecord) -> "Evaluation":
        """This one with a variant added, or in the place of the one of the same name."""
        variants = {variant.name: variant for variant in self.variants} | {record.name: record}
        return Evaluation(suite=self.suite, suite_folder=self.suite_folder, variants=tuple(variants.values()))


def read_evaluation(output: Location) -> Evaluation | None:
    """What lies at the location; None where nothing does.

    Raises:
        OutputError: it holds something else, or the evaluation of another version.
    """
    value = claimed_record(output, EVALUATION_FILE, layout=EVALUATION_FORMAT)
    if value is None:
        return None
    try:
        variants = tuple(VariantRecord(**variant) for variant in value["variants"])
        return Evaluation(suite=value["suite"], suite_folder=value["suite_folder"], variants=variants)
    except (KeyError, TypeError) as error:
        raise OutputError(
            f"output: {output.uri}/{EVALUATION_FILE} is not whole ({error}); restore it, or run the evaluation into "
            "another folder"
        ) from error


def claim_evaluation(output: Location, *, suite: Location, is_foreign: bool) -> Evaluation:
    """The evaluation of this suite at the location: the one that is there, or a new one without variants.

    Raises:
        OutputError: the place holds something else, or the evaluation of another suite.
    """
    named = shown(suite.fs.unstrip_protocol(suite.path))
    there = read_evaluation(output)
    if there is not None and there.suite != named and (output / VARIANT_RUNS_FOLDER).files():
        raise OutputError(
            f"output: {output.uri} belongs to an evaluation over the suite {there.suite}, not {named}; choose another "
            "output"
        )
    if there is not None and there.suite == named:
        return there
    folder = CONVERTED_FOLDER if is_foreign else named
    evaluation = Evaluation(suite=named, suite_folder=folder, variants=())
    write_evaluation(output, evaluation)
    return evaluation


def write_evaluation(output: Location, evaluation: Evaluation) -> None:
    """Writes `evaluation.json`, over one that is there."""
    write_json(output / EVALUATION_FILE, {"format": EVALUATION_FORMAT, **asdict(evaluation)})


def public_knobs(knobs: Mapping[str, object], *, public: Mapping[str, object]) -> dict[str, object]:
    """Of a variant's knobs those that a manifest shows, with the values that it shows.

    Args:
        knobs: Knobs that were given, some of them groups.
        public: All knobs without secrets, as `public_settings` makes them.
    """
    shown: dict[str, object] = {}
    for name, value in knobs.items():
        match value, public.get(name):
            case dict(), dict(below):
                shown[name] = public_knobs(value, public=below)
            case _ if name in public:
                shown[name] = public[name]
    return shown
