"""What the help of each command over documents shows first, and what it leaves out."""

from jobs.knobs import Manual

RUN = ("documents", "questions", "ask", "output")
MODEL = ("model", "prompt_set", "window_tokens", "policy.kind", "policy.chunk_tokens", "engine")

ANSWER = Manual(
    common=(*RUN, *MODEL, "pool.replicas", "retry_failed"),
    unused=("rollouts",),
    example="memagent answer --config jobs/configs/tiny.yaml --documents texts/ --output out/ "
    '--ask "What is the access code of quiet-harbour?"',
)
PLAN_UNUSED = ("rollouts", "log", "table_format", "simulated")
COLLECT = Manual(
    common=(*RUN, "rollouts.group_size", "rollouts.reward", *MODEL),
    unused=("sampling.temperature", "sampling.top_p", "sampling.top_k"),
    short={"rollouts.group_size": "--group-size"},
    example="memagent collect --config job.yaml --documents texts/ --questions questions.parquet --output rollouts/ "
    "--group-size 16",
    page="docs/how-to/training.md",
)
EVALUATE_UNUSED = (*RUN[:3], "input", "rollouts", "table_format", "adopt_output")
TRAIN = Manual(
    common=(
        "rollouts",
        "model",
        "output",
        "learner.questions_per_optimiser_step",
        "learner.learning_rate",
        "learner.device",
    ),
    example="memagent train --rollouts rollouts/ --model my-model/ --output my-model-2/",
    page="docs/how-to/training.md",
)
TRAIN_LOOP = Manual(
    common=(*RUN[:2], "output", "loop.max_steps", "loop.max_minutes", "loop.held_out", "rollouts.group_size", *MODEL),
    unused=("ask",),
    short={"rollouts.group_size": "--group-size"},
    example="memagent train loop --documents texts/ --questions questions.parquet --model my-model/ --output loop/ "
    "--loop.max-steps 200",
    page="docs/how-to/training.md",
)
