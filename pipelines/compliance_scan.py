"""A nightly compliance scan: files become documents, questions become answers, and people get pages and a sample.

    python pipelines/compliance_scan.py contracts/ scan/ --model my-model/

Run it every night with the same folders: only new and changed files are converted and read.
"""

import argparse

import memagent_batch as ma

QUESTIONS = [
    ma.Question(
        question_id="liability-cap", question="Does the contract limit the liability of the supplier?", type=ma.Bool()
    ),
    ma.Question(
        question_id="notice-days", question="How many days before can it be terminated?", type=ma.Number(unit="days")
    ),
    ma.Question(question_id="law", question="Which law governs the contract?"),
]
REVIEWED, LABELS = "liability-cap", 200
"""The question that people check, and on how many documents."""


def scan(files: str, output: str, agent: ma.Agent) -> ma.Run:
    """Converts what is new, answers, and writes pages, a summary of what needs a look, and a sample to label."""
    sentences = ma.FollowUpConfig(evidence=True, support=True)
    run = ma.scan(files, questions=QUESTIONS, output=output, agent=agent, follow_ups=sentences)
    review = ma.make_review(run.output, question_id=REVIEWED, labels=LABELS)
    print(f"what needs a look: {output}/pages/summary.txt\nanswers to check: {review['page']}")
    return run


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", help="PDF, HTML, DOCX, e-mail and text files: a folder or URI")
    parser.add_argument("output", help="a folder or URI")
    parser.add_argument("--model", required=True, help="a model folder or hub name")
    arguments = parser.parse_args()
    scan(arguments.files, arguments.output.rstrip("/"), ma.Agent(model=arguments.model))
