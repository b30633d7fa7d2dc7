"""A graph under a profile: made anew by its application's factory, which says where each part of a profile goes.

A compiled graph has its models, tools and prompts in closures, where nobody can exchange them. So profiles need the
function that makes the graph. What a profile says and the function has not asked for would be silently left out; it is
refused by name instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, TypeAlias, TypeVar, cast

from langchain_core.language_models import BaseChatModel
from pydantic import ValidationError

from laneway.activities.profiles import RunProfile
from laneway.errors import ConfigurationError

__all__ = ["GraphFactory", "GraphProfile", "made_under"]

DefaultT = TypeVar("DefaultT")

_MADE: Final = frozenset({"async_client", "client", "root_async_client", "root_client"})
"""Fields in which a model holds what it has made of its other fields."""


class GraphProfile:
    """What a graph factory asks for: each part of the profile in force, or the graph's own where it says nothing.

    Args:
        run: the profile.
    """

    def __init__(self, run: RunProfile) -> None:
        self._run = run
        self._asked: set[str] = set()

    def model(self, default: str | BaseChatModel) -> BaseChatModel:
        """The chat model, with the profile's settings laid over its own, key by key.

        Args:
            default: the graph's own: a model, or its name as `init_chat_model` takes it.

        Raises:
            ConfigurationError: the model has no such setting, or does not take its value.
        """
        self._asked |= {"model", "model_settings"}
        model: object = default if self._run.model is None else self._run.model
        if isinstance(model, str):
            named: BaseChatModel = import_module("langchain.chat_models").init_chat_model(model)
            return _with_settings(named, self._run.model_settings)
        if not isinstance(model, BaseChatModel):
            raise ConfigurationError(
                f"the profile's model is a {type(model).__name__}, and a graph's is a chat model of LangChain's, or "
                "the name of one, as init_chat_model takes it"
            )
        return _with_settings(model, self._run.model_settings)

    def instructions(self, default: DefaultT) -> str | DefaultT:
        """The system prompt.

        Args:
            default: the graph's own.

        Raises:
            ConfigurationError: the profile has a function in its place.
        """
        self._asked.add("instructions")
        found: object = self._run.instructions
        if found is None:
            return default
        if not isinstance(found, str):
            raise ConfigurationError(
                "the profile's instructions are a function, and graphs are made with text: give text, or have the "
                "graph make its prompt with middleware"
            )
        return found

    def tools(self, default: Iterable[Any]) -> list[Any]:
        """The function tools: the profile's in place of the graph's own, `default`."""
        self._asked.add("tools")
        return list(default if self._run.tools is None else self._run.tools)

    def mcp(self, default: Iterable[Any] = ()) -> list[Any]:
        """The tools of tool servers: those of the profile's in place of the graph's own, `default`.

        A server is registered with the application as what a client of its gave: the list of its tools.

        Raises:
            ConfigurationError: one of the profile's is no list of tools.
        """
        self._asked.add("mcp")
        if self._run.mcp is None:
            return list(default)
        for server in self._run.mcp:
            if not isinstance(server, list | tuple):
                raise ConfigurationError(
                    f"the profile's tool server is a {type(server).__name__}, and a graph's is the list of its tools: "
                    "register what its client's get_tools() gave"
                )
        return [tool for server in cast("Sequence[Sequence[Any]]", self._run.mcp) for tool in server]

    def left_out(self) -> list[str]:
        """What the profile says and nobody asked for."""
        said = {
            "model": self._run.model is not None,
            "model_settings": bool(self._run.model_settings),
            "instructions": self._run.instructions is not None,
            "tools": self._run.tools is not None,
            "mcp": self._run.mcp is not None,
        }
        return [part for part, is_said in said.items() if is_said and part not in self._asked]


GraphFactory: TypeAlias = Callable[[GraphProfile], Any]


def made_under(factory: GraphFactory, run: RunProfile) -> object:
    """What a factory makes under a profile.

    Raises:
        ConfigurationError: it leaves out what the profile says, or cannot make a graph of it.
    """
    profile = GraphProfile(run)
    try:
        graph = factory(profile)
    except ConfigurationError:
        raise
    except Exception as error:
        if run.is_empty:
            raise
        raise ConfigurationError(
            f"no graph could be made under the profile: {type(error).__name__}: {error}"
        ) from error
    if left_out := profile.left_out():
        named = ", ".join(left_out)
        advice = ", ".join(f"profile.{'model' if part == 'model_settings' else part}(…)" for part in left_out)
        raise ConfigurationError(
            f"the profile has {named}, which the function that makes the graph does not ask for: have it use {advice}, "
            "or leave them out of the profile"
        )
    return graph


def _with_settings(model: BaseChatModel, settings: Mapping[str, object]) -> BaseChatModel:
    """A model made anew with other settings, so that it checks them, and makes its client with them."""
    if not settings:
        return model
    kind = type(model)
    names = {field.alias: name for name, field in kind.model_fields.items() if field.alias}
    laid = {names.get(name, name): value for name, value in settings.items()}
    if unknown := sorted(laid.keys() - kind.model_fields.keys()):
        raise ConfigurationError(
            f"{kind.__name__} has no setting {', '.join(unknown)}: give model_settings by the names of its fields"
        )
    own: dict[str, Any] = {name: getattr(model, name) for name in model.model_fields_set - _MADE}
    taken = {field.alias or name: name for name, field in kind.model_fields.items()}
    by_name: dict[str, Any] = {**own, **laid}
    try:
        if kind.model_config.get("populate_by_name") or kind.model_config.get("validate_by_name"):
            return kind(**by_name)
        return kind(**{alias: by_name[name] for alias, name in taken.items() if name in by_name})
    except (ValidationError, ValueError, TypeError) as error:
        raise ConfigurationError(f"{kind.__name__} does not take the profile's model_settings: {error}") from error
