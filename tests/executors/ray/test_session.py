import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from ray.data import DataContext
from ray.exceptions import RayActorError

from memagent_batch.errors import RunFailedError, SettingsError
from memagent_batch.run.executors.ray import session
from memagent_batch.run.executors.ray.session import own_error, require_cluster, set_long_loops


def test_own_error_of_ray_itself_says_that_the_run_can_go_on() -> None:
    error = own_error(RayActorError())
    assert isinstance(error, RunFailedError)
    assert "the same command goes on" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_every_setting_for_long_loops_is_one_that_ray_data_has() -> None:
    context = DataContext()
    known = set(vars(context))
    before = dict(vars(context))
    set_long_loops(context)
    assert set(vars(context)) == known
    assert before["_max_num_blocks_in_streaming_gen_buffer"] < context._max_num_blocks_in_streaming_gen_buffer


def test_require_cluster_where_nobody_listens_gives_up_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "REACH_SECONDS", 0.2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
        with pytest.raises(RunFailedError, match=rf"at RAY_ADDRESS={address} for 0.2 s \(.*refused\); start") as error:
            require_cluster(address)
        assert "\n" not in str(error.value)


def test_require_cluster_takes_who_listens_and_leaves_other_words_to_ray() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        require_cluster(f"127.0.0.1:{server.getsockname()[1]}")
        require_cluster(f"ray://127.0.0.1:{server.getsockname()[1]}")
    for word in ("auto", "local", "127.0.0.1:port"):
        require_cluster(word)


def test_require_cluster_address_of_ray_job_submit_is_refused_at_once() -> None:
    with pytest.raises(SettingsError, match=r"RAY_ADDRESS=http://head:8265 is an address for `ray job submit`"):
        require_cluster("http://head:8265")


DYING = """
import os, sys, time, ray
from memagent_batch.run.executors.ray.session import ray_session

@ray.remote(max_retries=0)
def die():
    os._exit(1)

with ray_session():
    try:
        ray.get(die.remote())
    except ray.exceptions.WorkerCrashedError:
        end = time.monotonic() + 60  # Ray prints in its own thread
        while "A worker died" not in open(sys.argv[1]).read() and time.monotonic() < end:
            time.sleep(0.2)
print("result")
"""


@pytest.mark.slow
@pytest.mark.ray
def test_what_ray_prints_of_a_dead_worker_goes_to_stderr(tmp_path: Path) -> None:
    messages = tmp_path / "stderr.txt"
    command = [sys.executable, "-c", DYING, str(messages)]
    with messages.open("wb") as stderr:
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, text=True, check=True, timeout=240)
    assert ended.stdout == "result\n"
    assert "A worker died" in messages.read_text()
