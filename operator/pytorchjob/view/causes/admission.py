"""Children of a job that the API server refuses: the job's condition ReplicaFailure has the server's message."""

import re
from collections.abc import Iterator

from pytorchjob.view import reading
from pytorchjob.view.causes.cause import Cause, CauseEvidence, Finding, Remedy, Symptom, delete_and_apply
from pytorchjob.view.causes.rules import first_cause, rule
from pytorchjob.view.seen import Seen
from pytorchjob_operator.names import Reason

_SIGN = "The condition `ReplicaFailure` has"

QUOTA = Cause(
    "QuotaExceeded",
    Symptom.NO_PODS,
    f"{_SIGN} `exceeded quota`.",
    "The quota {quota} of the namespace {namespace} has no room for the job's pods.",
    (
        Remedy("See what is used.", "kubectl describe resourcequota {quota} -n {namespace}"),
        Remedy(
            "Let other jobs end, ask an administrator for more, or request less. The operator tries again by itself."
        ),
    ),
)
QUOTA_NEEDS_VALUES = Cause(
    "QuotaNeedsResources",
    Symptom.NO_PODS,
    f"{_SIGN} `failed quota: ...: must specify`.",
    "The quota {quota} of the namespace {namespace} accepts only pods that state {missing}.",
    delete_and_apply("Set `resources.requests` and `resources.limits` of every container in the job's file."),
)
LIMIT_RANGE = Cause(
    "OutsideLimitRange",
    Symptom.NO_PODS,
    f"{_SIGN} `maximum ... usage per Container is` or `minimum ... usage`.",
    "A LimitRange of the namespace {namespace} does not allow the resources of the pods.",
    (
        Remedy("See the limits.", "kubectl describe limitrange -n {namespace}"),
        *delete_and_apply("Change `resources` in the job's file accordingly."),
    ),
)
POD_SECURITY = Cause(
    "PodSecurity",
    Symptom.NO_PODS,
    f"{_SIGN} `violates PodSecurity`.",
    "The namespace {namespace} allows only pods of the Pod Security level {level}.",
    (
        Remedy(
            "See what the pods lack: the message lists it. For `restricted`, set in each container `securityContext:"
            " {{runAsNonRoot: true, allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}},"
            " seccompProfile: {{type: RuntimeDefault}}}}`."
        ),
        *delete_and_apply("Correct the job's file."),
    ),
)
ACCOUNT_MISSING = Cause(
    "ServiceAccountMissing",
    Symptom.NO_PODS,
    f"{_SIGN} `error looking up service account`.",
    "The service account {account} does not exist in the namespace {namespace}.",
    (
        Remedy(
            "Create it; the operator tries again by itself. Or correct `serviceAccountName`.",
            "kubectl create serviceaccount {account} -n {namespace}",
        ),
    ),
)
PRIORITY_CLASS = Cause(
    "PriorityClassMissing",
    Symptom.NO_PODS,
    f"{_SIGN} `no PriorityClass with name`.",
    "The priority class {name} does not exist.",
    (
        Remedy("See which exist.", "kubectl get priorityclasses"),
        *delete_and_apply("Correct `priorityClassName` in the job's file."),
    ),
)
RUNTIME_CLASS = Cause(
    "RuntimeClassMissing",
    Symptom.NO_PODS,
    f"{_SIGN} `RuntimeClass ... not found`.",
    "The runtime class {name} does not exist.",
    (
        Remedy("See which exist.", "kubectl get runtimeclasses"),
        *delete_and_apply("Correct `runtimeClassName` in the job's file."),
    ),
)
WEBHOOK_DENIED = Cause(
    "AdmissionDenied",
    Symptom.NO_PODS,
    f"{_SIGN} `admission webhook ... denied the request`, or names a ValidatingAdmissionPolicy.",
    "A policy of this cluster refuses the job's pods: {policy}.",
    (
        Remedy("Read the message: it names the rule. Ask an administrator about that policy."),
        *delete_and_apply("Correct the job's file."),
    ),
)
WEBHOOK_AWAY = Cause(
    "AdmissionWebhookAway",
    Symptom.NO_PODS,
    f"{_SIGN} `failed calling webhook`.",
    "The admission webhook {policy} does not answer, so the API server accepts no pod.",
    (
        Remedy(
            "Find its Service, and see whether its pods run.",
            "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o wide",
        ),
        Remedy("Repair it, or ask an administrator. The operator tries again by itself."),
    ),
)
NO_RIGHT = Cause(
    "OperatorLacksRight",
    Symptom.NO_PODS,
    f'{_SIGN} `is forbidden: User "system:serviceaccount:` and `cannot create resource`.',
    "The operator may not create {resource} in the namespace {namespace}.",
    (
        Remedy(
            "See whether the operator serves this namespace (value `watchNamespaces` of the chart).",
            "kubectl auth can-i create {resource} -n {namespace} --as={user}",
        ),
        Remedy("Upgrade the release with the namespace in `watchNamespaces`, or with `rbac.create=true`."),
    ),
)
TERMINATING = Cause(
    "NamespaceTerminating",
    Symptom.NO_PODS,
    f"{_SIGN} `because it is being terminated`.",
    "The namespace {namespace} is being deleted: nothing can be created in it.",
    (Remedy("Create the job in another namespace.", "kubectl apply -n OTHER-NAMESPACE -f FILE"),),
)
NAME_TAKEN = Cause(
    Reason.NAME_TAKEN,
    Symptom.NO_PODS,
    f"{_SIGN} the reason `{Reason.NAME_TAKEN}`.",
    "An object with the name {name} exists already, and does not belong to this job.",
    (
        Remedy("See what it is.", "kubectl get {resource} {name} -n {namespace} -o yaml"),
        Remedy("Delete it, or create the job under another name."),
    ),
)
LEFTOVER = Cause(
    Reason.DELETED_JOB_REMAINS,
    Symptom.NO_PODS,
    f"{_SIGN} the reason `{Reason.DELETED_JOB_REMAINS}`.",
    "The deleted job of the same name still has the object {name}.",
    (
        Remedy("Wait: the operator continues by itself once it is gone. `pytorchjob delete` waits for that."),
        Remedy(
            "After minutes, see what keeps it: a node that is gone, or a finalizer.",
            "kubectl get {resource} {name} -n {namespace} -o yaml",
        ),
    ),
)
INVALID = Cause(
    "PodInvalid",
    Symptom.NO_PODS,
    f"{_SIGN} `is invalid:`.",
    "The pod template is wrong: {words}.",
    delete_and_apply("Correct that field in the job's file."),
)
REFUSED = Cause(
    "CreationRefused",
    Symptom.NO_PODS,
    f"{_SIGN} a message that has none of the texts above.",
    "The API server refuses to create a part of the job.",
    (Remedy("Read the message.", "kubectl describe pytorchjobs/{job} -n {namespace}"),),
)

_RULES = (
    rule(r"exceeded quota: (?P<quota>[^,]+)", QUOTA),
    rule(r"failed quota: (?P<quota>[^:]+): must specify (?P<missing>[^;,]+)", QUOTA_NEEDS_VALUES),
    rule(r"(?:maximum|minimum) \S+ usage per (?:Container|Pod) is", LIMIT_RANGE),
    rule(r"violates PodSecurity \"(?P<level>[^:\"]+)", POD_SECURITY),
    rule(r"error looking up service account [^/]+/(?P<account>[^:\s]+)", ACCOUNT_MISSING),
    rule(r"no PriorityClass with name (?P<name>\S+)", PRIORITY_CLASS),
    rule(r"RuntimeClass \"(?P<name>[^\"]+)\" not found", RUNTIME_CLASS),
    rule(r"failed calling webhook \"(?P<policy>[^\"]+)\"", WEBHOOK_AWAY),
    rule(r"admission webhook \"(?P<policy>[^\"]+)\" denied", WEBHOOK_DENIED),
    rule(r"ValidatingAdmissionPolicy '(?P<policy>[^']+)'", WEBHOOK_DENIED),
    rule(r"because it is being terminated", TERMINATING),
    rule(r"User \"(?P<user>[^\"]+)\" cannot \w+ resource \"(?P<resource>[^\"]+)\"", NO_RIGHT),
    rule(r"is invalid: (?P<words>.{1,200})", INVALID),
)
"""What the API server and its plugins write."""
_BY_REASON: dict[str, Cause] = {Reason.NAME_TAKEN: NAME_TAKEN, Reason.DELETED_JOB_REMAINS: LEFTOVER}
_OBJECT = re.compile(r"(?P<resource>[a-z.]+) '(?P<name>[^']+)'")
"""The object that a message is about, for the command that shows it."""
CAUSES = (*dict.fromkeys(known.cause for known in _RULES), *_BY_REASON.values(), REFUSED)


def find(seen: Seen) -> Iterator[Finding]:
    """Yield the cause of the condition ReplicaFailure; the operator removes it once a creation succeeds."""
    refused = reading.condition(seen.job, "ReplicaFailure")
    if not refused:
        return
    reason, message = str(refused.get("reason") or ""), str(refused.get("message") or "")
    evidence = (CauseEvidence(f"condition ReplicaFailure, {reason}", reading.line_of(message, 600)),)
    if known := _BY_REASON.get(reason):
        object_ = _OBJECT.search(message)
        yield Finding(known, object_.groupdict() if object_ else {}, evidence)
        return
    cause, values = first_cause(_RULES, message) or (REFUSED, {})
    yield Finding(cause, values, evidence)
