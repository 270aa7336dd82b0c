"""A real Prometheus on this machine. It scrapes a test's targets every second and answers expressions."""

import json
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest
import yaml

from tests.apiserver.cluster import BIN
from tests.ports import free_port
from tests.processes import start
from tests.waiting import until

_LIMIT = 10


class Target(NamedTuple):
    """A target of a scrape job: its name, its address, and the labels that the Prometheus operator would add."""

    job: str
    address: str
    labels: dict[str, str]
    honor_labels: bool = False


def program(name: str) -> Path:
    """Path of prometheus or promtool; a missing program fails the test."""
    if not (BIN / name).is_file():
        pytest.fail(f"{name} not found in {BIN}: run `make binaries-tests` first", pytrace=False)
    return BIN / name


class Prometheus:
    """A Prometheus process. It ends with the process of the test at the latest."""

    def __init__(self, directory: Path, rules: Path, *targets: Target) -> None:
        self._url = f"127.0.0.1:{free_port()}"
        self._log = directory / "prometheus.log"
        config = directory / "prometheus.yml"
        config.write_text(yaml.safe_dump(_config(rules, targets)))
        options = (
            f"--config.file={config}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={self._url}",
        )
        self._process = start([program("prometheus"), *options], self._log)
        until(self._ready, story=lambda: self.log[-3000:])

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The series of an expression now; an invalid one fails the test."""
        answer = self._get(f"/api/v1/query?{urllib.parse.urlencode({'query': expr})}")
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def query_range(self, expr: str, seconds: int = 60) -> list[dict[str, Any]]:
        """The series of an expression over the last seconds, each with its values."""
        now = float(self._get("/api/v1/query?query=time()")["data"]["result"][1])
        asked = {"query": expr, "start": now - seconds, "end": now, "step": 1}
        result: list[dict[str, Any]] = self._get(f"/api/v1/query_range?{urllib.parse.urlencode(asked)}")["data"][
            "result"
        ]
        return result

    def rules(self) -> list[dict[str, Any]]:
        """Every alert: its name, its health, its last error."""
        groups = self._get("/api/v1/rules")["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def firing(self) -> set[tuple[str, str]]:
        """The name of each firing alert, with its job if it has one."""
        alerts = self._get("/api/v1/alerts")["data"]["alerts"]
        firing = [alert["labels"] for alert in alerts if alert["state"] == "firing"]
        return {(labels["alertname"], labels.get("pytorchjob", "")) for labels in firing}

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _ready(self) -> bool:
        assert self._process.poll() is None, self.log[-3000:]
        try:
            with urllib.request.urlopen(f"http://{self._url}/-/ready", timeout=_LIMIT):
                return True
        except OSError:
            return False

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self._url}{path}", timeout=_LIMIT) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


class Exporter:
    """Serves metrics. Each scrape calls `text`."""

    def __init__(self, text: Callable[[], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _config(rules: Path, targets: tuple[Target, ...]) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {
                "job_name": target.job,
                "honor_labels": target.honor_labels,
                "static_configs": [{"targets": [target.address], "labels": target.labels}],
            }
            for target in targets
        ],
    }
