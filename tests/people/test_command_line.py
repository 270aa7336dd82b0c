"""What all commands have in common: the index, wrong command lines, errors and exit statuses."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pytorchjob import reference
from pytorchjob.cli import COMMANDS, main
from pytorchjob.cluster.errors import (
    AlreadyExists,
    ApiServerUnreachable,
    ClusterError,
    JobMissing,
    Missing,
    NoCluster,
    NoPermission,
    NotInstalled,
    Rejected,
)
from pytorchjob.commands.completion import candidates
from pytorchjob.commands.options import DURATION
from tests.local.jobs import job, role
from tests.people.calling import call
from tests.people.fake_cluster import FakeCluster, a_job

ROOT = Path(__file__).parents[2]
TINY = json.dumps(job(Worker=role(["true"])))
DIGITS = "examples/digits/pytorchjob.yaml"


@pytest.mark.parametrize(
    ("arguments", "error", "step"),
    [
        pytest.param(["lst"], "There is no command lst. Did you mean list?", "pytorchjob --help", id="a command"),
        pytest.param(["list", "--all-namespace"], "--all-namespaces", "pytorchjob list --help", id="an option"),
        pytest.param(["list", "-o", "jsn"], "'jsn' is not one of 'json'", "pytorchjob list --help", id="a value"),
        pytest.param(["scale", "digits", "many"], "'many' is not an integer.", "scale --help", id="a number"),
        pytest.param(
            ["run", "-f", "x", "--timeout", "x"], "'x' is not a number.", "run --help", id="a number of seconds"
        ),
        pytest.param(["scale", "digits", "0"], "0 is less than 1.", "scale --help", id="too few"),
        pytest.param(["completion"], "Choose from: bash, zsh, fish", "completion --help", id="no choice"),
        pytest.param(["events", "digits", "--types", "x"], "'x' is not one of", "events --help", id="a type"),
        pytest.param(["scale", "digits"], "give the number of workers once", "scale --help", id="something missing"),
        pytest.param(
            ["list", "--as-group", "a"], "--as-group needs --as", "list --help", id="options that need others"
        ),
        pytest.param(["list", "--request-timeout", "soon"], "'soon' is not a duration", "list --help", id="a time"),
        pytest.param(["submit"], "no file is given", "pytorchjob submit --help", id="no file"),
        pytest.param(["delete"], "choose the jobs", "pytorchjob delete --help", id="no job"),
        pytest.param(["exec", "digits"], "Missing argument", "pytorchjob exec --help", id="no command"),
        pytest.param(["port-forward", "digits", "x"], "no port is given", "port-forward --help", id="no port"),
        pytest.param(["port-forward", "digits", "80:x"], "no port is given", "port-forward --help", id="a wrong port"),
        pytest.param(["port-forward", "digits", "a", "1:b"], "'1:b' is not a port", "--help", id="a port in words"),
        pytest.param(["port-forward", "digits", "0:80"], "0 is not a port", "--help", id="the port 0"),
        pytest.param(["port-forward", "digits", "70000"], "70000 is not a port", "--help", id="a port too high"),
        pytest.param(["profile", "digits", "--seconds", "1h"], "expected 1s to", "profile --help", id="an hour"),
        pytest.param(["debug", "digits", "--profile", "x"], "'x' is not one of", "debug --help", id="a profile"),
        pytest.param(["shell", "digits", "a", "--rank", "1"], "exclude each other", "shell --help", id="two pods"),
        pytest.param(["delete", ""], "'' cannot be the name of a job", "pytorchjob delete --help", id="an empty name"),
        pytest.param(["doctor", ""], "'' cannot be the name", "pytorchjob doctor --help", id="an empty optional name"),
        pytest.param(["report", "a/b"], "'a/b' cannot be the name", "pytorchjob report --help", id="a path"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_names_what_was_meant(arguments: list[str], error: str, step: str) -> None:
    result = call(FakeCluster(), *arguments)
    first, last = result.stderr.splitlines()
    assert (result.exit_code, first.startswith("error: "), last.startswith("next: ")) == (2, True, True)
    assert error in first
    assert step in last


def test_no_command_at_all_prints_the_index_and_no_error() -> None:
    result = call(None)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: pytorchjob")


@pytest.mark.parametrize(
    ("arguments", "step"),
    [
        (["suspend", "digits"], "pytorchjob resume digits -n team"),
        (["logs", "digits"], "`pytorchjob status digits -n team` and `pytorchjob events digits -n team` show why"),
        (["exec", "digits", "--", "ls"], "pytorchjob status digits -n team"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_next_step_has_the_namespace_of_this_command(arguments: list[str], step: str) -> None:
    command, *rest = arguments
    result = call(FakeCluster(a_job("digits")), command, "-n", "team", *rest)
    assert f"next: {step}" in result.stderr.splitlines()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ClusterError("x"), 1),
        (AlreadyExists("x"), 1),
        (Rejected("x"), 2),
        (NoCluster("x"), 3),
        (ApiServerUnreachable("x"), 3),
        (NoPermission("x"), 3),
        (NotInstalled("x"), 3),
        (Missing("x"), 4),
        (JobMissing("x"), 4),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_error_has_its_exit_status(error: ClusterError, status: int) -> None:
    cluster = FakeCluster()
    error.remedy = "do that"
    cluster.fail("jobs", error)
    result = call(cluster, "list")
    assert (result.exit_code, result.stderr, result.stdout) == (status, "error: x\nnext: do that\n", "")


def test_an_interruption_ends_with_130() -> None:
    class Interrupted(FakeCluster):
        def jobs(self, selector: str = "", *, all_namespaces: bool = False) -> list[dict[str, object]]:
            raise KeyboardInterrupt

    assert call(Interrupted(), "list").exit_code == 130


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell, in which $P is the command."""
    env = {"PYTHONPATH": str(ROOT / "operator"), "P": f"{sys.executable} -m pytorchjob", "PATH": os.environ["PATH"]}
    return subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize(
    ("line", "status", "error"),
    [
        pytest.param("$P version --client > /dev/full", 1, "error: the output cannot be written: No space", id="full"),
        pytest.param(f"$P plan {DIGITS} > /dev/full", 1, "error: the output cannot be written: No space", id="a plan"),
        pytest.param("$P validate - <&-", 2, "error: standard input is closed", id="standard input is closed"),
        pytest.param(f"$P plan {DIGITS} | head -1", 0, "", id="a reader that has seen enough"),
        pytest.param(f"echo '{TINY}' | $P run -f - 2>&-", 0, "", id="a run without standard error"),
        pytest.param(f"echo '{TINY}' | $P run -f - -o json >&- 2>/dev/null", 0, "", id="a run without an output"),
        pytest.param(f"$P validate {DIGITS} >&-", 0, "", id="standard output is closed"),
    ],
)
def test_input_and_output_that_cannot_be_used_give_no_traceback(line: str, status: int, error: str) -> None:
    done = shell(line)
    assert done.returncode == status
    assert done.stderr.startswith(error)
    assert len(done.stderr.splitlines()) <= 2


def test_a_fault_of_the_command_itself_is_two_lines_with_its_place() -> None:
    class Faulty(FakeCluster):
        def jobs(self, selector: str = "", *, all_namespaces: bool = False) -> list[dict[str, object]]:
            raise TypeError("no")

    result = call(Faulty(), "list")
    first, last = result.stderr.splitlines()
    assert (result.exit_code, first.startswith("error: pytorchjob itself failed: TypeError: no (test_")) == (1, True)
    assert last.startswith("next: open an issue")


def test_an_interruption_before_the_first_line_ends_with_130() -> None:
    code = (
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "import pytorchjob.cli\n"
    )
    done = shell(f"{sys.executable} -c {shlex.quote(code)}")
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_explains_itself(name: str) -> None:
    result = call(None, name, "--help")
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: pytorchjob {name}")


def test_the_index_lists_every_command() -> None:
    listed = re.findall(r"^  ([\w-]+)  ", call(None, "--help").output.partition("Commands:")[2], re.MULTILINE)
    assert listed == sorted(COMMANDS)


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no lines"):
        reference.insert("text")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("30", 30), ("1.5s", 1.5), ("2m", 120), ("1h30m", 5400), ("250ms", 0.25)],
)
def test_durations(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == seconds


@pytest.mark.parametrize(
    ("words", "found"),
    [
        pytest.param(["sub"], ["submit\tCreate the jobs of files in the cluster.", ":4"], id="a command"),
        pytest.param(["submit", "--wa"], ["--watch", ":4"], id="an option"),
        pytest.param(["list", "-o", "y"], ["yaml", ":4"], id="a value"),
        pytest.param(["submit", ""], [":0"], id="a file"),
    ],
)
def test_kubectl_completes_the_plugin(words: list[str], found: list[str]) -> None:
    lines = candidates(main, words)
    assert [line.partition("\t")[0] for line in lines] == [line.partition("\t")[0] for line in found]


def test_a_shell_shows_the_sentence_of_the_index_beside_a_command() -> None:
    assert "status\tShow one screen about a job." in candidates(main, ["stat"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(shell: str) -> None:
    result = call(None, "completion", shell)
    assert (result.exit_code, "_PYTORCHJOB_COMPLETE" in result.output) == (0, True)


def test_the_names_of_jobs_are_completed() -> None:
    cluster = FakeCluster(a_job("digits"), a_job("other"))
    context = main.make_context("pytorchjob", ["suspend"], resilient_parsing=True, obj=lambda options: cluster)
    command = main.get_command(context, "suspend")
    assert command is not None
    inner = command.make_context("suspend", [], parent=context, resilient_parsing=True)
    (argument,) = [parameter for parameter in command.params if parameter.name == "job"]
    assert [item.value for item in argument.shell_complete(inner, "di")] == ["digits"]


def test_the_index_loads_no_library_of_a_cluster() -> None:
    heavy = ("kubernetes", "pydantic", "rich", "urllib3", "yaml", "jsonschema")
    code = f"import sys, pytorchjob.cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "operator")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
