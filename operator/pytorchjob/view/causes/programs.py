"""Recognizes why programs ended with an error: exit codes, Python's exceptions, and what torch and NCCL write.

The texts come from termination messages: the operator lets the kubelet store the end of a failed container's log. Of
several exceptions the last counts that does not sound like the consequence of another rank's failure.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from pytorchjob.view import reading
from pytorchjob.view.causes import program_causes as causes
from pytorchjob.view.causes.cause import Cause, CauseEvidence, CauseLevel, Finding, merge
from pytorchjob.view.causes.endings import Ending, Statement, find_endings, of_ending, past_events, statements
from pytorchjob.view.causes.rules import first_cause, rule
from pytorchjob.view.causes.training import TIMED_OUT
from pytorchjob.view.seen import Seen
from pytorchjob_agent.contract.environment import RANK
from pytorchjob_agent.contract.printed_error import killed_worker
from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.contract.termination import exit_code_of
from pytorchjob_operator.names import CONTAINER, Reason

CAUSES = causes.ROWS

_RULES = (
    rule(r"No module named 'torch'|No module named torch$", causes.NO_TORCH),
    rule(
        r"exec: \"pytorchjob-agent\"|pytorchjob-agent: (?:command )?not found|No module named '?pytorchjob_agent",
        causes.NO_AGENT,
    ),
    rule(
        r"(?:exec|stat):? \"?(?P<name>[^\s\":]+)\"?: (?:executable file not found|stat \S+: no such file|no such file)",
        causes.WRONG_COMMAND,
    ),
    rule(
        r"^(?:\S*/)?(?:ba|da|a)?sh: (?:line )?(?:\d+: )?(?P<name>[\w./-]+): (?:command )?not found$",
        causes.WRONG_COMMAND,
    ),
    rule(r"exec:? \"?(?P<name>[^\s\":]+)\"?: (?:permission denied|exec format error)", causes.NOT_EXECUTABLE),
    rule(r"can't open file '(?P<name>[^']+)': \[Errno 2\]", causes.NO_SCRIPT),
    rule(r"ModuleNotFoundError: No module named '(?P<name>[^']+)'", causes.NO_MODULE),
    rule(r"CUDA out of memory|torch\.(?:cuda\.)?OutOfMemoryError", causes.GPU_MEMORY),
    rule(
        r"Found no NVIDIA driver|not compiled with CUDA|driver on your system is too old|no CUDA-capable device",
        causes.NO_GPU,
    ),
    rule(r"invalid device ordinal|Duplicate GPU detected", causes.WRONG_NPROC),
    rule(
        r"insufficient shared memory|[Uu]nable to (?:open|write|mmap) .*shared memory|Bus error",
        causes.SHARED_MEMORY,
    ),
    rule(r"\[Errno 28\]|No space left on device", causes.DISK_FULL),
    rule(r"[Aa]ddress already in use|EADDRINUSE", causes.PORT_IN_USE),
    rule(r"FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<name>[^']+)'", causes.NO_FILE),
    rule(r"no socket interface found", causes.NCCL_INTERFACE),
    rule(
        r"^(?P<words>.*(?:Name or service not known|Temporary failure in name resolution|gaierror).*)$",
        causes.DNS,
    ),
    rule(r"^(?P<words>.*network addresses of \((?P<host>[^,)]+).* cannot be retrieved.*)$", causes.DNS),
    rule(
        r"Timed out after \d+ seconds waiting for clients|client socket has timed out|RendezvousTimeoutError",
        TIMED_OUT,
    ),
    rule(
        r"Watchdog caught collective operation timeout|Timed out waiting \d+ms for (?:recv|send)",
        causes.COLLECTIVE_TIMEOUT,
    ),
    rule(r"NCCL error|nccl(?:System|Internal|Remote|UnhandledCuda)Error|ncclInvalidUsage", causes.NCCL),
    rule(r"Connection (?:closed|reset) by (?:remote )?peer|Broken pipe|Connection refused", causes.PEER_GONE),
)
"""What a text has, and what it means; the first that fits."""
_EXCEPTION = re.compile(r"^(?:\[rank\d+\]:? ?)?(?P<words>[A-Za-z_][\w.]*(?:Error|Exception)(?:: .*)?)$", re.MULTILINE)
_WRAPPERS = ("ChildFailedError", "SignalException")
"""torchrun's own exceptions: they only report that a worker failed."""
_CHAINED = ("During handling of the above exception", "direct cause of the following exception")
_RANK_BEFORE_LINE = re.compile(r"^\[rank(?P<rank>\d{1,9})\]", re.MULTILINE)
_LAST_LINES = 8
_AGENTS: Mapping[str, Cause] = {
    ExitReason.NO_TORCH: causes.NO_TORCH,
    ExitReason.BAD_SETUP: causes.SETUP,
    ExitReason.BAD_USAGE: causes.USAGE,
    ExitReason.PREFLIGHT_FAILED: causes.UNFIT,
    ExitReason.DEVICE_FAILED: causes.DEVICE,
    ExitReason.WORKER_FAILED: causes.EXIT_CODE,
}
"""What the reason of an agent's end means, if its text means nothing."""
_NATIVE = {139: "SIGSEGV", 134: "SIGABRT", 135: "SIGBUS", 132: "SIGILL"}
_REPORTED = re.compile(r"Pod: [^.\s]+\.(?P<pod>\S+) exited with code \d+ \(OOMKilled\)")
"""As the operator reports it (`plan/pod_events`)."""
_KILLED, _STOPPED = 137, 143
_WORDS = 300

Meaning = tuple[Cause, dict[str, str]]


def find(seen: Seen) -> Iterator[Finding]:
    """Yield the causes of programs that failed: each once, with the pods that have it, the earliest failure first."""
    endings = find_endings(seen)
    yield from merge((*_read_texts(seen, endings), *_read_endings(seen, endings), *_read_events(seen)))


def _read_texts(seen: Seen, endings: list[Ending]) -> Iterator[Finding]:
    images = {ending.pod: ending.image for ending in endings}
    for statement in statements(seen):
        found = None if statement.hangs else _meaning_of(statement)
        if found is not None:
            cause, values = found
            pod = statement.pod
            known = {
                "pod": pod or "a pod",
                "image": images.get(pod) or next(filter(None, images.values()), "IMAGE"),
                "container": CONTAINER,
                **_place(seen, statement),
            }
            yield Finding(cause, {**known, **values}, (statement.evidence,), (pod,) if pod else ())


def _meaning_of(statement: Statement) -> Meaning | None:
    """Return what a text and an exit code mean together; the agent's codes mean nothing about a program."""
    if (found := meaning(statement.text)) is not None:
        return found
    by_agent = statement.ending is None or statement.ending.agent is not None
    return (causes.KILLED, {}) if by_agent and statement.code == _KILLED else None


@lru_cache(maxsize=1024)
def meaning(text: str) -> Meaning | None:
    """Return what a text of a failed program means; None if it means nothing certain."""
    found = [match for match in _EXCEPTION.finditer(text) if not match["words"].partition(":")[0].endswith(_WRAPPERS)]
    if not found:
        lines = [line for line in text.splitlines() if line.strip()]
        return _by_rule("\n".join(lines[-_LAST_LINES:])) or _by_signal(text)
    ends = [match.start() for match in found[1:]] + [len(text)]
    meanings = [
        _of_exception(match["words"], text[match.start() : end]) for match, end in zip(found, ends, strict=True)
    ]
    roots = [number for number, known in enumerate(meanings) if known[0].level is CauseLevel.ROOT]
    if not roots:
        return _by_signal(text) or meanings[-1]
    last = roots[-1]
    before = roots[-2] if len(roots) > 1 else last
    chained = any(words in text[found[before].start() : found[last].start()] for words in _CHAINED)
    general = meanings[last][0] is causes.EXCEPTION
    return meanings[before] if general and chained else meanings[last]


def _by_signal(text: str) -> Meaning | None:
    """Return what the signal means that has ended a worker, by torchrun's report: the others only lost that worker."""
    killed = killed_worker(text.splitlines())
    if killed is None:
        return None
    rank, code = str(killed[0]), exit_code_of(killed[1])
    name = _NATIVE.get(code)
    return (causes.KILLED, {"rank": rank}) if name is None else (causes.NATIVE_CRASH, {"rank": rank, "words": name})


def _of_exception(words: str, text: str) -> Meaning:
    return _by_rule(text) or (causes.EXCEPTION, {"words": words[:_WORDS]})


def _by_rule(text: str) -> Meaning | None:
    if found := first_cause(_RULES, text):
        cause, values = found
        return cause, {key: value[:_WORDS] for key, value in values.items()}
    return None


def _read_endings(seen: Seen, endings: list[Ending]) -> Iterator[Finding]:
    """Yield what reasons and codes mean, where the text means nothing."""
    for ending in endings:
        cause = _by_reason(ending)
        if cause is not None:
            words = _NATIVE[ending.code] if cause is causes.NATIVE_CRASH else ending.words[:_WORDS]
            values = {"pod": ending.pod, "container": ending.container, "image": ending.image, "words": words}
            known = {**values, "code": str(ending.code), **_place(seen, of_ending(ending, ending.words))}
            yield Finding(cause, known, (ending.evidence,), (ending.pod,))


def _read_events(seen: Seen) -> Iterator[Finding]:
    """Yield the containers out of memory that the operator has reported of pods that are replaced by now."""
    for event in past_events(seen):
        message = str(event.get("message") or "")
        if event.get("reason") == Reason.EXITED and (found := _REPORTED.search(message)):
            evidence = CauseEvidence(f"event {Reason.EXITED}", reading.line_of(message))
            values = {"pod": found["pod"], "container": CONTAINER}
            yield Finding(causes.OUT_OF_MEMORY, values, (evidence,), (found["pod"],))


def _by_reason(ending: Ending) -> Cause | None:
    if ending.reason == "OOMKilled":
        return causes.OUT_OF_MEMORY
    if meaning(ending.everything) is not None or (ending.agent is not None and ending.agent.exit_code == _KILLED):
        return None
    if ending.agent is not None:
        return _AGENTS.get(ending.agent.reason)
    if ending.code in _NATIVE:
        return causes.NATIVE_CRASH
    if ending.code == _KILLED:
        return causes.KILLED
    return None if ending.code == _STOPPED else causes.EXIT_CODE


def _place(seen: Seen, statement: Statement) -> dict[str, str]:
    """Return the rank that failed, if it is known, and whether its container was started again."""
    kind = causes.AGAIN if statement.ending and statement.ending.again else causes.ENDED
    named = {match["rank"] for match in _RANK_BEFORE_LINE.finditer(statement.text)}
    known = statement.rank or (next(iter(named)) if len(named) == 1 else _only_rank(seen, statement.pod))
    return {kind: "yes", **({"rank": known} if known else {})}


def _only_rank(seen: Seen, name: str) -> str:
    """Return the rank of a pod that has a single process and a fixed rank; empty for any other."""
    pod = next((pod for pod in seen.pods if reading.name_of(pod) == name), {})
    main = reading.main_spec(reading.part(pod, "spec"))
    rank = reading.whole(reading.variable(main, RANK))
    return str(rank) if rank is not None and reading.processes(main) == 1 else ""
