"""`make demo`: makes a small corpus, runs the main job over it with the shipped policy, and shows what came out."""

import argparse
import json
import shutil
import sys
from pathlib import Path

from jobs.answer import main as answer

CONFIG = Path(__file__).parent / "configs" / "tiny.yaml"


def main() -> int:
    """Makes the corpus if it is not there, runs `memagent answer`, prints a table; returns the exit code."""
    from pipelines.demo import make_corpus  # here, so that --help needs no tokeniser

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--output", type=Path, default=Path("demo"), help="folder to write to (default: demo)")
    folder: Path = options.parse_args().output
    if not (folder / "questions.parquet").exists():
        print(f"making the documents in {folder}/documents", flush=True)
        shutil.rmtree(folder / "documents", ignore_errors=True)
        make_corpus(folder)
    code = answer(
        [
            *("--config", str(CONFIG)),
            *("--documents", str(folder / "documents")),
            *("--questions", str(folder / "questions.parquet")),
            *("--output", str(folder / "run")),
        ]
    )
    if code == 0:
        _show(folder)
    return code


def _show(folder: Path) -> None:
    from pipelines.demo import score

    rows = score(folder)
    print(f"\n{'document':<13}{'tokens':>9}{'turns':>7}{'prompt tokens':>15}{'seconds':>9}  {'answer':<14}reference")
    for row in rows:
        seconds = (row["finished_at"] - row["started_at"]).total_seconds() if row["started_at"] else 0.0
        print(
            f"{row['document_id']:<13}{row['num_document_tokens'] or 0:>9,}{row['num_turns']:>7}"
            f"{row['num_prompt_tokens']:>15,}{seconds:>9.1f}  {row['answer'] or '-':<14}{row['references'][0]:<14}"
            f"{'right' if row['right'] else 'WRONG'}"
        )
    counts = json.loads((folder / "run" / "manifest.json").read_text())["counts"]
    right = sum(row["right"] for row in rows)
    print(f"\n{right} of {len(rows)} right ({right / len(rows):.0%})")
    ends = f"ok {counts['ok']} + failed {counts['failed']} + not read {counts['not_read']}"
    print(f"asked {counts['asked']} = {ends}; rows: {counts['answers_rows']}")
    print(f"answers {folder}/run/answers, memories {folder}/run/memories, manifest {folder}/run/manifest.json")


if __name__ == "__main__":
    sys.exit(main())
