"""What a person types next to follow a job: the same advice from every command."""


def follow_output(job: str, namespace: str = "") -> str:
    """Return the command that prints what all ranks print, until the job ends; an empty namespace is the chosen one."""
    return f"{_logs(job, namespace)} -f"


def read_output(job: str, namespace: str = "") -> str:
    """Return the command for the end of what all ranks have printed."""
    return f"{_logs(job, namespace)} --tail 20"


def follow_progress(job: str, namespace: str = "") -> str:
    """Return the command that shows steps, speed and remaining time, until the job ends."""
    return f"pytorchjob progress {job}{_in(namespace)}"


def show_status(job: str, namespace: str = "") -> str:
    """Return the command for the screen of a job."""
    return f"pytorchjob status {job}{_in(namespace)}"


def _logs(job: str, namespace: str) -> str:
    return f"pytorchjob logs {job}{_in(namespace)}"


def _in(namespace: str) -> str:
    return f" -n {namespace}" if namespace else ""
