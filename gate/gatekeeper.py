"""Decides for one repo: reads the request, gathers the facts, asks the rules.

The rules are pure and live in `gate.core`; this is where they meet the daemon, the file system and the clock.
Whatever goes wrong on the way ends in a refusal.
"""

import logging
from pathlib import Path

from base.errors import MalformedError, RdcError
from base.layout import Layout
from gate.audit_writer import AuditWriter
from gate.core.denial import Denial, Rule, broken, malformed, refuse, show
from gate.core.inspected import PARSERS, parse
from gate.core.policy import Context, Forward, HostPaths, Inspected
from gate.core.repo import GateConfig, RepoConfig
from gate.core.router import Matched
from gate.daemon import DaemonClient
from gate.guard import ALWAYS_SERVED, Guard
from gate.http.message import HttpError, RequestHead
from gate.lookups import Answers
from gate.ports import Peer
from gate.state import MachineState
from grants.core.model import RepoGuid

_log = logging.getLogger(__name__)

MAX_ROUNDS = 8
"""Most rounds of questions for one request: the rules need three, and one for each further container in a
chain of those that join the next one's namespaces."""

MAX_LOOKUPS = 512
"""Most questions for one request. Each costs the daemon a call; no client names a tenth of this."""


class RepoGatekeeper:
    """A `gate.ports.Gatekeeper`.

    Args:
        repo: the repo's configuration; may be replaced at any time, and counts from the next decision on.
        host: what the rules must know of this host.
        state: grants and specs.
        daemon: the repo's daemon, for the gate's own questions.
        guard: whether that daemon may be served at all.
    """

    def __init__(
        self, repo: RepoConfig, host: HostPaths, state: MachineState, daemon: DaemonClient, guard: Guard
    ) -> None:
        self.repo = repo
        self._guard = guard
        self._host = host
        self._state = state
        self._daemon = daemon
        self.audit: AuditWriter | None = None
        """Where refusals are recorded."""

    @property
    def api_version(self) -> str | None:
        """The newest version that was audited, where the daemon's own is newer."""
        return self._guard.api_version

    def inspects(self, matched: Matched) -> bool:
        """Whether the request must be decided on before the daemon hears of it."""
        name = matched.route.name
        return name in PARSERS or not (self._guard.open or name in ALWAYS_SERVED)

    async def inspect(
        self,
        matched: Matched,
        head: RequestHead,  # noqa: ARG002 - of the port; today's rules need no header
        body: bytes,
        *,
        peer: Peer,
    ) -> Forward | Denial:
        """Forward or deny. Grants count as they are once all facts are in."""
        try:
            decision = await self._guard.admit(matched) or await self._judge(matched, body)
        except Exception as exc:
            self._undecided(matched.route.name, exc, peer)
            raise
        if isinstance(decision, Denial):
            self._denied(matched.route.name, decision, peer)
        return decision

    def refused(self, head: RequestHead, denial: Denial, *, peer: Peer) -> None:
        """A denial that needed no decision, such as an unknown endpoint."""
        self._denied(show(head.method), denial, peer)

    def unreadable(self, error: HttpError, *, peer: Peer) -> None:
        """Bytes that are no request."""
        if self.audit is not None:
            self.audit.refused(self.repo, peer, "-", (error.rule.value,), error.message)

    async def _judge(self, matched: Matched, body: bytes) -> Forward | Denial:
        """What the rules say; what none is about passes as it came."""
        if matched.route.name not in PARSERS:
            return Forward(target=matched.target, content_type=matched.route.content_type, body=body or None)
        try:
            request = parse(body, matched)
        except MalformedError as exc:
            return malformed(f"{exc.message}: {exc.hint}" if exc.hint else exc.message)
        return await self._decide(request)

    async def _decide(self, request: Inspected) -> Forward | Denial:
        """Ask until there is nothing left to ask; the grants are those of the moment of deciding."""
        answers = Answers(self._daemon)
        context = await self._context()
        for _ in range(MAX_ROUNDS):
            wanted = request.lookups(context, answers.facts)
            if len(answers.facts) + len(wanted) > MAX_LOOKUPS:
                detail = f"the request is about more than {MAX_LOOKUPS} volumes, containers and host paths"
                return refuse([broken(Rule.TOO_MANY, detail)])
            if not await answers.ask(wanted):
                break
            context = await self._context()
        for lookup, failure in answers.failures.items():
            _log.warning("gate.lookup_failed repo=%s %r %s", self.repo.name, lookup, failure.message)
        return request.decide(context, answers.facts)

    async def _context(self) -> Context:
        grants = await self._state.grants_of(RepoGuid(self.repo.guid))
        return Context(repo=self.repo, grants=grants, host=self._host)

    def _denied(self, route: str, denial: Denial, peer: Peer) -> None:
        _log.info(
            "gate.denied repo=%s route=%s rules=%s uid=%d pid=%d",
            self.repo.name, route, ",".join(denial.codes()), peer.uid, peer.pid,
        )  # fmt: skip
        if self.audit is not None:
            self.audit.denied(self.repo, peer, route, denial)

    def _undecided(self, route: str, failure: Exception, peer: Peer) -> None:
        """What cannot be decided is refused too."""
        if self.audit is not None:
            code = failure.code if isinstance(failure, RdcError) else "gate-error"
            self.audit.refused(self.repo, peer, route, (code,), str(failure))


def host_paths(layout: Layout, config: GateConfig, repo: RepoConfig, upstream: Path) -> HostPaths:
    """The repo's own socket, and what no bind may reach: all that is ours, and what the operator names.

    Each path also with its symbolic links followed, because bind sources are compared resolved.
    """
    ours = (
        layout.gate_config.parent,
        layout.run_dir,
        layout.state_dir,
        layout.audit_log.parent,
        layout.cdi_spec_dir,
        *map(Path, config.cdi_spec_dirs),
        *map(Path, config.protected_paths),
        upstream,
    )
    protected = dict.fromkeys(str(each) for path in ours for each in (path, path.resolve()))
    paths = layout.repo(repo.guid)
    return HostPaths(
        gate_socket=str(paths.socket), protected=tuple(protected), projection=str(paths.cdi_spec_dir)
    )
