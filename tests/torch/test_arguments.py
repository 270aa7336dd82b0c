"""torchrun's own parser and what it makes of arguments, which the agent takes over unread."""

import sys
from typing import Any

import pytest

pytest.importorskip("torch")
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.launcher.api import LaunchConfig
from torch.distributed.run import (
    config_from_args,
    determine_local_world_size,
    get_args_parser,
    parse_min_max_nnodes,
)

from pytorchjob_agent import torch_compat

pytestmark = pytest.mark.torch


def parsed(*argv: str) -> Any:
    return get_args_parser().parse_args(list(argv))


def test_the_arguments_that_the_agent_looks_at() -> None:
    wanted = {
        "standalone": False,
        "nnodes": "1:1",
        "nproc_per_node": "1",
        "rdzv_backend": "static",
        "rdzv_endpoint": "",
        "rdzv_id": "none",
        "rdzv_conf": "",
        "master_addr": "127.0.0.1",
        "node_rank": 0,
        "tee": "0",
        "redirects": "0",
        "log_dir": None,
        "logs_specs": None,
        "local_ranks_filter": "",
        "run_path": False,
        "no_python": False,
        "start_method": "spawn",
        "max_restarts": 0,
    }
    args = vars(parsed("train.py"))
    assert {name: args[name] for name in wanted} == wanted


def test_variables_are_the_defaults_of_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NNODES": "1:3", "RDZV_BACKEND": "c10d", "MASTER_PORT": "5", "MAX_RESTARTS": "7"}.items():
        monkeypatch.setenv(f"PET_{name}", value)
    args = parsed("--max-restarts=2", "train.py")
    assert (args.nnodes, args.rdzv_backend, args.master_port, args.max_restarts) == ("1:3", "c10d", 5, 2)


@pytest.mark.parametrize("default", [None, 0])
def test_a_port_is_a_port_only_if_somebody_asked_for_it(default: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def port(*argv: str) -> Any:
        parser = get_args_parser()
        torch_compat.set_default_port(parser, default)
        return parser.parse_args([*argv, "train.py"]).master_port

    assert (port(), port("--master-port=29500")) == (default, 29500)
    monkeypatch.setenv("PET_MASTER_PORT", "29500")
    assert port() == 29500


@pytest.mark.parametrize(
    ("argv", "command", "arguments"),
    [
        (["train.py", "--lr=1"], sys.executable, ["-u", "train.py", "--lr=1"]),
        (["-m", "train", "--lr=1"], sys.executable, ["-u", "-m", "train", "--lr=1"]),
        (["--no-python", "train", "--lr=1"], "train", ["--lr=1"]),
    ],
    ids=["a script", "a module", "a program"],
)
def test_the_command_of_a_worker(argv: list[str], command: str, arguments: list[str]) -> None:
    assert config_from_args(parsed(*argv))[1:] == (command, arguments)


def test_the_configuration_that_the_agent_looks_at() -> None:
    argv = ["--nnodes=2:3", "--nproc-per-node=4", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1", "--rdzv-id=r"]
    config = config_from_args(parsed(*argv, "--rdzv-conf=a=1,b=2", "--max-restarts=9", "train.py"))[0]
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node, config.max_restarts) == (2, 3, 4, 9)
    assert (config.rdzv_backend, config.rdzv_endpoint, config.run_id) == ("c10d", "h:1", "r")
    assert {name: config.rdzv_configs[name] for name in ("a", "b")} == {"a": "1", "b": "2"}
    assert (config.role, config.start_method, config.monitor_interval) == ("default", "spawn", 0.1)
    assert (config.log_line_prefix_template, config.local_addr) == (None, None)


def test_a_static_rendezvous_knows_its_rank_and_its_timeout() -> None:
    config = config_from_args(parsed("--nnodes=2", "--node-rank=1", "--master-port=1", "train.py"))[0]
    assert (config.rdzv_endpoint, config.rdzv_configs["rank"], config.rdzv_configs["timeout"]) == (
        "127.0.0.1:1",
        1,
        900,
    )


@pytest.mark.parametrize(("nnodes", "expected"), [("3", (3, 3)), ("1:4", (1, 4))])
def test_how_many_nodes(nnodes: str, expected: tuple[int, int]) -> None:
    assert parse_min_max_nnodes(nnodes) == expected


def test_how_many_processes() -> None:
    assert determine_local_world_size("3") == 3


@pytest.mark.parametrize(
    ("what", "names"),
    [
        (
            WorkerSpec,
            "role local_world_size rdzv_handler entrypoint args max_restarts monitor_interval master_addr master_port"
            " local_addr",
        ),
        (LocalElasticAgent, "spec logs_specs start_method log_line_prefix_template"),
        (LaunchConfig, "min_nodes max_nodes nproc_per_node rdzv_endpoint rdzv_backend run_id logs_specs local_addr"),
    ],
)
def test_parameters_that_every_version_knows(what: Any, names: str) -> None:
    wanted = dict.fromkeys(names.split())
    assert torch_compat.supported(what.__init__, **wanted, unheard_of=1) == wanted
