"""README's blocks as a newcomer runs them: in a fresh shell, in a folder that holds nothing else."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from memagent_batch.loop.models.packaged import install_model
from tests.engines.scripted_server import Reply, scripted_server
from tests.engines.test_chat import chat_reply

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def test_readme_uses_name_every_pipeline() -> None:
    named = set(re.findall(r"pipelines/([a-z_]+\.py)", README))
    assert named == {path.name for path in (ROOT / "pipelines").glob("*.py")}


@pytest.mark.parametrize("page", ["llm.txt", "CONTRIBUTING.md"])
def test_files_that_a_page_for_developers_names_are_there(page: str) -> None:
    named = set(re.findall(r"`((?:[\w.-]+/)+(?:[\w.-]+\.\w+)?)`", (ROOT / page).read_text(encoding="utf-8")))
    assert len(named) > 20
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


NOT_INSTALLED = "import sys\nsys.modules.update(dict.fromkeys(['vllm', 'torch', 'pyiceberg', 'gguf']))\n"
"""What an installation with the extra `convert` alone lacks can't be imported."""


def hosted_model(body: dict[str, Any]) -> Reply:
    """What a chat model writes: an answer, and under a guide the first sentence that it may choose."""
    guide = str(body.get("structured_outputs", ""))
    return chat_reply(("zq733" if "zq7" in guide else "1") if guide else r"\boxed{the law of Norway}")


def run_block(block: str, folder: Path, **variables: str) -> str:
    """What a block of shell lines prints in a fresh shell, which has nothing but the commands of the installation."""
    kept = {
        name: os.environ[name] for name in ("HOME", "LANG", "PIP_FIND_LINKS", "XDG_CACHE_HOME") if name in os.environ
    }
    done = subprocess.run(
        ["bash", "-eu", "-c", block],
        cwd=folder,
        env={**kept, "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


def test_door_of_an_endpoint_answers_over_ones_own_files_without_vllm_and_its_tables_are_those_listed(
    tmp_path: Path,
) -> None:
    (tmp_path / "contracts").mkdir()
    html = "<h1>Supply</h1><p>It rained.</p><p>This contract is governed by the law of Norway.</p>"
    (tmp_path / "contracts" / "supply.html").write_text(html)
    (tmp_path / "lacking").mkdir()
    (tmp_path / "lacking" / "sitecustomize.py").write_text(NOT_INSTALLED)
    install, *commands = next(block for block in blocks("bash") if "pip install" in block).splitlines()
    assert install == 'pip install ".[convert]"'
    query = next(block for block in blocks("python") if "duckdb" in block)
    script = "\n".join([*commands, "python - <<'END'", query, f"print({query.strip().splitlines()[-1]})", "END"])
    with scripted_server() as server:
        server.answer = hosted_model
        server.models = Reply(body=json.dumps({"data": [{"id": "my-model"}]}).encode())
        printed = run_block(
            script,
            tmp_path,
            PYTHONPATH=f"{tmp_path / 'lacking'}:{ROOT}",
            MEMAGENT_OPENAI__BASE_URL=server.base_url,
        )
    assert "the law of Norway" in printed.splitlines()[-3]
    evidence = pq.read_table(tmp_path / "out/evidence").to_pylist()
    assert {row["how"] for row in evidence} == {"chosen", "aligned"}
    assert not [row for row in evidence if row["text"] not in html]
    assert [file for file in (tmp_path / "out/pages").rglob("*.html") if "law of Norway" in file.read_text()]
    listed = re.findall(r"^out/([a-z.]+)/? +(.*)$", README, flags=re.MULTILINE)
    always = {name for name, meaning in listed if not meaning.startswith("if a question")}
    assert {name for name, _ in listed if (tmp_path / "out" / name).exists()} == always


@pytest.mark.vllm
@pytest.mark.slow
def test_door_of_python_prints_the_answer_and_its_sentence(tmp_path: Path) -> None:
    block = next(block for block in blocks("python") if "agent.open" in block)
    assert "memagent models install reader-135m" in README
    install_model("reader-135m")
    (tmp_path / "door.py").write_text(block)
    printed = run_block("python door.py", tmp_path, PYTHONPATH=str(ROOT))
    sentence = "All additions and alterations are licensed under the Apache 2.0 License."
    assert printed.startswith(f"Apache-2.0 [('{sentence}', 164, 236)")
