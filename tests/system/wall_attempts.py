"""The attempts at the wall, by class: each opens the node where there is no gate, or tries a seam of it."""

import bz2
import gzip
import json
import lzma
import tarfile
from collections.abc import Callable, Iterator

from tests.engine import IMAGE
from tests.system.wall import DORMANT, KIND, Act, Attempt, Wall

CREATE = "/v1.44/containers/create"
JSON = {"Content-Type": "application/json"}


def host(**fields: object) -> Act:
    return lambda wall: wall.create(fields)


def top(**fields: object) -> Act:
    return lambda wall: wall.create(None, **fields)


def text(body: str) -> Act:
    return lambda wall: wall.json(body)


def ask(method: str, target: str, body: object = None) -> Act:
    raw = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda wall: wall.ask(method, target, raw, JSON)


def node(wall: Wall, **fields: object) -> dict[str, object]:
    return {"PathOnHost": wall.hardware.path, "PathInContainer": "/n", "CgroupPermissions": "rwm", **fields}


def rule(wall: Wall) -> str:
    return f"c {wall.hardware.major}:{wall.hardware.minor} rwm"


def cdi(*names: str, **fields: object) -> Act:
    return host(DeviceRequests=[{"Driver": "cdi", "DeviceIDs": list(names), **fields}])


DEVICE_FIELDS: dict[str, Act] = {
    "privileged": host(Privileged=True),
    "the node": lambda wall: wall.create({"Devices": [node(wall)]}),
    "all of /dev": host(
        Devices=[{"PathOnHost": "/dev", "PathInContainer": "/d", "CgroupPermissions": "rwm"}]
    ),
    "relative path": lambda wall: wall.create({"Devices": [node(wall, PathOnHost=wall.hardware.path[1:])]}),
    "through /proc": lambda wall: wall.create(
        {"Devices": [node(wall, PathOnHost=f"/proc/self/root{wall.hardware.path}")]}
    ),
    "CDI name as a path": lambda wall: wall.create({"Devices": [node(wall, PathOnHost=f"{KIND}=1")]}),
    "cgroup rule": lambda wall: wall.create({"DeviceCgroupRules": [rule(wall)]}),
    "cgroup rule for all": host(DeviceCgroupRules=["a *:* rwm"]),
}
DEVICE_REQUESTS: dict[str, Act] = {
    "any driver": host(DeviceRequests=[{"Count": -1, "Capabilities": [["gpu"]]}]),
    "any driver, no capability": host(DeviceRequests=[{"Count": -1, "Capabilities": [[]]}]),
    "nvidia": host(DeviceRequests=[{"Driver": "nvidia", "DeviceIDs": ["1"], "Capabilities": [["gpu"]]}]),
    "nvidia.cdi": host(DeviceRequests=[{"Driver": "nvidia.cdi", "DeviceIDs": ["1"]}]),
    "ungranted": cdi(f"{KIND}=1"),
    "revoked": cdi(f"{KIND}=2"),
    "all": cdi(f"{KIND}=all"),
    "granted and ungranted": cdi(f"{KIND}=0", f"{KIND}=1"),
    "kind alone": cdi(KIND),
    "wildcard": cdi(f"{KIND}=*"),
    "upper case": cdi(f"{KIND.upper()}=1"),
    "driver in capitals": host(DeviceRequests=[{"Driver": "CDI", "DeviceIDs": [f"{KIND}=1"]}]),
    "in two requests": host(
        DeviceRequests=[
            {"Driver": "cdi", "DeviceIDs": [f"{KIND}=0"]},
            {"Driver": "cdi", "DeviceIDs": [f"{KIND}=1"]},
        ]
    ),
}
PRIVILEGED = '"Privileged":true'
JSON_FORMS: dict[str, Act] = {
    "lower case": text('{PROBE,"hostconfig":{"privileged":true}}'),
    "long s": text('{PROBE,"Ho\u017ftConfig":{"Privileged":true}}'),
    "escaped": text('{PROBE,"HostConfig":{"\\u0050rivileged":true}}'),
    "at the top": text(f"{{PROBE,{PRIVILEGED}}}"),
    "at the top with null": text(f'{{PROBE,{PRIVILEGED},"HostConfig":null}}'),
    "twice": text(f'{{PROBE,"HostConfig":{{{PRIVILEGED}}},"HostConfig":{{}}}}'),
    "twice in two spellings": text(f'{{PROBE,"HostConfig":{{{PRIVILEGED}}},"hostConfig":{{}}}}'),
    "then null": text(f'{{PROBE,"HostConfig":{{{PRIVILEGED},"Privileged":null}}}}'),
    "before more": text(f'{{PROBE,"HostConfig":{{{PRIVILEGED}}}}}}}garbage'),
    "revived from a list": text(
        '{PROBE,"HostConfig":{"DeviceCgroupRules":["a *:* rwm"],"DeviceCgroupRules":[],'
        '"DeviceCgroupRules":[null]}}'
    ),
    "capabilities as text": text('{PROBE,"HostConfig":{"CapAdd":"ALL"}}'),
}
MOUNTS: dict[str, Act] = {
    "bind of /dev": host(Binds=["/dev:/d"]),
    "bind of the node": lambda wall: wall.create({"Binds": [f"{wall.hardware.path}:/n"]}),
    "bind of /": host(Binds=["/:/h"]),
    "bind through /proc": host(Binds=["/proc/1/root/dev:/d"]),
    "mount of /dev": host(Mounts=[{"Type": "bind", "Source": "/dev", "Target": "/d"}]),
    "mount in capitals": host(Mounts=[{"Type": "BIND", "Source": "/dev", "Target": "/d"}]),
    "dots": lambda wall: wall.create({"Binds": [f"{wall.bind_root}/../../../../dev:/d"]}),
    "link out of the root": lambda wall: wall.create({"Binds": [f"{wall.bind_root}/out:/d"]}),
    "raw socket": lambda wall: wall.create({"Binds": [f"{wall.gated.daemon.socket}:/docker.sock"]}),
    "directory of the raw socket": lambda wall: wall.create({"Binds": [f"{wall.gated.daemon.directory}:/h"]}),
    "specs": lambda wall: wall.create({"Binds": [f"{wall.gated.repo['cdi_spec_dir']}:/h"]}),
    "tmpfs with devices": host(Tmpfs={"/t": "dev,suid,exec"}),
    "as another container has it": host(VolumesFrom=["dormant-bind"]),
}
VOLUMES: dict[str, Act] = {
    "made with a bind": ask("POST", "/v1.44/volumes/create", {
        "Name": "mine", "DriverOpts": {"type": "none", "o": "bind", "device": "/dev"}}),
    "made of devtmpfs": ask("POST", "/v1.44/volumes/create", {
        "Name": "mine", "driveropts": {"type": "devtmpfs", "device": "devtmpfs"}}),
    "made inline": host(Mounts=[{"Type": "volume", "Target": "/d", "VolumeOptions": {"DriverConfig": {
        "Name": "local", "Options": {"type": "none", "o": "bind", "device": "/dev"}}}}]),
    "existing, by bind": host(Binds=["devices:/d"]),
    "existing, by mount": host(Mounts=[{"Type": "volume", "Source": "devices", "Target": "/d"}]),
    "other driver": host(VolumeDriver="other", Binds=["x:/d"]),
}  # fmt: skip
NAMESPACES: dict[str, Act] = {
    "host processes": host(PidMode="host"),
    "processes of a privileged one": host(PidMode="container:privileged"),
    "processes of a holder": host(PidMode="container:holder"),
    "host network": host(NetworkMode="host"),
    "host IPC": host(IpcMode="host"),
    "host users": host(UsernsMode="host"),
    "host cgroups": host(CgroupnsMode="host"),
    "cgroup of another": host(Cgroup="container:privileged"),
    "cgroup parent": host(CgroupParent="/"),
}
PRIVILEGES: dict[str, Act] = {
    "all capabilities": host(CapAdd=["ALL"]),
    "SYS_ADMIN": host(CapAdd=["CAP_SYS_ADMIN"]),
    "BPF and raw I/O": host(CapAdd=["BPF", "SYS_RAWIO", "MKNOD"]),
    "no seccomp": host(SecurityOpt=["seccomp=unconfined"]),
    "writable cgroups": host(SecurityOpt=["writable-cgroups=true"]),
    "unmasked paths": host(MaskedPaths=[], ReadonlyPaths=[]),
}
RUNTIMES: dict[str, Act] = {
    "nvidia": host(Runtime="nvidia"),
    "shim": host(Runtime="io.containerd.runsc.v1"),
    "CDI annotation": host(Annotations={"cdi.k8s.io/x": f"{KIND}=1"}),
    "handler annotation": host(Annotations={"run.oci.handler": "krun"}),
}
ENVIRONMENT: dict[str, Act] = {
    "visible devices": top(Env=["NVIDIA_VISIBLE_DEVICES=all", f"NVIDIA_VISIBLE_DEVICES=runtime.{KIND}=1"]),
    "groups": host(GroupAdd=["0", "44", "107"]),
}


def commit_environment(wall: Wall) -> None:
    made = wall.ask("POST", CREATE, wall.body())
    changes = "changes=ENV+NVIDIA_VISIBLE_DEVICES%3Dall"
    wall.ask("POST", f"/v1.44/commit?container={made.json()['Id']}&repo=committed&tag=1&{changes}")
    wall.create(None, Image="committed:1")


def import_node(wall: Wall) -> None:
    archive = wall.node_tar(base=wall.gated.daemon.engine.image_tar)
    wall.ask("POST", "/v1.44/images/create?fromSrc=-&repo=node&tag=1", archive)
    wall.create(None, Image="node:1")


def copy_in(pack: str, kind: bytes = tarfile.CHRTYPE, to: str = "/") -> Act:
    """Put the node into a container of one's own, which probes afterwards."""
    packs: dict[str, Callable[[bytes], bytes]] = {
        "tar": bytes,
        "gzip": gzip.compress,
        "bzip2": bz2.compress,
        "xz": lzma.compress,
    }

    def act(wall: Wall) -> None:
        made = wall.ask("POST", CREATE, wall.body({"Binds": [f"{wall.bind_root}:/w"]}))
        archive = packs[pack](wall.node_tar(kind))
        wall.ask("PUT", f"/v1.44/containers/{made.json()['Id']}/archive?path={to}", archive)
        assert not (wall.bind_root / "node").exists()

    return act


def execute(container: str, **options: object) -> Act:
    return lambda wall: wall.execute(container, **options)


EXECS: dict[str, Act] = {
    "in a privileged container": execute("privileged"),
    "privileged": execute("privileged", Privileged=True),
    "in a holder": execute("holder"),
    "made before the revoke": lambda wall: wall.ask(
        "POST", f"/v1.44/exec/{wall.prepared_exec}/start", {"Detach": False}
    ),
    "made before, no body": lambda wall: wall.ask("POST", f"/v1.44/exec/{wall.prepared_exec}/start"),
    "made before, by upgrade": lambda wall: wall.talk(
        f"POST /v1.44/exec/{wall.prepared_exec}/start HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\n"
        "Upgrade: tcp\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}".encode()
    ),
}  # fmt: skip
ATTACHES: dict[str, Act] = {
    "to a privileged shell": lambda wall: wall.attach("privileged"),
    "to a holder's shell": lambda wall: wall.attach("holder"),
    "to a holder by websocket": lambda wall: wall.attach("holder", websocket=True),
}
STARTS: dict[str, Act] = {
    **{
        f"{verb} {name}": ask("POST", f"/v1.44/containers/{name}/{verb}")
        for name in DORMANT
        for verb in ("start", "restart")
    },
    "with a new configuration": ask("POST", "/v1.24/containers/dormant-cdi/start", {"Privileged": True}),
    "resume": ask("POST", "/v1.44/containers/paused/unpause"),
    "checkpoint": ask("POST", "/v1.44/containers/dormant-raw/start?checkpoint=x&checkpoint-dir=/"),
}
UPDATES: dict[str, Act] = {
    "devices": lambda wall: wall.ask("POST", "/v1.44/containers/holder/update", {"Devices": [node(wall)]}),
    "restart policy": ask(
        "POST", "/v1.44/containers/dormant-raw/update", {"RestartPolicy": {"Name": "always"}}
    ),
    "cgroup rule": lambda wall: wall.ask(
        "POST", "/v1.44/containers/holder/update", {"DeviceCgroupRules": [rule(wall)]}
    ),
}


def rename_into(wall: Wall) -> None:
    """A start by a name that means nothing when asked about, and then a privileged container."""
    for _ in range(5):
        wall.ask("POST", "/v1.44/containers/dormant-raw/rename?name=fresh")
        wall.ask("POST", "/v1.44/containers/fresh/start")
        wall.ask("POST", "/v1.44/containers/fresh/rename?name=dormant-raw")
        wall.ask("POST", "/v1.44/containers/fresh/start")


def classic(query: str = "", network: str = "none") -> Act:
    def act(wall: Wall) -> None:
        context = wall.context(f"FROM {IMAGE}\nRUN {wall.hardware.probe()}\n")
        target = f"/v1.44/build?nocache=1&networkmode={network}{query}"
        wall.ask("POST", target, context, {"Content-Type": "application/x-tar"})

    return act


def form_build(wall: Wall) -> None:
    """A form that overrides the query of the build, past the first 4 KiB: a trick on dockerd's own reader."""
    body = b"x=" + b"a" * 4100 + b"&networkmode=host&cgroupparent=/"
    wall.ask("POST", "/v1.44/build?networkmode=none", body, {
        "Content-Type": "application/x-www-form-urlencoded"})  # fmt: skip


def buildkit(line: str, *options: str) -> Act:
    """A build by the real client with BuildKit."""

    def act(wall: Wall) -> None:
        folder = wall.bind_root / "build"
        folder.mkdir(exist_ok=True)
        (folder / "Dockerfile").write_text(f"FROM {IMAGE}\n{line} {wall.hardware.probe()}\n")
        done = wall.gated.gate.run(
            "build", "--no-cache", "--network", "none", *options, str(folder), env={"DOCKER_BUILDKIT": "1"}
        )
        wall.said.append(done.stdout + done.stderr)

    return act


BUILDS: dict[str, Act] = {
    "host network": classic(network="host"),
    "cgroup parent": classic("&cgroupparent=/"),
    "form": form_build,
    "device": buildkit(f"RUN --device={KIND}=1"),
    "all devices of a kind": buildkit(f"RUN --device={KIND}"),
    "insecure": buildkit("RUN --security=insecure", "--allow", "security.insecure"),
}


def raw_create(line: str, *headers: str, trailer: str = "") -> Act:
    """The privileged create by another request line or other framing."""

    def act(wall: Wall) -> None:
        body = json.dumps(wall.body({"Privileged": True}))
        fields = headers or (f"Content-Length: {len(body)}",)
        head = "\r\n".join([line, "Host: d", "Content-Type: application/json", *fields, "", ""])
        wall.talk((head + body + trailer).encode())

    return act


def smuggled(outer: str) -> Act:
    def act(wall: Wall) -> None:
        body = json.dumps(wall.body({"Privileged": True}))
        inner = f"POST {CREATE} HTTP/1.1\r\nHost: d\r\nContent-Type: application/json\r\n"
        inner += f"Content-Length: {len(body)}\r\n\r\n{body}"
        wall.talk(outer.replace("SIZE", str(len(inner))).encode() + inner.encode())

    return act


HTTP: dict[str, Act] = {
    "encoded slash": raw_create("POST /v1.44/containers%2Fcreate HTTP/1.1"),
    "odd version": raw_create("POST /v1.044/containers/create HTTP/1.1"),
    "dots": raw_create("POST /v1.44/x/../containers/create HTTP/1.1"),
    "absolute target": raw_create(f"POST http://d{CREATE} HTTP/1.1"),
    "other HTTP version": raw_create(f"POST {CREATE} HTTP/1.2"),
    "two lengths": raw_create(f"POST {CREATE} HTTP/1.1", "Content-Length: 0", "Content-Length: 99999"),
    "length and chunks": raw_create(
        f"POST {CREATE} HTTP/1.1", "Content-Length: 5", "Transfer-Encoding: chunked"
    ),
    "HTTP/2": lambda wall: wall.talk(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)),
    "behind a failed upgrade": smuggled(
        "POST /v1.44/exec/none/start HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
        "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    ),
    "as the body of a start": smuggled(
        "POST /v1.44/containers/none/start HTTP/1.1\r\nHost: d\r\nContent-Length: SIZE\r\n\r\n"
    ),
}
FAMILIES: dict[str, Act] = {
    "plugin": ask("POST", "/v1.44/plugins/create?name=x", b""),
    "plugin set": ask("POST", "/v1.44/plugins/x/set", ["DEVICE=/dev"]),
    "swarm": ask("POST", "/v1.44/swarm/init", {"ListenAddr": "127.0.0.1"}),
    "service": ask("POST", "/v1.44/services/create", {"TaskTemplate": {"ContainerSpec": {"Image": IMAGE}}}),
    "checkpoint": ask("POST", "/v1.44/containers/holder/checkpoints", {"CheckpointDir": "/"}),
    "unknown": ask("POST", "/v1.44/containers/holder/devices", {"Devices": []}),
}
SEAMS: dict[str, Act] = {"rename while starting": rename_into}

RUNNING: dict[str, dict[str, Act]] = {
    "environment": {**ENVIRONMENT, "committed": commit_environment},
    "images": {"node in a layer": import_node},
    "archives": {
        "node": copy_in("tar"),
        "block device": copy_in("tar", tarfile.BLKTYPE),
        "node into a bind": copy_in("tar", to="/w"),
        "gzip": copy_in("gzip"),
        "bzip2": copy_in("bzip2"),
        "xz": copy_in("xz"),
    },
    "builds": {"classic": classic(), "BuildKit": buildkit("RUN", "--progress", "plain")},
    "granted": {"the granted device alone": cdi(f"{KIND}=0"), "no device": host()},
}
"""Attempts after which something runs, and finds nothing."""

REFUSED: dict[str, dict[str, Act]] = {
    "device fields": DEVICE_FIELDS, "device requests": DEVICE_REQUESTS, "JSON": JSON_FORMS, "mounts": MOUNTS,
    "volumes": VOLUMES, "namespaces": NAMESPACES, "privileges": PRIVILEGES, "runtimes": RUNTIMES,
    "execs": EXECS, "attaches": ATTACHES, "starts": STARTS, "updates": UPDATES, "builds": BUILDS,
    "HTTP": HTTP, "families": FAMILIES, "seams": SEAMS,
}  # fmt: skip


def attempts() -> Iterator[Attempt]:
    for classes, runs in ((REFUSED, False), (RUNNING, True)):
        for class_, acts in classes.items():
            for name, act in acts.items():
                yield Attempt(class_=class_, name=name, act=act, runs=runs)
