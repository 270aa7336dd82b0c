"""What looks like a secret: names of variables, options and headers, and the shapes of known tokens. Pure."""

import re
from collections.abc import Callable
from dataclasses import dataclass

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SECRET_WORDS = _words(
    "AUTH AUTHORIZATION COOKIE CRED CREDS DSN JWT KEY KEYS PASS PASSPHRASE PAT PRIVATE PW PWD SAS SIG SIGNATURE WEBHOOK"
)
_SECRET_PARTS = ("TOKEN", "PASSWORD", "PASSWD", "SECRET", "CREDENTIAL", "APIKEY", "ACCESSKEY", "PRIVATEKEY", "AUTHKEY")
"""Found in words too: DBPASSWORD."""
_KEY_OF = _words(
    "ACCESS ACCOUNT API APP AUTH CLIENT CONSUMER DEPLOY ENCRYPTION HOST LICENSE MASTER PRIVATE SECRET SERVICE SHARED "
    "SIGNING SSH STORAGE TLS USER"
)
"""Before KEY in a text; a bare `key` there is an argument or a field of a dictionary."""
_TEXT_TOKENS = _words("BOS CLS EOS MASK PAD SEP SPECIAL STOP UNK")
_TEXT_COUNTS = _words("ALL IMAGE INPUT MAX MIN NEW NUM OUTPUT PER PROMPT TOTAL TRAIN") | _TEXT_TOKENS
"""Before TOKEN, and before TOKENS: those of a language model, which are no secrets."""
_NO_SECRETS = frozenset({"PWD", "OLDPWD", "TOKENIZERS_PARALLELISM"})
_REFERENCES = frozenset(
    {
        "automountServiceAccountToken",
        "imagePullSecrets",
        "key",
        "keys",
        "matchLabelKeys",
        "secretKeyRef",
        "secretName",
        "secretNamespace",
        "secretRef",
        "serviceAccountToken",
        "topologyKey",
    }
)
"""Fields of Kubernetes whose values are names of things, not secrets."""
_PLAIN = re.compile(r"(?i)true|false|yes|no|on|off|none|null|\d{1,2}|\$\([A-Za-z_]\w*\)|")
"""Switches, tiny numbers and references to other variables."""


def words_of(name: str) -> list[str]:
    """Return the parts of a name in capitals: `hfToken` has HF and TOKEN."""
    return [word.upper() for word in _WORD.findall(name)]


def is_secret_name(name: str) -> bool:
    """Whether the value of a variable or field with this name is a secret."""
    words = words_of(name)
    if name in _NO_SECRETS or name in _REFERENCES or _is_text_token(words):
        return False
    return any(word in _SECRET_WORDS or _has_part(word) for word in words)


def is_secret_in_text(name: str, separator: str, option: bool) -> bool:
    """Whether `NAME=...` or `NAME: ...` in a text is an assignment of a secret, and not a sentence or a dictionary."""
    words = words_of(name)
    if not words or name in _NO_SECRETS or _is_text_token(words):
        return False
    last = words[-1]
    if last in ("KEY", "KEYS"):
        return option or (len(words) > 1 and (words[-2] in _KEY_OF or (separator == "=" and name.isupper())))
    if separator == "=" or option:
        return is_secret_name(name)
    return last in ("PASSPHRASE", "PASS", "PWD", "AUTH", "DSN") or (last != "TOKENS" and _has_part(last))


def is_plain(value: str, name: str = "") -> bool:
    """Whether a value is no secret, whatever its name is: a switch, a count, a reference."""
    return bool(_PLAIN.fullmatch(value.strip())) or (words_of(name)[-1:] == ["TOKENS"] and value.strip().isdigit())


def _has_part(word: str) -> bool:
    return any(part in word for part in _SECRET_PARTS) and not word.startswith(("TOKENIZ", "TOKENIS"))


def _is_text_token(words: list[str]) -> bool:
    before = words[-2] if len(words) > 1 else ""
    return (words[-1:] == ["TOKEN"] and before in _TEXT_TOKENS) or (words[-1:] == ["TOKENS"] and before in _TEXT_COUNTS)


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of secret that its shape gives away."""

    kind: str
    hints: tuple[str, ...]
    """A text without each of these, in small letters, has no such secret."""
    pattern: re.Pattern[str]
    """The group `keep` stays."""
    learned: bool = True
    """Whether what matches is a secret wherever it occurs, also in parts."""

    def replace(self, text: str, by: Callable[[re.Match[str]], str]) -> str:
        """Return the text with each match replaced; `by` gets the match."""
        return self.pattern.sub(by, text)


_PREFIXES = (
    *("glpat-", "gldt-", "glrt-", "xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-", "xapp-", "sk-", "aiza"),
    *("ya29.", "gocspx-", "npm_", "pypi-", "dckr_pat_", "dckr_oat_", "nvapi-", "rk_live_", "sk_live_", "sk_test_"),
    *("wandb_v1_",),
    *("sg.", "hvs.", "hvb.", "hvr.", "age-secret-key-", "gsk_", "r8_", "xai-", "pplx-", "tskey-", "glsa_", "glc_"),
    *("dop_v1_", "shpat_", "shpss_", "sq0csp-", "lin_api_", "ntn_", "atatt3", "nrak-", "sntrys_", "pul-", "figd_"),
    *("key-", "rubygems_", "ops_", "dp.pt.", "phx_", "whsec_", "ddp_", "cfpat-", "pscale_tkn_", "tvly-", "fw_"),
)
"""How the tokens of one vendor each begin; a digit and at least 16 letters follow."""
_BASE64 = r"[A-Za-z0-9+/=\\]"
SHAPES = (
    Shape(
        "private key",
        ("private key-----", "private key block-----"),
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----(?:(?!-----END)[\s\S])*"
            r"(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----)?"
        ),
        learned=False,
    ),
    Shape(
        "private key",
        ("private key-----",),
        re.compile(
            rf"(?:^(?:\S{{1,40}}Z )?{_BASE64}{{16,120}}\r?\n){{1,400}}"
            r"(?:\S{1,40}Z )?-----END [A-Z ]*PRIVATE KEY-----",
            re.M,
        ),
        learned=False,
    ),
    Shape(
        "header",
        ("authorization", "cookie", "x-api-key", "private-token"),
        re.compile(
            r"(?P<keep>(?i:\b(?:proxy-)?authorization|\b(?:set-)?cookie|\bx-api-key|\bprivate-token)"
            r"\\?[\"']?\s{0,3}[:=]\s{0,3})(?!\\?[\"']?\[redacted)[^\s][^\n]*"
        ),
        learned=False,
    ),
    Shape("encoded PEM", ("ls0tls1crudjti",), re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/_=-]{16,}")),
    Shape(
        "webhook",
        ("hooks.slack.com", "/api/webhooks/", "webhook.office.com", "office.com/webhook", "chat.googleapis.com"),
        re.compile(
            r"(?P<keep>https?://)(?:hooks\.slack\.com|[\w.-]*discord(?:app)?\.com/api/webhooks|[\w.-]*webhook\.office\.com"
            r"|[\w.-]*office\.com/webhook|chat\.googleapis\.com)/[^\s\"'<>\\]+"
        ),
    ),
    Shape(
        "basic credentials",
        ("basic",),
        re.compile(
            r"(?P<keep>\b(?i:basic)\s{1,3})(?=[a-z]*[A-Z0-9+/=]|[A-Za-z]{24})[A-Za-z0-9+/_-]{8,}={0,2}(?![\w-])"
        ),
    ),
    Shape(
        "login",
        ("-u", "--user", "--proxy-user"),
        re.compile(r"(?P<keep>(?<!\S)(?:-u|-U|--user|--proxy-user)[\s=]{0,3}[\"']?)[^\s:=\"'/]+:(?!//)[^\s\"']+"),
    ),
    Shape(
        "login",
        ("machine", "default"),
        re.compile(
            r"(?P<keep>\b(?:machine\s{1,8}\S+|default)\s{1,8}login\s{1,8}\S+\s{1,8}(?:account\s{1,8}\S+\s{1,8})?"
            r"password\s{1,8})(?!\[redacted)\S+"
        ),
    ),
    Shape(
        "login",
        ("sshpass", "mysql", "mariadb", "redis-cli"),
        re.compile(
            r"(?P<keep>\b(?:sshpass\s+-p\s*|(?:mysql|mariadb)\w*\s(?:[^\n]*?\s)?-p|redis-cli\s(?:[^\n]*?\s)?-a\s+))"
            r"(?![\s-]|\[redacted)\S+"
        ),
    ),
    Shape(
        "row of a table",
        ("\t", "  "),
        re.compile(
            r"(?P<keep>(?<![\w.-])(?:(?:[A-Z0-9]+_)*"
            r"(?:TOKEN|PASSWORD|PASSWD|SECRET|APIKEY|API_KEY|PASSPHRASE|CREDENTIALS?|PWD|SECRET_KEY|ACCESS_KEY)"
            r"(?:\t+| {2,})"
            r"|(?:password|passwd|token|secret|api_key|apikey)\t+))(?!\[redacted)[^\s=:]\S{3,}"
        ),
        learned=False,
    ),
    Shape(
        "bearer token",
        ("bearer",),
        re.compile(r"(?P<keep>\b(?i:bearer)(?:\s{1,3}|\s?[:=]\s?)[\"']?)[A-Za-z0-9._~+/=-]{8,}"),
    ),
    Shape("JSON Web Token", ("eyj",), re.compile(r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?")),
    Shape(
        "AWS key",
        ("akia", "asia", "abia", "acca", "aroa", "aida"),
        re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z0-9]{12,}"),
    ),
    Shape(
        "Hugging Face token",
        ("hf_", "api_org_"),
        re.compile(r"(?<![A-Za-z0-9])(?:hf|api_org)_(?=[A-Za-z]*[A-Z0-9])[A-Za-z0-9]{8,}"),
    ),
    Shape(
        "GitHub token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        re.compile(r"(?<![A-Za-z0-9])(?:gh[pousr]|github_pat)_\w{8,}"),
    ),
    Shape(
        "token",
        _PREFIXES,
        re.compile(
            rf"(?<![A-Za-z0-9])(?i:{'|'.join(map(re.escape, _PREFIXES))})(?=[A-Za-z_.~-]*\d)[A-Za-z0-9_.~=+/-]{{16,}}"
        ),
    ),
    Shape(
        "token",
        ("dapi", "aa", "q~"),
        re.compile(
            r"(?<![A-Za-z0-9])(?:dapi[0-9a-f]{32}(?:-\d)?|\d{8,10}:AA[A-Za-z0-9_-]{30,}|[A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{30,36})"
        ),
    ),
    Shape(
        "password in a URL",
        ("://",),
        re.compile(r"(?P<keep>\b[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?!\[redacted)[^\s/\"'<>]{1,500}(?=@)"),
        learned=False,
    ),
)
"""In this sequence: those that take most go first."""
ASSIGNMENT_HINTS = tuple(sorted({part.lower() for part in (*_SECRET_PARTS, *_SECRET_WORDS)}))
ASSIGNMENT = re.compile(
    r"(?P<keep>(?<![\w.-])(?P<option>--?)?(?P<name>[A-Za-z_][\w.-]{0,80})\\?[\"']?"
    r"(?:\s{0,3}(?P<separator>=>|:=|[=:])\s{0,3}|(?P<space>\s{1,3})))"
    r"(?P<value>\[redacted: [^\]\n]*\]\S*"
    r"|\\\"(?:(?!\\\").)*\\\"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|[\"'][^\n]*|[^\s\"']\S*)"
)
"""`NAME=VALUE`, `name: "value"`, `--name value`."""
