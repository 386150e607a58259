"""Devices in a request: exact CDI names with a live grant, and nothing else. Pure.

Source: facts page on gates, sections 2.A and 5; seeds' table of refused forms. `cdi` is matched byte for
byte; its count must be zero and its options empty, or dockerd fails at start; its capabilities mean nothing
to dockerd.
"""

from collections.abc import Iterator

from base.errors import MalformedError
from cdi.core.names import QualifiedName
from gate.core.denial import Broken, Rule, broken, show
from gate.core.model import DeviceMapping, DeviceRequest, Resources
from gate.core.policy import Context, Granted, NotGranted, Unusable

_GPU_CAPABILITY = (("gpu",),)

_MOST_NAMED = 8
"""Most devices that a message names."""

_UNUSABLE = {
    Unusable.MISSING: (Rule.GRANT_MISSING, "is not granted to repo"),
    Unusable.EXPIRED: (Rule.GRANT_EXPIRED, "was granted and has expired for repo"),
    Unusable.DRIFTED: (Rule.GRANT_DRIFTED, "no longer means what it meant when granted to repo"),
    Unusable.OTHER: (Rule.GRANT_UNUSABLE, "cannot be used now by repo"),
}


def requested_devices(resources: Resources) -> tuple[QualifiedName, ...]:
    """Every well-formed CDI name asked for, each once, in order."""
    found: dict[QualifiedName, None] = {}
    for request in resources.device_requests or ():
        if request.driver == "cdi":
            for text in request.device_ids or ():
                if (name := _name(text)) is not None:
                    found[name] = None
    return tuple(found)


def canonical_requests(devices: tuple[QualifiedName, ...]) -> tuple[DeviceRequest, ...] | None:
    """The one request that asks for exactly these devices."""
    if not devices:
        return None
    return (DeviceRequest(driver="cdi", device_ids=tuple(str(name) for name in devices)),)


def device_faults(resources: Resources, context: Context) -> Iterator[Broken]:
    """Every way in which the device fields ask for more than the repo's grants."""
    for mapping in resources.devices or ():
        yield _raw_device(mapping, context)
    for text in resources.device_cgroup_rules or ():
        yield broken(Rule.DEVICE_CGROUP_RULE, f"device cgroup rule {show(text)} is not allowed")
    for request in resources.device_requests or ():
        if request.driver == "cdi":
            yield from _cdi_faults(request, context)
        else:
            yield _other_driver(request, context)


def throttle_faults(resources: Resources) -> Iterator[Broken]:
    """Block I/O settings that name host devices: the daemon looks each path up on the host."""
    paths = [
        item.path
        for group in (
            resources.blkio_weight_device,
            resources.blkio_device_read_bps,
            resources.blkio_device_write_bps,
            resources.blkio_device_read_iops,
            resources.blkio_device_write_iops,
        )
        for item in group or ()
    ]
    for path in dict.fromkeys(paths):
        yield broken(Rule.BLKIO_DEVICE, f"block I/O limit on host device {show(path)} is not allowed")


def _grant_faults(devices: tuple[QualifiedName, ...], context: Context) -> Iterator[Broken]:
    """The devices that the repo may not use now, each with the command that would change it."""
    for name in devices:
        status = context.grants.status(name)
        if not isinstance(status, Granted):
            yield _not_granted(name, status, context)


def _not_granted(name: QualifiedName, status: NotGranted, context: Context) -> Broken:
    rule, words = _UNUSABLE[status.reason]
    repo = context.repo.name
    command = f"rdc repo gpu grant {repo} --device {name}"
    remedy = {
        Rule.GRANT_MISSING: f"ask the operator for '{command}'",
        Rule.GRANT_EXPIRED: f"ask the operator for '{command} --expires 8h'",
        Rule.GRANT_DRIFTED: f"ask the operator for 'rdc repo gpu regrant {repo} --device {name}'",
    }.get(rule, f"ask the operator to look at 'rdc repo gpu list {repo}'")
    detail = f"device {name} {words} {repo}" + (f" ({show(status.detail)})" if status.detail else "")
    return broken(rule, detail, remedy)


def _cdi_faults(request: DeviceRequest, context: Context) -> Iterator[Broken]:
    names = ", ".join(request.device_ids or ())
    if not _plain_capabilities(request):
        detail = (
            f"deploy.resources.reservations.devices ({show(names)}) is not the way to ask for a CDI device"
        )
        yield broken(
            Rule.DEPLOY_DEVICES, detail, f"use devices: [{show(names)}] of the Compose service instead"
        )
    if request.count != 0:
        yield broken(Rule.CDI_REQUEST, f"a CDI request with count {request.count} is not allowed")
    if request.options:
        yield broken(Rule.CDI_REQUEST, "a CDI request with options is not allowed")
    for text in dict.fromkeys(request.device_ids or ()):
        name = _name(text)
        if name is None:
            yield broken(Rule.CDI_NAME, f"{show(text)} is not a qualified CDI name")
        else:
            yield from _grant_faults((name,), context)


def _plain_capabilities(request: DeviceRequest) -> bool:
    """Whether the request has the capabilities of `--device NAME` or `--gpus driver=cdi,device=NAME`.

    dockerd ignores them, so they only tell the client's form: the CLI's flag comes with empty options,
    Compose's deploy.resources.reservations.devices with null ones and `[["gpu"]]`, or `[null]` where the file
    names none.
    """
    if not request.capabilities:
        return True
    return request.capabilities == _GPU_CAPABILITY and request.options is not None


def _other_driver(request: DeviceRequest, context: Context) -> Broken:
    ids = ",".join(request.device_ids or ())
    what = f"device={ids}" if ids else "all" if request.count < 0 else f"count {request.count}"
    names = _cdi_names(request)
    flags, listed = " ".join(f"--device {name}" for name in names), ", ".join(names)
    way = f"use {flags}, or devices: [{listed}] in Compose; {_granted(context)}"
    if not request.driver:
        return broken(Rule.GPUS_FLAG, f"--gpus or Compose gpus: ({show(what)}) is not allowed", way)
    detail = f"device driver {show(request.driver)} ({show(what)}) is not allowed"
    return broken(Rule.DEVICE_DRIVER, detail, way)


def _cdi_names(request: DeviceRequest) -> tuple[str, ...]:
    """The CDI names that come closest to what was asked for in another form, as an example to follow."""
    kind, numbered = ("rediacc.io/amd", "gpu{}") if request.driver == "amd" else ("nvidia.com/gpu", "{}")
    if not request.device_ids:
        ids = ["all"] if request.count < 0 else [numbered.format(0)]
    else:
        ids = [numbered.format(text) if text.isdecimal() else text for text in request.device_ids]
    names = [text if "=" in text else f"{kind}={text}" for text in ids]
    known = tuple(text for text in names if _name(text) is not None)
    return known[:_MOST_NAMED] or (f"{kind}={numbered.format(0)}",)


def _granted(context: Context) -> str:
    names = context.grants.names()
    repo = context.repo.name
    if not names:
        grant = f"rdc repo gpu grant {repo} --device nvidia.com/gpu=0"
        return f"nothing is granted to repo {repo} yet, ask the operator for '{grant}'"
    shown = ", ".join(map(str, names[:_MOST_NAMED])) + (", …" if len(names) > _MOST_NAMED else "")
    return f"granted to repo {repo}: {shown}"


def _raw_device(mapping: DeviceMapping, context: Context) -> Broken:
    name = _name(mapping.path_on_host)
    if name is not None:
        detail = f"CDI device {name} written as a host path or with a target is not allowed"
        way = f"write --device {name} or devices: [{name}] without ':target'"
        return broken(Rule.CDI_TARGET, detail, f"{way}, with Docker CLI 25 and Compose 2.40 or newer")
    detail = f"host device {show(mapping.path_on_host)} is not allowed"
    return broken(Rule.RAW_DEVICE, detail, f"{device_hint(mapping.path_on_host)}; {_granted(context)}")


def device_hint(path: str) -> str:
    """The CDI names that stand for device paths, the one for this path first, as a remedy."""
    names = {"nvidia": "nvidia.com/gpu=0", "dri": "rediacc.io/dri=renderD128", "amd": "rediacc.io/amd=gpu0"}
    last = path.rstrip("/").rpartition("/")[2]
    best = "dri"
    if last.startswith("nvidia"):
        best = "nvidia"
        if last[6:].isascii() and last[6:].isdecimal():
            names[best] = f"nvidia.com/gpu={last[6:]}"
    elif last.startswith(("renderD", "card")):
        names[best] = f"rediacc.io/dri={show(last)}"
    elif last == "kfd":
        best = "amd"
    first = names.pop(best)
    return f"use a CDI name such as --device {first}, or of the kinds {' or '.join(names.values())}"


def _name(text: str) -> QualifiedName | None:
    try:
        return QualifiedName.parse(text)
    except MalformedError:
        return None
