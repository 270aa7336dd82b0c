"""spec.agent: refuses settings without effect, and log rules that could never match."""

from pytorchjob_agent.contract.checkpoint_rules import overlaps
from pytorchjob_agent.contract.environment import DEFAULT_BACKEND
from pytorchjob_operator.model.rules.rule import Node, Rule, elastic_policy

_AGENT = "spec.agent"
_P = "self.elasticPolicy"
_LOG_RULES = f"{_AGENT}.hang.logRules"
_WARM = ("Warm", "Auto", "Ready")


def _inject_beside_another_rendezvous(spec: Node) -> bool:
    policy = elastic_policy(spec)
    other = policy.get("rdzvBackend", DEFAULT_BACKEND) != DEFAULT_BACKEND
    own = other or "rdzvHost" in policy or bool(policy.get("standalone"))
    return bool((spec.get("agent") or {}).get("inject")) and own


def _has_no_effect(rule: Node) -> bool:
    limits = ("startSeconds", "everySeconds", "operator")
    return not any(key in rule for key in limits) and not rule.get("faultOnMatch")


def _named_twice(rules: list[Node]) -> bool:
    return len({rule["name"] for rule in rules}) < len(rules)


def _overlaps(checkpoint: Node) -> bool:
    durable = (checkpoint.get("durable") or {}).get("directory", "")
    return bool(durable) and overlaps(durable, checkpoint["directory"])


AGENT = (
    Rule(
        path="spec",
        field="agent.inject",
        message="has its own rendezvous: remove elasticPolicy.rdzvBackend, rdzvHost and standalone, or inject",
        cel=f"!has(self.agent) || !has(self.agent.inject) || !self.agent.inject || !has({_P})"
        f" || ((!has({_P}.rdzvBackend) || {_P}.rdzvBackend == '{DEFAULT_BACKEND}') && !has({_P}.rdzvHost)"
        f" && (!has({_P}.standalone) || !{_P}.standalone))",
        broken=_inject_beside_another_rendezvous,
    ),
    Rule(
        path=_AGENT,
        field="preload",
        message="is only for warm starts: set startMode to Warm, Auto or Ready, or remove preload",
        cel=f"!has(self.preload) || (has(self.startMode) && self.startMode in {list(_WARM)})",
        broken=lambda agent: "preload" in agent and agent.get("startMode") not in _WARM,
    ),
    Rule(
        path=_AGENT,
        field="rejoinWithinSeconds",
        message="is only for workers that go on without a lost pod: set survive to Auto, or remove rejoinWithinSeconds",
        cel="!has(self.rejoinWithinSeconds) || (has(self.survive) && self.survive == 'Auto')",
        broken=lambda agent: "rejoinWithinSeconds" in agent and agent.get("survive") != "Auto",
    ),
    Rule(
        path=f"{_AGENT}.checkpoint",
        field="durable.directory",
        message="overlaps spec.agent.checkpoint.directory, which is memory: choose a directory outside of it",
        cel="!has(self.durable) || (!(self.durable.directory + '/').startsWith(self.directory + '/')"
        " && !(self.directory + '/').startsWith(self.durable.directory + '/'))",
        broken=_overlaps,
    ),
    Rule(
        path=_LOG_RULES,
        field="",
        message="must have different names, because messages name the rule: rename one of them",
        cel="self.all(one, self.exists_one(other, other.name == one.name))",
        broken=_named_twice,
    ),
    Rule(
        path=f"{_LOG_RULES}.[]",
        field="",
        message="has no effect: set startSeconds, everySeconds, operator with value, or faultOnMatch: true",
        cel="has(self.startSeconds) || has(self.everySeconds) || has(self.operator)"
        " || (has(self.faultOnMatch) && self.faultOnMatch)",
        broken=_has_no_effect,
    ),
    Rule(
        path=f"{_LOG_RULES}.[]",
        field="value",
        message="and operator belong together: set both or neither",
        cel="has(self.value) == has(self.operator)",
        broken=lambda rule: ("value" in rule) != ("operator" in rule),
    ),
    Rule(
        path=f"{_LOG_RULES}.[]",
        field="points",
        message="counts bad matches of operator: set operator and value, or remove points",
        cel="!has(self.points) || has(self.operator)",
        broken=lambda rule: "points" in rule and "operator" not in rule,
    ),
)
