"""A pod's environment: every variable that the operator adds, and which file decides its value.

`containers` adds the variables in this order. Kubernetes lets the last of two equal names win.

1. The user's own variables of the container.
2. In every container, the contract with torchrun and the agent: MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK and PET_*.
   `replica.build_env` decides them. It takes PET_NPROC_PER_NODE from `nproc` and PET_RDZV_CONF from `rendezvous_conf`.
   `ReplicaEnv` of the agent's contract has the variables' names.
3. In container `pytorch` of a job that trains with the coordinator (`agent_variables.coordinator`), the coordinator's
   address, the path of the pod's credential and its index (`agent_variables.variables`).
4. In container `pytorch`, what spec.agent sets (`agent_variables.variables`), except variables that the user sets.
5. In container `pytorch` of a pod with an injected agent, PYTHONPATH (`plan/inject.py`, called by `plan/pods.py`).
"""

from typing import Any

from pytorchjob_operator.model import PyTorchJob, ReplicaSpec, main_container
from pytorchjob_operator.observed import Options
from pytorchjob_operator.plan.environment import agent_variables, replica
from pytorchjob_operator.plan.replicas import Replica


def containers(job: PyTorchJob, place: Replica, spec: ReplicaSpec, options: Options) -> list[dict[str, Any]]:
    """Return the template's containers with the environment of one replica; the operator's value wins, as under v1."""
    contract = replica.build_env(job, place, options).to_env()
    shared = [{"name": name, "value": value} for name, value in contract.items()]
    of_main = [*shared, *agent_variables.variables(job, place, options)]
    main = main_container(spec.template)
    return [
        {**container, "env": [*(container.get("env") or ()), *(of_main if container is main else shared)]}
        for container in (spec.template.get("spec") or {}).get("containers") or ()
    ]
