"""Stacks as faulthandler writes them, and what is said of them."""

import pytest

from pytorchjob_agent.stacks.stack_analysis import LONGEST, StackPlace, cut, describe_ranks, is_whole, place

TORCH = "/usr/lib/python3.11/site-packages/torch"


def stack(*frames: tuple[str, int, str], head: str = "Current thread 0x00007fdcb2a54b80") -> str:
    lines = [f'  File "{file}", line {line} in {name}' for file, line, name in frames]
    return "\n".join([f"{head} (most recent call first):", *lines, ""])


C10D = (f"{TORCH}/distributed/distributed_c10d.py", 4181, "all_reduce")
WRAPPER = (f"{TORCH}/distributed/c10d_logger.py", 83, "wrapper")
MAIN = ("/app/train.py", 15, "main")
MODULE = ("/app/train.py", 22, "<module>")
MEASURE = "/opt/pytorchjob/pytorchjob_agent/workers/startup/pytorchjob_collectives.py"
TIMED = ((MEASURE, 107, "timed"), (MEASURE, 119, "wait"))
OTHER_THREAD = stack(("/usr/lib/python3.11/threading.py", 320, "wait"), head="Thread 0x00007f1923ca56c0")


LINES = {
    15: "        work.wait()",
    16: "    while not work.is_completed():\n        pass",
    17: "    loss = model(batch)",
}
OTHERS = {MEASURE: "            result = call(*args, **options)"}


@pytest.mark.parametrize(
    ("stacks", "collective"),
    [
        pytest.param(stack(MAIN), "wait", id="a handle that is waited for leaves no frame"),
        pytest.param(stack(("/app/train.py", 16, "main")), "is_completed", id="one that is polled"),
        pytest.param(stack(("/app/train.py", 17, "main")), None, id="a computation"),
        pytest.param(stack(("/app/train.py", 99, "main")), None, id="a line that cannot be read"),
        pytest.param(stack(("/usr/lib/python3.11/threading.py", 15, "join"), MAIN), None, id="in the library"),
        pytest.param(stack((MAIN[0], 0, "main")).replace("line 0", "line ???"), None, id="a line that is unknown"),
        pytest.param(stack(C10D, WRAPPER, MAIN), "all_reduce", id="a collective with a frame of its own"),
        pytest.param(stack(*TIMED, MAIN), "wait", id="a handle whose wait is measured"),
        pytest.param(stack(*TIMED, C10D, WRAPPER, MAIN), "all_reduce", id="a collective whose wait is measured"),
    ],
)
def test_the_source_shows_that_a_call_into_c_waits_for_other_ranks(stacks: str, collective: str | None) -> None:
    found = place(
        stacks, lambda file, line: LINES.get(line, "") if file == MAIN[0] else OTHERS.get(file, "work.wait()")
    )
    assert found is not None
    assert found.collective == collective


@pytest.mark.parametrize(
    ("stacks", "collective"),
    [
        pytest.param(stack((C10D[0], 4873, "barrier"), WRAPPER, MAIN), "barrier", id="NCCL, a barrier"),
        pytest.param(
            stack((C10D[0], 2810, "all_reduce"), WRAPPER, MAIN), "all_reduce", id="NCCL with TORCH_NCCL_BLOCKING_WAIT"
        ),
        pytest.param(stack((f"{TORCH}/cuda/__init__.py", 985, "synchronize"), MAIN), None, id="NCCL, at the device"),
        pytest.param(stack(("/app/train.py", 17, "main")), None, id="NCCL, at loss.item()"),
    ],
)
def test_what_a_stack_shows_of_a_rank_that_spins_in_nccl(stacks: str, collective: str | None) -> None:
    """At the device a healthy training looks the same, because it waits there for most of its time."""
    found = place(stacks)
    assert found is not None
    assert found.collective == collective


@pytest.mark.parametrize(
    ("frames", "external"),
    [
        pytest.param([("/usr/lib/python3.11/socket.py", 706, "readinto"), MAIN], True, id="a socket"),
        pytest.param(
            [("/usr/lib/python3.11/ssl.py", 1314, "read"), (f"{TORCH}/../urllib3/response.py", 1, "read"), MAIN],
            True,
            id="a download",
        ),
        pytest.param(
            [
                ("/usr/lib/python3.11/selectors.py", 468, "select"),
                ("/usr/lib/python3.11/asyncio/base_events.py", 1, "run"),
            ],
            True,
            id="a server",
        ),
        pytest.param(
            [("/usr/lib/python3.11/cmd.py", 126, "cmdloop"), ("/usr/lib/python3.11/bdb.py", 1, "x")], True, id="pdb"
        ),
        pytest.param(
            [
                ("/usr/lib/python3.11/selectors.py", 415, "select"),
                ("/usr/lib/python3.11/multiprocessing/connection.py", 1, "p"),
            ],
            False,
            id="a queue of another process",
        ),
        pytest.param(
            [MAIN, ("/usr/lib/python3.11/asyncio/base_events.py", 1, "run")], False, id="a coroutine of the script"
        ),
        pytest.param([C10D, WRAPPER, MAIN], False, id="a collective"),
    ],
)
def test_what_waits_for_something_outside_of_the_job(frames: list[tuple[str, int, str]], external: bool) -> None:
    found = place(stack(*frames))
    assert found is not None
    assert found.external is external


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", None, id="nothing"),
        pytest.param("  <no Python frame>\n", None, id="no frame"),
        pytest.param("garbage\n\x00", None, id="what is no stack"),
        pytest.param(stack(MAIN, MODULE), StackPlace("train.py:15 main()"), id="in the script"),
        pytest.param(stack(MODULE), StackPlace("train.py:22 <module>"), id="at its top"),
        pytest.param(stack(C10D, WRAPPER, MAIN), StackPlace("train.py:15 main()", "all_reduce"), id="in a collective"),
        pytest.param(
            stack((C10D[0], 5430, "all_gather_single"), WRAPPER, (C10D[0], 4473, "all_gather_object"), WRAPPER, MAIN),
            StackPlace("train.py:15 main()", "all_gather_object"),
            id="the collective that the script called, not one below",
        ),
        pytest.param(
            stack((f"{TORCH}/autograd/graph.py", 1113, "_engine_run_backward"), MAIN),
            StackPlace("train.py:15 main()", "backward"),
            id="in backward, where DDP reduces",
        ),
        pytest.param(
            stack(("/usr/lib/python3.11/queue.py", 180, "get"), (f"{TORCH}/utils/data/dataloader.py", 1, "_get"), MAIN),
            StackPlace("train.py:15 main()", blocked=True),
            id="waiting for data",
        ),
        pytest.param(
            stack((f"{TORCH}/utils/data/dataloader.py", 1, "_get"), MAIN),
            StackPlace("train.py:15 main()"),
            id="in a package",
        ),
        pytest.param(stack(MAIN, C10D), StackPlace("train.py:15 main()"), id="a callback of a collective is not in it"),
        pytest.param(
            OTHER_THREAD + "\n" + stack(MAIN), StackPlace("train.py:15 main()"), id="other threads do not count"
        ),
        pytest.param(
            stack(MAIN, head="Current thread 0x1") + stack(MODULE, head="Thread 0x00007f19 [python]"),
            StackPlace("train.py:22 <module>"),
            id="the main thread is the last, whichever took the signal",
        ),
    ],
)
def test_where_a_rank_is(text: str, expected: StackPlace | None) -> None:
    assert place(text) == expected


WAITING = ("/usr/lib/python3.11/threading.py", 327, "wait")
BOOTSTRAP = ("/usr/lib/python3.11/threading.py", 1002, "_bootstrap")
RUN = ("<frozen runpy>", 198, "_run_module_as_main")
WHOLE = [
    pytest.param(stack(WAITING, MAIN, MODULE), id="a script"),
    pytest.param(stack(WAITING, MAIN, MODULE, ("<frozen runpy>", 88, "_run_code"), RUN), id="a module by its name"),
    pytest.param(stack(WAITING, BOOTSTRAP, head="Thread 0x1") + "\n" + stack(MAIN, MODULE), id="with other threads"),
    pytest.param(stack(*[MAIN] * 100) + "  ...\n", id="a deep recursion, of which frames are left out"),
]


@pytest.mark.parametrize("text", WHOLE)
def test_a_stack_counts_once_its_oldest_frame_is_written(text: str) -> None:
    assert is_whole(text)
    parts = (text[:end] for end in range(len(text)))
    assert not any(is_whole(part) for part in parts if not part.endswith("in <module>\n"))


def test_of_many_threads_the_main_one_is_kept() -> None:
    text = OTHER_THREAD * 200 + stack(C10D, WRAPPER, MAIN)
    assert len(cut(text)) <= LONGEST
    assert place(cut(text)) == StackPlace("train.py:15 main()", "all_reduce")


def test_of_a_deep_stack_the_newest_frames_are_kept() -> None:
    text = stack(C10D, WRAPPER, MAIN, *[("/app/train.py", 30, "again")] * 1000)
    assert len(cut(text)) <= LONGEST
    assert place(cut(text)) == StackPlace("train.py:15 main()", "all_reduce")


REDUCE = StackPlace("train.py:44 main()", "all_reduce")
BROADCAST = StackPlace("train.py:50 main()", "broadcast")
LOAD = StackPlace("train.py:41 load()")


@pytest.mark.parametrize(
    ("places", "steps", "words"),
    [
        pytest.param(
            {0: REDUCE, 1: REDUCE, 2: REDUCE, 3: LOAD},
            {},
            "rank 3 is in train.py:41 load(); ranks 0, 1, 2 wait in all_reduce (train.py:44 main())",
            id="one is not in the collective",
        ),
        pytest.param(
            {0: LOAD, 1: REDUCE},
            {},
            "rank 0 is in train.py:41 load(); rank 1 waits in all_reduce (train.py:44 main())",
            id="of two, the one that does not wait",
        ),
        pytest.param(
            {0: LOAD, 1: LOAD, 2: LOAD, 3: REDUCE},
            {},
            "ranks 0, 1, 2 are in train.py:41 load(); rank 3 waits in all_reduce (train.py:44 main())",
            id="many that do not wait",
        ),
        pytest.param(
            {0: REDUCE, 1: REDUCE, 2: BROADCAST},
            {},
            "rank 2 waits in broadcast (train.py:50 main()); ranks 0, 1 wait in all_reduce (train.py:44 main())",
            id="another collective than the others'",
        ),
        pytest.param(
            {0: REDUCE, 1: None, 2: REDUCE},
            {},
            "rank 1 gives no stack: stopped, or stuck in the kernel;"
            " ranks 0, 2 wait in all_reduce (train.py:44 main())",
            id="one gives no stack",
        ),
        pytest.param({0: None, 1: None}, {}, "no stack of ranks 0, 1", id="none gives one"),
        pytest.param({}, {}, "no stacks", id="nobody"),
        pytest.param({0: REDUCE}, {}, "rank 0 waits in all_reduce (train.py:44 main())", id="one alone"),
        pytest.param(
            {0: REDUCE, 1: REDUCE},
            {0: 42, 1: 41},
            "ranks 0, 1 wait in all_reduce (train.py:44 main()); rank 1 is at step 41, the others at up to 42",
            id="all in one place, one is a step behind",
        ),
        pytest.param(
            {0: REDUCE, 1: REDUCE},
            {0: 42, 1: 42},
            "ranks 0, 1 wait in all_reduce (train.py:44 main())",
            id="all in one place at one step",
        ),
        pytest.param(
            {0: StackPlace("a.py:1 f()"), 1: StackPlace("a.py:1 f()"), 2: StackPlace("a.py:2 g()")},
            {},
            "rank 2 is in a.py:2 g(); ranks 0, 1 are in a.py:1 f()",
            id="nobody waits: the one that is elsewhere",
        ),
        pytest.param(
            dict.fromkeys(range(1000), REDUCE) | {7: LOAD},
            {},
            "rank 7 is in train.py:41 load(); ranks 0, 1, 2, 3, 4, 5, 6, 8 and 991 more wait in all_reduce"
            " (train.py:44 main())",
            id="a thousand",
        ),
    ],
)
def test_the_odd_one_is_named(places: dict[int, StackPlace | None], steps: dict[int, int | None], words: str) -> None:
    assert describe_ranks(places, steps) == words
