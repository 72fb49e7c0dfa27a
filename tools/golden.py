"""Runs six jobs and keeps the cells of their tables, to compare what two versions of the code write.

`python tools/golden.py run OUT` runs the code on PYTHONPATH, or else that of this checkout, and writes
`OUT/JOB/NIGHT/TABLE.jsonl`. `python tools/golden.py compare A B` prints the cells in which two such folders differ.
"""

import argparse
import hashlib
import importlib
import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

TOOLS = Path(__file__).resolve().parent
sys.path.insert(len(sys.path) if "PYTHONPATH" in os.environ else 0, str(TOOLS.parent))
SIMULATED = ("memagent_batch.loop.engines.simulated", "memagent_batch.loop.engines.simulated")
"""Modules that have the simulated engine, of older and newer code."""
TABLES = ("answers", "values", "memories", "evidence", "results", "rollouts")
KEYS = ("document_id", "question_id", "sample", "how", "rank", "turn")
"""Columns that tell the rows of a table apart, as far as it has them."""
EXCLUDED = {
    *("run_id", "read_run_id", "started_at", "finished_at", "engine_seconds", "num_replayed_turns", "inputs_hash"),
    *("num_cached_prompt_tokens", "fingerprint", "group_id", "seed", "weights_version", "source_hash"),
}
"""Columns that differ between two runs of the same code, or with where the code and its log are."""
PARTY = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
QUESTIONS: list[Any] = [
    "What is the fee?",
    {"question_id": "signed", "question": "Is it signed?", "answer_type": "bool"},
    {"question_id": "risk", "question": "Which risk?", "answer_type": "label", "labels": ["low", "high"]},
    {"question_id": "tags", "question": "Which tags?", "answer_type": "labels", "labels": ["a", "b"]},
    {"question_id": "price", "question": "How much?", "answer_type": "number", "unit": "EUR"},
    {"question_id": "day", "question": "When?", "answer_type": "date"},
    {"question_id": "party", "question": "Who is it?", "answer_type": "json", "schema": PARTY},
]
TEXTS = {
    "crlf": "The deed is old.\r\nIt was signed in Rome.\r\nAnn paid 1,200 euros on 3 May 2024.\r\n" * 4,
    "astral": "😀 smiles at 𝔘𝔫𝔦. Cafe\u0301 au lait is on e\u0301tage 3. 👩‍👩‍👧 wave. " * 4,
    "right_to_left": "هذا نص قصير. وقع علي العقد. שלום עולם. זה הסוף. " * 4,
    "dots": "...",
    "none": None,
}


def hash_engine() -> type[Any]:
    """Makes an engine without a model: a hash of the prompt decides which part of the prompt it repeats."""
    simulated: Any = _first_module(SIMULATED)

    class HashEngine(simulated.SimulatedEngine):  # type: ignore[misc]
        """With a temperature, the text also depends on how often the same prompt came before."""

        kind: ClassVar[str] = "hash"
        times: ClassVar[dict[str, int]] = defaultdict(int)

        async def complete(self, prompt: Any, *, seed: int) -> Any:
            done = await super().complete(prompt, seed=seed)
            menu = done.menu_logprobs and [-1 - at / 4 for at in range(len(done.menu_logprobs))]
            logprobs = [-(1 + token % 7) / 8 for token in done.token_ids]
            return replace(done, logprobs=logprobs, menu_logprobs=menu)

        def _written(self, prompt: Any) -> tuple[list[int], str]:
            ids = list(prompt.token_ids)
            digest = hashlib.sha256(json.dumps(ids).encode()).hexdigest()
            if self._context.sampling.temperature:
                self.times[digest] += 1
                digest = hashlib.sha256(f"{digest}/{self.times[digest]}".encode()).hexdigest()
            number, guide = int(digest[:8], 16), prompt.guide
            if guide is not None:
                menu = guide.choices and [guide.choices[number % len(guide.choices)]]
                tries = [*menu, f"{number % 5 + 1}, {number % 5 + 3}", str(number % 5 + 1), guide.example]
                text = next(text for text in tries if guide.allows(text))
            else:
                start = number % max(len(ids) - 24, 1)
                part = re.sub(r"[^\w\s.,:;-]", " ", self._tokenizer.decode(ids[start : start + 24]))
                text = f"{digest[:6]} {part}" if prompt.writes else f"\\boxed{{{part[:60].strip() or digest}}}"
            return self._tokenizer.encode(text), text

    HashEngine.__module__, HashEngine.__qualname__ = __name__, HashEngine.__name__
    return HashEngine


def _first_module(names: tuple[str, ...]) -> Any:
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    return importlib.import_module(names[-1])


def __getattr__(name: str) -> Any:
    """The engine, as `golden:HashEngine`, is made when a job names it."""
    if name != "HashEngine":
        raise AttributeError(name)
    return globals().setdefault(name, hash_engine())


class Golden:
    """A folder for the results, and a temporary one in which the jobs run."""

    def __init__(self, out: Path, work: Path) -> None:
        self.out, self.work = out, work

    def command(self, *words: str, job: Mapping[str, Any] | None = None) -> int:
        """Runs a command of the product; returns its exit code, which may say that some sources were not read."""
        import memagent_batch

        if job is not None:
            (self.work / "job.yaml").write_text(yaml.safe_dump(dict(job)))
            words = (*words, "--config", str(self.work / "job.yaml"))
        path = os.pathsep.join([str(Path(memagent_batch.__file__).parents[1]), str(TOOLS)])
        line = [sys.executable, "-m", "memagent_batch", *words]
        done = subprocess.run(
            line, cwd=self.work, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
        )
        if done.returncode not in (0, 4, 7):
            sys.exit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return done.returncode

    def night(self, name: str, *words: str, job: Mapping[str, Any], output: str | None = None) -> None:
        """Runs a job, and writes the tables of its output to the folder `name` of the results."""
        began, folder = time.monotonic(), self.out / name
        folder.mkdir(parents=True)
        code = self.command(*words, job=job)
        output = output or job["output"]
        if Path(output, "answers/log").exists():  # of a scan, in older code
            output = f"{output}/answers"
        (folder / "exit.jsonl").write_text(json.dumps({"document_id": "", "code": code}) + "\n")
        for table in TABLES:
            rows = read_table(output, table, job.get("storage_options", {}))
            lines = sorted(json.dumps(self.cell(row), sort_keys=True, ensure_ascii=False) for row in rows)
            (folder / f"{table}.jsonl").write_text("".join(f"{line}\n" for line in lines))
        print(f"{name}: {time.monotonic() - began:.0f} s, exit code {code}", flush=True)

    def cell(self, value: Any) -> Any:
        """What of a row or value is the same in every run, as JSON."""
        if isinstance(value, dict):
            return {name: self.cell(entry) for name, entry in value.items() if name not in EXCLUDED}
        if isinstance(value, list):
            return [self.cell(entry) for entry in value]
        if isinstance(value, float):
            return round(value, 4)
        is_plain = value is None or isinstance(value, bool | int)
        return value if is_plain else str(value).replace(str(self.work), "WORK")


def read_table(output: str, table: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the rows of a table of the last finished run, or none if there is no such table."""
    import memagent_batch
    from memagent_batch.data.store.location import Location
    from memagent_batch.errors import OutputError

    ma: Any = memagent_batch  # older and newer code
    if hasattr(ma, "table"):
        log = Location(uri=f"{output}/{table}/_delta_log", storage_options=options)
        rows: list[dict[str, Any]] = ma.table(output, table, storage_options=options).to_pylist() if log.files() else []
        return rows
    if table == "rollouts":
        record = Path(output) / "rollouts.json"
        files = [f"{output}/{name}" for name in json.loads(record.read_text())["files"]] if record.exists() else []
    else:
        try:
            files = ma.table_files(output, table, storage_options=options)
        except OutputError as error:
            if "has no table" not in str(error):
                raise
            return []
    data = [Location(uri=name, storage_options=options).read_bytes() for name in files]
    return [row for file in data for row in pq.read_table(io.BytesIO(file)).to_pylist()]


def settings(documents: str, output: str | Path, **more: Any) -> dict[str, Any]:
    """A small job with the hash engine, chunks of a few sentences, and evidence."""
    budgets = {"chunk_tokens": 96, "question_tokens": 64, "memory_tokens": 48, "answer_tokens": 48}
    job = {"documents": documents, "output": str(output), "engine": "golden:HashEngine", "allow_code": True}
    job |= {"window_tokens": 1500, "ask": QUESTIONS[:2], "executor": "local", "follow_ups": {"evidence": True}}
    return {**job, **more, "policy": budgets | more.get("policy", {})}


def contract(number: int) -> list[str]:
    """Paragraphs that differ from each other and from those of other contracts."""
    return [
        f"Clause {at} of contract {number}. The fee of item {number * at} is {100 * number + at} euros.\n"
        f"Party {chr(65 + number)} signed it on {1 + at} March 20{10 + number}, with {at + 2} months of notice."
        for at in range(6)
    ]


def parquet(rows: list[dict[str, Any]], place: Path | None = None) -> bytes:
    """A Parquet file of the rows; also written to the place."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    if place is not None:
        place.write_bytes(sink.getvalue())
    return sink.getvalue()


def demo(golden: Golden) -> None:
    """The demo of the Makefile with its model, and one short document of each task."""
    suite, results = golden.work / "suite", golden.work / "results"
    tasks = ("--tasks", "niah_multikey_1", "stated", "absent", "--lengths", "2K", "--samples", "1")
    golden.command("evaluate", "make", "--output", str(suite), "--typed", *tasks)
    job = {"output": str(results), "follow_ups": {"evidence": True, "support": True}}
    words = ("evaluate", "run", "--config", "tiny", "--suite", str(suite))
    golden.night("demo/1", *words, job=job, output=str(results / "runs/overwrite"))


def nights(golden: Golden, *, root: str, name: str, options: Mapping[str, Any]) -> None:
    """Three nights: documents are edited, added, removed, renamed, grown, reordered, and get another carried value."""
    from memagent_batch.data.store.location import Location

    texts = {f"d{number}": contract(number) for number in range(8)}
    notes = dict.fromkeys(texts, "draft")
    inputs = {"carry_columns": ["note", "size"]}
    job = settings(f"{root}/in", f"{root}/out", storage_options=dict(options), input=inputs)
    for night in (1, 2, 3):
        if night == 2:
            texts["d1"][3] = texts["d1"][3].replace("euros", "dollars")
            texts["d3"] = [*texts["d3"][2:], *texts["d3"][:2]]
            texts["d8"], notes["d8"], notes["d4"] = contract(8), "new", "final"
            del texts["d2"]
        if night == 3:
            texts["d5"] += contract(15)[:3]
            texts["e6"], notes["e6"] = texts.pop("d6"), "draft"
            texts["d2"] = contract(2)
        for file, ids in (("one", [*texts][:4]), ("two", [*texts][4:])):
            values = [(row, "\n\n".join(texts[row]), notes[row], len(texts[row])) for row in ids]
            rows = [dict(zip(("document_id", "text", "note", "size"), row, strict=True)) for row in values]
            Location(uri=f"{root}/in/{file}.parquet", storage_options=options).write_bytes(parquet(rows))
        golden.night(f"{name}/{night}", "answer", job=job)


def nights_disk(golden: Golden) -> None:
    """The nights on disk."""
    (golden.work / "in").mkdir()
    nights(golden, root=str(golden.work), name="nights_disk", options={})


def nights_s3(golden: Golden) -> None:
    """The nights on an S3 API in this process."""
    from moto.server import ThreadedMotoServer

    from memagent_batch.data.store.location import Location

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else a line for each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    options = {"key": "test", "secret": "test", "client_kwargs": {"endpoint_url": endpoint}}
    bucket = Location(uri="s3://golden", storage_options=options)
    bucket.fs.mkdir(bucket.path)
    nights(golden, root="s3://golden", name="nights_s3", options=options)
    server.stop()


def typed(golden: Golden) -> None:
    """Values of every type with evidence and support, of two samples; line ends, scripts, and texts of nothing."""
    texts = {**TEXTS, "long": "\n\n".join(contract(7))}
    parquet([{"document_id": name, "text": text} for name, text in texts.items()], golden.work / "in.parquet")
    more: dict[str, Any] = {"follow_ups": {"evidence": True, "support": True, "json_tokens": 64}}
    more |= {"sampling": {"samples": 2, "temperature": 1.0}, "pool": {"readings_in_flight": 1}}
    job = settings("in.parquet", golden.work / "out", ask=QUESTIONS, policy={"kind": "gated"}, **more)
    golden.night("typed/1", "answer", job=job)


def collect(golden: Golden) -> None:
    """Rollouts of four samples of each document, with rewards that differ."""
    rows = [{"document_id": f"d{number}", "text": "\n\n".join(contract(number))} for number in range(3)]
    references = ["the fee is 100 euros of contract"]
    parquet(rows, golden.work / "in.parquet")
    asked = {"question_id": "fee", "question": "What is the fee?", "references": references}
    parquet([asked], golden.work / "questions.parquet")
    more: dict[str, Any] = {"rollouts": {"group_size": 4, "reward": "hotpotqa_f1"}, "pool": {"readings_in_flight": 1}}
    more |= {"ask": [], "follow_ups": {}, "questions": "questions.parquet"}
    golden.night("collect/1", "collect", job=settings("in.parquet", golden.work / "out", **more))


def paged(golden: Golden) -> None:
    """A Delta table of pages, read on Ray; on the second night a page is gone, and one is new."""
    from deltalake import DeltaTable, write_deltalake

    place, pages = str(golden.work / "pages"), [(number, at) for number in range(4) for at in range(6)]
    rows = [
        {"document_id": f"d{number}", "page": at + 1, "sender": f"Ann {at}", "text": contract(number)[at]}
        for number, at in pages
    ]
    order = {"order_columns": ["page"], "locator": "page {page}", "header": "{sender}:"}
    more: dict[str, Any] = {"input": order, "executor": "ray", "policy": {"kind": "parallel", "break_at": "rows"}}
    job = settings(f"delta://{place}", golden.work / "out", **more)
    write_deltalake(place, pa.Table.from_pylist([*rows[1::2], *rows[::2]]))
    golden.night("paged/1", "answer", job=job)
    DeltaTable(place).delete("document_id = 'd1' and page = 2")
    write_deltalake(place, pa.Table.from_pylist([rows[-1] | {"page": 7, "text": "A late page."}]), mode="append")
    golden.night("paged/2", "answer", job=job)


def scan(golden: Golden) -> None:
    """Mail, PDF, HTML, DOCX and text, some of them not to be read whole; then one edited and one gone."""
    place = golden.work / "files"
    place.mkdir()
    for name, data in mixed_files().items():
        (place / name).write_bytes(data)
    job = settings(str(place), golden.work / "out", policy={"kind": "gated"})
    golden.night("scan/1", "scan", job=job)
    (place / "notes.txt").write_text("Another text.\n\n" + "\n\n".join(contract(4)))
    (place / "page.html").unlink()
    golden.night("scan/2", "scan", job=job)


def mixed_files() -> dict[str, bytes]:
    """Files of many kinds by their names, made by the generators of the tests."""
    from tests.convert import files

    clauses = [text.replace("\n", " ") for text in contract(3)]
    mail = files.mail("The fee", clauses[5], files=[("offer.pdf", files.pdf(files.written(clauses[1])))])
    return {
        "notes.txt": "\n\n".join(clauses).encode(),
        "latin.txt": "Die Gebühr beträgt 300 Euro. Größe: 3.".encode("latin-1"),
        "contract.pdf": files.pdf(files.written(clauses[0]), files.written(clauses[1]), files.SCAN),
        "form.pdf": files.form_pdf("Ann Example"),
        "locked.pdf": files.encrypted_pdf(),
        "page.html": files.page(clauses[2]),
        "thread.html": files.quoted_thread().encode(),
        "letter.docx": files.docx_file(("Normal", clauses[3]), cells=[["Item", "Price"], ["Paper", "12"]]),
        "header.docx": files.docx_with_header("Of 3 March", text=clauses[4]),
        "offer.eml": mail.as_bytes(),
        "nested.eml": files.nested_mail(2),
    }


JOBS = {job.__name__: job for job in (nights_disk, nights_s3, typed, collect, paged, scan, demo)}


def run(out: Path, names: list[str]) -> None:
    """Runs the jobs, all by default; each replaces its folder of results."""
    import memagent_batch

    print(f"code: {Path(memagent_batch.__file__).parent}", flush=True)
    for name in names or JOBS:
        shutil.rmtree(out / name, ignore_errors=True)
        with tempfile.TemporaryDirectory() as work:
            JOBS[name](Golden(out, Path(work)))


def compare(one: Path, other: Path) -> None:
    """Prints by job, table and column how many cells differ, with three examples; exits with 1 if there are any."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    files = sorted({path.relative_to(place) for place in (one, other) for path in place.glob("*/*/*.jsonl")})
    for file in files:
        for column, what in differences(*(read_rows(place / file) for place in (one, other))):
            found[file.parts[0], file.stem, column].append(f"night {file.parts[1]}, {what}")
    for place, examples in sorted(found.items()):
        print("\n    ".join([f"{'  '.join(place)}: {len(examples)}", *examples[:3]]))
    print(f"{len(files)} tables, {sum(map(len, found.values()))} differences")
    sys.exit(1 if found else 0)


Rows = dict[tuple[Any, ...], dict[str, Any]]


def differences(before: Rows, after: Rows) -> list[tuple[str, str]]:
    """Columns with a description of each cell that differs; a missing row or column counts as one."""
    columns = [{name for row in rows.values() for name in row} for rows in (before, after)]
    lone = columns[0] ^ columns[1] if before and after else set()
    found = [(name, f"column only in {'A' if name in columns[0] else 'B'}") for name in sorted(lone)]
    for key in sorted(before.keys() | after.keys(), key=str):
        place = "/".join(map(str, key))
        if key not in before or key not in after:
            found.append(("(row)", f"{place}: only in {'A' if key in before else 'B'}"))
            continue
        pairs = {name: (before[key].get(name), after[key].get(name)) for name in sorted(columns[0] & columns[1])}
        found += [(name, f"{place}: {a!r:.100} | {b!r:.100}") for name, (a, b) in pairs.items() if a != b]
    return found


def read_rows(file: Path) -> Rows:
    """Rows by their key; repetitions of a key are marked."""
    rows: Rows = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        row = json.loads(line)
        key = tuple(row.get(name) for name in KEYS if name in row)
        while key in rows:
            key = (*key, "again")
        rows[key] = row
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    runs, compares = commands.add_parser("run"), commands.add_parser("compare")
    runs.add_argument("out", type=Path)
    runs.add_argument("jobs", nargs="*", help=f"all by default: {', '.join(JOBS)}")
    for place in ("A", "B"):
        compares.add_argument(place, type=Path)
    given = parser.parse_args()
    run(given.out, given.jobs) if given.command == "run" else compare(given.A, given.B)
