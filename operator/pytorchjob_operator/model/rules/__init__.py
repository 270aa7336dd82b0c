"""The rules over a job that a structural schema cannot express: one table, for the API server (CEL) and for Python.

A rule applies to the dict as the user wrote it. `broken` is the Python twin of `cel`; a transition rule, which compares
with the object stored before, has no twin. Messages continue the sentence "<field> ...". A rule never refuses a job
that ran under v1, only jobs that would get no pods, no rendezvous, or two kinds of pods.
"""

from pytorchjob_operator.model.rules.agent_rules import AGENT
from pytorchjob_operator.model.rules.changes import CHANGES
from pytorchjob_operator.model.rules.elastic_rules import ELASTIC
from pytorchjob_operator.model.rules.naming import NAMING
from pytorchjob_operator.model.rules.policies import POLICIES
from pytorchjob_operator.model.rules.roles import ROLE_RULES
from pytorchjob_operator.model.rules.rule import Rule

__all__ = ["RULES", "Rule"]

RULES = (*NAMING, *ROLE_RULES, *ELASTIC, *AGENT, *POLICIES, *CHANGES)
