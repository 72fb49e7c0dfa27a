"""The questions of one Delta table are asked of the documents of another; their answers become a third table.

    pip install 'memagent-batch[lake]'
    python pipelines/question_list.py /lake/questions /lake/contracts /lake/answers --work scan/ --model my-model/

The table of questions has the columns `question_id` and `question`, and those of typed answers where they are used
(docs/reference/inputs.md); others are ignored. Both tables may change from night to night: only what is new is read.
"""

import argparse
import json

from deltalake import write_deltalake

import memagent_batch as ma

COLUMNS = ["document_id", "question_id", "status", "answer", "value", "value_status", "confidence", "run_id"]
"""Columns of `answers` (docs/reference/tables.md) that the table of answers has."""


def ask(questions: str, documents: str, answers: str, *, work: str, agent: ma.Agent) -> ma.Run:
    """Asks all questions of all documents, and replaces the table of answers by a whole new version."""
    run = ma.answer(
        documents=f"delta://{documents}",
        questions=f"delta://{questions}",
        output=work,
        agent=agent,
        input=ma.InputConfig(document_id_column="document_id", text_column="text"),
    )
    write_deltalake(answers, run.answers().select(COLUMNS), mode="overwrite")
    print(f"{run.manifest['counts']['ok']:,} answers in {answers}")
    return run


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", help="a Delta table: a path or URI")
    parser.add_argument("documents", help="a Delta table with the columns document_id and text")
    parser.add_argument("answers", help="the Delta table to write")
    parser.add_argument("--work", required=True, help="folder or URI of the turn log, which the next night needs")
    parser.add_argument("--model", required=True, help="a model folder or hub name")
    parser.add_argument("--policy", type=json.loads, default={}, help='settings such as {"kind": "gated"}, as JSON')
    arguments = parser.parse_args()
    ask(
        arguments.questions,
        arguments.documents,
        arguments.answers,
        work=arguments.work,
        agent=ma.Agent(model=arguments.model, policy=ma.PolicyConfig(**arguments.policy)),
    )
