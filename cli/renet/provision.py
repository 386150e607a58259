"""`renet setup`: bring this machine under management."""

import click

from cli.app import layout, output_format, output_option, root_option


@click.command("setup")
@output_option
@root_option
def setup() -> None:
    """Find this machine's devices, write their CDI specs and the inventory.

    NVIDIA's spec is made by nvidia-ctk, those of render nodes (rediacc.io/dri) and AMD cards (rediacc.io/amd)
    by renet. Run it again after a driver update, a change of cards or of MIG; grants stay as they are. A spec
    that engines could not load is not written.

    Ends with 1 when some devices cannot be granted, or grants of them cannot be used.
    """
    from cli.provision import provision  # noqa: PLC0415 - see cli.app.LazyGroup

    provision(layout(), output_format())
