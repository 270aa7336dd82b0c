import pytest

from pytorchjob.local.log_filter import MAX_HELD, LogFilter, ScriptPlace
from pytorchjob_agent.contract.reasons import ExitReason

ERROR = ["Traceback (most recent call last):", '  File "/app/train.py", line 9, in <module>', "    step(n)",
         '  File "/app/train.py", line 6, in step', "    raise ValueError(x)", "ValueError: x"]  # fmt: skip
GLOO = ["Traceback (most recent call last):", '  File "/app/train.py", line 7, in step', "    dist.all_reduce(t)",
        '  File "/v/site-packages/torch/distributed/c10d.py", line 1, in all_reduce', "    work.wait()",
        "RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:1"]  # fmt: skip


def of_rank(rank: int, lines: list[str]) -> list[str]:
    return [f"[rank{rank}]: {line}" for line in lines]


def fed(log_filter: LogFilter, label: str, lines: list[str]) -> list[str]:
    return [shown for line in lines for shown in log_filter.feed(label, line)]


def test_lines_pass_as_they_come() -> None:
    log_filter = LogFilter()
    assert [log_filter.feed("worker-0", line) for line in ("a", "  b", "[rank0]: c")] == [
        ["a"],
        ["  b"],
        ["[rank0]: c"],
    ]


def test_the_first_traceback_is_whole_and_the_same_again_is_one_line() -> None:
    log_filter = LogFilter()
    assert fed(log_filter, "worker-0", of_rank(1, ERROR)) == of_rank(1, ERROR)
    again = "[rank3]: ValueError: x (the traceback is the same as that of rank 1 above)"
    assert fed(log_filter, "worker-1", of_rank(3, ERROR)) == [again]


SYNTAX = ['  File "/app/train.py", line 1', "    def f(:", "          ^", "SyntaxError: invalid syntax"]


def test_a_script_that_python_cannot_parse_is_shown_once_and_has_a_place() -> None:
    log_filter = LogFilter(cwd="/app")
    assert fed(log_filter, "worker-0", of_rank(1, SYNTAX)) == of_rank(1, SYNTAX)
    again = "[rank0]: SyntaxError: invalid syntax (the traceback is the same as that of rank 1 above)"
    assert fed(log_filter, "master-0", of_rank(0, SYNTAX)) == [again]
    assert str(log_filter.place(1, "")) == "train.py:1"


def test_an_import_that_python_cannot_parse_has_the_place_in_the_imported_file() -> None:
    log_filter = LogFilter()
    imported = [*ERROR[:-1], '  File "/app/model.py", line 3', *SYNTAX[1:]]
    assert fed(log_filter, "worker-0", imported) == imported
    assert str(log_filter.place(None, "worker-0")) == "/app/model.py:3"


def test_two_ranks_of_a_replica_may_write_at_once() -> None:
    log_filter = LogFilter()
    other = [line.replace("x", "y") for line in ERROR]
    mixed = [line for pair in zip(of_rank(0, ERROR), of_rank(1, other), strict=True) for line in pair]
    assert fed(log_filter, "worker-0", mixed) == [*of_rank(0, ERROR), *of_rank(1, other)]


def test_the_consequence_for_a_peer_is_one_line() -> None:
    (line,) = fed(LogFilter(), "worker-1", of_rank(2, GLOO))
    assert line.startswith("[rank2]: RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by peer")


def test_the_traceback_of_a_lost_peer_is_kept_for_the_report() -> None:
    log_filter = LogFilter(cwd="/app")
    fed(log_filter, "worker-1", of_rank(2, GLOO))
    assert str(log_filter.place(2, "")) == "train.py:7, in step"
    assert log_filter.withheld(2, "") == of_rank(2, GLOO)
    assert log_filter.withheld(2, "") == []


TORCHRUN = [ERROR[0], '  File "/usr/bin/torchrun", line 10, in <module>', "    sys.exit(main())",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "=" * 60, "train.py FAILED",
            "-" * 60, "Root Cause (first observed failure):", "  rank      : 1 (local_rank: 1)",
            "  exitcode  : -11 (pid: 7)", "=" * 60, "after"]  # fmt: skip


def test_torchruns_own_report_is_left_out_and_is_no_cause() -> None:
    log_filter = LogFilter()
    assert fed(log_filter, "worker-0", [*ERROR, *TORCHRUN]) == [*ERROR, "after"]
    assert str(log_filter.place(None, "worker-0")) == "/app/train.py:6, in step"
    found = log_filter.error("worker-0")
    assert found is not None
    assert found.text == "ValueError: x"


def test_torchruns_report_counts_where_no_error_was_printed() -> None:
    log_filter = LogFilter()
    fed(log_filter, "worker-0", TORCHRUN)
    found = log_filter.error("worker-0")
    assert found is not None
    assert (found.is_peer_gone, "rank 1" in found.text, "-11" in found.text) == (True, True, True)
    assert log_filter.place(None, "worker-0") is None


CRASH = ["Fatal Python error: Segmentation fault", "", "Current thread 0x7 (most recent call first):",
         '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at',
         '  File "/app/train.py", line 4 in step', '  File "/app/train.py", line 9 in <module>']  # fmt: skip


def test_a_crash_in_native_code_has_its_place_in_the_users_code() -> None:
    log_filter = LogFilter()
    assert fed(log_filter, "worker-0", CRASH) == CRASH
    assert str(log_filter.place(None, "worker-0")) == "/app/train.py:4, in step"


LOADER = [*ERROR[:3], *GLOO[3:5] * 5, "ValueError: Caught ValueError in DataLoader worker process 0.",
          "Original Traceback (most recent call last):", '  File "/v/site-packages/torch/worker.py", line 3, in _loop',
          '  File "/app/data.py", line 3, in __getitem__', "    raise ValueError(i)", "ValueError: 7"]  # fmt: skip


def test_an_error_of_a_data_loader_is_its_workers_own_in_a_few_lines() -> None:
    log_filter = LogFilter()
    assert len(fed(log_filter, "worker-0", LOADER)) < len(LOADER)
    assert str(log_filter.place(None, "worker-0")) == "/app/data.py:3, in __getitem__"
    found = log_filter.error("worker-0")
    assert found is not None
    assert found.text == "ValueError: 7"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        pytest.param("/home/me/torch/train.py", "/home/me/torch/train.py:6, in step", id="a folder of the user's"),
        pytest.param("/v/lib/pytorchjob_agent/workers/startup/pytorchjob_saves.py", None, id="our own file"),
        pytest.param("/v/site-packages/torch/serialization.py", None, id="torch's"),
    ],
)
def test_which_files_are_the_users(path: str, place: str | None) -> None:
    log_filter = LogFilter()
    fed(log_filter, "worker-0", [line.replace("/app/train.py", path) for line in ERROR])
    found = log_filter.place(None, "worker-0")
    assert (str(found) if found else None) == place


@pytest.mark.parametrize(
    "error",
    [
        pytest.param("TimeoutError: no data", id="a time limit of the script"),
        pytest.param("KeyError: 'store'", id="a word that torch uses too"),
        pytest.param("RuntimeError: shapes differ", id="an error of torch that is not a lost peer"),
    ],
)
def test_an_error_of_the_script_itself_is_never_left_out(error: str) -> None:
    lines = [*ERROR[:-1], error]
    assert fed(LogFilter(), "worker-0", lines) == lines


def test_what_torch_and_the_agent_repeat_is_left_out() -> None:
    repeated = [
        "pytorchjob-agent: WorkerFailed: rank 1: ValueError: x",
        f"pytorchjob-agent: {ExitReason.WORKER_HANGS}: rank 0: no rank has made progress",
        "E1122 19:11:16.87 4812 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank",
        "W1122 19:11:16.74 4812 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 4992 closing",
    ]
    assert fed(LogFilter(), "worker-0", repeated) == []
    assert fed(LogFilter(verbose=True), "worker-0", repeated) == repeated


def test_verbose_shows_everything() -> None:
    log_filter = LogFilter(verbose=True)
    lines = [*of_rank(1, ERROR), *of_rank(2, GLOO), *of_rank(1, ERROR)]
    assert fed(log_filter, "worker-0", lines) == lines


def test_the_place_is_in_the_users_code() -> None:
    log_filter = LogFilter()
    fed(log_filter, "worker-0", of_rank(1, [*ERROR[:-1], *GLOO[3:5], "TypeError: y"]))
    fed(log_filter, "worker-1", of_rank(2, GLOO))
    place = ScriptPlace("/app/train.py", 6, "step")
    assert (log_filter.place(1, ""), log_filter.place(None, "worker-0")) == (place, place)
    assert str(place) == "/app/train.py:6, in step"


def test_a_place_below_the_folder_of_the_run_is_named_from_there_until_the_next_round() -> None:
    log_filter = LogFilter(cwd="/app")
    fed(log_filter, "worker-0", of_rank(1, ERROR))
    assert str(log_filter.place(1, "")) == "train.py:6, in step"
    log_filter.forget_places()
    assert log_filter.place(1, "") is None


def test_half_a_traceback_is_shown_when_its_replica_ends() -> None:
    log_filter = LogFilter()
    assert fed(log_filter, "worker-0", ERROR[:3]) == []
    assert (log_filter.flush("worker-1"), log_filter.flush("worker-0")) == ([], ERROR[:3])


def test_a_traceback_without_end_is_not_held_for_ever() -> None:
    lines = [ERROR[0], *["    deeper"] * (2 * MAX_HELD)]
    assert fed(LogFilter(), "worker-0", lines) == lines
