"""What the packaged chart says about where it comes from: a table."""

import pytest
import yaml

from release.chart import repository, with_home
from release.common import CHART

GITHUB = {"GITHUB_SERVER_URL": "https://git.test", "GITHUB_REPOSITORY": "team/operator"}


@pytest.mark.parametrize(
    ("env", "address"),
    [
        pytest.param({}, "", id="nothing is known"),
        pytest.param(GITHUB, "https://git.test/team/operator", id="a workflow"),
        pytest.param({**GITHUB, "REPOSITORY": "https://a.test/b/"}, "https://a.test/b", id="the person's choice"),
    ],
)
def test_a_packaged_chart_names_its_sources(env: dict[str, str], address: str) -> None:
    assert repository(env) == address
    before = (CHART / "Chart.yaml").read_text()
    chart = yaml.safe_load(with_home(before, address))
    expected = {"home": address, "sources": [address]} if address else {}
    assert chart == {**yaml.safe_load(before), **expected}
