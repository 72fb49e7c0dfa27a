"""The example package as it is shown in the docs, and what its code decides."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from textwrap import indent

import pytest

import memagent_batch as ma
from memagent_batch.config.agent import AgentConfig, PolicyConfig
from memagent_batch.errors import SettingsError
from memagent_batch.plugins import make_policy
from memagent_batch.run.wiring import identify_reader

EXAMPLE = Path(__file__).parent / "example" / "src"
SOURCE = EXAMPLE / "memagent_example" / "policy.py"
DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "plugins.md"


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of a policy that can be imported as `edited_policy`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "edited_policy.py"
    file.write_text(SOURCE.read_text())
    return file


def test_policy_without_a_setting_of_how_documents_are_cut_refuses_it(edited: Path) -> None:
    policy = PolicyConfig.model_validate({"kind": "edited_policy:FirstMatch", "break_at": "lines"})
    with pytest.raises(SettingsError, match=r"policy\.break_at: the policy 'edited_policy:FirstMatch' does not"):
        make_policy(AgentConfig(model="tiny", policy=policy))


def test_policy_in_the_docs_is_that_of_the_example() -> None:
    shown = DOCS.read_text().split("```python\n")[1].split("```")[0]
    assert indent(shown, "    ") in SOURCE.read_text()


class Service(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = (
            r"\boxed{Ann}" if self.headers["Authorization"] == "Bearer secret" and "Who signed?" in body["text"] else ""
        )
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"text": text}).encode())


def test_engine_of_the_example_reads_through_its_service(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = {"url": f"http://127.0.0.1:{server.server_port}/", "token": "secret"}
        agent = ma.Agent(model=tiny_model, engine="memagent_example.remote:Remote", engine_options=options)
        with agent.open() as reader:
            assert reader.read("It was signed by Ann.", "Who signed?").answer == "Ann"
        server.shutdown()
    assert "secret" not in json.dumps(identify_reader(agent).parts)
