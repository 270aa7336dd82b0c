"""Fields that are immutable, or immutable while pods run. These rules compare with the object stored before.

A job may change while it is suspended, and after its end. It may also change in the update that suspends or resumes
it, because Kueue does both in one update. Otherwise its existing pods and its new pods would have different specs.
"""

from pytorchjob_operator.model.rules.rule import SPECS, Rule

_SUSPENDED = "has({0}.spec.runPolicy) && has({0}.spec.runPolicy.suspend) && {0}.spec.runPolicy.suspend"
_ENDED = (
    "has(oldSelf.status) && has(oldSelf.status.conditions)"
    " && oldSelf.status.conditions.exists(one, one.type in ['Succeeded', 'Failed'] && one.status == 'True')"
)
_FREE = " || ".join((_SUSPENDED.format("self"), _SUSPENDED.format("oldSelf"), _ENDED))
_REMEDY = "suspend the job first (runPolicy.suspend), or delete it and create it again"
_RENDEZVOUS = ("rdzvBackend", "rdzvHost", "rdzvPort", "rdzvId")


def _managed(of: str) -> str:
    return f"has({of}.runPolicy) && has({of}.runPolicy.managedBy)"


def _rendezvous(of: str) -> str:
    return "[" + ", ".join(f"dyn({of}.spec.?elasticPolicy.?{field})" for field in _RENDEZVOUS) + "]"


def _template(of: str) -> str:
    """Return the fields that decide what a pod does and where, in forms that stay equal when a client rewrites a job.

    Whole templates would differ: Go's typed clients, Kueue's webhook among them, add `resources: {}` and a null
    creationTimestamp and write quantities in another form (`nvidia.com/gpu: 1` becomes '1'). Lists around optional
    values keep the cost that the API server estimates low: the estimate has no size for an optional.
    """
    template = f"{of}.{SPECS}[role].template"
    container = "one, [dyn(one.name), dyn(one.?image), dyn(one.?command), dyn(one.?args), dyn(one.?env)]"
    parts = (
        f"{template}.?metadata.?labels",
        f"{template}.?metadata.?annotations",
        f"{template}.spec.?nodeSelector",
        f"{template}.spec.?tolerations",
        f"{template}.spec.?affinity",
        f"{template}.spec.containers.map({container})",
        f"has({template}.spec.initContainers) ? {template}.spec.initContainers.map({container}) : []",
    )
    return "[" + ", ".join(f"dyn({part})" for part in parts) + "]"


CHANGES = (
    Rule(
        path="",
        field=SPECS,
        message="must keep its templates while the job runs (images, commands, args, env, labels, annotations,"
        f" nodeSelector, tolerations, affinity): {_REMEDY}",
        cel=f"{_FREE} || ['Master', 'Worker'].all(role, !(role in self.{SPECS} && role in oldSelf.{SPECS})"
        f" || {_template('self')} == {_template('oldSelf')})",
        broken=None,
    ),
    Rule(
        path="",
        field=SPECS,
        message=f"must keep its roles while the job runs, Master and Worker are neither added nor removed: {_REMEDY}",
        cel=f"{_FREE} || ['Master', 'Worker'].all(role, (role in self.{SPECS}) == (role in oldSelf.{SPECS}))",
        broken=None,
    ),
    Rule(
        path="",
        field="spec.elasticPolicy",
        message=f"must stay, and keep {', '.join(_RENDEZVOUS)}, while the job runs, or new pods would not find the"
        f" others: {_REMEDY}",
        cel=f"{_FREE} || (has(self.spec.elasticPolicy) == has(oldSelf.spec.elasticPolicy)"
        f" && {_rendezvous('self')} == {_rendezvous('oldSelf')})",
        broken=None,
    ),
    Rule(
        path="",
        field="spec.agent",
        message=f"must stay while the job runs, or new pods would behave differently from the others: {_REMEDY}",
        cel=f"{_FREE} || [dyn(self.spec.?agent)] == [dyn(oldSelf.spec.?agent)]",
        broken=None,
    ),
    Rule(
        path="spec",
        field="managedBy",
        message="is immutable: delete the job and create it again",
        cel="[dyn(self.?managedBy)] == [dyn(oldSelf.?managedBy)]",
        broken=None,
    ),
    Rule(
        path="spec",
        field="runPolicy.managedBy",
        message="is immutable: delete the job and create it again to hand it to another controller",
        cel=f"({_managed('self')}) == ({_managed('oldSelf')})"
        f" && (!({_managed('self')}) || self.runPolicy.managedBy == oldSelf.runPolicy.managedBy)",
        broken=None,
    ),
    Rule(
        path="spec.runPolicy.schedulingPolicy.queue",
        field="",
        message="spec.runPolicy.schedulingPolicy.queue is immutable",
        cel="self == oldSelf",
        broken=None,
    ),
)
