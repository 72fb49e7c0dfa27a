"""`memagent prompts`: shows prompt sets, and imports the official ones from a file of the official code."""

from pathlib import Path

from memagent_batch.cli.command import Command
from memagent_batch.domain.prompts import AnswerForm, PromptSet
from memagent_batch.errors import OutputError
from memagent_batch.prompts.built_in import BUILT_IN_PROMPTS
from memagent_batch.prompts.files import load_prompt_set, prompt_set_json, save_prompt_set
from memagent_batch.prompts.official import OfficialImport, import_official


class List(Command):
    """Lists the built-in prompt sets: name, version, answer forms, hash."""

    command = "memagent prompts list"
    examples = ("memagent prompts list", "memagent prompts list | grep gated")
    page = "docs/how-to/prompts.md"

    def run(self) -> None:
        """Prints them."""
        print(list_prompts())


class Show(Command):
    """Shows the texts of a prompt set, with its hash."""

    command = "memagent prompts show"
    examples = ("memagent prompts show default", "memagent prompts show my-prompts.yaml")
    page = "docs/how-to/prompts.md"
    words = ("prompt_set",)

    prompt_set: str
    """Name of a built-in prompt set, or a prompt set file (JSON, YAML)."""

    def run(self) -> None:
        """Prints them."""
        print(show_prompts(self.prompt_set))


class Import(Command):
    """Makes a prompt set file from a Python file of the official code of MemAgent or PI-Mem.

    The file is parsed and never run. Published texts are known by their hash, others by the constants TEMPLATE
    and TEMPLATE_FINAL or TEMPLATE_FINAL_BOXED (PI-Mem: TEMPLATE_CHUNK, TEMPLATE_MERGE and TEMPLATE_FINAL_BOXED).
    """

    command = "memagent prompts import"
    examples = (
        "memagent prompts import MemAgent/quickstart.py",
        "memagent prompts import MemAgent/quickstart.py --output official.json --name official",
    )
    page = "docs/how-to/prompts.md"
    words = ("file",)

    file: Path
    """Python file of the official code."""
    output: Path | None = None
    """File to write (default: NAME.json here); one with other content is not replaced."""
    name: str | None = None
    """Name of the prompt set (default: that of the Python file, without its ending)."""

    def run(self) -> None:
        """Writes the file."""
        print(import_prompts(self.file, output=self.output, name=self.name))


def list_prompts() -> str:
    """The built-in prompt sets, one line each."""
    rows = [("NAME", "VERSION", "ANSWER FORMS", "SHA-256")]
    rows += [
        (prompts.name, prompts.version, _form_names(prompts), prompts.sha256) for prompts in BUILT_IN_PROMPTS.values()
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, "", "`memagent prompts import FILE` adds the official ones, as a file."])


def show_prompts(name_or_path: str) -> str:
    """A prompt set in full.

    Raises:
        PromptSetError: there is no such prompt set.
    """
    prompts = load_prompt_set(name_or_path)
    texts = [("first memory", prompts.first_memory), ("update", prompts.update)]
    texts += [(f"answer, form {form}", text) for form, text in sorted(prompts.answers.items())]
    texts += [(f"direct, form {form}", text) for form, text in sorted(prompts.direct.items())]
    texts += [("merge", prompts.merge)] if prompts.merge else []
    texts += [("word that keeps the memory", prompts.keep_word)] if prompts.keep_word else []
    return "\n".join([_set_summary(prompts), *(f"\n--- {title} ---\n{text}" for title, text in texts)])


def import_prompts(file: Path, *, output: Path | None = None, name: str | None = None) -> str:
    """Writes a prompt set file from official code and says what it holds.

    Args:
        file: Python file of the official code.
        output: file to write; NAME.json in the current folder by default.
        name: name of the prompt set.

    Raises:
        PromptSetError: the code does not hold the texts.
        OutputError: the file can't be written, or one with other content is there.
    """
    imported = import_official(file, name=name)
    target = output or Path(f"{imported.prompts.name}.json")
    _require_free(target, content=prompt_set_json(imported.prompts))
    save_prompt_set(imported.prompts, target)
    return _import_report(imported, target=target)


def _require_free(target: Path, *, content: str) -> None:
    """Refuses to replace a file that says something else."""
    if target.exists() and not (target.is_file() and target.read_bytes() == content.encode()):
        raise OutputError(f"{target} is there already and holds something else; remove it, or give another --output")


def _import_report(imported: OfficialImport, *, target: Path) -> str:
    checks = [
        f"  {check.text:<16} {'published' if check.is_published else 'differs':<10} {check.sha256}  ({check.source})"
        for check in imported.checks
    ]
    return "\n".join(
        [_set_summary(imported.prompts), "", "texts:", *checks, "", _import_verdict(imported), _use(imported, target)]
    )


def _import_verdict(imported: OfficialImport) -> str:
    if not imported.is_published:
        return "Some texts differ from the published ones; no published checkpoint was trained on them."
    if not imported.checkpoints:
        return (
            "All texts are the published ones; the checkpoints were trained on the update text and the first memory, "
            "but on another answer text, the boxed one."
        )
    return (
        f"All texts are the published ones; {', '.join(imported.checkpoints)} were trained on update, first memory "
        f"and the answer form {AnswerForm.BOXED_AS_TRAINED}, with the braces of \\boxed doubled. The official "
        f"evaluator and quickstart show these checkpoints the form {AnswerForm.BOXED}."
    )


def _use(imported: OfficialImport, target: Path) -> str:
    """How to use the set, with the form that it was trained with, or the only one that it has."""
    forms = imported.prompts.answers
    form = AnswerForm.BOXED_AS_TRAINED if imported.checkpoints else next(iter(forms))
    option = "" if form is AnswerForm.BOXED else f" --answer-form {form}"
    return f"Written to {target}; use it with --prompt-set {target}{option}"


def _set_summary(prompts: PromptSet) -> str:
    return "\n".join(
        [
            f"name:          {prompts.name}",
            f"version:       {prompts.version}",
            f"SHA-256:       {prompts.sha256}",
            f"answer forms:  {_form_names(prompts)}",
            f"note:          {prompts.note}",
        ]
    )


def _form_names(prompts: PromptSet) -> str:
    return ", ".join(sorted(prompts.answers))
