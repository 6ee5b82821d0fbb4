"""`pin completion`: a script that completes commands and options in a shell."""

import rich_click as click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script; for bash: eval "$(pin completion bash)"."""
    from click.shell_completion import get_completion_class

    from pin.cli import cli

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(found(cli, {}, "pin", "_PIN_COMPLETE").source())
