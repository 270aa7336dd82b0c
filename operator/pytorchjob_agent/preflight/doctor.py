"""The command `pytorchjob-agent doctor`: prints what the checks found here, and what to do about it."""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace

from pytorchjob_agent.contract.environment import PET_MASTER_ADDR, PET_NNODES, PET_NPROC_PER_NODE, PET_RDZV_ENDPOINT
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_agent.preflight import read_facts
from pytorchjob_agent.preflight.facts import Facts, RunRequest
from pytorchjob_agent.preflight.policy import Finding, Level, run_checks

_HELP = "Checks whether this image, machine and environment are fit for a job: nothing is changed or started."
_JSON_VERSION = 1
_MARKS = {Level.OK: "ok  ", Level.WARN: "WARN", Level.FAIL: "FAIL"}


def main(argv: list[str]) -> int:
    """Look, print, and return 0, or 200 where something fails."""
    args = _parser().parse_args(argv)
    facts = read_facts.facts(_request(args.nproc_per_node), os.environ)
    facts = replace(facts, meeting=read_facts.meeting(os.environ))
    findings = run_checks(facts)
    print(as_json(facts, findings) if args.json else table(findings))
    return ExitCode.PREFLIGHT if any(one.level == Level.FAIL for one in findings) else ExitCode.OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("pytorchjob-agent doctor", description=_HELP)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--nproc-per-node",
        default=os.environ.get(PET_NPROC_PER_NODE) or "1",
        help=f"as for `run`: a number, auto, gpu or cpu (default: {PET_NPROC_PER_NODE}, or 1)",
    )
    return parser


def _request(nproc: str) -> RunRequest:
    env = os.environ
    return RunRequest.of(nproc, env.get(PET_NNODES, ""), bool(env.get(PET_RDZV_ENDPOINT) or env.get(PET_MASTER_ADDR)))


def table(findings: Sequence[Finding]) -> str:
    """Return the findings as lines, each remedy below its problem, and the sum of them."""
    width = max(len(one.check) for one in findings)
    lines = []
    for one in findings:
        lines.append(f"{_MARKS[one.level]}  {one.check:<{width}}  {one.found}")
        lines += [f"{'':<{width + 6}}  -> {one.remedy}"] if one.remedy else []
    failures, warnings = (sum(one.level == level for one in findings) for level in (Level.FAIL, Level.WARN))
    return "\n".join(
        [*lines, "", f"{failures} failed, {warnings} to look at, {len(findings) - failures - warnings} ok"]
    )


def as_json(facts: Facts, findings: Sequence[Finding]) -> str:
    """Return the versions, the time and the findings as one JSON object."""
    torch = facts.torch
    versions = {"python": facts.python, "torch": torch.version, "cuda": torch.cuda, "nccl": torch.nccl}
    found = [asdict(finding) for finding in findings]
    report = {"versions": versions, "clock": facts.clock, "findings": found, "version": _JSON_VERSION}
    return json.dumps(report, ensure_ascii=False)
