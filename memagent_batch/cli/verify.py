"""`memagent verify`: checks that an output is as its runs recorded it, and that its tables follow from its log."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from memagent_batch.cli.settings import JsonCommand, OutputsCommand
from memagent_batch.domain.texts.shares import quantity
from memagent_batch.errors import NotVerifiedError, SettingsError
from memagent_batch.masking import mask_url, printable

if TYPE_CHECKING:
    from memagent_batch.audit.reread import Reread
    from memagent_batch.flows.audit import RereadSample, Verification

SHOWN = 10
"""Turns that are named; --json has all."""


DIFFERENCES = (
    "On a GPU a token may depend on what else was in flight when it was computed, unless vllm.reproducible was on. "
    "Another machine, another version of the engine, or an endpoint's other weights give other tokens too"
)
"""Why tokens may differ though nothing was changed."""


class Verify(OutputsCommand, JsonCommand):
    """Checks the last run of an output: every file, the counts, and that every row of the tables follows from the
    turn log. Exit code 0 if all holds, 5 if something does not: what, and where.
    """

    command = "memagent verify"
    examples = ("memagent verify s3://bucket/scan/ --all", "memagent verify out/ --reread 50 --job job.yaml")
    page = "docs/how-to/record.md"

    all_runs: bool = Field(default=False, alias="all")
    """Check the files of every run, and that each run names the one before it."""
    allowed_signers: str | None = None
    """Who may have signed the record (record.sign): a file as `ssh-keygen -Y verify` takes it."""
    reread: Annotated[int, Field(ge=0)] = 0
    """Ask the engine again for so many turns, drawn by permanent random numbers, and compare the tokens."""
    seed: int = 0
    """Another seed draws other turns."""
    job: str | None = None
    """Job file of the run, for --reread: a record decides no code to run, and no address to send your key to."""
    without_text: bool = False
    """Read no documents; the table `evidence` is then not compared."""

    def run(self) -> None:
        _tell({output: self._verified(output) for output in self.output}, as_json=self.as_json)

    def _verified(self, output: str) -> "Verification":
        from memagent_batch.flows.audit import verify

        return verify(
            self.find_output(output),
            with_text=not self.without_text,
            all_runs=self.all_runs,
            allowed_signers=_file_of_signers(self.allowed_signers),
            drawn=self._sample(output) if self.reread else None,
        )

    def _sample(self, output: str) -> "RereadSample":
        """Which turns are asked again, by the agent of the job file; secrets are those of the environment."""
        from memagent_batch.cli.options import read_settings
        from memagent_batch.cli.settings import JobSettings
        from memagent_batch.flows.audit import RereadSample

        if self.job is None:
            raise SettingsError("--reread: pass the job file of the run with --job")
        places = {"documents": output, "output": output, "storage_options": self.storage_options}
        job = read_settings(JobSettings, places, configs=[self.job]).job()
        return RereadSample(num=self.reread, seed=self.seed, job=job)


def _file_of_signers(path: str | None) -> Path | None:
    if path is not None and not Path(path).is_file():
        raise SettingsError(f"--allowed-signers: there is no file {path}; check the path")
    return Path(path) if path is not None else None


def _tell(results: Mapping[str, "Verification"], *, as_json: bool) -> None:
    """Prints what was found in each output, and raises if something is wrong."""
    findings = [finding for result in results.values() for finding in result.findings]
    if as_json:
        shown = [asdict(replace(result, failure=None)) for result in results.values()]
        for each in shown:
            del each["failure"]
        print(json.dumps(shown if len(shown) > 1 else shown[0], indent=2, ensure_ascii=False))
    else:
        for output, result in results.items():
            lines = _result_lines(result)
            print("\n".join(map(printable, lines if len(results) == 1 else [f"{mask_url(output)}:", *lines])))
        if not findings:
            print("all that was checked is as it was recorded")
    if findings:
        what = "1 thing is not as it was" if len(findings) == 1 else f"{len(findings):,} things are not as they were"
        raise NotVerifiedError(f"{what} recorded; see above, and docs/how-to/record.md for what each line means")
    for result in results.values():
        if result.failure is not None:
            raise result.failure


def _result_lines(result: "Verification") -> Iterator[str]:
    for each in result.findings:
        yield f"{each.kind.value.upper()} {each.where}: {each.what}"
    for unchecked in result.unchecked:
        yield f"not checked: {unchecked.what}: {unchecked.why}"
    if result.run_id:
        files = f"{quantity(result.num_files, 'file')} as recorded by {quantity(result.num_runs, 'run')}"
        signed = f", {result.num_sign_off_files:,} of them sign-offs" if result.num_sign_off_files else ""
        yield f"run {result.run_id}: {files}{signed}"
        yield f"{quantity(result.num_rows, 'row')} compared with the log"
        if result.sha256:
            yield f"SHA-256 of its list of files: {result.sha256}"
        if result.signer:
            yield f"signed by {result.signer}"
    if result.not_asked:
        yield result.not_asked
    if result.reread is not None:
        yield from _lines_of_turns(result.reread)


def _lines_of_turns(again: "Reread") -> Iterator[str]:
    asked = f"{again.num_asked:,} of {again.num_drawn:,} turns were asked again"
    yield f"{asked}: {len(again.different):,} have other tokens"
    for turn in again.different[:SHOWN]:
        yield (
            f"  {turn.path} of document {turn.document_id!r}, question {turn.question_id!r}, sample {turn.sample}: "
            f"other from token {turn.first_difference:,} on"
        )
    if again.different:
        yield "  " + DIFFERENCES
    for why in again.not_asked[:SHOWN]:
        yield f"  not asked: {why}"
    if len(again.not_asked) > SHOWN:
        yield f"  not asked: {len(again.not_asked) - SHOWN:,} more"
