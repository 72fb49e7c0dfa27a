"""A licence scan: what the licence files of a Python environment say, beside what its packages declare.

    python pipelines/licence_scan.py licences/ --model my-model/

Scans the environment that it runs in. Run it again after an upgrade: only packages whose files changed are read.
"""

import argparse
import re
from importlib.metadata import distributions

import pyarrow as pa

import memagent_batch as ma

LICENCES = ["MIT", "MIT-0", "0BSD", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "ISC", "Zlib", "BSL-1.0", "PSF-2.0"]
LICENCES += ["MPL-2.0", "LGPL-2.1-only", "LGPL-2.1-or-later", "GPL-2.0-only", "GPL-2.0-or-later", "GPL-3.0-or-later"]
QUESTIONS = [
    ma.Question(question_id="licence", question="Under which licence is this package?", type=ma.Label(*LICENCES)),
    ma.Question(question_id="licences", question="Which licences does this text hold?", type=ma.Labels(*LICENCES)),
    ma.Question(question_id="holder", question="Who holds the copyright in this package?"),
    ma.Question(question_id="patents", question="Does the licence grant patent rights?", type=ma.Bool()),
]
EVIDENCE = ma.FollowUpConfig(evidence=True)


def packages() -> pa.Table:
    """The installed packages that come with licence files: their text, and the SPDX names that they declare."""
    rows: dict[str, dict[str, object]] = {}
    for package in distributions():
        declared = " ".join(package.metadata.get_all("License-Expression") or ())
        names = re.findall(r"(?!AND\b|OR\b|WITH\b)\b[\w.+-]+", declared)
        files = [file for file in package.files or () if re.match(r"(?i)licen[cs]e|copying|notice", file.name)]
        texts = [file.read_binary().decode(errors="replace") for file in files if ".dist-info" in file.parts[0]]
        rows.setdefault(package.name, {"document_id": package.name, "text": "\n\n".join(texts), "declared": names})
    return pa.Table.from_pylist([row for row in rows.values() if row["text"]])


def scan(documents: pa.Table, output: str, agent: ma.Agent) -> ma.Run:
    """Reads the files, prints package, declaration, reading and sentence where the two differ, and writes pages."""
    run = ma.answer(
        documents=documents, questions=QUESTIONS, output=f"{output}/answers", agent=agent, follow_ups=EVIDENCE
    )
    chosen = [row for row in run.evidence().to_pylist() if (row["how"], row["rank"]) == ("chosen", 1)]
    sentences = {(row["document_id"], row["question_id"]): " ".join(row["text"].split()) for row in chosen}
    declared = {row["document_id"]: row["declared"] for row in documents.to_pylist()}
    for row in run.results().to_pylist():
        names = declared[package := row["document_id"]]
        value = row[question_id := "licences" if len(names) > 1 else "licence"] or []
        read = [value] if isinstance(value, str) else value
        if names and set(read) != set(names):
            print(package, " ".join(names), " ".join(read) or "-", sentences.get((package, question_id)), sep="\t")
    print(f"answers to read: {ma.page(run.output, to=f'{output}/pages')['page']}")
    return run


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", help="a folder")
    parser.add_argument("--model", required=True, help="a model folder or hub name")
    arguments = parser.parse_args()
    scan(packages(), arguments.output, ma.Agent(model=arguments.model))
