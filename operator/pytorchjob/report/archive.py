"""From what was read to the archive: first the secrets go, then the texts are made of what is left.

The other way round a screen that cuts a line could leave half a secret.
"""

import gzip
import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from pytorchjob.report import fields
from pytorchjob.report.redaction import Redaction, count_markers, marker
from pytorchjob.report.sources import ReportSources, everything
from pytorchjob.screen import colour, doctor, plain
from pytorchjob.screen.colour import StyledLine
from pytorchjob.screen.status import status_lines
from pytorchjob.view import reading
from pytorchjob.view.job_view import make_job_view
from pytorchjob.view.seen import Seen

MANIFEST = "manifest.json"
_NEVER = {
    "Secrets and ConfigMaps": "never read",
    "values of environment variables": "none of an object is included",
    "fields of objects that are not listed": "'[redacted: not listed]' stands in their place",
}


def make_files(sources: ReportSources, client_version: str) -> dict[str, str]:
    """Return the files of a report by their names, without secrets; the manifest is the first."""
    redaction = Redaction()
    for source in everything(sources):
        redaction.learn(source)
    clean = redaction.clean
    seen, deep = _cleaned(sources.seen, redaction), _cleaned(sources.deep, redaction)
    versions = {"client": client_version, **sources.versions}
    texts = {
        "job.yaml": _yaml(clean(_listed(sources.seen.job, fields.JOB))),
        "pods.yaml": _yaml(_list(clean(_listed(sources.pods, fields.POD)))),
        "services.yaml": _yaml(_list(clean(_listed(sources.services, fields.SERVICE)))),
        "events.yaml": _yaml(_list(clean(_listed(sources.events, fields.EVENT)))),
        "events.txt": _events(clean(sources.events)),
        "status.txt": _text(status_lines(make_job_view(seen))),
        "doctor.txt": _text(doctor.job_lines(make_job_view(deep))),
        "versions.txt": "".join(f"{name}: {version}\n" for name, version in versions.items()),
        **sources.logs,
    }
    files = {clean(name): clean(text) if _is_text(name) else text for name, text in texts.items() if text}
    manifest = {
        "job": f"{seen.namespace}/{seen.name}",
        "made": seen.now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "versions": clean(versions),
        "files": {name: len(text.encode()) for name, text in files.items()},
        "leftOut": {**_NEVER, **clean(sources.left_out)},
        "redacted": count_markers(files.values()),
    }
    return {MANIFEST: json.dumps(manifest, indent=4, ensure_ascii=False) + "\n", **files}


def pack(folder: str, files: Mapping[str, str], seconds: float) -> bytes:
    """Return a tar.gz with these files in a folder; `seconds`: their time since 1970."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=seconds) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name, text in files.items():
            data = text.encode()
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size, info.mtime = len(data), int(seconds)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _is_text(name: str) -> bool:
    """Whether a file is no object that has been cleaned already."""
    return not name.endswith(".yaml")


def _listed(value: Any, tree: fields.Tree) -> Any:
    return fields.listed(value, tree, marker(fields.NOT_LISTED))


def _cleaned(seen: Seen, redaction: Redaction) -> Seen:
    """Return the snapshot without secrets. Nodes and the operator's definition hold none of the user's."""
    clean = redaction.clean
    return replace(
        seen,
        job=clean(seen.job),
        pods=clean(seen.pods),
        events=clean(seen.events),
        workloads=clean(seen.workloads),
        claims={name: clean(claim) for name, claim in seen.claims.items()},
        logs=clean(seen.logs),
        last_lines=clean(seen.last_lines),
        operator=replace(seen.operator, deployments=clean(seen.operator.deployments), v1=clean(seen.operator.v1)),
    )


def _list(items: Sequence[Any]) -> Any:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)} if items else None


def _yaml(body: Any) -> str:
    """Return an object as YAML; no value is broken over lines."""
    return str(yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=1 << 20)) if body else ""


def _text(lines: Iterable[StyledLine]) -> str:
    return f"{colour.plain(lines)}\n"


def _events(events: Sequence[Any]) -> str:
    timed = [(f"{reading.event_time(event) or '-'}", event) for event in events]
    return plain.events(timed) + "\n" if timed else ""
