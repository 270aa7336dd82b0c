"""Draws the state machine of rounds from its table: `python -m pytorchjob_operator.rounds.diagram FILE`.

The file keeps its text; what stands between the two markers is replaced. `make generate` calls it.
"""

from pytorchjob_operator.coordinator_report import PhaseName
from pytorchjob_operator.generated import insert_between, rewrite
from pytorchjob_operator.rounds.phases import LEGAL

MARKS = "<!-- diagram: begin (make generate) -->", "<!-- diagram: end -->"


def draw() -> str:
    """Return the machine as a Mermaid state diagram: one arrow for each pair of phases, with all its triggers."""
    arrows: dict[tuple[PhaseName, PhaseName], list[str]] = {}
    for (source, trigger), target in LEGAL.items():
        arrows.setdefault((source, target), []).append(trigger.value)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {PhaseName.WAITING}"]
    lines += [f"    {source} --> {target}: {', '.join(triggers)}" for (source, target), triggers in arrows.items()]
    lines += [f"    {PhaseName.ENDED} --> [*]", "```"]
    return "\n".join(lines)


def table() -> str:
    """Return the machine as a Markdown table."""
    rows = [f"| {source} | {trigger.value} | {target} |" for (source, trigger), target in LEGAL.items()]
    return "\n".join(["| phase | trigger | next phase |", "| --- | --- | --- |", *rows])


def insert(text: str) -> str:
    """Return the page with the present diagram and table. Raises ValueError without the markers."""
    return insert_between(text, MARKS, f"{draw()}\n\n{table()}")


if __name__ == "__main__":
    rewrite(insert)
