"""`memagent answer`: settings in, the flow called."""

import json
import sys
from shutil import get_terminal_size

from memagent_batch.cli.options import INPUT, MODEL, warn_of_untrained_policy
from memagent_batch.cli.settings import Command, JobSettings
from memagent_batch.logs import log_step
from memagent_batch.masking import mask_url


class Answer(JobSettings, Command):
    """Answers questions over documents of any length."""

    command = "memagent answer"
    common = (
        *(*INPUT, "output", *MODEL, "pool.replicas", "limit"),
        *("again_from", "again_where", "max_tokens", "retry_failed"),
    )
    unused = ("rollouts",)
    examples = (
        "memagent answer --config tiny --documents texts/ --output out/ "
        '--ask "What is the access code of quiet-harbour?"',
        "memagent answer --documents 's3://bucket/contracts/*.parquet' --questions questions.csv "
        "--output s3://bucket/scan/ --model my-model/",
    )

    def run(self) -> None:
        job = self.job()
        log_step("checking inputs and model")
        from memagent_batch.run.flows.answer import answer_checked  # here, so that --help needs no engine
        from memagent_batch.run.flows.check import check

        checked = check(job)
        warn_of_untrained_policy(job.agent)
        from memagent_batch.run.accepted_unread import open_unread
        from memagent_batch.run.manifest import require_documents, require_sources_read, require_success
        from memagent_batch.run.wiring import make_output

        manifest = answer_checked(checked)
        if sys.stdout.isatty():
            from memagent_batch.cli.screen import ending

            print(f"\n{ending(make_output(job), manifest, num_columns=get_terminal_size().columns)}")
        else:
            summary = {
                **manifest["counts"],
                **manifest["unread"],
                "seconds": manifest["seconds"],
                "changes": manifest["changes"],
            }
            summary |= {"sample": manifest["sample"]} if manifest["sample"] else {}
            print(json.dumps({"output": mask_url(job.output), **summary}))
        require_success(manifest, max_failed_share=job.max_failed_share)
        require_documents(manifest, job)
        require_sources_read(open_unread(make_output(job), manifest))
