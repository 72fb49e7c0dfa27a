"""A licence scan: what the licence files of a Python environment say, beside what its packages declare.

    python pipelines/licence_scan.py licences/

Scans the environment that it runs in, or some packages of it. Run it again after an upgrade: only packages whose files
changed are read.
"""

import argparse
import json
import re
from collections.abc import Sequence
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
POLICY = ma.Gated(chunk_tokens=512, question_tokens=128, memory_tokens=256, answer_tokens=64)
"""As `reader-135m` was trained; a larger model reads larger chunks."""
DECLARED = ma.InputConfig(carry_columns="declared")


def packages(names: Sequence[str] = ()) -> pa.Table:
    """The installed packages, or those of these names, with licence files: their text, and the SPDX names declared."""
    rows: dict[str, dict[str, str]] = {}
    for package in distributions():
        expression = " ".join(package.metadata.get_all("License-Expression") or ())
        declared = " ".join(re.findall(r"(?!AND\b|OR\b|WITH\b)\b[\w.+-]+", expression))
        files = [file for file in package.files or () if re.match(r"(?i)licen[cs]e|copying|notice", file.name)]
        texts = [file.read_binary().decode(errors="replace") for file in files if ".dist-info" in file.parts[0]]
        row = {"document_id": package.name, "text": "\n\n".join(texts), "declared": declared}
        rows.setdefault(package.name, row)
    return pa.Table.from_pylist([row for name, row in rows.items() if row["text"] and (not names or name in names)])


def scan(documents: pa.Table, output: str, agent: ma.Agent) -> ma.Run:
    """Reads the files, prints package, declaration, reading and sentence where the two differ, and writes pages."""
    answers, evidence = f"{output}/answers", ma.FollowUpConfig(evidence=True)
    run = ma.answer(
        documents=documents, questions=QUESTIONS, output=answers, agent=agent, input=DECLARED, follow_ups=evidence
    )
    chosen = [row for row in run.evidence().to_pylist() if (row["how"], row["rank"]) == ("chosen", 1)]
    sentences = {(row["document_id"], row["question_id"]): " ".join(row["text"].split()) for row in chosen}
    print("packages whose files say something else (package, what it declares, what was read, the sentence):")
    for row in run.answers().to_pylist():
        names, read = row["declared"].split(), json.loads(row["value"] or "[]")
        read = [read] if isinstance(read, str) else read
        if row["question_id"] == ("licences" if len(names) > 1 else "licence") and names and {*read} != {*names}:
            sentence = sentences.get((row["document_id"], row["question_id"]))
            print(row["document_id"], row["declared"], " ".join(read) or "-", sentence, sep="\t")
    print(f"answers to read: {ma.page(run.output, to=f'{output}/pages')['page']}")
    return run


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", help="a folder")
    parser.add_argument("--model", default="reader-135m", help="another model: a folder or hub name")
    parser.add_argument("--packages", nargs="+", default=(), help="names of packages; by default all")
    arguments = parser.parse_args()
    vllm = ma.VllmConfig(enforce_eager=True)  # on CPU compiling takes longer than to read some packages
    scan(packages(arguments.packages), arguments.output, ma.Agent(model=arguments.model, policy=POLICY, vllm=vllm))
