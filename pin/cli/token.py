"""`pin token`: tokens of the local stack, signed with the key that it made for itself."""

from uuid import UUID

import rich_click as click

from pin.cli.faults import Fault, told_plainly

_LIFETIME = click.option("--lifetime", default="1h", show_default=True, help="For how long, such as 1h or 00:30:00.")


@click.group()
def token() -> None:
    """Make a token for the local stack."""


@token.command()
@click.option("--user", type=click.UUID, help="The user's id; a new one unless given.")
@click.option("--tenant", type=click.UUID, help="The tenant's id; a new one unless given.")
@_LIFETIME
def user(user: UUID | None, tenant: UUID | None, lifetime: str) -> None:
    """Print the token of a user of a tenant; who they are goes to stderr."""
    from pin.clock import new_id

    user, tenant = user or new_id(), tenant or new_id()
    minted = _minted(lifetime, user_id=user, tenant_id=tenant)
    click.echo(f"user {user} of tenant {tenant}", err=True)
    click.echo(minted)


@token.command()
@click.option("--client", default="news", show_default=True, help="The client's id.")
@_LIFETIME
def m2m(client: str, lifetime: str) -> None:
    """Print the token of a service, as news itself has one."""
    click.echo(_minted(lifetime, client=client))


def _minted(
    lifetime: str, *, client: str | None = None, user_id: UUID | None = None, tenant_id: UUID | None = None
) -> str:
    from pin.access.signing import mint
    from pin.clock import utc_now
    from pin.config.loading import load_settings
    from pin.config.timespan import parse_timespan
    from pin.stack.local import KEY_ID, local_keys

    with told_plainly():
        settings = load_settings()
    try:
        span = parse_timespan(lifetime)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--lifetime") from None
    path = local_keys(settings.state_dir).private
    try:
        key = path.read_bytes()
    except OSError as error:
        raise Fault(f"no key of a local stack in {path} ({error.strerror}): start one with `pin up`") from None
    return mint(
        key,
        kid=KEY_ID,
        issuer=settings.auth.issuer,
        audience=settings.auth.audience,
        lifetime=span,
        now=utc_now(),
        client=client,
        user_id=user_id,
        tenant_id=tenant_id,
    )
