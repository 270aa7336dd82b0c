"""For each shell block of the pages: the test that executes it, or why no test does."""

from dataclasses import dataclass

README, LOCAL = "README.md", "README.md: Try it: one machine, no cluster"
INSTALLING, RUNBOOKS = "docs/installing.md", "docs/runbooks"
CHART, TORCH, INSTALLED, EXAMPLES, MACHINES, CLONE = (
    "tests/chart/test_shell_blocks.py::test_a_block_does_what_its_page_promises",
    "tests/torch/test_shell_blocks.py::test_a_block_works_on_this_machine",
    "tests/torch/test_installed.py::test_pip_installs_the_command_and_it_trains",
    "tests/examples/test_shell_blocks.py::test_a_page_of_an_example_works_on_this_machine",
    "tests/torch/test_three_machines.py",
    "tests/release/test_shell_blocks.py",
)
PAGES = "e2e/test_pages.py::test_a_block_does_what_its_page_promises"
INSTALL_PAGES = "e2e/test_install_pages.py::test_a_block_installs_what_its_page_promises"
FROM_A_REGISTRY = "e2e/test_registry.py::test_the_page_installs_from_the_registry"
SIMULATED = "tests/simulation/test_page.py::test_the_page_runs_schedules_and_replays_one"
TABLES = "tests/benchmarks/test_pages.py::test_the_command_writes_the_table_of_its_page"
SIGNED = "tests/release/test_signed.py::test_the_page_verifies_an_image_by_the_key_that_signed_it"
SPARK = "tests/examples/test_spark.py::test_two_executors_train_at_once_in_a_world_of_their_own"
_README = "tests/test_readme.py::test_the_local_section_works_as_written"
_CLUSTER = "e2e/test_readme.py::test_the_cluster_section_works_as_written"
REGISTRY = "tests/release/test_registry.py"
_MIGRATING = "tests/chart/test_migrating.py::test_over_and_back_again"
_MIGRATING_WITH_NODES = "e2e/test_migrating_page.py::test_a_job_trains_on_untouched_over_and_back_again"
_THREE = "examples/three-machines/README.md: torchrun by hand on three machines, and the same as YAML"
NODES = "rollout status"
"""What waits for a pod of the operator: the API server of these tests has no nodes."""
SEEN = "kubectl wait"
DOCTOR = "pytorchjob doctor"
"""These two need an operator that runs."""
LOGS = "kubectl -n pytorchjob-system logs"


@dataclass(frozen=True)
class Executed:
    """A test runs the block as it is written, except for what it leaves out."""

    test: str
    without: tuple[str, ...] = ()
    """Lines with these words, or, where one begins with a hyphen, the option alone."""
    whole: str = ""
    """The long test that leaves nothing out: it takes minutes, and a cluster with nodes."""


@dataclass(frozen=True)
class ByHand:
    """It takes hours, and no test runs it. The repository has the record of a run."""

    records: tuple[str, ...]
    """Files, the page to read first. They have the commits, the machine and the day as they stand here."""
    commits: tuple[str, ...]
    day: str
    result: str
    machine: str = "2 cores, 24 GiB, Linux 6.18.44-fc-v657"


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
    "charts/pytorchjob-operator/README.md: pytorchjob-operator": Executed(CHART, ("helm test",), INSTALL_PAGES),
    "docs/accelerators.md: Presets": Executed(CHART),
    "docs/accelerators.md: How many processes: `nprocPerNode`": Executed(CHART),
    "docs/cli.md: The command line": Executed(INSTALLED, ("pytorchjob submit",)),
    "docs/cluster.md: The cluster": Executed(
        "e2e/test_cluster_page.py::test_a_second_cluster_comes_and_goes_beside_the_first"
    ),
    "docs/doctor.md: Preflight checks": Executed(TORCH),
    f"{INSTALLING}: Installing the operator": Executed(_CLUSTER),
    f"{INSTALLING}: From a registry": Executed(
        f"{REGISTRY}::test_the_registry_has_every_image_by_tag_by_digest_and_for_each_platform"
    ),
    f"{INSTALLING}: From a registry (2)": Executed(
        f"{REGISTRY}::test_the_page_installs_from_the_registry_and_runs_an_example_from_there",
        (NODES,),
        FROM_A_REGISTRY,
    ),
    f"{INSTALLING}: From a registry (3)": Executed(
        f"{REGISTRY}::test_the_page_installs_from_the_registry_and_runs_an_example_from_there"
    ),
    f"{INSTALLING}: From a registry (4)": Executed(
        f"{REGISTRY}::test_the_page_installs_without_helm", (NODES,), FROM_A_REGISTRY
    ),
    f"{INSTALLING}: From a registry (5)": Executed(SIGNED),
    f"{INSTALLING}: Without access to the registry": Executed(
        f"{REGISTRY}::test_the_page_installs_where_nothing_outside_can_be_reached"
    ),
    f"{INSTALLING}: Without access to the registry (2)": Executed(
        f"{REGISTRY}::test_the_page_installs_where_nothing_outside_can_be_reached"
    ),
    f"{INSTALLING}: Before you begin: is training-operator v1 installed?": Executed(CHART),
    f"{INSTALLING}: Helm": Executed(CHART, ("helm test", "--wait"), INSTALL_PAGES),
    f"{INSTALLING}: Helm (2)": Executed(CHART),
    f"{INSTALLING}: kustomize": Executed(CHART, (NODES,), INSTALL_PAGES),
    f"{INSTALLING}: Only some namespaces": Executed(INSTALL_PAGES),
    f"{INSTALLING}: Rights of the operator, and why": Executed(CHART),
    f"{INSTALLING}: The coordinator": Executed(CHART),
    f"{INSTALLING}: The coordinator (2)": Executed(CHART),
    f"{INSTALLING}: Upgrading": Executed(_CLUSTER),
    f"{INSTALLING}: Upgrading (2)": Executed(CHART, ("--wait",), INSTALL_PAGES),
    f"{INSTALLING}: Upgrading (3)": Executed(CHART, ("--wait",), INSTALL_PAGES),
    f"{INSTALLING}: Uninstalling": Executed(CHART),
    f"{INSTALLING}: Uninstalling (2)": Executed(CHART),
    **{
        f"docs/first-job.md: {heading}": Executed(
            "e2e/test_first_job.py::test_a_script_trains_on_two_nodes_as_the_page_shows"
        )
        for heading in (
            "Write the job's file, and try it",
            "Submit it",
            "Submit it (2)",
            "On two nodes",
            "See how far it is",
        )
    },
    "docs/doctor.md: Preflight checks (2)": Executed(PAGES),
    "docs/logs.md: The logs of a job": Executed(PAGES),
    "docs/migrating.md: Build the images": Executed(
        f"{REGISTRY}::test_the_page_of_moving_pushes_the_images_to_the_registry_of_the_reader"
    ),
    "docs/migrating.md: From torchrun by hand": Executed(
        f"{MACHINES}::test_the_command_to_move_away_from_trains_on_three_machines"
    ),
    "docs/migrating.md: What to check first": Executed(_MIGRATING),
    "docs/migrating.md: Swap": Executed(_MIGRATING, (NODES,), _MIGRATING_WITH_NODES),
    "docs/migrating.md: Swap (2)": Executed(
        "tests/chart/test_migrating.py::test_the_definition_marked_by_hand_is_taken_over_without_a_flag"
    ),
    "docs/migrating.md: Swap (3)": Executed(_MIGRATING, (SEEN, DOCTOR), _MIGRATING_WITH_NODES),
    "docs/migrating.md: Going back": Executed(_MIGRATING, (NODES,), _MIGRATING_WITH_NODES),
    "docs/releasing.md: Each time": Executed(f"{CLONE}::test_a_version_begins_with_one_command"),
    "docs/releasing.md: Each time (3)": Executed(
        f"{CLONE}::test_a_version_that_was_begun_and_committed_passes_the_check"
    ),
    "docs/releasing.md: Each time (4)": Executed(f"{CLONE}::test_the_tag_is_made_and_pushed"),
    f"{RUNBOOKS}/PyTorchJobCoordinatorCertificateExpires.md: How to see it": Executed(CHART),
    f"{RUNBOOKS}/PyTorchJobCoordinatorDefect.md: How to see it": Executed(CHART, (LOGS,), PAGES),
    f"{RUNBOOKS}/PyTorchJobCoordinatorRefuses.md: How to see it": Executed(CHART, (LOGS,), PAGES),
    f"{RUNBOOKS}/PyTorchJobHangs.md: How to see it": Executed(CHART),
    f"{RUNBOOKS}/PyTorchJobOperatorDown.md: How to see it": Executed(CHART),
    f"{RUNBOOKS}/PyTorchJobOperatorFailsToReconcile.md: How to see it": Executed(PAGES),
    f"{RUNBOOKS}/PyTorchJobOperatorQueueGrows.md: How to see it": Executed(PAGES),
    f"{RUNBOOKS}/PyTorchJobOperatorWatchStale.md: How to see it": Executed(CHART, (LOGS,), PAGES),
    f"{RUNBOOKS}/PyTorchJobOperatorWithoutLeader.md: How to see it": Executed(CHART, (LOGS,), PAGES),
    f"{RUNBOOKS}/PyTorchJobPending.md: How to see it": Executed(CHART),
    f"{RUNBOOKS}/PyTorchJobProgressStalled.md: How to see it": Executed(CHART, ('kubectl -n "$NS" logs',), PAGES),
    f"{RUNBOOKS}/PyTorchJobRestartLoop.md: How to see it": Executed(CHART),
    "docs/scheduling.md: Gangs: all pods or none": Executed(CHART),
    "docs/kueue.md: Set it up": Executed(CHART),
    "docs/standalone.md: The command": Executed(TORCH),
    "docs/elastic.md: Warm workers": Executed(TORCH),
    "examples/autoscaling/README.md: Autoscaling (2)": Executed(EXAMPLES),
    "examples/fsdp2/README.md: FSDP2 with torch.distributed.checkpoint": Executed(EXAMPLES),
    "examples/hugging-face/README.md: Hugging Face's Trainer": Executed(EXAMPLES),
    "examples/lightning/README.md: Lightning": Executed(EXAMPLES),
    "examples/spark/README.md: Spark: one DDP run for each executor": Executed(SPARK),
    "benchmarks/hangs/README.md: Hangs of scripts that report nothing (2)": Executed(TABLES),
    "benchmarks/recovery/README.md: Recovery (2)": Executed(TABLES),
    "benchmarks/survivors.md: Going on without a lost worker (2)": Executed(TABLES),
    "tests/simulation/README.md: Simulation of a job": Executed(SIMULATED),
    _THREE: Executed(f"{MACHINES}::test_the_examples_command_trains_on_three_machines"),
    f"{_THREE} (3)": Executed(EXAMPLES),
}

BY_HAND = {
    f"{README}: Prove it": ByHand(
        ("docs/decisions/0006-house.md",), ("a653bb8",), "23 November 2026", "`11067 passed, 0 failed, 0 skipped`"
    ),
    "benchmarks/hangs/README.md: Hangs of scripts that report nothing": ByHand(
        ("benchmarks/hangs/README.md", "benchmarks/hangs/found.jsonl", "benchmarks/hangs/quiet.jsonl"),
        ("0385bad", "de03291f"),
        "2026-11-26",
        "164 of 164 hangs found, with the right rank, lines and collective; no alarm in 9 slow scripts",
    ),
    "benchmarks/survivors.md: Going on without a lost worker": ByHand(
        ("benchmarks/survivors.md", "benchmarks/survivors.jsonl"),
        (),
        "2026-11-27",
        "115 kills with 3 and with 8 workers, no worker restarted, no step repeated; turns beside other programs",
        "2 cores, Linux 6.18.44-fc-v669",
    ),
    "benchmarks/recovery/README.md: Recovery": ByHand(
        ("benchmarks/recovery/README.md", "benchmarks/recovery/chaos-storage.txt"),
        (),
        "2026-11-21 to 2026-11-22",
        "320 repetitions, 3 series, 58 faults of chaos, the latter with v657; the page has what went wrong",
        "2 cores, 24 GiB, Linux 6.18.44-fc-v669",
    ),
}

NOT_EXECUTED = {
    "CONTRIBUTING.md: Contributing": NotExecuted("hours: it runs all tests, and this one"),
    "docs/doctor.md: Preflight checks (3)": NotExecuted(
        "a machine with GPUs, and an image with CUDA",
        "tests/agent/preflight/test_gate.py::test_a_run_without_the_gpus_that_it_asks_for",
    ),
    "docs/releasing.md: Each time (2)": NotExecuted("hours: it runs all tests, and this one"),
}
EXECUTED |= {
    f"examples/{page}": Executed(PAGES)
    for page in (
        "autoscaling/README.md: Autoscaling",
        "checkpoint/README.md: Checkpoints in memory",
        "digits/README.md: Handwritten digits with DDP",
        "elastic/README.md: Workers that join and leave",
        "elastic/README.md: Workers that join and leave (2)",
        "fsdp2/README.md: FSDP2 with torch.distributed.checkpoint (2)",
        "hugging-face/README.md: Hugging Face's Trainer (2)",
        "lightning/README.md: Lightning (2)",
        "multi-process/README.md: Several processes in each pod",
        "simple/README.md: The environment alone",
        "three-machines/README.md: torchrun by hand on three machines, and the same as YAML (2)",
        "torchrun/README.md: The image's own torchrun",
        "warm/README.md: Warm restarts",
    )
}
