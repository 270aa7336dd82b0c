"""The agent's variables of a pod, and whose choice of a rendezvous wins."""

import json
from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_agent.contract.cache_rules import CACHES, CacheRules
from pytorchjob_agent.contract.checkpoint_rules import CheckpointRules, DurableRules
from pytorchjob_agent.contract.coordinator_endpoint import CoordinatorEndpoint
from pytorchjob_agent.contract.hang_rules import HangRules
from pytorchjob_operator.model import CheckpointMemory, ConditionType, PyTorchJob
from pytorchjob_operator.observed import CoordinatorAccess, Observed, Options
from pytorchjob_operator.plan import checkpoint_memory, make_plan
from pytorchjob_operator.plan.environment import agent_variables
from pytorchjob_operator.plan.pods import build_pod
from tests.factories import JOB_UID, NOW, full_job, make_job, make_pod, make_service, make_template, replica

AT = CoordinatorAccess("coordinator.ops.svc:29600", ca="Y2VydA==")
FILE = "/var/run/secrets/pytorchjob.kubeflow.org/token"
OPTIONS = Options(coordinator=AT, agent_image="agent:1")
WITHOUT = make_pod("master-0", without_coordinator=True)


def container(who: str = "worker-0", options: Options = OPTIONS, at: int = 0, **case: Any) -> dict[str, Any]:
    """One container of a replica's pod."""
    built: dict[str, Any] = build_pod(full_job(**case), replica(who), options)["spec"]["containers"][at]
    return built


def env(who: str = "worker-0", options: Options = OPTIONS, at: int = 0, **case: Any) -> dict[str, Any]:
    """Its variables that are plain text; the last of a name wins."""
    return {
        variable["name"]: variable["value"]
        for variable in container(who, options, at, **case)["env"]
        if "value" in variable
    }


def template(*variables: dict[str, Any], **more: Any) -> dict[str, Any]:
    side = {"name": "side", "image": "i"}
    return make_template(containers=[{"name": "pytorch", "image": "train:1", "env": [*variables], **more}, side])


@pytest.mark.parametrize(
    ("who", "index"),
    [
        pytest.param("master-0", 0, id="the Master is the first"),
        pytest.param("worker-0", 1, id="then the workers"),
        pytest.param("worker-2", 3, id="by their index"),
    ],
)
def test_a_pod_is_led_to_the_coordinator(who: str, index: int) -> None:
    expected = CoordinatorEndpoint("coordinator.ops.svc", 29600, FILE, JOB_UID, f"x-{who}", index, ca="Y2VydA==")
    assert CoordinatorEndpoint.from_env(env(who, workers=3)) == expected


def test_its_own_uid_is_known_once_it_is_made() -> None:
    found = next(variable for variable in container()["env"] if variable["name"] == "PYTORCHJOB_POD_UID")
    assert found == {"name": "PYTORCHJOB_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}


def test_an_address_may_contain_colons() -> None:
    options = replace(OPTIONS, coordinator=CoordinatorAccess("[fd00::1]:29600"))
    assert env(options=options)["PYTORCHJOB_COORDINATOR"] == "[fd00::1]:29600"


def test_without_tls_there_is_no_certificate() -> None:
    assert "PYTORCHJOB_COORDINATOR_CA" not in env(options=replace(OPTIONS, coordinator=replace(AT, ca="")))


def test_a_sidecar_is_told_nothing_of_it() -> None:
    found = env(at=1, template=template(), agent={"startMode": "Warm"})
    assert [name for name in found if name.startswith("PYTORCHJOB_")] == []


def test_the_credential_is_in_no_variable() -> None:
    assert "PYTORCHJOB_TOKEN" not in env()


def test_the_credential_is_a_token_for_the_coordinator_alone_in_a_volume_of_the_main_container() -> None:
    built = build_pod(full_job(template=template(volumeMounts=[{"name": "own"}])), replica("worker-0"), OPTIONS)["spec"]
    token = {"audience": "pytorchjob-operator", "expirationSeconds": 3600, "path": "token"}
    items = [{"key": "ca.crt", "path": "ca.crt"}]
    authorities = {"name": "kube-root-ca.crt", "items": items, "optional": True}
    assert built["volumes"] == [
        {
            "name": "pytorchjob-token",
            "projected": {"sources": [{"serviceAccountToken": token}, {"configMap": authorities}]},
        }
    ]
    main, side = built["containers"]
    mount = {"name": "pytorchjob-token", "mountPath": "/var/run/secrets/pytorchjob.kubeflow.org", "readOnly": True}
    assert main["volumeMounts"] == [{"name": "own"}, mount]
    assert "volumeMounts" not in side


COMMANDS = [
    pytest.param([], [], True, id="the image's own command: it may be the agent"),
    pytest.param([], ["train.py"], True, id="arguments for the image's own command"),
    pytest.param([], ["python", "train.py"], True, id="Python for the image's own command"),
    pytest.param(["pytorchjob-agent"], ["run", "train.py"], True, id="the agent"),
    pytest.param(["python", "-m", "pytorchjob_agent", "run"], [], True, id="the agent as a module"),
    pytest.param(["python"], ["-m", "pytorchjob_agent", "run"], True, id="the agent as a module, by the arguments"),
    pytest.param(["torchrun", "--rdzv-backend=pytorchjob"], ["train.py"], True, id="torchrun with our rendezvous"),
    pytest.param(["/start.sh"], [], True, id="a script of the image: it may start the agent"),
    pytest.param(["sh", "-c", "cd /work && pytorchjob-agent run train.py"], [], True, id="the agent in a shell"),
    pytest.param(["torchrun"], ["train.py"], False, id="torchrun"),
    pytest.param(["python3.12", "train.py"], [], False, id="Python"),
    pytest.param(["python", "-m", "torch.distributed.run", "train.py"], [], False, id="torchrun as a module"),
    pytest.param(["bash", "-c", "torchrun train.py"], [], False, id="torchrun in a shell"),
]


@pytest.mark.parametrize(("command", "arguments", "led"), COMMANDS)
def test_a_pod_that_starts_no_agent_stays_as_v1_made_it(command: list[str], arguments: list[str], led: bool) -> None:
    given = template(**({"command": command} if command else {}), args=arguments)
    built = build_pod(full_job(template=given), replica("worker-0"), OPTIONS)["spec"]
    names = [variable["name"] for variable in built["containers"][0]["env"]]
    assert ("PYTORCHJOB_COORDINATOR" in names, "volumes" in built) == (led, led)


def test_spec_agent_says_that_a_plain_command_starts_the_agent() -> None:
    assert "PYTORCHJOB_COORDINATOR" in env(template=template(command=["python", "start.py"]), agent={})


@pytest.mark.parametrize(
    ("case", "led"),
    [
        pytest.param({}, True, id="a job that is not elastic"),
        pytest.param({"master": None, "elasticPolicy": {"rdzvId": "run", "rdzvPort": 9}}, True, id="an elastic job"),
        pytest.param({"elasticPolicy": {"rdzvBackend": "c10d"}}, False, id="a backend by name, c10d too"),
        pytest.param({"elasticPolicy": {"rdzvBackend": "static"}}, False, id="static"),
        pytest.param({"elasticPolicy": {"rdzvHost": "etcd"}}, False, id="a host to meet at"),
        pytest.param({"master": None, "elasticPolicy": {"standalone": True}}, False, id="standalone"),
        pytest.param({"master": None, "elasticPolicy": {"standalone": False}}, True, id="not standalone, aloud"),
        *(
            pytest.param({"template": template({"name": name, "value": "x"})}, False, id=f"{name} in the pod's env")
            for name in ("PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PYTORCHJOB_COORDINATOR")
        ),
        pytest.param(
            {"template": template({"name": "PET_RDZV_CONF", "value": "a=b"})}, True, id="settings choose none"
        ),
    ],
)
def test_who_has_chosen_a_rendezvous_keeps_it(case: dict[str, Any], led: bool) -> None:
    assert ("PYTORCHJOB_TOKEN_FILE" in env(**case)) is led


@pytest.mark.parametrize(
    ("options", "pods", "led"),
    [
        pytest.param(OPTIONS, (), True, id="a job of ours"),
        pytest.param(Options(), (), False, id="an operator without a coordinator"),
        pytest.param(OPTIONS, (make_pod("master-0", anonymous=True),), False, id="beside a pod of v1"),
        pytest.param(OPTIONS, (WITHOUT,), False, id="beside a pod made without it"),
        pytest.param(OPTIONS, (make_pod("master-0"),), True, id="beside a pod that knows it"),
        pytest.param(OPTIONS, (replace(WITHOUT, deleting=True),), True, id="once that one goes"),
    ],
)
def test_the_pods_of_a_job_meet_in_one_way(options: Options, pods: tuple[Any, ...], led: bool) -> None:
    seen = Observed(make_job(), NOW, pods, (make_service(),), options=options)
    made = [write.body for write in make_plan(seen).writes if hasattr(write, "body") and write.body["kind"] == "Pod"]
    found = [variable["name"] for variable in made[-1]["spec"]["containers"][0]["env"]]
    assert ("PYTORCHJOB_TOKEN_FILE" in found) is led


HANG = {
    "progressSeconds": 30,
    "logRules": [{"name": "loss", "pattern": "loss=$(N) ([0-9.]+)$", "operator": "gt", "value": 2.5, "points": 3}],
}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param({}, {}, id="nothing set, nothing told"),
        pytest.param({"startMode": "Auto"}, {"PYTORCHJOB_START_MODE": "auto"}, id="the start mode"),
        pytest.param(
            {"startMode": "Warm", "preload": ["a", "b.c"]},
            {"PYTORCHJOB_START_MODE": "warm", "PYTORCHJOB_PRELOAD": "a,b.c"},
            id="modules to load before",
        ),
        pytest.param({"preflight": "Fail"}, {"PYTORCHJOB_PREFLIGHT": "fail"}, id="what a problem means"),
        pytest.param({"fenceSeconds": 60}, {"PYTORCHJOB_FENCE_SECONDS": "60"}, id="when a group that is cut off ends"),
        pytest.param({"fenceSeconds": 0}, {"PYTORCHJOB_FENCE_SECONDS": "0"}, id="a group that is cut off never ends"),
        pytest.param({"restartWindowSeconds": 9}, {}, id="the window is the coordinator's"),
        pytest.param({"observeProgress": False}, {"PYTORCHJOB_OBSERVE_PROGRESS": "0"}, id="no progress but its own"),
        pytest.param({"observeProgress": True}, {}, id="progress is observed anyway"),
        pytest.param({"findStragglers": False}, {"PYTORCHJOB_FIND_STRAGGLERS": "0"}, id="no rank is measured"),
    ],
)
def test_what_the_job_says_of_the_agent(policy: dict[str, Any], expected: dict[str, str]) -> None:
    plain = env(options=Options())
    found = env(options=Options(), agent=policy)
    assert {name: value for name, value in found.items() if name not in plain} == expected


@pytest.mark.parametrize(
    ("limits", "gpus"),
    [
        ({}, None),
        ({"cpu": 4}, None),
        ({"nvidia.com/gpu": 8}, "8"),
        ({"amd.com/gpu": "2"}, "2"),
        ({"nvidia.com/mig-1g.10gb": 2}, None),
        ({"nvidia.com/gpu": "many"}, None),
    ],
    ids=str,
)
def test_the_agent_knows_how_many_gpus_its_container_should_have(limits: dict[str, Any], gpus: str | None) -> None:
    given = template(resources={"limits": limits})
    assert env(template=given, agent={}).get("PYTORCHJOB_GPUS") == gpus


def test_the_users_own_variable_wins() -> None:
    given = template({"name": "PYTORCHJOB_PREFLIGHT", "value": "off"})
    assert env(template=given, agent={"preflight": "Fail"})["PYTORCHJOB_PREFLIGHT"] == "off"


@pytest.mark.parametrize(
    ("pod", "found"),
    [
        pytest.param({}, None, id="Kubernetes' default is the agent's too"),
        pytest.param({"terminationGracePeriodSeconds": 30}, None, id="the default, said"),
        pytest.param({"terminationGracePeriodSeconds": 120}, "115", id="a long one: the kubelet needs 5 s of it"),
        pytest.param({"terminationGracePeriodSeconds": 5}, "2", id="a short one: half of it"),
        pytest.param({"terminationGracePeriodSeconds": 0}, "0", id="none"),
    ],
)
def test_the_agent_knows_its_grace_period(pod: dict[str, Any], found: str | None) -> None:
    assert env(template=make_template(**pod)).get("PYTORCHJOB_GRACE_SECONDS") == found


def test_without_a_coordinator_no_agent_needs_its_grace_period() -> None:
    assert "PYTORCHJOB_GRACE_SECONDS" not in env(
        options=Options(), template=make_template(terminationGracePeriodSeconds=120)
    )


def test_each_role_has_a_template_of_its_own() -> None:
    own = template({"name": "PYTORCHJOB_PREFLIGHT", "value": "off"})
    roles = {"Master": {"template": own}, "Worker": {"template": make_template()}}
    found = [env(who, agent={"preflight": "Fail"}, pytorchReplicaSpecs=roles) for who in ("master-0", "worker-0")]
    assert [variables["PYTORCHJOB_PREFLIGHT"] for variables in found] == ["off", "fail"]


def test_the_agent_reads_the_rules_of_hangs_as_they_were_written() -> None:
    text = env(agent={"hang": HANG})["PYTORCHJOB_HANG"]
    rules = HangRules.from_json(text.replace("$$", "$"))  # what the kubelet makes of it
    assert json.loads(rules.to_json()) == HANG
    assert '"pattern":"loss=$$(N) ([0-9.]+)$$"' in text, "no blanks, and nothing that the kubelet replaces"


def inject(**case: Any) -> PyTorchJob:
    return make_job(agent={"inject": True}, **case)


@pytest.mark.parametrize(
    ("job", "options", "words"),
    [
        pytest.param(make_job(), Options(), None, id="nothing was asked for"),
        pytest.param(inject(), OPTIONS, None, id="it is put there"),
        pytest.param(inject(), Options(), "these pods have no coordinator", id="no coordinator"),
        pytest.param(inject(), Options(coordinator=AT), "no agent image", id="no image"),
        pytest.param(
            inject(template=template({"name": "PET_RDZV_BACKEND", "value": "c10d"})),
            OPTIONS,
            "container pytorch has its own PET_RDZV_BACKEND",
            id="the pod's env has chosen",
        ),
        *(
            pytest.param(
                inject(elasticPolicy={field: value}),
                OPTIONS,
                f"elasticPolicy.{field} chooses another rendezvous",
                id=f"the policy has chosen by {field}",
            )
            for field, value in (("rdzvBackend", "etcd"), ("rdzvHost", "etcd"))
        ),
        pytest.param(
            inject(master=None, elasticPolicy={"standalone": True}),
            OPTIONS,
            "elasticPolicy.standalone chooses another rendezvous",
            id="the policy wants no other node",
        ),
    ],
)
def test_an_agent_that_cannot_be_put_there_is_told(job: PyTorchJob, options: Options, words: str | None) -> None:
    status = make_plan(Observed(job, NOW, options=options)).status
    assert status is not None
    found = status.condition(ConditionType.CONFIG_VALID)
    if words is None:
        assert found is None
        return
    assert found is not None
    assert (found.reason, found.message[:33]) == ("AgentUnavailable", "spec.agent.inject has no effect: ")
    assert words in found.message


def test_names_that_the_user_gives_are_those_of_the_main_container() -> None:
    assert agent_variables.own_names(template({"name": "A"})) == {"A"}


CHECKPOINT = {"directory": "/checkpoints", "memory": "8Gi"}


def test_memory_for_checkpoints_is_mounted_in_the_main_container() -> None:
    built = build_pod(full_job(template=template(), agent={"checkpoint": CHECKPOINT}), replica("worker-0"), OPTIONS)
    volume = {"name": "pytorchjob-checkpoints", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
    assert volume in built["spec"]["volumes"]
    main, side = built["spec"]["containers"]
    assert {"name": "pytorchjob-checkpoints", "mountPath": "/checkpoints"} in main["volumeMounts"]
    assert "volumeMounts" not in side
    rules = CheckpointRules.from_env({each["name"]: each["value"] for each in main["env"] if "value" in each})
    assert rules == CheckpointRules("/checkpoints", 8 * 2**30, 1)
    fast = checkpoint_memory.rules(CheckpointMemory.model_validate({**CHECKPOINT, "copyRate": "2G"}))
    assert (fast.copy_rate, rules.copy_rate) == (2 * 10**9, 200 * 10**6)
    node = {"name": "PYTORCHJOB_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    assert node in main["env"]


def test_a_volume_of_the_users_own_at_the_directory_stays() -> None:
    own = {"name": "own", "mountPath": "/checkpoints/"}
    job = full_job(template=template(volumeMounts=[own]), agent={"checkpoint": {**CHECKPOINT, "copies": 0}})
    built = build_pod(job, replica("worker-0"), OPTIONS)["spec"]
    assert "pytorchjob-checkpoints" not in [volume["name"] for volume in built["volumes"]]
    assert own in built["containers"][0]["volumeMounts"]


def test_the_durable_directory_reaches_the_agent_and_mounts_nothing() -> None:
    durable = {"directory": "/mnt/run-1", "intervalSeconds": 1800}
    job = full_job(template=template(), agent={"checkpoint": {**CHECKPOINT, "durable": durable}})
    main = build_pod(job, replica("worker-0"), OPTIONS)["spec"]["containers"][0]
    rules = CheckpointRules.from_env({each["name"]: each["value"] for each in main["env"] if "value" in each})
    assert rules is not None
    assert rules.durable == DurableRules("/mnt/run-1", 1800)
    assert all(mount["mountPath"] != "/mnt/run-1" for mount in main["volumeMounts"])


@pytest.mark.parametrize(
    ("mounts", "right"),
    [
        pytest.param(["/mnt/run-1"], True, id="the directory"),
        pytest.param(["/data", "/mnt/"], True, id="a directory above it"),
        pytest.param([], False, id="nothing"),
        pytest.param(["/mnt/run-1/sub", "/mnt/run"], False, id="other directories"),
    ],
)
def test_a_durable_directory_without_a_volume_is_a_wrong_setting(mounts: list[str], *, right: bool) -> None:
    checkpoint = {**CHECKPOINT, "durable": {"directory": "/mnt/run-1"}}
    own = [{"name": f"own-{place}", "mountPath": path} for place, path in enumerate(mounts)]
    job = full_job(template=template(volumeMounts=own), agent={"checkpoint": checkpoint})
    status = make_plan(Observed(job, NOW, options=OPTIONS)).status
    found = status.condition(ConditionType.CONFIG_VALID) if status is not None else None
    assert (found is None) == right
    if found is not None:
        assert found.reason == "DurableDirectoryNotMounted"
        assert "contains /mnt/run-1: what is saved there ends with the pod; mount a volume there" in found.message


def test_pods_without_a_coordinator_get_no_memory_for_checkpoints() -> None:
    job = full_job(template=template(), agent={"checkpoint": CHECKPOINT})
    assert "volumes" not in build_pod(job, replica("worker-0"), Options())["spec"]


AGENT = ["pytorchjob-agent", "run", "--", "train.py"]
CACHE_VOLUME = {"name": "pytorchjob-caches", "emptyDir": {}}


def test_pods_that_run_the_agent_have_a_place_for_caches() -> None:
    built = build_pod(full_job(template=template(command=AGENT)), replica("worker-0"), OPTIONS)["spec"]
    main, side = built["containers"]
    assert CACHE_VOLUME in built["volumes"]
    assert {"name": "pytorchjob-caches", "mountPath": "/var/cache/pytorchjob"} in main["volumeMounts"]
    assert "volumeMounts" not in side
    rules = CacheRules.from_env({each["name"]: each["value"] for each in main["env"] if "value" in each})
    assert rules == CacheRules("/var/cache/pytorchjob", "train:1")


@pytest.mark.parametrize(
    ("command", "agent", "options"),
    [
        pytest.param(AGENT, {"caches": False}, OPTIONS, id="the user opts out"),
        pytest.param(AGENT, None, Options(), id="no coordinator"),
        pytest.param(["python", "train.py"], None, OPTIONS, id="plain Python"),
        pytest.param(["torchrun", "train.py"], {}, OPTIONS, id="plain torchrun"),
        pytest.param(None, None, OPTIONS, id="an unknown command"),
    ],
)
def test_all_other_pods_keep_their_volumes(command: list[str] | None, agent: Any, options: Options) -> None:
    more = {} if command is None else {"command": command}
    case = {} if agent is None else {"agent": agent}
    built = build_pod(full_job(template=template(**more), **case), replica("worker-0"), options)["spec"]
    assert CACHE_VOLUME not in built.get("volumes", ())
    assert CACHES not in [each["name"] for each in built["containers"][0]["env"]]


def test_a_volume_of_the_users_own_for_caches_stays() -> None:
    own = {"name": "own", "mountPath": "/var/cache/pytorchjob/"}
    built = build_pod(full_job(template=template(command=AGENT, volumeMounts=[own])), replica("worker-0"), OPTIONS)[
        "spec"
    ]
    assert CACHE_VOLUME not in built["volumes"]
    assert own in built["containers"][0]["volumeMounts"]
    assert CACHES in [each["name"] for each in built["containers"][0]["env"]]
