"""The command `pytorchjob-agent doctor`: prints what the checks found on this machine, and the fixes."""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace

from pytorchjob_agent.contract.environment import PET_MASTER_ADDR, PET_NNODES, PET_NPROC_PER_NODE, PET_RDZV_ENDPOINT
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_agent.preflight import read_facts
from pytorchjob_agent.preflight.facts import Facts, RunRequest
from pytorchjob_agent.preflight.policy import CheckLevel, PreflightFinding, run_checks

_HELP = "Checks whether this image, machine and environment are fit for a job. It changes and starts nothing."
_JSON_VERSION = 1
_MARKS = {CheckLevel.OK: "ok  ", CheckLevel.WARN: "WARN", CheckLevel.FAIL: "FAIL"}


def main(argv: list[str]) -> int:
    """Run the checks, print the findings; returns 0, or 200 if a check fails."""
    args = _parser().parse_args(argv)
    facts = read_facts.facts(_request(args.nproc_per_node), os.environ)
    facts = replace(facts, endpoint=read_facts.endpoint(os.environ))
    findings = run_checks(facts)
    print(as_json(facts, findings) if args.json else table(findings))
    return ExitCode.PREFLIGHT if any(finding.level == CheckLevel.FAIL for finding in findings) else ExitCode.OK


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


def table(findings: Sequence[PreflightFinding]) -> str:
    """Return the findings as lines, each fix below its problem, and their numbers."""
    width = max(len(finding.check) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{_MARKS[finding.level]}  {finding.check:<{width}}  {finding.found}")
        lines += [f"{'':<{width + 6}}  -> {finding.remedy}"] if finding.remedy else []
    failed, warned = (
        sum(finding.level == level for finding in findings) for level in (CheckLevel.FAIL, CheckLevel.WARN)
    )
    warnings = "1 warning" if warned == 1 else f"{warned} warnings"
    return "\n".join([*lines, "", f"{failed} failed, {warnings}, {len(findings) - failed - warned} ok"])


def as_json(facts: Facts, findings: Sequence[PreflightFinding]) -> str:
    """Return the versions, the time and the findings as one JSON object."""
    torch = facts.torch
    versions = {"python": facts.python, "torch": torch.version, "cuda": torch.cuda, "nccl": torch.nccl}
    found = [asdict(finding) for finding in findings]
    report = {"versions": versions, "clock": facts.clock, "findings": found, "version": _JSON_VERSION}
    return json.dumps(report, ensure_ascii=False)
