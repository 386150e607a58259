"""What a decoded spec must fulfil, by library release. Pure.

Source: CDI SPEC.md and the verdicts of the library's releases 0.6.2 to 1.1.0. The JSON schema that CDI
publishes is much weaker; where the two differ, the library decides whether a device can be injected.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cdi.core.build import Tokens
from cdi.core.edits import ContainerEdits, DeviceNode, Hook, IntelRdt, NetDevice
from cdi.core.library import LOWEST_SPEC_VERSION, SPEC_VERSIONS, Library
from cdi.core.model import Spec
from cdi.core.names import crashes_library, device_fault, vendor_or_class_fault
from cdi.core.problems import ProblemCode

HOOK_NAMES = frozenset(
    {"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
)
NODE_TYPES = frozenset({"", "b", "c", "u", "p"})
_PERMISSIONS = frozenset("rwm")
_CLOS_ID_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken rule and the place of the value that breaks it."""

    tokens: Tokens
    message: str
    code: ProblemCode


def check(spec: Spec, library: Library) -> Iterator[Finding]:
    """Every rule that `spec` breaks, in the order of the file's fields; nothing when the library loads it."""
    yield from _check_version(spec, library)
    yield from _check_kind(spec)
    yield from _check_edits(spec.container_edits, ("containerEdits",), library)
    if not spec.devices and library.at_least(Library.V1_0_1):
        yield Finding(("devices",), "no devices", ProblemCode.NO_DEVICES)
    seen: set[str] = set()
    for index, device in enumerate(spec.devices):
        at: Tokens = ("devices", index)
        fault = device_fault(device.name)
        if fault:
            yield Finding((*at, "name"), f"invalid device name: {fault}", ProblemCode.DEVICE_NAME)
        if device.name in seen:
            yield Finding((*at, "name"), f"device {device.name!r} is repeated", ProblemCode.DUPLICATE_DEVICE)
        seen.add(device.name)
        edits_at: Tokens = (*at, "containerEdits")
        if device.container_edits.empty:
            yield Finding(edits_at, f"device {device.name!r} has empty edits", ProblemCode.EMPTY_EDITS)
        yield from _check_edits(device.container_edits, edits_at, library)


def known_version(text: str) -> str | None:
    """The spec version that `text` names, without the `v` that may stand before it; None when it is none."""
    version = text.removeprefix("v")
    return version if version in SPEC_VERSIONS else None


def required_version(spec: Spec) -> str:
    """The least `cdiVersion` that declares everything `spec` uses."""
    return max((version for version, _, _ in features(spec)), key=_rank, default=LOWEST_SPEC_VERSION)


def features(spec: Spec) -> Iterator[tuple[str, Tokens, str]]:
    """What a spec uses beyond version 0.3.0: the version that brought it, its place, its name."""
    if "." in spec.class_:
        yield "0.6.0", ("kind",), "a dot in the class"
    if spec.annotations:
        yield "0.6.0", ("annotations",), "annotations"
    yield from _edit_features(spec.container_edits, ("containerEdits",))
    for index, device in enumerate(spec.devices):
        at: Tokens = ("devices", index)
        if device.name[:1].isdigit() and device.name.isascii():
            yield "0.5.0", (*at, "name"), "a device name that starts with a digit"
        if device.annotations:
            yield "0.6.0", (*at, "annotations"), "annotations"
        yield from _edit_features(device.container_edits, (*at, "containerEdits"))


def _edit_features(edits: ContainerEdits, at: Tokens) -> Iterator[tuple[str, Tokens, str]]:
    for index, mount in enumerate(edits.mounts):
        if mount.type:
            yield "0.4.0", (*at, "mounts", index, "type"), "a mount type"
    for index, node in enumerate(edits.device_nodes):
        if node.host_path:
            yield "0.5.0", (*at, "deviceNodes", index, "hostPath"), "hostPath of a device node"
    if edits.additional_gids:
        yield "0.7.0", (*at, "additionalGids"), "additionalGids"
    if edits.net_devices:
        yield "1.1.0", (*at, "netDevices"), "netDevices"
    rdt = edits.intel_rdt
    if rdt is not None:
        yield "0.7.0", (*at, "intelRdt"), "intelRdt"
        if rdt.schemata is not None:
            yield "1.1.0", (*at, "intelRdt", "schemata"), "intelRdt.schemata"
        if rdt.enable_monitoring:
            yield "1.1.0", (*at, "intelRdt", "enableMonitoring"), "intelRdt.enableMonitoring"


def _rank(version: str) -> int:
    return SPEC_VERSIONS.index(version)


def _check_version(spec: Spec, library: Library) -> Iterator[Finding]:
    version = known_version(spec.cdi_version)
    if version is None or version not in library.spec_versions:
        known = ", ".join(library.spec_versions[_rank(LOWEST_SPEC_VERSION) :])
        yield Finding(
            ("cdiVersion",),
            f"invalid version {spec.cdi_version!r}: CDI library {library} knows {known}",
            ProblemCode.VERSION,
        )
        return
    if _rank(version) < _rank(LOWEST_SPEC_VERSION):
        yield Finding(
            ("cdiVersion",),
            f"the spec version must be at least {LOWEST_SPEC_VERSION}, not {version}",
            ProblemCode.VERSION_TOO_LOW,
        )
    for needed, tokens, name in features(spec):
        if _rank(needed) > _rank(version):
            message = f"{name} needs at least cdiVersion {needed}, and {version} is declared"
            yield Finding(tokens, message, ProblemCode.VERSION_TOO_LOW)


def _check_kind(spec: Spec) -> Iterator[Finding]:
    if "/" not in spec.kind:
        yield Finding(("kind",), f"kind {spec.kind!r} is not vendor/class", ProblemCode.KIND)
        return
    for what, text in (("vendor", spec.vendor), ("class", spec.class_)):
        fault = vendor_or_class_fault(text)
        if fault:
            code = ProblemCode.CRASH_ONE_LETTER if crashes_library(text) else ProblemCode.KIND
            yield Finding(("kind",), f"invalid {what}: {fault}", code)


def _check_edits(edits: ContainerEdits, at: Tokens, library: Library) -> Iterator[Finding]:
    yield from _check_env(edits.env, (*at, "env"))
    for index, node in enumerate(edits.device_nodes):
        yield from _check_node(node, (*at, "deviceNodes", index))
    for index, hook in enumerate(edits.hooks):
        yield from _check_hook(hook, (*at, "hooks", index))
    for index, mount in enumerate(edits.mounts):
        for name, path in (("hostPath", mount.host_path), ("containerPath", mount.container_path)):
            if not path:
                yield Finding((*at, "mounts", index, name), f"mount with empty {name}", ProblemCode.MOUNT)
    if edits.intel_rdt is not None:
        yield from _check_rdt(edits.intel_rdt, (*at, "intelRdt"), library)
    yield from _check_net_devices(edits.net_devices, (*at, "netDevices"))


def _check_env(env: tuple[str, ...], at: Tokens) -> Iterator[Finding]:
    for index, text in enumerate(env):
        if text.find("=") <= 0:
            message = f"invalid environment variable {text!r}: write it as NAME=VALUE"
            yield Finding((*at, index), message, ProblemCode.ENV)


def _check_node(node: DeviceNode, at: Tokens) -> Iterator[Finding]:
    if not node.path:
        yield Finding((*at, "path"), "device node with empty path", ProblemCode.DEVICE_NODE)
    if node.type not in NODE_TYPES:
        message = f"device node {node.path!r} has invalid type {node.type!r}: b, c, u or p"
        yield Finding((*at, "type"), message, ProblemCode.DEVICE_NODE)
    if not _PERMISSIONS.issuperset(node.permissions):
        message = f"device node {node.path!r} has invalid permissions {node.permissions!r}: letters of rwm"
        yield Finding((*at, "permissions"), message, ProblemCode.DEVICE_NODE)


def _check_hook(hook: Hook, at: Tokens) -> Iterator[Finding]:
    if hook.hook_name not in HOOK_NAMES:
        message = f"invalid hook name {hook.hook_name!r}: one of {', '.join(sorted(HOOK_NAMES))}"
        yield Finding((*at, "hookName"), message, ProblemCode.HOOK)
    if not hook.path:
        yield Finding((*at, "path"), f"hook {hook.hook_name!r} with empty path", ProblemCode.HOOK)
    yield from _check_env(hook.env, (*at, "env"))


def _check_rdt(rdt: IntelRdt, at: Tokens, library: Library) -> Iterator[Finding]:
    clos_id = rdt.clos_id
    if clos_id == "/" and library.at_least(Library.V1_1_0):
        return
    too_long = len(clos_id.encode("utf-8", "surrogatepass")) >= _CLOS_ID_BYTES
    if too_long or clos_id in {".", ".."} or "/" in clos_id or "\n" in clos_id:
        shown = f"{clos_id[:40]!r}"
        yield Finding(
            (*at, "closID"), f"invalid closID {shown}: it must be a file name", ProblemCode.INTEL_RDT
        )


def _check_net_devices(devices: tuple[NetDevice, ...], at: Tokens) -> Iterator[Finding]:
    hosts: set[str] = set()
    names: set[str] = set()
    for index, device in enumerate(devices):
        for field, text, seen in (
            ("hostInterfaceName", device.host_interface_name, hosts),
            ("name", device.name, names),
        ):
            if not text:
                message = f"net device with empty {field}"
                yield Finding((*at, index, field), message, ProblemCode.NET_DEVICE)
            elif text in seen:
                message = f"net device {field} {text!r} is repeated"
                yield Finding((*at, index, field), message, ProblemCode.NET_DEVICE)
            seen.add(text)
