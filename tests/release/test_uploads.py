"""The registry of tests with a folder: an upload in parts lies in a file, and becomes a blob only by its digest."""

import hashlib
import http.client
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.release.conftest import started

pytestmark = pytest.mark.helm
BLOB = b"first part, second part"
DIGEST = "sha256:" + hashlib.sha256(BLOB).hexdigest()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[http.client.HTTPConnection]:
    """A connection to a registry that keeps its blobs in the test's folder."""
    with started("--folder", str(tmp_path)) as address, closing(http.client.HTTPConnection(address)) as connection:
        yield connection


def ask(to: http.client.HTTPConnection, method: str, path: str, body: bytes = b"") -> http.client.HTTPResponse:
    to.request(method, path, body)
    answer = to.getresponse()
    answer.read()
    return answer


def test_an_upload_in_parts_becomes_one_blob(kept: http.client.HTTPConnection, tmp_path: Path) -> None:
    where = ask(kept, "POST", "/v2/team/image/blobs/uploads/").headers["Location"]
    assert ask(kept, "PATCH", where, BLOB[:12]).headers["Range"] == "0-11"
    [part] = tmp_path.glob("upload-*")
    assert part.read_bytes() == BLOB[:12]
    assert ask(kept, "PUT", f"{where}?digest={DIGEST}", BLOB[12:]).status == 201
    assert ask(kept, "HEAD", f"/v2/team/image/blobs/{DIGEST}").headers["Content-Length"] == str(len(BLOB))
    assert not part.exists()


def test_an_upload_with_another_digest_is_refused(kept: http.client.HTTPConnection) -> None:
    where = ask(kept, "POST", "/v2/team/image/blobs/uploads/").headers["Location"]
    assert ask(kept, "PATCH", where, b"other").status == 202
    assert ask(kept, "PUT", f"{where}?digest={DIGEST}").status == 400
    assert ask(kept, "HEAD", f"/v2/team/image/blobs/{DIGEST}").status == 404
