"""For each shell block of the pages: the test that executes it, or why no test does."""

from dataclasses import dataclass

README, LOCAL = "README.md", "README.md: Try it: one machine, no cluster"
INSTALLING, RUNBOOKS = "docs/installing.md", "docs/runbooks"
CHART, TORCH, CLONE = (
    "tests/chart/test_shell_blocks.py::test_a_block_does_what_its_page_promises",
    "tests/torch/test_shell_blocks.py::test_a_block_works_on_this_machine",
    "tests/release/test_shell_blocks.py",
)
_README = "tests/test_readme.py::test_the_local_section_works_as_written"
_CLUSTER = "e2e/test_readme.py::test_the_cluster_section_works_as_written"
_REGISTRY = "tests/release/test_registry.py"
_MIGRATING = "tests/chart/test_migrating.py::test_over_and_back_again"
_EXAMPLES = "tests/examples/test_"
_BY_HAND = f"{_EXAMPLES}three_machines.py::test_three_torchruns_by_hand_print_what_the_yaml_prints"
_ON_A_CLUSTER = "e2e/test_examples.py::test_an_example_succeeds_on_the_cluster_and_ends_alike_on_this_machine"
NODES = "rollout status"
"""What waits for a pod of the operator: the API server of these tests has no nodes."""
LOGS = "kubectl -n pytorchjob-system logs"


@dataclass(frozen=True)
class Executed:
    """A test runs the block as it is written, except for what it leaves out."""

    test: str
    without: tuple[str, ...] = ()
    """Lines with these words, or, where one begins with a hyphen, the option alone."""


@dataclass(frozen=True)
class NotExecuted:
    """No test runs the block."""

    why: str
    instead: str = ""
    """The test that comes nearest."""


EXECUTED = {
    LOCAL: Executed(_README),
    f"{LOCAL} (2)": Executed(_README),
    f"{README}: On a cluster": Executed(_CLUSTER),
    "charts/pytorchjob-operator/README.md: pytorchjob-operator": Executed(CHART, ("helm test",)),
    "docs/accelerators.md: Presets": Executed(CHART),
    "docs/accelerators.md: How many processes: `nprocPerNode`": Executed(CHART),
    "docs/cli.md: The command line": Executed(TORCH, ("pip install", "pytorchjob submit")),
    "docs/doctor.md: Preflight checks": Executed(TORCH, ("kubectl exec", "docker run")),
    f"{INSTALLING}: Installing the operator": Executed(_CLUSTER),
    f"{INSTALLING}: From a registry": Executed(
        f"{_REGISTRY}::test_the_registry_has_every_image_by_tag_by_digest_and_for_each_platform"
    ),
    f"{INSTALLING}: From a registry (2)": Executed(
        f"{_REGISTRY}::test_the_page_installs_from_the_registry_and_runs_an_example_from_there", (NODES,)
    ),
    f"{INSTALLING}: From a registry (3)": Executed(
        f"{_REGISTRY}::test_the_page_installs_from_the_registry_and_runs_an_example_from_there"
    ),
    f"{INSTALLING}: From a registry (4)": Executed(f"{_REGISTRY}::test_the_page_installs_without_helm", (NODES,)),
    f"{INSTALLING}: Without access to the registry": Executed(
        f"{_REGISTRY}::test_the_page_installs_where_nothing_outside_can_be_reached"
    ),
    f"{INSTALLING}: Without access to the registry (2)": Executed(
        f"{_REGISTRY}::test_the_page_installs_where_nothing_outside_can_be_reached"
    ),
    f"{INSTALLING}: Before you begin: is training-operator v1 installed?": Executed(CHART),
    f"{INSTALLING}: Helm": Executed(CHART, ("helm test", "--wait")),
    f"{INSTALLING}: Helm (2)": Executed(CHART),
    f"{INSTALLING}: kustomize": Executed(CHART, (NODES,)),
    f"{INSTALLING}: Rights of the operator, and why": Executed(CHART),
    f"{INSTALLING}: The coordinator": Executed(CHART),
    f"{INSTALLING}: The coordinator (2)": Executed(CHART),
    f"{INSTALLING}: Upgrading": Executed(_CLUSTER),
    f"{INSTALLING}: Upgrading (2)": Executed(CHART, ("--wait",)),
    f"{INSTALLING}: Upgrading (3)": Executed(CHART, ("--wait",)),
    f"{INSTALLING}: Uninstalling": Executed(CHART),
    f"{INSTALLING}: Uninstalling (2)": Executed(CHART),
    "docs/migrating.md: What to check first": Executed(_MIGRATING),
    "docs/migrating.md: Swap": Executed(_MIGRATING, (NODES,)),
    "docs/migrating.md: Swap (2)": Executed(
        "tests/chart/test_migrating.py::test_the_definition_marked_by_hand_is_taken_over_without_a_flag"
    ),
    "docs/migrating.md: Swap (3)": Executed(_MIGRATING),
    "docs/migrating.md: Going back": Executed(_MIGRATING),
    "docs/releasing.md: Each time": Executed(f"{CLONE}::test_a_version_begins_with_one_command"),
    "docs/releasing.md: Each time (3)": Executed(f"{CLONE}::test_the_tag_is_made_and_pushed"),
    f"{RUNBOOKS}/PyTorchJobCoordinatorCertificateExpires.md: How to see it": Executed(CHART),
    f"{RUNBOOKS}/PyTorchJobCoordinatorDefect.md: How to see it": Executed(CHART, (LOGS,)),
    f"{RUNBOOKS}/PyTorchJobCoordinatorRefuses.md: How to see it": Executed(CHART, (LOGS,)),
    f"{RUNBOOKS}/PyTorchJobHangs.md: How to see it": Executed(CHART),
    f"{RUNBOOKS}/PyTorchJobOperatorDown.md: How to see it": Executed(CHART),
    f"{RUNBOOKS}/PyTorchJobOperatorWatchStale.md: How to see it": Executed(CHART, (LOGS,)),
    f"{RUNBOOKS}/PyTorchJobOperatorWithoutLeader.md: How to see it": Executed(CHART, (LOGS,)),
    f"{RUNBOOKS}/PyTorchJobPending.md: How to see it": Executed(CHART),
    f"{RUNBOOKS}/PyTorchJobProgressStalled.md: How to see it": Executed(CHART, ('kubectl -n "$NS" logs',)),
    f"{RUNBOOKS}/PyTorchJobRestartLoop.md: How to see it": Executed(CHART),
    "docs/scheduling.md: Gangs: all pods or none": Executed(CHART),
    "docs/standalone.md: The command": Executed(TORCH),
    "docs/warm.md: Warm workers": Executed(TORCH),
}

NOT_EXECUTED = {
    f"{README}: Prove it": NotExecuted("it runs all tests, and this one"),
    "CONTRIBUTING.md: Contributing": NotExecuted("hours: it runs all tests, and this one"),
    "benchmarks/hangs/README.md: Hangs of scripts that report nothing": NotExecuted("a benchmark of hours"),
    "benchmarks/recovery/README.md: Recovery": NotExecuted("a benchmark of hours"),
    "docs/cluster.md: The cluster": NotExecuted(
        "it removes the cluster that the other tests use; `make test` runs its first command", _CLUSTER
    ),
    "docs/decisions/0008-safety.md: Findings": NotExecuted("it checks out former states of the code"),
    f"{INSTALLING}: From a registry (5)": NotExecuted("a signed image in a registry, and cosign"),
    f"{INSTALLING}: Only some namespaces": NotExecuted(
        "it builds all images and changes the operator that the other tests use",
        "tests/chart/test_install.py::test_no_object_has_a_field_that_the_api_server_does_not_know[namespaced]",
    ),
    "docs/logs.md: The logs of a job": NotExecuted(
        "a running job with nodes under it", "tests/people/logs/test_command.py::test_all_ranks_are_merged_by_time"
    ),
    "docs/migrating.md: Build the images": NotExecuted(
        "the registry has an example's name; its command runs with a registry of this machine",
        f"{_REGISTRY}::test_the_registry_has_every_image_by_tag_by_digest_and_for_each_platform",
    ),
    "docs/migrating.md: From torchrun by hand": NotExecuted(
        "it is what the reader has, and needs three machines", _BY_HAND
    ),
    "docs/releasing.md: Each time (2)": NotExecuted("hours: it runs all tests, and this one"),
    f"{RUNBOOKS}/PyTorchJobOperatorFailsToReconcile.md: How to see it": NotExecuted("logs of an operator with faults"),
    f"{RUNBOOKS}/PyTorchJobOperatorQueueGrows.md: How to see it": NotExecuted("an operator in a pod"),
    "tests/mutation/README.md: Mutation tests": NotExecuted("hours"),
    "tests/simulation/README.md: Simulation of a job": NotExecuted(
        "a quarter of an hour; `make test` runs fewer schedules",
        "tests/simulation/test_simulation.py::test_a_job_comes_back_to_work_whatever_happens",
    ),
}
_JOB = "a cluster with nodes; the test runs the file and the script"
_LIBRARIES = "the libraries, and an image with them; the test runs the file on this machine"
NOT_EXECUTED |= {
    f"examples/{page}": NotExecuted(why, test)
    for page, why, test in (
        (
            "autoscaling/README.md: Autoscaling",
            "it follows a job until a key is pressed",
            f"{_EXAMPLES}autoscaling.py::test_the_plan_has_an_autoscaler_with_the_jobs_bounds_and_metric",
        ),
        (
            "autoscaling/README.md: Autoscaling (2)",
            "a load of minutes; the test runs the file with fewer steps",
            f"{_EXAMPLES}autoscaling.py::test_training_goes_on_while_the_number_of_workers_follows_the_file",
        ),
        ("digits/README.md: Handwritten digits with DDP", _JOB, _ON_A_CLUSTER),
        ("elastic/README.md: Workers that join and leave", _JOB, _ON_A_CLUSTER),
        (
            "elastic/README.md: Workers that join and leave (2)",
            "a running job with nodes under it",
            "e2e/test_faults.py::test_fewer_and_then_more_workers_cost_no_step_and_no_container",
        ),
        (
            "fsdp2/README.md: FSDP2 with torch.distributed.checkpoint",
            "the test runs the file with other values",
            f"{_EXAMPLES}fsdp2.py::test_a_killed_worker_and_a_third_worker_change_no_loss",
        ),
        (
            "fsdp2/README.md: FSDP2 with torch.distributed.checkpoint (2)",
            "volumes that several nodes can mount at once",
            f"{_EXAMPLES}fsdp2.py::test_a_killed_worker_and_a_third_worker_change_no_loss",
        ),
        (
            "hugging-face/README.md: Hugging Face's Trainer",
            _LIBRARIES,
            f"{_EXAMPLES}libraries.py::test_hugging_faces_trainer_shows_its_progress_and_resumes",
        ),
        (
            "hugging-face/README.md: Hugging Face's Trainer (2)",
            _LIBRARIES,
            f"{_EXAMPLES}libraries.py::test_hugging_faces_trainer_shows_its_progress_and_resumes",
        ),
        (
            "lightning/README.md: Lightning",
            _LIBRARIES,
            f"{_EXAMPLES}libraries.py::test_lightning_shows_its_progress_and_resumes",
        ),
        (
            "lightning/README.md: Lightning (2)",
            _LIBRARIES,
            f"{_EXAMPLES}libraries.py::test_lightning_shows_its_progress_and_resumes",
        ),
        ("multi-process/README.md: Several processes in each pod", _JOB, _ON_A_CLUSTER),
        ("simple/README.md: The environment alone", _JOB, _ON_A_CLUSTER),
        (
            "spark/README.md: Spark: one DDP run for each executor",
            "pyspark and Java; the long test starts the script",
            f"{_EXAMPLES}spark.py::test_two_executors_train_at_once_in_a_world_of_their_own",
        ),
        (
            "three-machines/README.md: torchrun by hand on three machines, and the same as YAML",
            "three machines; the test runs it three times at once, with an address of this machine",
            _BY_HAND,
        ),
        ("three-machines/README.md: torchrun by hand on three machines, and the same as YAML (2)", _JOB, _ON_A_CLUSTER),
        (
            "three-machines/README.md: torchrun by hand on three machines, and the same as YAML (3)",
            "the test runs the file in another folder",
            _BY_HAND,
        ),
        ("torchrun/README.md: The image's own torchrun", _JOB, _ON_A_CLUSTER),
        (
            "warm/README.md: Warm restarts",
            _JOB,
            f"{_EXAMPLES}warm.py::test_the_workers_of_both_starts_have_their_imports_already",
        ),
    )
}
