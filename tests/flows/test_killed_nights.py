"""Commands killed with SIGKILL at random moments: tables stay whole, and the same command goes on to the same end."""

import os
import random
import signal
import time
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location
from memagent_batch.run.flows.verify import verify
from memagent_batch.run.history import has_pending_erasure
from tests.flows.struck_jobs import (
    FIRST_NIGHT,
    FLUSH_SECONDS,
    SECOND_NIGHT,
    Length,
    StruckJob,
    await_moment,
    look,
    looked_at,
    results,
    strike,
    text_of,
    wait,
)

WRITE_SECONDS = 1.5
"""Longest time that a flush of the log takes on a busy machine, in a store too."""
FORGOTTEN = "Bob"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undisturbed:
    """What the second night ends with, and how long it takes after the first one."""

    results: dict[str, list[Any]]
    length: Length


@pytest.fixture(scope="module")
def first_night(tmp_path_factory: pytest.TempPathFactory, text_model: str) -> StruckJob:
    folder = tmp_path_factory.mktemp("first")
    job = StruckJob(folder=folder, output=Location(uri=str(folder / "run")), model=text_model)
    job.put(FIRST_NIGHT)
    job.run()
    return job


@pytest.fixture(scope="module")
def undisturbed(first_night: StruckJob, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed") / "job"
    job = first_night.copy_to(folder, Location(uri=str(folder / "run")))
    job.put(SECOND_NIGHT)
    length = job.run()
    assert look(job.output)
    return Undisturbed(results=results(job), length=length)


@pytest.fixture(params=["disk", pytest.param("s3", marks=[pytest.mark.slow, pytest.mark.s3])])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """Where outputs are."""
    return Location(uri=str(tmp_path)) if request.param == "disk" else request.getfixturevalue("s3_bucket") / "outputs"


def kill(job: StruckJob, rng: random.Random, length: Length, *words: str, done: int = 0) -> float:
    """Starts a command and kills it at some moment; returns when, and looks at what it has left.

    `done` is the exit code of a command that an earlier one has left nothing to do.
    """
    process = job.start(*words)
    await_moment(job, process, rng, length)
    strike(process, signal.SIGKILL)
    assert wait(process) in (0, done, -signal.SIGKILL), job.console.read_text()[-3000:]
    killed = time.time()
    look(job.output)
    return killed


def require_few_asked_again(job: StruckJob, kills: list[float]) -> None:
    """Requires that turns were asked again only if they had ended in the last flush interval before a kill."""
    times: dict[str, list[float]] = {}
    for at, prompt_hash in job.calls:
        times.setdefault(prompt_hash, []).append(at)
    for asked in times.values():
        for first, _ in pairwise(asked):
            killed = kills[bisect_left(kills, first)]
            assert killed - first < FLUSH_SECONDS + WRITE_SECONDS


SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))]


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_killed_at_random_moments_end_with_the_answers_of_an_undisturbed_run(
    seed: int, place: Location, first_night: StruckJob, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    folder, output = tmp_path / "job", place / f"run-{seed}"
    job = first_night.copy_to(folder, output)
    if seed % 3 == 0:  # no run has finished yet
        output.delete()
    job.put(SECOND_NIGHT)
    with looked_at(output) as looks:
        kills = [kill(job, rng, undisturbed.length) for _ in range(2)]
        job.run()
    assert looks() > 0
    look(output)
    assert results(job) == undisturbed.results
    assert verify(output).problems == []
    require_few_asked_again(job, kills)


THIRD_NIGHT = {**FIRST_NIGHT, "Dora": text_of("Dora", days=6), "Jan": text_of("Jan", days=3)}
SLICES = [{"slice": f"{number}/2"} for number in (1, 2)]


@dataclass(kw_only=True)
class Storm:
    """Nights that are killed, run twice at once and in slices."""

    job: StruckJob
    rng: random.Random
    length: Length
    num_kills: int = 0
    num_refused: int = 0
    """Attempts that ended with exit code 3."""

    def strike_one(self) -> None:
        """Kills a night."""
        self._end(self.job.start(), is_killed=True)

    def strike_twins(self) -> None:
        """Starts a night while it runs already, and kills one of both."""
        first = self.job.start()
        await_moment(self.job, first, self.rng, self.length)
        twins = [first, self.job.start()]
        self.rng.shuffle(twins)
        self._end(twins[0], is_killed=True)
        self._end(twins[1])

    def strike_slices(self) -> None:
        """Starts two slices at once, and kills one of them."""
        slices = [self.job.start(input=each) for each in SLICES]
        self.rng.shuffle(slices)
        self._end(slices[0], is_killed=True)
        self._end(slices[1], refused=())

    def wake_stale(self) -> None:
        """Stops a night at some moment, and lets it go on when another one has ended; then kills a third."""
        stale = self.job.start()
        await_moment(self.job, stale, self.rng, self.length)
        strike(stale, signal.SIGSTOP)
        try:
            self.job.run()
        finally:
            strike(stale, signal.SIGCONT)
        self._end(stale)
        self.strike_one()

    def _end(self, process: Any, *, is_killed: bool = False, refused: tuple[int, ...] = (3,)) -> None:
        if is_killed:
            await_moment(self.job, process, self.rng, self.length)
            self.num_kills += process.is_alive()
            strike(process, signal.SIGKILL)
        code = wait(process)
        self.num_refused += code == 3
        expected = {0, *refused, *([-signal.SIGKILL] if is_killed else [])}
        assert code in expected, f"exit code {code}: {self.job.console.read_text()[-3000:]}"


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", [1])
def test_storm_of_kills_twins_and_slices_leaves_every_table_whole(
    seed: int, place: Location, first_night: StruckJob, text_model: str, tmp_path: Path
) -> None:
    """`TEST_KILLS` says how many processes are killed."""
    wanted_kills = int(os.environ.get("TEST_KILLS", "10"))
    nights = [FIRST_NIGHT, SECOND_NIGHT, THIRD_NIGHT]
    fresh = list[dict[str, list[Any]]]()
    for number, texts in enumerate(nights):
        (tmp_path / f"fresh-{number}").mkdir()
        folder = tmp_path / f"fresh-{number}"
        undisturbed = StruckJob(folder=folder, output=Location(uri=str(folder / "run")), model=text_model)
        undisturbed.put(texts)
        length = undisturbed.run()
        fresh.append(results(undisturbed))
    job = first_night.copy_to(tmp_path / "job", place / "storm")
    storm = Storm(job=job, rng=random.Random(seed), length=length)
    strikes = [storm.strike_one, storm.strike_twins, storm.strike_slices, storm.wake_stale]
    num_looks = 0
    while storm.num_kills < wanted_kills:
        night = storm.rng.randrange(len(nights))
        job.put(nights[night])
        with looked_at(job.output, is_sliced=True) as looks:
            for _ in range(storm.rng.randint(1, 3)):
                storm.rng.choice(strikes)()
                look(job.output, is_sliced=True)
            job.run()
        look(job.output)
        assert results(job) == fresh[night]
        assert verify(job.output).problems == []
        num_looks += looks() + 1
    print(f"{storm.num_kills} kills, {storm.num_refused} attempts refused, {num_looks} looks, no violation")
    assert num_looks > storm.num_kills


MANY = {f"{name}{number}": f"{name} {number}" for name in "ABCDEFGHIJKLMNOP" for number in range(3)}
SECOND_MANY = {name: f"{text}!" if name[1] == "0" else text for name, text in MANY.items() if name[0] != "C"}


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_ingest_killed_at_random_moments_loses_and_doubles_no_document(
    seed: int, place: Location, text_model: str, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    job = StruckJob(folder=tmp_path, output=place / "run", model=text_model)
    job.put(MANY)
    length = job.run("ingest")
    for texts in (SECOND_MANY, MANY):
        job.put(texts)
        for _ in range(2):
            kill(job, rng, length, "ingest")
            assert {row["document_id"]: row["text"] for row in latest(job, "documents")}.items() <= {
                *MANY.items(),
                *SECOND_MANY.items(),
            }
        job.run("ingest")
        assert {row["document_id"]: row["text"] for row in latest(job, "documents")} == texts
        assert {row["source"] for row in latest(job, "sources")} == {f.name for f in (tmp_path / "in").iterdir()}
        look(job.output)


def latest(job: StruckJob, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = OutputTable(output=job.output, name=name).dataset().to_table().to_pylist()
    return rows


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_vacuum_and_forget_killed_at_random_moments_end_with_the_same_command(
    seed: int, place: Location, first_night: StruckJob, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    rng, length = random.Random(seed), Length(seconds=1.0, num_commits=6)
    job = first_night.copy_to(tmp_path / "job", place / "run")
    job.put(SECOND_NIGHT)
    job.run()
    for _ in range(2):
        kill(job, rng, length, "vacuum", "--keep-days", "0")
    job.run("vacuum", "--keep-days", "0")
    look(job.output)
    assert results(job) == undisturbed.results
    forget = ("forget", "--document", FORGOTTEN, "--yes")
    for _ in range(2):
        kill(job, rng, length, *forget, done=2)
    assert wait(job.start(*forget)) in (0, 2)  # 2 if there was nothing to forget any more
    assert not has_pending_erasure(job.output)
    assert files_with(job.output, f"day 1 of {FORGOTTEN}") == []
    look(job.output)
    assert verify(job.output).problems == []
    job.run()  # it is still in its source
    assert results(job) == undisturbed.results


def files_with(output: Location, text: str) -> list[str]:
    """Files that hold a text, in a value of Parquet or as it is."""
    contents = {path: output.at(path).read_bytes() for path in output.files(temporary=True)}
    rows = {
        path: pq.read_table(pa.BufferReader(data)).to_pylist() for path, data in contents.items() if data[:4] == b"PAR1"
    }
    return [path for path, data in contents.items() if text in str(rows.get(path, "")) or text.encode() in data]
