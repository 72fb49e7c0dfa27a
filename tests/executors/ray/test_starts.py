"""What a replica does after its engine started or failed to, without Ray."""

import asyncio

import pytest

from memagent_batch.run.executors.ray import board as ray_board
from memagent_batch.run.executors.ray.board import BoardActor, NextStep, Starts
from memagent_batch.run.executors.reports import ReplicaCounts


async def end(of: Starts, replica: str, *, is_new: bool = True, has_failed: bool = False) -> NextStep:
    """A start of one of two replicas, from its begin to what follows."""
    await of.begin(replica)
    return await of.end(replica, num_replicas=2, is_new=is_new, has_failed=has_failed)


async def test_replica_that_fails_beside_one_that_reads_starts_again_and_then_gives_up() -> None:
    of = Starts()
    steps = list(await asyncio.gather(end(of, "good"), end(of, "bad", has_failed=True)))
    steps += [await end(of, "bad", has_failed=True) for _ in range(2)]
    assert steps == [NextStep.READ, NextStep.START_AGAIN, NextStep.START_AGAIN, NextStep.GIVE_UP]


async def test_replicas_that_all_fail_go_on_to_show_their_error_at_once() -> None:
    of = Starts()
    steps = list(await asyncio.gather(*(end(of, replica, has_failed=True) for replica in ("one", "other"))))
    assert steps == [NextStep.READ, NextStep.READ]


async def test_failed_replica_waits_for_the_outcome_of_one_that_is_starting() -> None:
    of = Starts()
    await of.begin("slow")
    failed = asyncio.ensure_future(end(of, "bad", has_failed=True))
    await asyncio.sleep(0.05)
    assert not failed.done()
    assert await of.end("slow", num_replicas=2, is_new=True, has_failed=False) is NextStep.READ
    assert await failed is NextStep.START_AGAIN


async def test_ready_replica_waits_for_the_other_and_later_ones_wait_for_nobody() -> None:
    of = Starts()
    first = asyncio.ensure_future(end(of, "first"))
    await asyncio.sleep(0.05)
    assert not first.done()
    assert await end(of, "second") is NextStep.READ
    assert await first is NextStep.READ
    await of.begin("fourth")
    assert await end(of, "third") is NextStep.READ


async def test_replica_whose_begin_was_lost_with_the_board_counts_at_the_next_one() -> None:
    of = Starts()
    first = asyncio.ensure_future(of.end("first", num_replicas=2, is_new=True, has_failed=False))
    await asyncio.sleep(0.05)
    assert await asyncio.wait_for(end(of, "second"), 5) is NextStep.READ
    assert await asyncio.wait_for(first, 5) is NextStep.READ


async def test_replica_that_ray_started_again_waits_for_nobody_at_a_board_that_was_started_again() -> None:
    assert await asyncio.wait_for(end(Starts(), "again", is_new=False), 5) is NextStep.READ


async def test_replicas_wait_for_none_that_ray_started_again_for_readings_that_have_ended() -> None:
    board = BoardActor()
    await begun(board, "broken", num_replicas=1)
    await board.end_run()
    await board.begin_run()
    await board.begin_start("broken", is_new=False)  # and Ray ends it
    both = asyncio.gather(begun(board, "one"), begun(board, "other"))
    assert list(await asyncio.wait_for(both, 5)) == [NextStep.READ, NextStep.READ]


async def test_replica_that_read_and_can_not_start_again_is_given_up_while_others_read() -> None:
    of = Starts()
    await asyncio.gather(end(of, "good"), end(of, "dying"))
    steps = [await end(of, "dying", is_new=False, has_failed=True) for _ in range(3)]
    assert steps == [NextStep.START_AGAIN, NextStep.START_AGAIN, NextStep.GIVE_UP]
    assert of.counts() == ReplicaCounts(ready=1, asked=2)


async def test_last_replica_that_read_tries_to_start_again_before_it_shows_its_error() -> None:
    of = Starts()
    await of.begin("only")
    assert await of.end("only", num_replicas=1, is_new=True, has_failed=False) is NextStep.READ
    steps = []
    for _ in range(3):
        await of.begin("only", is_new=False)
        steps.append(await of.end("only", num_replicas=1, is_new=False, has_failed=True))
    assert steps == [NextStep.START_AGAIN, NextStep.START_AGAIN, NextStep.READ]


async def test_ready_replicas_wait_for_none_that_the_cluster_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_board, "PLACEMENT_SECONDS", 0.05)
    of = Starts()
    for replica in ("one", "other"):
        await of.begin(replica)
    ends = (of.end(replica, num_replicas=3, is_new=True, has_failed=False) for replica in ("one", "other"))
    assert list(await asyncio.wait_for(asyncio.gather(*ends), 30)) == [NextStep.READ, NextStep.READ]
    assert of.counts() == ReplicaCounts(ready=2, asked=3)
    await of.begin("third")
    assert await asyncio.wait_for(of.end("third", num_replicas=3, is_new=True, has_failed=False), 5) is NextStep.READ


async def test_ready_replica_waits_for_one_that_hangs_while_it_starts_no_longer_than_it_took_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_board, "PLACEMENT_SECONDS", 0.05)
    of = Starts()
    await of.begin("hanging")
    assert await asyncio.wait_for(end(of, "ready"), 30) is NextStep.READ


async def test_replica_that_fails_alone_waits_a_while_for_others_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_board, "OTHERS_SECONDS", 0.05)
    assert await asyncio.wait_for(end(Starts(), "only", has_failed=True), 30) is NextStep.READ


async def begun(board: BoardActor, replica: str, *, num_replicas: int = 2) -> NextStep:
    await board.begin_start(replica, is_new=True)
    step: NextStep = await board.end_start(replica, num_replicas=num_replicas, is_new=True, has_failed=False)
    return step


async def test_replicas_that_begin_before_and_after_the_run_says_so_wait_for_each_other_alone() -> None:
    board = BoardActor()
    for _ in range(2):
        early = asyncio.ensure_future(begun(board, "early"))
        await asyncio.sleep(0.05)
        await board.begin_run()
        assert not early.done()
        assert await begun(board, "late") is NextStep.READ
        assert await asyncio.wait_for(early, 5) is NextStep.READ
        await board.end_run()


async def test_engines_that_take_ten_minutes_to_start_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of forty replicas one is ready soon and one fails soon; a second stands for 1,000."""
    for name in ("PLACEMENT_SECONDS", "OTHERS_SECONDS", "START_SECONDS"):
        monkeypatch.setattr(ray_board, name, getattr(ray_board, name) / 1000)
    of, order = Starts(), list[str]()

    async def start(replica: str, seconds: float, *, has_failed: bool = False) -> NextStep:
        await of.begin(replica)
        await asyncio.sleep(seconds)
        step = await of.end(replica, num_replicas=40, is_new=True, has_failed=has_failed)
        order.append(replica)
        return step

    slow = [f"slow {number}" for number in range(38)]
    starts = [start("quick", 0.03), start("broken", 0.01, has_failed=True), *(start(name, 0.6) for name in slow)]
    assert await asyncio.gather(*starts) == [NextStep.READ, NextStep.START_AGAIN, *[NextStep.READ] * 38]
    assert {*order[:2]} == {"quick", "broken"}, "they wait no ten minutes for the others"
    assert of.counts() == ReplicaCounts(ready=39, asked=40)


async def test_engines_that_all_take_ten_minutes_to_start_read_and_a_broken_one_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broken one waits to learn whether others can read; a second stands for 1,000."""
    for name in ("PLACEMENT_SECONDS", "OTHERS_SECONDS", "START_SECONDS"):
        monkeypatch.setattr(ray_board, name, getattr(ray_board, name) / 1000)
    of = Starts()
    await of.begin("slow")
    broken = asyncio.ensure_future(end(of, "broken", has_failed=True))
    await asyncio.sleep(0.6)
    assert not broken.done()
    assert await of.end("slow", num_replicas=2, is_new=True, has_failed=False) is NextStep.READ
    assert await broken is NextStep.START_AGAIN
