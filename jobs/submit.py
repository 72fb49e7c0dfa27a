"""Submits a command, or a pipeline, to a Ray cluster, shows its log, and ends with its exit code.

    export RAY_API_SERVER_ADDRESS=http://127.0.0.1:8265 RAY_AUTH_MODE=token    # the head's dashboard
    python jobs/submit.py answer --config jobs/bucket.yaml
    python jobs/submit.py pipelines/compliance_scan.py s3://bucket/contracts/ s3://bucket/scan/ --model /models/my-model

The job gets the folder that this is run in, except for what `.rayignore` names. It gets no secret: the job list shows
what a submission carries. Set secrets as variables before `ray start` on the nodes (docs/how-to/gpus-and-clusters.md).
"""

import asyncio
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from aiohttp import ClientError
from ray.job_submission import JobSubmissionClient

LOOK_SECONDS = 5.0
"""Pause between looks at a job whose log has broken off."""


def main(words: Sequence[str]) -> int:
    """Submits and waits; returns the exit code of the run, 1 if it has none."""
    if not words or words[0] in {"-h", "--help"}:
        print(__doc__)
        return 0 if words else 2
    program = ["python"] if words[0].endswith(".py") else ["python", "-m", "memagent_batch"]
    try:
        client = JobSubmissionClient()
        job = client.submit_job(entrypoint=shlex.join([*program, *words]), runtime_env={"working_dir": "."})
    except (OSError, RuntimeError, ValueError) as error:  # of the connection, the job server, or a file in the folder
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        why = " ... ".join(dict.fromkeys([lines[0], lines[-1]]))  # a server's own traceback stands in between
        print(
            f"error: the folder {Path.cwd()} can't be submitted: {why}; is RAY_API_SERVER_ADDRESS the head's "
            "dashboard, and does .rayignore name what the job needs no copy of?",
            file=sys.stderr,
        )
        return 2
    print(f"job '{job}' is submitted; `ray job stop {job}` ends it", flush=True)
    asyncio.run(_show_log(client, job))
    while not (info := client.get_job_info(job)).status.is_terminal():
        time.sleep(LOOK_SECONDS)
    print(f"job '{job}' {info.status}: {info.message}", flush=True)
    return 1 if info.driver_exit_code is None else info.driver_exit_code


async def _show_log(client: JobSubmissionClient, job: str) -> None:
    """Prints the lines of the job until it ends, or the connection does."""
    try:
        async for lines in client.tail_job_logs(job):
            print(lines, end="", flush=True)
    except (ClientError, RuntimeError) as error:  # a proxy in between, or a head that is busy: the job runs on
        print(f"the log of job '{job}' breaks off here ({error}); this waits for its end", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
