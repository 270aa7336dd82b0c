"""What is a secret, and what is not: tables of values and texts."""

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest

from pytorchjob.report.redaction import Redaction, count_markers
from pytorchjob.report.secrets import is_secret_name

PEM = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEowIBAAKCAQEAx7Jq9fYc0aQ3ZkR1\n" * 3 + "-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl"
VALUE = "correct-horse-7"


def cleaned(text: Any, *sources: Any) -> Any:
    """The text without secrets, after these sources were read."""
    redaction = Redaction()
    for source in (*sources, text):
        redaction.learn(source)
    found = redaction.clean(text)
    assert redaction.clean(found) == found, "what was cleaned once stays as it is"
    return found


def env(name: str, value: str) -> dict[str, Any]:
    return {"env": [{"name": name, "value": value}]}


@pytest.mark.parametrize(
    "name",
    [
        "TOKEN",
        "HF_TOKEN",
        "hfToken",
        "API_KEY",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "DBPASSWORD",
        "MYSQL_PWD",
        "CLIENT_SECRET",
        "GOOGLE_CREDENTIALS",
        "SSH_KEY_PASSPHRASE",
        "REGISTRY_AUTH",
        "SLACK_WEBHOOK",
        "TOKEN_FOR_ANN",
    ],
)
def test_a_variable_of_this_name_is_a_secret(name: str) -> None:
    assert is_secret_name(name)
    found = cleaned(env(name, VALUE))
    assert found["env"][0]["value"] == "[redacted: variable]"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RANK", "123"),
        ("PWD", "/workspace"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MAX_TOKENS", "2048"),
        ("NUM_TOKENS", "4096"),
        ("PAD_TOKEN", "<pad>"),
        ("MONKEY", "george"),
        ("KEYBOARD", "german"),
        ("USE_TOKEN", "true"),
        ("API_KEY", "$(OTHER_KEY)"),
        ("AUTHOR", "ann lee"),
        ("COMPASS", "north"),
    ],
)
def test_a_variable_without_a_secret_stays(name: str, value: str) -> None:
    assert cleaned(env(name, value)) == env(name, value)


SHAPES = [
    pytest.param("Bearer abcdef.ghijkl", "abcdef.ghijkl", id="a bearer token"),
    pytest.param("authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz", id="basic authentication"),
    pytest.param("'Cookie': 'session=zzz; id=q'", "session=zzz", id="a cookie"),
    pytest.param("key AKIAIOSFODNN7EXAMPLE used", "AKIAIOSFODNN7EXAMPLE", id="an AWS access key"),
    pytest.param("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI/K7MDENG", id="an AWS secret key"),
    pytest.param("login hf_abcdefGHIJ0123456789 ok", "hf_abcdefGHIJ0123456789", id="Hugging Face"),
    pytest.param("ghp_0123456789abcdefABCDEF0123456789abcd", "ghp_0123456789", id="GitHub"),
    pytest.param("github_pat_11ABCDE0_abcdefghij", "github_pat_11ABCDE0", id="a fine-grained token of GitHub"),
    pytest.param("glpat-0123456789abcdefghij", "glpat-0123", id="GitLab"),
    pytest.param("xoxb-123456789012-abcdefABCDEF", "xoxb-1234", id="Slack"),
    pytest.param("sk-proj-0123456789abcdefghij", "sk-proj-01", id="OpenAI"),
    pytest.param(f"jwt {JWT} end", JWT.split(".")[1], id="a JSON Web Token"),
    pytest.param(f"load\n{PEM}\nend", "MIIEowIBAAKCAQEAx7Jq9fYc0aQ3ZkR1", id="a private key"),
    pytest.param(PEM.partition("\n")[2], "MIIEowIBAAKCAQEAx7Jq9fYc0aQ3ZkR1", id="the end of a private key"),
    pytest.param(PEM.rpartition("\n")[0], "MIIEowIBAAKCAQEAx7Jq9fYc0aQ3ZkR1", id="the beginning of a private key"),
    pytest.param("git clone https://ann:pa55@host/x", "pa55", id="a password in a URL"),
    pytest.param("s3://b/x?X-Amz-Signature=deadbeef99&a=1", "deadbeef99", id="a signed URL"),
    pytest.param("TOKEN=abc python train.py", "abc", id="a shell's variable"),
    pytest.param("export PASSWORD='a b c'", "a b c", id="a quoted variable"),
    pytest.param('export PASSWORD="a b c', "a b c", id="a quote without an end"),
    pytest.param("train.py --api-key zzz --lr 1", "zzz", id="an option"),
    pytest.param("train.py --wandb_key=zzz", "zzz", id="an option with its value"),
    pytest.param("Namespace(hub_token='zzz', lr=1)", "zzz", id="arguments that were printed"),
    pytest.param("{'password': 'zzz'}", "zzz", id="a dictionary that was printed"),
    pytest.param('{\\"secret\\": \\"zzz\\"}', "zzz", id="JSON in JSON"),
    pytest.param("password: zzz", "zzz", id="a line of YAML"),
    pytest.param('{"auths": {"r": {"auth": "zzz"}}}', "zzz", id="a registry's login"),
    pytest.param("my_access_key: zzz", "zzz", id="a key of something"),
]


@pytest.mark.parametrize(("text", "secret"), SHAPES)
def test_a_secret_in_a_text_is_replaced(text: str, secret: str) -> None:
    assert secret in text
    assert secret not in cleaned(text)
    assert "[redacted: " in cleaned(text)


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'token'",
        "RuntimeError: Error(s) in loading state_dict: Missing key(s): layer.weight",
        "step 5 loss 0.25 tokens/s: 1234",
        "tokens: 128, pad_token='<pad>', max_tokens=2048",
        "sorted(rows, key=lambda row: row.step)",
        'MountVolume.SetUp failed for volume "data" : secret "hf" not found',
        "references non-existent secret key: part",
        "hf_transfer==0.1.9, hf_hub_download",
        "git@host:team/repo, https://host/path",
        "bearer of bad tidings",
        "the token is missing",
        "task-scheduler sk-learn",
        "",
    ],
)
def test_a_text_without_a_secret_stays(text: str) -> None:
    assert cleaned(text) == text


@pytest.mark.parametrize(
    "spelled",
    [
        pytest.param(lambda secret: secret, id="as it is"),
        pytest.param(lambda secret: f"x{secret}y", id="inside a word"),
        pytest.param(lambda secret: quote(secret, safe=""), id="in a URL"),
        pytest.param(lambda secret: json.dumps(secret), id="in JSON"),
        pytest.param(repr, id="as Python prints it"),
        pytest.param(lambda secret: base64.b64encode(secret.encode()).decode(), id="in base64"),
        pytest.param(lambda secret: f"{'a' * 60} the end {secret[:-2]}", id="cut off at the end"),
        pytest.param(lambda secret: f"the line {secret[:8]}...", id="cut off with dots"),
        pytest.param(lambda secret: f"{secret[2:]} and then {'a' * 60}", id="cut off at the beginning"),
    ],
)
@pytest.mark.parametrize("secret", ["plainwordsecret", "q\"uo'te/d s%ecret", "pässwörd with spaces"])
def test_the_value_of_a_variable_is_replaced_wherever_it_occurs(spelled: Any, secret: str) -> None:
    text = spelled(secret)
    found = cleaned(text, env("MY_TOKEN", secret))
    assert "[redacted: known value]" in found
    assert secret[2:8] not in found


def test_each_line_of_a_value_is_replaced() -> None:
    found = cleaned("10:00 MIIEowIBAAKCAQEAx7Jq9fYc0aQ3ZkR1", env("TLS_KEY", PEM))
    assert found == "10:00 [redacted: known value]"


@pytest.mark.parametrize(
    ("secret", "text", "found"),
    [
        pytest.param("cat7", "cat7 concat77", "[redacted: known value] concat77", id="a short one as a whole word"),
        pytest.param("abc", "abc", "abc", id="a very short one only where it is assigned"),
    ],
)
def test_short_values(secret: str, text: str, found: str) -> None:
    assert cleaned(text, env("TOKEN", secret)) == found


def test_what_a_command_line_assigns_is_replaced_in_logs_too() -> None:
    command = {
        "command": ["sh", "-c", "PASSWORD=goodhorse python x.py"],
        "args": ["--api-key", "greybird", "--lr", "1"],
    }
    assert cleaned(command) == {
        "command": ["sh", "-c", "PASSWORD=[redacted: known value] python x.py"],
        "args": ["--api-key", "[redacted: assignment]", "--lr", "1"],
    }
    assert cleaned("goodhorse and greybird", command).count("[redacted: known value]") == 2


def test_annotations_that_copy_the_object_are_replaced_and_their_values_are_known() -> None:
    copy = json.dumps({"spec": env("OLD_TOKEN", "formervalue")})
    body = {
        "metadata": {
            "managedFields": [{"manager": "kubectl"}],
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": copy,
                "example.com/token": "zzz",
                "example.com/json": copy,
                "example.com/long": "x" * 2000,
                "example.com/note": "see formervalue",
            },
        }
    }
    assert cleaned(body)["metadata"] == {
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "[redacted: annotation]",
            "example.com/token": "[redacted: annotation]",
            "example.com/json": json.dumps({"spec": env("OLD_TOKEN", "[redacted: variable]")}),
            "example.com/long": "[redacted: annotation]",
            "example.com/note": "see [redacted: known value]",
        }
    }


def test_references_to_secrets_stay() -> None:
    body = {
        "env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}],
        "imagePullSecrets": [{"name": "pull"}],
        "volumes": [{"secret": {"secretName": "tls"}}],
        "tolerations": [{"key": "nvidia.com/gpu"}],
        "automountServiceAccountToken": False,
    }
    assert cleaned(body) == body


def test_markers_are_counted_by_kind() -> None:
    texts = [cleaned("password: a1"), cleaned("--token zz --secret=b"), "nothing"]
    assert count_markers(texts) == {"assignment": 3}


def test_a_hostile_line_costs_no_more_than_its_length() -> None:
    """Each text once took minutes with a pattern that tries every length at every place."""
    for text in (
        "a" * 60_000 + " token",
        "token=" * 10_000,
        "\\" * 60_000 + "token",
        "://" * 20_000,
        "ey" * 30_000 + "eyj",
    ):
        cleaned(text)
