"""`rdc machine`: setting machines up and showing what they have."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from base.errors import NotFoundError
from base.layout import Layout
from cli.app import layout, output_format, output_option, root_option
from cli.render import Format, Row, columns, emit, render_record, render_rows, say

if TYPE_CHECKING:
    from machine.core.inventory import Card
    from machine.inventory import Stored
    from machine.offer import Offered

LOCAL = "local"
_CARD_KEYS = ("index", "vendor", "name", "driver", "memory_mb", "uuid", "pci", "mig", "state")
_CARDS = columns("index", "name", "driver", "memory_mb", "pci", "mig", "state")
_OFFERED = columns("device", "opens", "granted_to")
_MIB = 1024 * 1024
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


def machine_layout(name: str) -> Layout:
    """The files of the machine that a command names.

    Raises:
        NotFoundError: there is no such machine.
    """
    if name != LOCAL:
        raise NotFoundError(f"there is no machine '{name}'", hint=f"this machine is called '{LOCAL}'")
    return layout()


@click.group()
def machine() -> None:
    """Set machines up, and show what they have. This machine is called 'local'."""


@machine.command()
@click.argument("machine_name", metavar="MACHINE")
@output_option
@root_option
def setup(machine_name: str) -> None:
    """Find MACHINE's devices, write their CDI specs and the inventory, as 'renet setup' does there.

    Ends with 1 when some devices cannot be granted, or grants of them cannot be used.
    """
    from cli.provision import provision  # noqa: PLC0415 - see cli.app.LazyGroup

    provision(machine_layout(machine_name), output_format())


@machine.group()
def gpu() -> None:
    """Show the GPUs of a machine."""


@gpu.command("list")
@click.argument("machine_name", metavar="MACHINE")
@output_option
@root_option
def list_(machine_name: str) -> None:
    """List MACHINE's GPUs, what can be granted there and what each name opens, and who holds it.

    '-o json' and '-o yaml' print the inventory as setup wrote it, '-o csv' one row for each GPU.
    """
    from base.clock import SystemClock  # noqa: PLC0415 - see cli.app.LazyGroup
    from machine.inventory import load  # noqa: PLC0415
    from machine.offer import offered  # noqa: PLC0415

    files, clock, form = machine_layout(machine_name), SystemClock(), output_format()
    stored = load(files)
    cards = [_card(each) for each in stored.inventory.gpus]
    match form:
        case Format.JSON:
            emit(stored.raw.decode())
        case Format.YAML:
            emit(render_record(json.loads(stored.raw), form))
        case Format.CSV:
            emit(render_rows(cards, _CARDS, form, keys=_CARD_KEYS))
        case Format.TABLE:
            age_s = int(stored.age(clock.now()).total_seconds())
            tables = [render_record(dict(_head(stored, age_s)), form), render_rows(cards, _CARDS, form)]
            tables.append(render_rows([_offer(each) for each in offered(files, clock)], _OFFERED, form))
            emit("\n".join(table for table in tables if table))
            for remark in stored.inventory.remarks:
                say(remark)


def _head(stored: "Stored", age_s: int) -> Iterator[tuple[str, str]]:
    inventory = stored.inventory
    yield "platform", inventory.platform.value
    yield "inventory", f"{_age(age_s)} old"
    if inventory.nvidia is not None:
        nvidia = inventory.nvidia
        yield "nvidia driver", nvidia.driver_version or "not loaded"
        yield "nvidia toolkit", nvidia.toolkit_version or "not installed"
        confidential = nvidia.confidential_computing
        if confidential is None:
            state = "not supported"
        elif not confidential.feature:
            state = "off"
        else:
            state = confidential.environment.value + (
                ", developer tools on" if confidential.dev_tools else ""
            )
            state += "" if confidential.ready else ", not ready"
        yield "confidential computing", state
    runtimes = ", ".join(f"{each.name} {each.version or '?'}" for each in inventory.runtimes)
    yield "runtimes", runtimes or "none"


def _card(card: "Card") -> Row:
    mig = card.mig
    slices = "" if mig is None else f"{len(mig.instances)} instances" if mig.instances else mig.mode.value
    return {
        "index": card.index,
        "vendor": card.vendor.value,
        "name": card.name,
        "driver": card.driver,
        "memory_mb": None if card.memory_bytes is None else card.memory_bytes // _MIB,
        "uuid": card.uuid,
        "pci": card.pci,
        "mig": slices,
        "state": "ok" if card.fault is None else card.fault.code,
    }


def _offer(each: "Offered") -> Row:
    holders = [f"{held.repo} (exclusive)" if held.exclusive else held.repo for held in each.holdings]
    return {"device": str(each.name), "opens": list(each.opens), "granted_to": holders}


def _age(age_s: int) -> str:
    for unit_s, word in ((_DAY_S, "day"), (_HOUR_S, "hour"), (_MINUTE_S, "minute")):
        if age_s >= unit_s:
            count = age_s // unit_s
            return f"{count} {word}" + ("" if count == 1 else "s")
    return "less than a minute"
