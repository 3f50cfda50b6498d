"""The list of the commands says of each what the command says of itself."""

from __future__ import annotations

import inspect

import pytest

from persistent.tools.cli import COMMANDS, command_of


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says(name: str) -> None:
    """The sentence in the list would stay as it was when the command changes."""
    command = command_of(name)
    assert command.name == name
    assert " ".join(str(command.help).split("\n\n")[0].split()) == COMMANDS[name][1]


def test_no_command_is_forgotten() -> None:
    """A command that is not in the table cannot be called."""
    modules = {inspect.getmodule(command_of(name).callback) for name in COMMANDS}
    click = type(command_of("run"))
    made = {(module, name) for module in modules for name, one in vars(module).items() if isinstance(one, click)}
    assert len(made) == len(COMMANDS)
