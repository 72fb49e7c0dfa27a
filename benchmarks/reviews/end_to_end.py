"""A review of a real scan with the shipped policy, by simulated people, against what is true of its documents.

One question is asked of all documents, and some of them answer it. `review plan` promises widths, simulated people
label the sample and err in a share of their labels, `review estimate` gives intervals. Each line says whether they hold
the true recall and precision of the scan, with one person's labels and with those of up to three.
"""

import argparse
import csv
import io
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.tiny_job import CONFIG
from memagent_batch.evaluation.needles.facts import Needle, Split, make_needle, make_rival
from memagent_batch.evaluation.needles.tasks import Haystack, make_task
from memagent_batch.files.location import Location
from memagent_batch.flows.review import Asked, estimate, import_labels, make_review, plan_review
from memagent_batch.review.labels.label import NO, YES
from memagent_batch.review.labels.sheet import unquoted
from memagent_batch.review.sample.conditions import parse_condition
from memagent_batch.review.sample.population import StratumRule

QUESTION_ID = "code"
FLAGGED = "value_status = 'ok'"
"""What counts as found: the document states the code."""
RIVALS = 2
"""Sentences of each document that are easily mixed up with the one that is looked for."""
LENGTH_UNITS = (6, 24)
"""Sentences of running text in a document, fewest and most."""
PEOPLE = (("labels.csv", "ada"), ("labels-second.csv", "ben"), ("labels-third.csv", "cy"))
"""Sheets, and who fills them in; the second and third read what `review make` gives them."""
WIDTH = 0.1
"""Width of the interval of recall that `review plan` looks for."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=2_000, help="documents (default: 2000)")
    parser.add_argument("--richness", type=float, default=0.15, help="share that states the code (default: 0.15)")
    parser.add_argument("--labels", default="600", help="labels, as `memagent review` takes them (default: 600)")
    parser.add_argument("--errors", type=float, nargs="+", default=[0.0, 0.02, 0.05], help="shares of wrong labels")
    parser.add_argument(
        "--output", type=Path, required=True, help="folder for documents and scan; a scan that is there stays"
    )
    parser.add_argument("--model", default="tiny", help="model of the scan (default: tiny)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    truth = _write_documents(arguments)
    began = time.monotonic()
    _scan(arguments)
    output = Location(uri=str(arguments.output / "scan"))
    found = _found(arguments.output / "scan")
    true = _true_measures(truth, found)
    yield {
        "documents": len(truth),
        "stated": sum(truth.values()),
        "found": sum(found.values()),
        **{f"true_{name}": round(value, 4) for name, value in true.items()},
        "seconds": round(time.monotonic() - began, 1),
    }
    for seed, rate in enumerate(arguments.errors):
        for line in _reviewed(output, truth, true, rate=rate, seed=seed, labels=arguments.labels):
            yield {"errors": rate, **line}


def _write_documents(arguments: argparse.Namespace) -> dict[str, bool]:
    """Writes the documents and the question; returns which of them state the code."""
    rng = random.Random(0)
    asked = _needle(rng)
    rows, truth = [], {}
    for number in range(arguments.documents):
        name = f"document-{number:05}"
        truth[name] = rng.random() < arguments.richness
        shown = asked if truth[name] else make_rival(rng, asked, split=Split.HELD_OUT)
        task = make_task(
            rng,
            length=rng.randint(*LENGTH_UNITS),
            haystack=Haystack.RUNNING,
            num_distractors=RIVALS,
            needle=shown,
            near=True,
        )
        rows.append({"document_id": name, "text": f"File {number}.\n{task.document}"})
    arguments.output.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), arguments.output / "documents.parquet")
    question = {"question_id": QUESTION_ID, "question": asked.question, "answer_type": "number"}
    (arguments.output / "questions.jsonl").write_text(json.dumps(question) + "\n")
    return truth


def _needle(rng: random.Random) -> Needle:
    """A fact whose value is a number."""
    while True:
        needle = make_needle(rng, split=Split.HELD_OUT)
        if needle.answer.isdigit():
            return needle


def _scan(arguments: argparse.Namespace) -> None:
    """`memagent answer` over all documents; its messages go where those of this program go."""
    command = ["-m", "memagent_batch", "answer", "--config", str(CONFIG), "--model", arguments.model]
    for name, file in (("documents", "documents.parquet"), ("questions", "questions.jsonl"), ("output", "scan")):
        command += [f"--{name}", str(arguments.output / file)]
    subprocess.run([sys.executable, *command], check=True, stdout=sys.stderr)


def _found(scan: Path) -> dict[str, bool]:
    table = pq.read_table(scan / "answers", columns=["document_id", "value_status"])
    return {row["document_id"]: row["value_status"] == "ok" for row in table.to_pylist()}


def _true_measures(truth: Mapping[str, bool], found: Mapping[str, bool]) -> dict[str, float]:
    both = sum(truth[name] and found[name] for name in truth)
    return {"recall": both / sum(truth.values()), "precision": both / max(1, sum(found.values()))}


def _reviewed(
    output: Location, truth: Mapping[str, bool], true: Mapping[str, float], *, rate: float, seed: int, labels: str
) -> Iterator[dict[str, Any]]:
    """The figures of one review, over a copy of the scan: labels belong to documents, and would serve the next one."""
    copy = Path(output.uri).with_name(f"scan-{seed}")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(output.uri, copy)
    place = Location(uri=str(copy))
    asked = Asked(
        question_id=QUESTION_ID, rule=StratumRule(flagged=parse_condition(FLAGGED)), labels=labels, with_page=False
    )
    plan = plan_review(place, asked, precision=true["precision"], width=WIDTH)
    nearest = min(plan.rows, key=lambda row: abs(row.recall.value - true["recall"]))
    num_labels = []
    for sheet, person in PEOPLE:
        folder = Path(make_review(place, asked)["folder"])
        filled, num = _filled(folder / sheet, truth, rng=random.Random(f"{seed} {person}"), rate=rate, person=person)
        num_labels.append(num)
        if num:
            (copy / "filled.csv").write_bytes(filled)
            import_labels(place, [Location(uri=str(copy / "filled.csv"))], reviewer=None)
        values, _ = estimate(place, None, so_far=False, with_seen=False)
        if person == PEOPLE[0][1]:
            yield {"people": 1, "labels": num_labels, **_line(values["values"][0]["measures"], true)}
    (value,) = values["values"]
    planned = {"recall_width_planned": round(nearest.recall.width, 4)}
    yield {"people": 3, "labels": num_labels, **_line(value["measures"], true), **planned}
    if value["allowing_for_errors"]:
        yield {"people": 3, "allowing_for_errors": True, **_line(value["allowing_for_errors"], true)}


def _filled(
    sheet: Path, truth: Mapping[str, bool], *, rng: random.Random, rate: float, person: str
) -> tuple[bytes, int]:
    """A sheet as a person fills it in who errs in this share of the labels, and how many rows it has."""
    if not sheet.exists():
        return b"", 0
    rows = list(csv.DictReader(io.StringIO(sheet.read_text(encoding="utf-8-sig"), newline="")))
    sink = io.StringIO(newline="")
    writer = csv.DictWriter(sink, fieldnames=rows[0].keys())
    writer.writeheader()
    for row in rows:
        is_true = truth[unquoted(row["document_id"])] != (rng.random() < rate)
        writer.writerow({**row, "label": YES if is_true else NO, "reviewer": person})
    return sink.getvalue().encode(), len(rows)


def _line(measures: Mapping[str, Any], true: Mapping[str, float]) -> dict[str, Any]:
    """The estimates of recall and precision, and whether their intervals hold the truth."""
    line: dict[str, Any] = {}
    for name, value in true.items():
        found = measures[name]
        line[name] = [round(found[end], 4) for end in ("value", "low", "high")]
        line[f"{name}_covered"] = found["low"] <= value <= found["high"]
        line[f"{name}_width"] = round(found["high"] - found["low"], 4)
    return line
