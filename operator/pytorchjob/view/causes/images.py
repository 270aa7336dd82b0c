"""Images that cannot be pulled: what the kubelet reports while a container waits."""

import re
from collections.abc import Iterator

from pytorchjob.view import reading
from pytorchjob.view.causes.cause import Cause, Finding, Remedy, Symptom, delete_and_apply, from_pod
from pytorchjob.view.causes.rules import first_cause, rule
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen

_WAITING = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError")
_BACK_OFF = re.compile(r"^Back-off pulling image \"[^\"]*\"$")
_SIGN = "The container waits with `ImagePullBackOff` or `ErrImagePull`"

INVALID_NAME = Cause(
    "InvalidImageName",
    Symptom.NOT_STARTING,
    "The container waits with `InvalidImageName`.",
    "{image} is not a valid image name.",
    delete_and_apply("Correct `image` in the job's file: lower case, `REGISTRY/REPOSITORY:TAG`, no spaces."),
)
NEVER_PULLED = Cause(
    "ImageNotOnNode",
    Symptom.NOT_STARTING,
    "The container waits with `ErrImageNeverPull`.",
    "imagePullPolicy is Never, and the node {node} does not have the image {image}.",
    (
        Remedy("On kind, load the image into the nodes.", "kind load docker-image {image}"),
        *delete_and_apply("Elsewhere, push the image to a registry and set `imagePullPolicy: IfNotPresent`."),
    ),
)
NO_PERMISSION = Cause(
    "ImageNoPermission",
    Symptom.NOT_STARTING,
    f"{_SIGN}, and the message has `401`, `403`, `unauthorized`, `denied` or `no basic auth credentials`.",
    "The registry refuses {image} to the node: credentials are missing or wrong, or there is no such repository.",
    (
        Remedy(
            "Create a pull secret in the job's namespace.",
            "kubectl create secret docker-registry pull -n {namespace} --docker-server=REGISTRY"
            " --docker-username=USER --docker-password=PASSWORD",
        ),
        Remedy(
            "Let the pods' service account use it.",
            'kubectl patch serviceaccount {account} -n {namespace} -p \'{{"imagePullSecrets":[{{"name":"pull"}}]}}\'',
        ),
        Remedy(
            "Delete the pod; the operator creates it again with the secret.", "kubectl delete pod {pod} -n {namespace}"
        ),
    ),
)
NOT_FOUND = Cause(
    "ImageNotFound",
    Symptom.NOT_STARTING,
    f"{_SIGN}, and the message has `not found` or `manifest unknown`.",
    "The registry has no image {image}: the name or the tag is wrong, or the image was never pushed.",
    (
        Remedy("Push the image, if the name is right.", "docker push {image}"),
        *delete_and_apply("Otherwise correct `image` in the job's file."),
    ),
)
WRONG_PLATFORM = Cause(
    "ImageWrongPlatform",
    Symptom.NOT_STARTING,
    "The message has `no match for platform in manifest`, or the container ends with `exec format error`.",
    "The image {image} was not built for the processor of the node {node}.",
    (
        Remedy("Compare it with the nodes.", "kubectl get nodes -L kubernetes.io/arch"),
        Remedy(
            "Build the image for them.", "docker buildx build --platform linux/amd64,linux/arm64 -t {image} --push ."
        ),
    ),
)
RATE_LIMIT = Cause(
    "ImageRateLimit",
    Symptom.NOT_STARTING,
    "The message has `toomanyrequests` or `429 Too Many Requests`.",
    "The registry refuses {image} for now, because too many images were pulled from it.",
    (
        Remedy("Wait: the kubelet tries again by itself. Or pull with an account, which has a higher limit."),
        Remedy(
            "Create a pull secret in the job's namespace, and name it in `imagePullSecrets`.",
            "kubectl create secret docker-registry pull -n {namespace} --docker-server=REGISTRY"
            " --docker-username=USER --docker-password=PASSWORD",
        ),
    ),
)
REGISTRY_AWAY = Cause(
    "RegistryUnreachable",
    Symptom.NOT_STARTING,
    "The message has `no such host`, `i/o timeout`, `connection refused` or `x509`.",
    "The node {node} cannot reach the registry of {image}, or does not trust its certificate.",
    (
        Remedy(
            "Try it from the node.", "kubectl debug node/{node} -it --image=busybox -- wget -S -O- https://REGISTRY/v2/"
        ),
        Remedy("Correct the registry's name, the network or proxy of the node, or the node's trusted certificates."),
    ),
)
NODE_DISK_FULL = Cause(
    "NodeDiskFull",
    Symptom.NOT_STARTING,
    "The message of the pull has `no space left on device`.",
    "The disk of the node {node} is full, so the image {image} cannot be unpacked.",
    (
        Remedy("Keep new pods away from the node.", "kubectl cordon {node}"),
        Remedy(
            "Delete the pod; the operator creates it again, and another node is chosen.",
            "kubectl delete pod {pod} -n {namespace}",
        ),
    ),
)
PULL_FAILS = Cause(
    "ImagePullFails",
    Symptom.NOT_STARTING,
    f"{_SIGN}, and the message has none of the reasons above.",
    "The image {image} cannot be pulled on the node {node}.",
    (
        Remedy("Read the kubelet's message.", "kubectl describe pod {pod} -n {namespace}"),
        Remedy("Try it by hand.", "docker pull {image}"),
    ),
)
CAUSES = (
    INVALID_NAME,
    NEVER_PULLED,
    NO_PERMISSION,
    NOT_FOUND,
    WRONG_PLATFORM,
    RATE_LIMIT,
    REGISTRY_AWAY,
    NODE_DISK_FULL,
    PULL_FAILS,
)

_RULES = (
    rule(r"no space left on device", NODE_DISK_FULL),
    rule(r"toomanyrequests|429 Too Many Requests", RATE_LIMIT, re.IGNORECASE),
    rule(r"no match for platform", WRONG_PLATFORM),
    rule(
        r"\b40[13] (?:Unauthorized|Forbidden)|status: 40[13]|unauthorized|denied|authorization failed"
        r"|no basic auth credentials|authentication required|insufficient_scope",
        NO_PERMISSION,
        re.IGNORECASE,
    ),
    rule(r"no such host|i/o timeout|connection refused|x509|TLS handshake|network is unreachable", REGISTRY_AWAY),
    rule(r"not found|manifest unknown|name unknown|code = NotFound", NOT_FOUND, re.IGNORECASE),
)


def find(seen: Seen) -> Iterator[Finding]:
    """Yield a finding for each image that cannot be pulled, with all pods that wait for it."""
    found: dict[tuple[str, str], list[tuple[Object, Object]]] = {}
    for pod in seen.living_pods():
        for container in reading.containers(pod):
            waiting = reading.part(container, "state", "waiting")
            if waiting.get("reason") in _WAITING:
                cause = _cause(seen, pod, waiting)
                found.setdefault((cause.name, str(container.get("image") or "")), []).append((pod, container))
    for (name, image), waits in found.items():
        yield _finding(seen, next(cause for cause in CAUSES if cause.name == name), image, waits)


def _finding(seen: Seen, cause: Cause, image: str, waits: list[tuple[Object, Object]]) -> Finding:
    pod, container = waits[0]
    names = tuple(dict.fromkeys(reading.name_of(waiting) for waiting, _ in waits))
    waiting = reading.part(container, "state", "waiting")
    source = f"container {container.get('name')} waits: {waiting.get('reason')}"
    return Finding(
        cause,
        {
            "image": image or _spec_image(pod, container),
            "node": reading.node_of(pod) or "NODE",
            "pod": names[0],
            "account": str(reading.part(pod, "spec").get("serviceAccountName") or "default"),
        },
        (from_pod(pod, source, _message(seen, pod, waiting)),),
        names,
    )


def _cause(seen: Seen, pod: Object, waiting: Object) -> Cause:
    by_reason = {"InvalidImageName": INVALID_NAME, "ErrImageNeverPull": NEVER_PULLED}
    reason = str(waiting.get("reason"))
    if reason in by_reason:
        return by_reason[reason]
    message = _message(seen, pod, waiting)
    cause, _ = first_cause(_RULES, message) or (PULL_FAILS, {})
    return cause


def _message(seen: Seen, pod: Object, waiting: Object) -> str:
    """Return why the pull fails. While the kubelet backs off, older ones only report that; the event has the reason."""
    message = str(waiting.get("message") or "")
    if message and not _BACK_OFF.match(message):
        return message
    events = (str(event.get("message") or "") for event in seen.events_of(pod) if event.get("reason") == "Failed")
    return next((text for text in events if text.startswith("Failed to pull image")), message)


def _spec_image(pod: Object, container: Object) -> str:
    specs = [*reading.items(pod, "spec", "initContainers"), *reading.items(pod, "spec", "containers")]
    return next((str(spec.get("image")) for spec in specs if spec.get("name") == container.get("name")), "IMAGE")
