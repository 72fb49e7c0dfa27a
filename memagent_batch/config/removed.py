"""Settings that earlier versions had."""

from collections.abc import Mapping

REMOVED: Mapping[str, str] = {
    "closing": "it is called follow_ups now",
    "escalate": "read again with --again-from and --again-where, as a separate run",
    "learner.skip_turns_above_probability": "leave it out: every turn goes through the network",
    "policy.reread": "leave it out, or install a policy such as `nominated` of the example",
    "vllm.speculation": "leave it out, or set vllm.engine_args.speculative_config",
    "policy.kind=reread": "install it as a plug-in, such as the example package of the documentation, or set 'gated'",
    "policy.kind=shared": "set 'overwrite', which reads the questions of a document section by section",
    "policy.kind=shared-parallel": "set 'parallel', which reads the questions of a document section by section",
}
"""What to do in place of a setting, a group of settings, or a value of one."""


def removal(setting: str) -> str | None:
    """What an error says of a setting, or of `setting=value`, if it or its group was removed."""
    for name, advice in REMOVED.items():
        if setting == name or setting.startswith(f"{name}."):
            return f"was removed; {advice}"
    return None
