"""120 secrets of many shapes, planted in a job, its events, its logs and kubeconfigs: none of them is in the archive.

Each secret is made of pieces, so that no scanner takes this file for a leak.
"""

import base64
import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from pytorchjob.report.redaction import Redaction
from tests.people.calling import call
from tests.people.fake_cluster import FakeCluster, a_job, a_pod, an_event

_NUMBERS = count(1)


def body(length: int = 32, letters: str = "abcXYZ019kQ7wLm") -> str:
    """Letters and digits that occur once in this file."""
    number = next(_NUMBERS)
    return f"{number:03d}z" + "".join(letters[(at * (number + 1) + at // 3) % len(letters)] for at in range(length - 4))


PREFIXES = (
    *("glpat-", "xoxb-", "xoxp-", "xapp-", "sk-proj-", "sk-ant-api03-", "AIza", "ya29.", "GOCSPX-", "npm_", "pypi-"),
    *("dckr_pat_", "nvapi-", "sk_live_", "rk_live_", "wandb_v1_", "SG.", "hvs.", "hvb.", "AGE-SECRET-KEY-", "gsk_"),
    *("r8_", "xai-", "pplx-", "tskey-", "glsa_", "dop_v1_", "shpat_", "lin_api_", "ntn_", "ATATT3", "NRAK-"),
    *("sntrys_", "pul-", "figd_", "key-", "ops_", "ghp_", "gho_", "ghu_", "ghs_", "github_pat_"),
)
HOOKS = (
    *("hooks.slack.com/services/T0/B0/", "hooks.slack.com/workflows/", "discord.com/api/webhooks/1/"),
    *("discordapp.com/api/webhooks/2/", "acme.webhook.office.com/webhookb2/", "chat.googleapis.com/v1/spaces/A?key="),
)
ASSIGNED = (
    *("GITLAB_PAT={}", "JWT={}", "--api-key {}", "--hf-token={}", "proxy_password: {}", "STORAGE_KEY={}", "TOKEN\t{}"),
    *("PASSWORD={}", "password: {}", "DB_PASSWORD='{}'", "HF_TOKEN={}", "api_key = {}", '"client_secret": "{}"'),
    *("--token {}", "--password={}", "export WANDB_API_KEY={}", "MYSQL_PWD={}", "PGPASSWORD={} psql", "AccountKey={};"),
    *(
        "SharedAccessKey={}",
        "?sv=2024&sig={}",
        "aws_secret_access_key = {}",
        "private_key: {}",
        "secret={}",
        "SENTRY_DSN={}",
    ),
    *("PASSWORD\t{}", "DB_TOKEN\t\t{}", "SECRET    {}", "token\t{}", "X-Api-Key: {}", "Authorization: Bearer {}"),
    *("Authorization: Basic {}", "Cookie: session={}", "PRIVATE-TOKEN: {}", "bearer {}", "Basic {}", "auth basic {}"),
    *(
        "curl -u ann:{} https://x",
        "curl --user ann:{} x",
        "wget --proxy-user ann:{}",
        "machine h login ann password {}",
    ),
    *("default login ann password {}", "sshpass -p {} ssh h", "mysql -u root -p{} db", "redis-cli -h h -a {}"),
    *("https://ann:{}@host/x", "postgres://u:{}@db:5432/x", "redis://:{}@r", "amqp://u:{}@q", "git+https://{}@h/r"),
    *("s3_secret_key={}", "passphrase: {}", "MINIO_SECRET_KEY={}", "REGISTRY_AUTH={}", "jdbc:x;password={}"),
)


def planted() -> Iterator[tuple[str, str]]:
    """Texts, and the secret in each."""
    yield from ((f"uses {prefix}{(secret := body())} now", secret) for prefix in PREFIXES)
    yield from ((f"post to https://{hook}{(secret := body())}", secret) for hook in HOOKS)
    yield from ((form.format(secret := body()), secret) for form in ASSIGNED)
    yield "hf " + "hf_" + (secret := body()), secret
    for kind in ("AKIA", "ASIA"):
        yield f"id {kind}{(secret := body(16, 'ABCDE2345').upper())}", secret
    yield f"uses dapi{(secret := body(32, '0123456789abcdef').replace('z', 'a'))}", secret
    yield f"bot 1234567890:AA{(secret := body(33))}", secret
    yield f"azure abc8Q~{(secret := body(34))}", secret
    for head in ({"alg": "HS256"}, {"alg": "RS256", "typ": "JWT"}):
        encoded = base64.urlsafe_b64encode(json.dumps(head).encode()).decode().rstrip("=")
        yield f"jwt {encoded}.{(secret := body())}.{body()}", secret
    for kind in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "):
        secret = body(60)
        begin, end = (f"-----{word} {kind}PRIVATE KEY-----" for word in ("BEGIN", "END"))
        yield f"{begin}\n{secret}\n{end}", secret
    begin, end = (f"-----{word} PGP PRIVATE KEY BLOCK-----" for word in ("BEGIN", "END"))
    yield f"{begin}\n{(secret := body(60))}\n{end}", secret
    user = f"apiVersion: v1\nkind: Config\nusers:\n- name: me\n  user:\n    token: {body()}\n"
    data = base64.b64encode(f"-----BEGIN EC PRIVATE KEY-----\n{body(60)}\n-----END".encode()).decode()
    for text in (
        user,
        f"kind: Config\nusers:\n- user:\n    client-key-data: {data}\n",
        json.dumps({"auths": {"r": {"auth": body()}}}),
        f"DB_HOST=db\nDB_PASSWORD={body()}\n",
    ):
        encoded = base64.b64encode(text.encode()).decode()
        yield f"kubeconfig {encoded}", encoded[40:72]
    yield f"    client-key-data: {data}", data[24:60]


PLANTED = list(planted())
NAMES = [text[:24].encode("unicode-escape").decode() for text, _ in PLANTED]


def test_there_are_enough() -> None:
    assert len(PLANTED) >= 120
    assert len({secret for _, secret in PLANTED}) == len(PLANTED)


@pytest.mark.parametrize(
    ("text", "secret"), PLANTED, ids=[text[:24].encode("unicode-escape").decode() for text, _ in PLANTED]
)
def test_no_shape_stays_in_a_line_of_a_log(text: str, secret: str) -> None:
    cleaned = Redaction().clean(f"first line\n{text}\nlast line")
    assert secret not in cleaned
    assert cleaned.startswith("first line\n")
    assert cleaned.endswith("\nlast line")


def everywhere(texts: Sequence[str]) -> FakeCluster:
    """A job with these texts in each place where a user's words can be."""
    container = {
        "name": "pytorch",
        "image": "train:1",
        "args": list(texts),
        "env": [
            *({"name": f"SETTING_{number}", "value": text} for number, text in enumerate(texts)),
            {"name": "REF", "valueFrom": {"secretKeyRef": {"name": "hf", "key": texts[0]}}},
        ],
        "envFrom": [{"secretRef": {"name": text}} for text in texts],
        "livenessProbe": {"httpGet": {"path": "/", "httpHeaders": [{"name": "X", "value": text} for text in texts]}},
        "volumeMounts": [{"name": "data", "mountPath": text} for text in texts],
    }
    volumes = [
        *({"name": "data", "csi": {"driver": "d", "volumeAttributes": {"a": text}}} for text in texts),
        *({"name": "data", "flexVolume": {"options": {"a": text}}} for text in texts),
        *({"name": "tls", "secret": {"secretName": text}} for text in texts),
        *({"name": "set", "configMap": {"name": text}} for text in texts),
    ]
    spec = {"containers": [container], "volumes": volumes, "nodeSelector": dict(zip(texts, texts, strict=True))}
    notes = {
        f"{domain}note-{number}": text for number, text in enumerate(texts) for domain in ("", "x.k8s.io/", "a.b/")
    }
    meta = {"annotations": notes, "labels": notes}
    job = a_job(pytorchReplicaSpecs={"Master": {"replicas": 1, "template": {"metadata": meta, "spec": spec}}})
    job["metadata"] |= meta
    job["spec"]["agent"] = {"hang": {"logRules": [{"name": "a", "pattern": text} for text in texts]}}
    job["status"]["conditions"][0]["message"] = " ".join(texts)
    pod = a_pod("digits", "master-0")
    pod["metadata"] |= {"annotations": notes}
    pod["spec"] |= spec
    pod["status"]["message"] = "\n".join(texts)
    cluster = FakeCluster(job, pod, *(an_event("digits", "Created", text) for text in texts))
    cluster.write("digits-master-0", *(line for text in texts for line in text.split("\n")))
    return cluster


def files_of(cluster: FakeCluster, target: Path, *arguments: str) -> dict[str, str]:
    assert call(cluster, "report", "digits", "-o", target, *arguments).exit_code == 0
    with tarfile.open(fileobj=io.BytesIO(target.read_bytes())) as tar:
        return {each.name: tar.extractfile(each).read().decode() for each in tar}  # type: ignore[union-attr]


def test_none_of_them_is_in_the_archive(tmp_path: Path) -> None:
    files = files_of(everywhere([text for text, _ in PLANTED]), tmp_path / "report.tar.gz")
    found = [(name, text) for name, content in files.items() for text, secret in PLANTED if secret in content]
    assert found == []


def test_a_value_of_a_variable_is_in_no_object_whatever_it_looks_like(tmp_path: Path) -> None:
    job, pod = a_job(), a_pod("digits", "master-0")
    values = ["a plain word", "12345", "/mnt/data", "", "$(OTHER)"]
    container = {"name": "pytorch", "env": [{"name": f"S{at}", "value": value} for at, value in enumerate(values)]}
    job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"] = [container]
    pod["spec"]["containers"] = [container]
    files = files_of(FakeCluster(job, pod), tmp_path / "report.tar.gz", "--no-logs")
    for name in ("digits-report/job.yaml", "digits-report/pods.yaml"):
        assert [value for value in values if value and value in files[name]] == []
        assert files[name].count("not listed") >= len(values)
        assert "S4" in files[name]


@pytest.mark.parametrize(
    "text",
    [
        "Basic training starts",
        "basic usage of the library",
        "python train.py -u --user ann",
        "the token   count grows",
        "step 3  loss 0.25  accuracy 0.91",
        "checkpoint sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "/mnt/data/checkpoints/step-000123/shard-00001-of-00008/model.safetensors",
        "see https://docs.python.org/3/library/default login",
        "model task-specific-fine-tuned-checkpoint-of-stage-2",
    ],
)
def test_ordinary_lines_stay(text: str) -> None:
    assert Redaction().clean(text) == text
