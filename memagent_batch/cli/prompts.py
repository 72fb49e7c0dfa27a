"""`memagent prompts`: shows prompt sets, and imports the official ones from a file of the official code."""

from pathlib import Path

from memagent_batch.apps.official_prompts import import_official
from memagent_batch.cli.settings import Command
from memagent_batch.errors import OutputError
from memagent_batch.loop.prompt_sets.built_in import BUILT_IN_PROMPTS
from memagent_batch.loop.prompt_sets.files import load_prompt_set, prompt_set_json, save_prompt_set
from memagent_batch.loop.prompts import PromptSet


class ShowPrompts(Command):
    """Shows the texts and hash of a prompt set, or lists the built-in sets."""

    command = "memagent prompts show"
    examples = ("memagent prompts show default", "memagent prompts show my-prompts.yaml")
    pages = ("docs/how-to/prompts.md",)
    words = ("prompt_set",)

    prompt_set: str | None = None
    """Built-in prompt set, or a prompt set file (JSON, YAML)."""

    def run(self) -> None:
        if self.prompt_set is None:
            print("\n\n".join(map(_set_summary, BUILT_IN_PROMPTS.values())))
            return
        prompts = load_prompt_set(self.prompt_set)
        texts = {"first memory": prompts.first_memory, "update": prompts.update, "answer": prompts.answer}
        texts |= {"direct": prompts.direct, "merge": prompts.merge, "word that keeps the memory": prompts.keep_word}
        print(
            "\n".join([_set_summary(prompts), *(f"\n--- {name} ---\n{text}" for name, text in texts.items() if text)])
        )


class ImportPrompts(Command):
    """Makes a prompt set file from a Python file of the official code of MemAgent or PI-Mem, which is parsed and never
    run. The published texts are recognised by their hashes.
    """

    command = "memagent prompts import"
    examples = (
        "memagent prompts import MemAgent/recurrent/impls/memory.py",
        "memagent prompts import MemAgent/recurrent/impls/memory.py --output official.json --name official",
    )
    pages = ("docs/how-to/prompts.md",)
    words = ("file",)

    file: Path
    """Python file of the official code."""
    output: Path | None = None
    """File to write (default: NAME.json). One with other content is not replaced."""
    name: str | None = None
    """Name of the prompt set (default: that of the Python file)."""

    def run(self) -> None:
        prompts = import_official(self.file, name=self.name)
        target = self.output or Path(f"{prompts.name}.json")
        is_same = target.is_file() and target.read_bytes() == prompt_set_json(prompts).encode()
        if target.exists() and not is_same:
            raise OutputError(
                f"{target} is there already and holds something else; remove it, or give another --output"
            )
        save_prompt_set(prompts, target)
        print(f"{_set_summary(prompts)}\n\nWritten to {target}; use it with --prompt-set {target}")


def _set_summary(prompts: PromptSet) -> str:
    return "\n".join(
        [
            f"name:     {prompts.name}",
            f"version:  {prompts.version}",
            f"SHA-256:  {prompts.sha256}",
            f"note:     {prompts.note}",
        ]
    )
