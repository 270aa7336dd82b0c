"""Pods that run and do not train together: what the coordinator reports in the condition Degraded, and the agents."""

import re
from collections.abc import Iterator, Mapping

from pytorchjob.view import reading
from pytorchjob.view.causes.cause import Cause, CauseEvidence, CauseLevel, Finding, Remedy, Symptom, delete_and_apply
from pytorchjob.view.causes.endings import Ending, find_endings, statements
from pytorchjob.view.seen import Seen
from pytorchjob_agent.contract.reasons import ExitReason, TrainingReason
from pytorchjob_operator import names

_LOGS = "kubectl logs -n {namespace} -l training.kubeflow.org/job-name={job} --prefix --tail=50"
_DEGRADED = "The condition `Degraded` has the reason"

HANG = Cause(
    "WorkersHang",
    Symptom.STOPPING,
    "The event `WorkersHang`, or a pod ends with `WorkerHangs`. The stacks of all ranks are in the pods' logs.",
    "The workers did nothing for too long and were killed: {words}",
    (
        Remedy("Read the stacks.", "kubectl logs {pod} -n {namespace} --tail=200"),
        Remedy("The rank that is elsewhere than the others is named: correct that place of the script."),
        Remedy("If it only needs more time, raise `spec.agent.hang` (docs/elastic.md#when-workers-count-as-hung)."),
    ),
)
TOKEN_REFUSED = Cause(
    "AgentRefused",
    Symptom.NOT_JOINING,
    f"{_DEGRADED} `AgentRefused`, or a pod ends with it.",
    "The operator refuses an agent of the job: {words}",
    (
        Remedy(
            "If the operator's key has changed since, delete the pod that is named.",
            "kubectl delete pod {pod} -n {namespace}",
        ),
        Remedy(
            "Otherwise a client that is not part of the job tries to join; docs/security.md explains what it could do."
        ),
    ),
)
TOO_MANY_AGENTS = Cause(
    "AgentLimit",
    Symptom.NOT_JOINING,
    f"{_DEGRADED} `AgentLimit`.",
    "The operator has no connection left for this job's agents: {words}",
    (
        Remedy(
            "Give the operator more memory: its limit decides how many agents it accepts.",
            "helm upgrade pytorchjob-operator CHART -n pytorchjob-system --reuse-values"
            " --set resources.limits.memory=1Gi",
        ),
    ),
)
COORDINATOR_UNREACHABLE = Cause(
    "CoordinatorUnreachable",
    Symptom.NOT_JOINING,
    f"{_DEGRADED} `CoordinatorUnreachable`, or a pod ends with it.",
    "Pods of the job cannot reach the operator on TCP port 29600: {words}",
    (
        Remedy("See whether the operator runs.", "kubectl get pods -A -l app.kubernetes.io/name=pytorchjob-operator"),
        Remedy("See the NetworkPolicies, which must let the pods out to that port.", "kubectl get networkpolicies -A"),
        Remedy("docs/elastic.md has a NetworkPolicy that does."),
    ),
    CauseLevel.LIKELY_CONSEQUENCE,
)
PEER_UNREACHABLE = Cause(
    "PeerUnreachable",
    Symptom.NOT_JOINING,
    f"{_DEGRADED} `PeerUnreachable`.",
    "Pods of the job cannot reach each other: {words}",
    (
        Remedy("See the NetworkPolicies of the namespace.", "kubectl get networkpolicies -n {namespace}"),
        Remedy("Let the job's pods connect to each other on all TCP ports; docs/elastic.md has a NetworkPolicy."),
        Remedy('A service mesh must leave these ports alone: set `sidecar.istio.io/inject: "false"` on the templates.'),
    ),
)
UNEQUAL_VERSIONS = Cause(
    "UnequalVersions",
    Symptom.NOT_JOINING,
    f"{_DEGRADED} `UnequalVersions`.",
    "The pods have unequal versions: {words}",
    delete_and_apply("Use one image, named by its digest, for all roles."),
)
CLOCKS = Cause(
    "ClocksDiffer",
    Symptom.STOPPING,
    f"{_DEGRADED} `ClocksDiffer`.",
    "The clocks of the nodes differ: {words}",
    (Remedy("Synchronize them (NTP, chrony). Training goes on meanwhile; only times in logs mislead."),),
    CauseLevel.CONSEQUENCE,
)
CHECKPOINTS = Cause(
    "CheckpointsNotKept",
    Symptom.STOPPING,
    f"{_DEGRADED} `CheckpointsNotKept`.",
    "A checkpoint is not in memory, has no copy, or is not on durable storage: {words}",
    (
        Remedy("If the memory is full, raise spec.agent.checkpoint.memory: room for three saves, or more with copies."),
        Remedy("If the durable directory is named, check the volume there: its mount, its rights, its free space."),
        Remedy("Training goes on meanwhile; docs/checkpoints.md has the conditions under which saves are kept."),
    ),
    CauseLevel.CONSEQUENCE,
)
DUPLICATE = Cause(
    "DuplicateReplica",
    Symptom.NOT_JOINING,
    f"{_DEGRADED} `DuplicateReplica`.",
    "Two agents claim to be the same replica: {words}",
    delete_and_apply("Start `pytorchjob-agent run` in one container of each pod, and once in it."),
)
DEFECT = Cause(
    "CoordinatorDefect",
    Symptom.NOT_JOINING,
    f"{_DEGRADED} `CoordinatorDefect`.",
    "The operator found a defect of its own, and forms no round for this job.",
    (
        Remedy(
            "Report it with the operator's log.",
            "kubectl logs -n pytorchjob-system -l app.kubernetes.io/name=pytorchjob-operator",
        ),
    ),
)
INJECTION = Cause(
    "AgentNotInjected",
    Symptom.NOT_JOINING,
    "The condition `ConfigValid` is False with the reason `AgentUnavailable`.",
    "The agent cannot be added to the pods: {words}",
    delete_and_apply("Correct what the message names; docs/agent.md has the rules."),
)
NOT_MOUNTED = Cause(
    "DurableDirectoryNotMounted",
    Symptom.STOPPING,
    "The condition `ConfigValid` is False with the reason `DurableDirectoryNotMounted`.",
    "Durable checkpoints end with their pod: {words}",
    delete_and_apply("Mount a volume there in the template of each role (docs/checkpoints.md)."),
    CauseLevel.CONSEQUENCE,
)
INJECTION_FAILED = Cause(
    "AgentInstallFailed",
    Symptom.NOT_STARTING,
    "The init container `pytorchjob-agent-install` ends with an error.",
    "The agent could not be copied into {pod}: {words}",
    (
        Remedy("Read its log.", "kubectl logs {pod} -n {namespace} -c pytorchjob-agent-install"),
        Remedy("See which image the operator uses (value `agentImage` of the chart)."),
    ),
)
WRONG_NNODES = Cause(
    "WrongReplicas",
    Symptom.NOT_JOINING,
    "The command has `--nnodes=N`, and N is not the number of the job's pods.",
    "The command asks for {wanted} nodes, and the job has {pods_of_job} pods, so they cannot all join.",
    delete_and_apply("Remove `--nnodes` from the command: the operator sets it. Or make `replicas` equal."),
)
TIMED_OUT = Cause(
    "RendezvousTimeout",
    Symptom.NOT_JOINING,
    f"{_DEGRADED} `RendezvousTimeout`, a pod ends with code 201, or torch reports `Timed out ... waiting for clients`.",
    "The pods did not find each other in time.",
    (
        Remedy("See which pods do not run, and why.", "pytorchjob status {job} -n {namespace}"),
        Remedy("Read what each of them waits for.", _LOGS),
    ),
    CauseLevel.CONSEQUENCE,
)
WAITING = Cause(
    "RendezvousWaiting",
    Symptom.NOT_JOINING,
    f"{_DEGRADED} `RendezvousWaiting`.",
    "Training waits for pods: {words}",
    (
        Remedy(
            "See what the named pods do.",
            "kubectl get pods -n {namespace} -l training.kubeflow.org/job-name={job} -o wide",
        ),
        Remedy("Read their logs.", _LOGS),
        Remedy(
            "Of an elastic job, `elasticPolicy.minReplicas` pods are enough: make these run, or lower it.",
            "kubectl edit pytorchjobs/{job} -n {namespace}",
        ),
    ),
    CauseLevel.CONSEQUENCE,
)
CAUSES = (
    HANG,
    TOKEN_REFUSED,
    TOO_MANY_AGENTS,
    COORDINATOR_UNREACHABLE,
    PEER_UNREACHABLE,
    UNEQUAL_VERSIONS,
    DUPLICATE,
    DEFECT,
    INJECTION,
    NOT_MOUNTED,
    INJECTION_FAILED,
    WRONG_NNODES,
    TIMED_OUT,
    WAITING,
    CLOCKS,
    CHECKPOINTS,
)


_BY_REASON: Mapping[str, Cause] = {
    TrainingReason.AGENT_REFUSED: TOKEN_REFUSED,
    TrainingReason.AGENT_LIMIT: TOO_MANY_AGENTS,
    TrainingReason.COORDINATOR_UNREACHABLE: COORDINATOR_UNREACHABLE,
    TrainingReason.PEER_UNREACHABLE: PEER_UNREACHABLE,
    TrainingReason.UNEQUAL_VERSIONS: UNEQUAL_VERSIONS,
    TrainingReason.CLOCKS_DIFFER: CLOCKS,
    TrainingReason.CHECKPOINTS: CHECKPOINTS,
    TrainingReason.DUPLICATE_REPLICA: DUPLICATE,
    TrainingReason.COORDINATOR_DEFECT: DEFECT,
    TrainingReason.WAITING: WAITING,
    TrainingReason.TIMED_OUT: TIMED_OUT,
}
"""What the reason of the condition Degraded means."""
_OF_AGENTS: Mapping[str, Cause] = {
    ExitReason.AGENT_REFUSED: TOKEN_REFUSED,
    ExitReason.COORDINATOR_UNREACHABLE: COORDINATOR_UNREACHABLE,
}
"""What the reason of an agent's end before a round means."""
_NNODES = re.compile(r"--nnodes[= ](\d+)(?:\s|$)")
_TIMED_OUT_CODE = 201


def find(seen: Seen) -> Iterator[Finding]:
    """Yield why the pods do not train together, or why their workers were killed."""
    endings = find_endings(seen)
    yield from _hangs(seen, endings)
    yield from _degraded(seen)
    yield from _agents(endings)
    yield from _config(seen)
    yield from _wrong_nnodes(seen)


def _degraded(seen: Seen) -> Iterator[Finding]:
    shown = reading.condition(seen.job, "Degraded")
    reason, message = str(shown.get("reason") or ""), str(shown.get("message") or "")
    if (cause := _BY_REASON.get(reason)) is not None:
        evidence = CauseEvidence(f"condition Degraded, {reason}", reading.line_of(message, 600))
        yield Finding(cause, {"words": reading.line_of(message, 200), "pod": _named(seen, message)}, (evidence,))


def _hangs(seen: Seen, endings: list[Ending]) -> Iterator[Finding]:
    for ending in endings:
        if ending.agent is not None and ending.agent.reason == ExitReason.WORKER_HANGS:
            words = reading.line_of(f"rank {ending.agent.rank} ({ending.pod}) hangs: {ending.agent.message}")
            yield Finding(HANG, {"pod": ending.pod, "words": words}, (ending.evidence,), (ending.pod,))
            return
    for statement in statements(seen):
        if statement.hangs:
            words = reading.line_of(f"rank {statement.rank} ({statement.pod}) hangs: {statement.text}")
            values = {"pod": statement.pod or "POD", "words": words}
            yield Finding(HANG, values, (statement.evidence,), (statement.pod,) if statement.pod else ())
            return


def _agents(endings: list[Ending]) -> Iterator[Finding]:
    """Yield why agents gave up before a round."""
    for ending in endings:
        text = ending.words
        if ending.container == names.AGENT_INSTALL:
            words = reading.line_of(text) or f"exit code {ending.code}"
            yield Finding(INJECTION_FAILED, {"pod": ending.pod, "words": words}, (ending.evidence,), (ending.pod,))
        if ending.agent is None or ending.code != _TIMED_OUT_CODE:
            continue
        cause, words = _OF_AGENTS.get(ending.agent.reason, TIMED_OUT), reading.line_of(text, 200)
        yield Finding(cause, {"pod": ending.pod, "words": words}, (ending.evidence,), (ending.pod,))


def _config(seen: Seen) -> Iterator[Finding]:
    wrong = reading.condition(seen.job, "ConfigValid", "False")
    if wrong.get("reason") == "AgentUnavailable":
        message = reading.line_of(wrong.get("message"))
        yield Finding(
            INJECTION, {"words": message}, (CauseEvidence("condition ConfigValid, AgentUnavailable", message),)
        )
    if wrong.get("reason") == "DurableDirectoryNotMounted":
        message = reading.line_of(wrong.get("message"))
        evidence = CauseEvidence("condition ConfigValid, DurableDirectoryNotMounted", message)
        yield Finding(NOT_MOUNTED, {"words": message}, (evidence,))


def _wrong_nnodes(seen: Seen) -> Iterator[Finding]:
    """Yield a number of nodes in the command that no job of this size can have."""
    total = seen.wanted_pods()
    for role, _, template in reading.roles(seen.job):
        words = " ".join(reading.words_of(reading.main_spec(template)))
        found = _NNODES.search(words)
        plain = "torchrun" in words or "torch.distributed" in words
        if found and plain and int(found[1]) not in (1, total) and seen.ended != "Succeeded":
            evidence = CauseEvidence(f"the command of {role}", reading.line_of(words))
            yield Finding(WRONG_NNODES, {"wanted": found[1], "pods_of_job": str(total)}, (evidence,))
            return


def _named(seen: Seen, text: str) -> str:
    """Return the first pod of the job that a text names."""
    found = {text.find(name): name for name in sorted(map(reading.name_of, seen.pods), key=len)}
    places = sorted(place for place in found if place >= 0)
    return found[places[0]] if places else "POD"
