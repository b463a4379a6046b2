"""`virta completion`: what a shell needs to complete commands, topics and columns."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import BashComplete, get_completion_class

from virta.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
_INSTALL = {
    "bash": 'eval "$(virta completion bash)"          # in ~/.bashrc',
    "zsh": 'eval "$(virta completion zsh)"           # in ~/.zshrc',
    "fish": "virta completion fish > ~/.config/fish/completions/virta.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
def completion(shell: str | None) -> None:
    """Completion of commands, topics and columns for your shell.

    Prints the shell's code; without a name, for the shell in $SHELL.

    \b
    Examples:
      eval "$(virta completion bash)"          # in ~/.bashrc
      eval "$(virta completion zsh)"           # in ~/.zshrc
      virta completion fish > ~/.config/fish/completions/virta.fish
    """
    click.echo(_code(shell or _own_shell()), nl=False)


def _own_shell() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise UsageError("which shell is not known", hint=f"virta completion {'|'.join(SHELLS)}")
    return name


def _code(shell: str) -> str:
    kind = get_completion_class(shell)
    assert kind is not None
    # click asks the installed bash for its version first; whoever runs this has decided.
    kind = _Bash if kind is BashComplete else kind
    command = click.Command("virta")
    return kind(command, {}, "virta", "_VIRTA_COMPLETE").source() + "\n"


class _Bash(BashComplete):
    def _check_version(self) -> None:  # type: ignore[override]
        return None
