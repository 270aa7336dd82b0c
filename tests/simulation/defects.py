"""Defects that we or torch once had, planted one by one: the simulation has to find each of them.

A defect is a change of one place in the source. It is applied to a copy, in which a child process runs the simulation.
`python -m tests.simulation.defects` prints the table of tests/simulation/README.md.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = Path(__file__).with_name("README.md")
SEEDS = 2000
"""How many schedules a defect may survive."""
AGENT, ROUNDS = "pytorchjob_agent/rendezvous", "pytorchjob_operator/rounds"


@dataclass(frozen=True)
class Defect:
    """One change, and where it was seen."""

    name: str
    seen: str
    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Found:
    """What the simulation made of a source."""

    seed: int | None
    """The first schedule that failed; None: all passed."""
    problem: str
    schedules: int


DEFECTS = [
    Defect(
        "a text too long for the wire",
        "ours: the operator sent reasons over 1,024 characters, and agents dropped the connection",
        "pytorchjob_agent/contract/fields.py",
        "_clean(cut(value, limit, keep_end=keep_end))",
        "value",
    ),
    Defect(
        "a command of an older round is obeyed",
        "ours: a late Restart of a finished round ended the next one",
        f"{AGENT}/inbox.py",
        "restart = inbox.restart if inbox.restart is not None and inbox.restart.round >= id_ else None",
        "restart = inbox.restart",
    ),
    Defect(
        "members agree on a round that the coordinator has superseded",
        "ours: the coordinator ended a later round, and two members continued the old one",
        f"{AGENT}/waiting.py",
        "if last != waiting.join.round:",
        "if False:",
    ),
    Defect(
        "the address of the old rank 0 is kept",
        "torch: pytorch#182375, survivors keep the dead node's MASTER_ADDR",
        f"{AGENT}/agreement.py",
        "master_address=host.address,\n        master_port=host.port,",
        "master_address=old.master_address,\n        master_port=old.master_port,",
    ),
    Defect(
        "a member opens the store of a later round",
        "ours: rank 0 keeps its port, so a member of a superseded round met the next round's store there",
        f"{AGENT}/agreement.py",
        "return store.read(_OPENED, 0) is not None",
        "return True",
    ),
    Defect(
        "a group that is cut off trains on",
        "ours: a whole group without the coordinator trained for ever beside its replacements",
        f"{AGENT}/decide.py",
        "if snapshot.cut_off:",
        "if False:",
    ),
    Defect(
        "a group that was cut off agrees on another round",
        "ours: members that had ended their workers, and were reached again, went on beside their replacements",
        f"{AGENT}/contact.py",
        "self._cut_off = self._cut_off or self.seconds(now) >= fence_seconds",
        "self._cut_off = self.seconds(now) >= fence_seconds",
    ),
    Defect(
        "some members agree without the others",
        "ours: rank 0 opened the agreed round before all members had offered",
        f"{AGENT}/agreement.py",
        "has_all(names, ranks)",
        'has_all(["again/0"], [0])',
    ),
    Defect(
        "the standing is not sent again",
        "ours: a Join that was lost with its connection was never repeated",
        f"{AGENT}/session.py",
        "return [*(message for message in self.standing.then if message not in unsent), *unsent]",
        "return unsent",
    ),
    Defect(
        "an agent that hears no other process trains on",
        "torch: pytorch#111646, a partitioned node is never noticed",
        f"{AGENT}/decide.py",
        "if snapshot.away >= ALONE_SECONDS and snapshot.silence >= ALONE_SECONDS:",
        "if False:",
    ),
    Defect(
        "a forgotten budget",
        "ours: a restart after a failure was not counted",
        f"{ROUNDS}/rendezvous.py",
        "transition.state = replace(transition.state, restarts=state.restarts + 1)",
        "pass",
    ),
    Defect(
        "a new leader forgets the budget",
        "ours: the count of restarts was lost with the leader",
        f"{ROUNDS}/arrivals.py",
        "restarts = believed_restarts(transition.state, message.restarts)",
        "restarts = transition.state.restarts",
    ),
    Defect(
        "a new leader forgets the failures between two rounds",
        "ours: a failure that the former leader had not counted yet was never counted (maxRestarts 2, eight failures)",
        f"{ROUNDS}/arrivals.py",
        "if ended is None or not message.rank < message.size or",
        "if True or",
    ),
    Defect(
        "a new leader counts before the members of the last round have connected",
        "ours: the first member to connect had only an echo, and the failure itself came later",
        f"{ROUNDS}/rendezvous.py",
        "if last is None or not last.adopted or transition.now - last.started_at >= awaited.ADOPTED_SECONDS:",
        "if True:",
    ),
    Defect(
        "a new leader takes a consequence for a failure",
        "ours: the former leader had ended the round because of a lost member, and only it knew",
        f"{AGENT}/decide.py",
        "caused=inbox.restart.caused",
        "caused=False",
    ),
    Defect(
        "an agent that was cut off hides why its round ended",
        "ours: its peers reported the failures of their workers before its Join, which cost a restart",
        f"{AGENT}/decide.py",
        'was heard for {snapshot.silence:.0f} s"\n        return Step(StepKind.REGROUP, reason, caused=True)',
        'was heard for {snapshot.silence:.0f} s"\n        return Step(StepKind.REGROUP, reason)',
    ),
    Defect(
        "restarts are counted per agent",
        "torch: each agent counts its own restarts, so workers disagree (TORCHELASTIC_RESTART_COUNT)",
        f"{ROUNDS}/formation.py",
        "restarts=transition.state.restarts,\n                past_failures",
        "restarts=transition.state.restarts if rank == 0 else 0,\n                past_failures",
    ),
    Defect(
        "what fails after a loss costs a restart",
        "ours: the crash of a worker whose peer was lost counted as a failure",
        f"{ROUNDS}/rendezvous.py",
        "return (away or phase.origin is Origin.MAYBE_LOSS) and budget.may_be_consequence(budget.root_cause(failures))",
        "return False",
    ),
    Defect(
        "an echo is stamped with the current time",
        "ours: a peer's old report counted as new, and a dead pod as cut off from the coordinator alone",
        f"{AGENT}/agreement.py",
        "if new is not None and new > old:",
        "if old or new:",
    ),
    Defect(
        "a report counts from its arrival",
        "ours: peers reported for two seconds a member that had died, and the coordinator took it for cut off",
        f"{ROUNDS}/running.py",
        "max(transition.now - age / 10, ",
        "max(transition.now, ",
    ),
    Defect(
        "a report counts more than a heartbeat's delay after a silence",
        "ours: the allowance for late reports was shorter than their age",
        f"{ROUNDS}/losses.py",
        "(0.0 if member.lost_at is not None else HEARTBEAT_SECONDS)",
        "0.0",
    ),
    Defect(
        "a frozen agent is never replaced",
        "ours: its job waited for it for ever: its pod was ready on a healthy node",
        f"{ROUNDS}/losses.py",
        "if _is_pod_of(transition.state, member.index, member.pod_uid):",
        "if False:",
    ),
    Defect(
        "an agent that is frozen when the leader changes is never replaced",
        "ours: the new leader had never heard it, so it did not miss it",
        f"{ROUNDS}/absent.py",
        "if 0 < len(absent) <= unknown and",
        "if False and",
    ),
    Defect(
        "round ids restart",
        "ours: after the Lease was deleted, terms began again and agents dropped every round",
        f"{ROUNDS}/formation.py",
        "return own if last is None or own > last else last.next()",
        "return own",
    ),
    Defect(
        "a late join ends a running round",
        "ours: a Join that crossed its Assigned ended the round that had just begun",
        f"{ROUNDS}/running.py",
        "and message.round is not None and message.round < round_.id:",
        "and False:",
    ),
    Defect(
        "the last call is forgotten",
        "torch: a first round without the pods that start a moment later (last_call_timeout)",
        f"{ROUNDS}/awaited.py",
        "return first if phase.unsure else policy.rejoin_timeout",
        "return 0.0",
    ),
    Defect(
        "a former pod is let in",
        "ours: the agent of a replaced pod came back and took the place of its successor",
        f"{ROUNDS}/arrivals.py",
        "if uid and message.pod_uid and uid != message.pod_uid:",
        "if False:",
    ),
    Defect(
        "success although a member is not done",
        "ours: the job succeeded when the first member was done",
        f"{ROUNDS}/running.py",
        "or not finished.issuperset(ranks - {None})",
        "or not finished",
    ),
    Defect(
        "members are blamed for the coordinator's sleep",
        "ours: a leader that stood still for seconds took all members for lost",
        f"{ROUNDS}/losses.py",
        "if state.checked_at == 0.0 or gap <= SLEEP_SECONDS:",
        "if True:",
    ),
    Defect(
        "a second group while the first may still train",
        "ours: members that waited formed a round while the old one was only out of sight",
        f"{ROUNDS}/awaited.py",
        "if (last := phase.last_round) is None:\n        return False",
        "if True:\n        return False",
    ),
    Defect(
        "a pod that terminates is taken for a pod that is gone",
        "ours: the operator left terminating pods out, so a group began beside a frozen agent's workers",
        f"{ROUNDS}/awaited.py",
        "transition.state.terminating.get(index) != uid and ",
        "",
    ),
    Defect(
        "the count of a failure dies with its leader",
        "ours: those that go on had the count of the round's beginning",
        f"{AGENT}/session.py",
        "hello = replace(hello, restarts=shrink.restarts, past_failures=shrink.past_failures)",
        "pass",
    ),
    Defect(
        "a round goes on without rank 0",
        "ours: its agent hosts the store in which the others agree",
        f"{ROUNDS}/shrink.py",
        "if round_.ranks[0] == lost.index:",
        "if False:",
    ),
    Defect(
        "a round goes on with too few members",
        "ours: minReplicas would mean nothing",
        f"{ROUNDS}/shrink.py",
        "if len(phase.round.present) <= state.policy.min_members:",
        "if False:",
    ),
    Defect(
        "a member is still on its way back into a round that has changed otherwise",
        "ours: the others would form two different groups",
        f"{ROUNDS}/shrink.py",
        "changes=changes, entry=None)",
        "changes=changes)",
    ),
    Defect(
        "a member on its way back outlives its round",
        "ours: nobody would take it in, and its replica would be missing",
        f"{ROUNDS}/rendezvous.py",
        "    shrink.stop_entering(transition, round_, reason)\n",
        "",
    ),
]


def plant(defects: Sequence[Defect], folder: Path) -> None:
    """Copy the source with what is compiled of it, and change it."""
    shutil.copytree(ROOT / "operator", folder)
    for defect in defects:
        path = folder / defect.file
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()
        text = path.read_text()
        assert text.count(defect.old) == 1, f"{defect.name}: its old text is not in {defect.file} exactly once"
        path.write_text(text.replace(defect.old, defect.new))


def simulate(defects: Sequence[Defect], seeds: int = SEEDS, jobs: int = 2, recorded: int | None = None) -> Found:
    """Run schedules with these defects until one fails: first the recorded seed, then from seed 0 on."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "operator"
        plant(defects, source)
        if recorded is not None and (found := _run(source, recorded, 1, 1)).seed is not None:
            return found
        return _run(source, 0, seeds, jobs)


def _run(source: Path, first: int, seeds: int, jobs: int) -> Found:
    env = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    options = {"--first": first, "--seeds": seeds, "--jobs": jobs}
    command = [sys.executable, "-m", "tests.simulation", *(str(word) for pair in options.items() for word in pair)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=1800, check=False)
    failed = re.search(r"^seed (\d+): (.*)$", done.stdout, re.MULTILINE)
    count = re.search(r"^(\d+) schedules in", done.stdout, re.MULTILINE)
    assert count is not None, done.stdout + done.stderr
    assert (done.returncode != 0) == (failed is not None), done.stdout + done.stderr
    return Found(int(failed[1]) if failed else None, failed[2] if failed else "", int(count[1]))


def recorded_seeds() -> dict[str, int]:
    """Return the seed by which each defect was found, from the table of README.md."""
    rows = [re.split(r" \| ", line.strip("| ")) for line in README.read_text().splitlines()]
    names = {defect.name for defect in DEFECTS}
    return {row[0]: int(row[-2]) for row in rows if row[0] in names and row[-2].isdigit()}


def main() -> None:
    """Print the table, and beside it what found each defect."""
    print("| defect | first seed | schedules |\n| --- | --- | --- |")
    for defect in DEFECTS:
        found = simulate([defect])
        seed = "**not found**" if found.seed is None else found.seed
        print(f"| {defect.name} | {seed} | {found.schedules} |", flush=True)
        print(f"{defect.name}: {found.problem[:110]}", file=sys.stderr)


if __name__ == "__main__":
    main()
