"""The parts of a Docker daemon that the gate asks for itself, on a recording stub."""

import json
from collections.abc import Mapping

from tests.gate.stub_upstream import Link, Recorded, StubUpstream, reply

JSON = "Content-Type: application/json\r\n"
INFO = {"ServerVersion": "28.5.2", "DefaultRuntime": "runc", "Swarm": {"LocalNodeState": "inactive"}}
VERSION = {"ApiVersion": "1.51", "MinAPIVersion": "1.24", "Components": [{"Details": {"ApiVersion": "1.51"}}]}


class DockerStub:
    """Makes `stub` answer as a daemon does; what it answers may change at any time.

    `containers` are inspect answers by id; those whose State says so are listed as running. A stop ends them,
    unless `stubborn`; `stopped` and `killed` say what was asked for.
    """

    def __init__(self, stub: StubUpstream) -> None:
        self.stub = stub
        self.info: dict[str, object] = dict(INFO)
        self.version: dict[str, object] = dict(VERSION)
        self.containers: dict[str, dict[str, object]] = {}
        self.streams: list[Link] = []
        self.stopped: list[str] = []
        self.killed: list[str] = []
        self.stubborn = False
        stub.routes["GET /info"] = self._info
        stub.routes["GET /version"] = self._version
        stub.routes["GET /events"] = self._events
        stub.routes["GET /containers/json"] = self._list
        stub.routes["GET /_ping"] = reply(headers="Api-Version: 1.51\r\n")

    def run(
        self, identity: str, host: Mapping[str, object], started_at: str = "2026-11-30T12:00:00Z"
    ) -> None:
        """There is a running container of this full id; nobody is told."""
        state = {"Running": True, "StartedAt": started_at}
        self.containers[identity] = {
            "Id": identity,
            "Name": f"/{identity}",
            "HostConfig": host,
            "State": state,
        }
        for verb in ("GET {}/json", "POST {}/stop", "POST {}/kill"):
            self.stub.routes[verb.format(f"/containers/{identity}")] = self._container

    async def tell(self, action: str, identity: str = "", kind: str = "container") -> None:
        """Tell every follower of an event."""
        line = json.dumps({"Type": kind, "Action": action, "Actor": {"ID": identity}, "timeNano": 7}).encode()
        await self.write(line + b"\n")

    async def write(self, data: bytes) -> None:
        self.streams = [link for link in self.streams if not link.writer.is_closing()]
        for link in self.streams:
            await link.send(b"%x\r\n%b\r\n" % (len(data), data))

    def asked(self, target: str) -> int:
        """How often the daemon was asked for a path."""
        return sum(each.target.partition("?")[0] == target for each in self.stub.requests)

    async def _info(self, request: Recorded, link: Link) -> None:
        await reply(json.dumps(self.info).encode(), headers=JSON)(request, link)

    async def _version(self, request: Recorded, link: Link) -> None:
        await reply(json.dumps(self.version).encode(), headers=JSON)(request, link)

    async def _events(self, request: Recorded, link: Link) -> None:
        await link.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.streams.append(link)

    async def _list(self, request: Recorded, link: Link) -> None:
        running = [{"Id": key} for key in self.containers if self._runs(key)]
        await reply(json.dumps(running).encode(), headers=JSON)(request, link)

    def _runs(self, identity: str) -> bool:
        state = self.containers[identity]["State"]
        return isinstance(state, dict) and state["Running"] is True

    async def _container(self, request: Recorded, link: Link) -> None:
        identity, verb = request.target.split("?")[0].split("/")[2:4]
        if verb == "json":
            await reply(json.dumps(self.containers[identity]).encode(), headers=JSON)(request, link)
            return
        (self.stopped if verb == "stop" else self.killed).append(identity)
        if not (self.stubborn and verb == "stop"):
            self.containers[identity]["State"] = {"Running": False, "StartedAt": "2026-11-30T12:00:00Z"}
        await reply(b"", status="204 No Content")(request, link)
