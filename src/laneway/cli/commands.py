"""The commands and their options. What they do is imported once one of them is called."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import typer

from laneway.cli.failures import BadUsage, guarded, report
from laneway.cli.output import take_any_text

__all__ = ["run"]

# Plain help: rich would take longer to import than all the rest.
_app = typer.Typer(
    name="laneway",
    help="Durable multi-turn agents: conversations on Temporal, histories in Redis.",
    epilog="APP is file.py, file.py:name or module:name. Commands find a `laneway dev` that runs on the current "
    "folder; else LANEWAY_TEMPORAL_ADDRESS and LANEWAY_REDIS_URL say where the servers are.",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _positive(value: float | None) -> float | None:
    if value is not None and not 0 < value < 1e9:
        raise typer.BadParameter(f"{value:g} is no number of seconds: give a positive one")
    return value


_App = Annotated[str, typer.Argument(metavar="APP", help="file.py, file.py:name or module:name")]
_Conversation = Annotated[str, typer.Argument(metavar="CONVERSATION", help="the conversation's id")]
_Agent = Annotated[str, typer.Argument(metavar="AGENT", help="the name under which the application has the agent")]
_Json = Annotated[bool, typer.Option("--json", help="Write JSON, errors too.")]
_DataDir = Annotated[
    Path, typer.Option("--data-dir", metavar="FOLDER", help="The folder that `laneway dev` keeps its data in.")
]
_DATA_DIR = Path(".laneway")


@_app.command()
def dev(app: _App, data_dir: _DataDir = _DATA_DIR, as_json: _Json = False) -> None:
    """Run servers and a worker here, and reload.

    A change of a Python file in the folder of APP starts the worker anew; the servers stay.
    """
    from laneway.cli.dev import develop

    _run(develop(app, data_dir=data_dir, as_json=as_json), as_json=as_json)


@_app.command()
def worker(app: _App, data_dir: _DataDir = _DATA_DIR, as_json: _Json = False) -> None:
    """Run a worker until Ctrl-C or SIGTERM."""
    from laneway.cli.worker import work

    _run(work(app, data_dir=data_dir, as_json=as_json), as_json=as_json)


@_app.command()
def chat(
    app: _App,
    agent: _Agent,
    conversation: Annotated[
        str | None,
        typer.Option("--conversation", "-c", metavar="ID", help="A conversation to go on with, or to begin."),
    ] = None,
    history: Annotated[int, typer.Option(min=0, help="How many messages of it to show.")] = 20,
    data_dir: _DataDir = _DATA_DIR,
    as_json: _Json = False,
) -> None:
    """Talk with an agent. Ctrl-C stops a turn; at the prompt it leaves."""
    from laneway.cli.chat import run_chat

    raise typer.Exit(
        guarded(
            lambda: run_chat(
                app, agent, conversation=conversation, history=history, data_dir=data_dir, as_json=as_json
            ),
            as_json=as_json,
        )
    )


@_app.command()
def send(
    app: _App,
    conversation: _Conversation,
    agent: _Agent,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="the prompt; - for standard input")],
    turn_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Names the turn: sent again, it gives its first outcome.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", callback=_positive, help="How long the turn may take.")
    ] = None,
    when_busy: Annotated[
        Literal["enqueue", "reject", "interrupt", "steer"],
        typer.Option(help="While a turn runs: wait, be refused, cancel it, or enter it before its next model request."),
    ] = "enqueue",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the output, or write the turn's id.")] = True,
    data_dir: _DataDir = _DATA_DIR,
    as_json: _Json = False,
) -> None:
    """Submit one turn and write its output."""
    from laneway.cli.sending import send_prompt

    _run(
        send_prompt(
            app,
            conversation,
            agent,
            prompt,
            turn_id=turn_id,
            timeout=timeout,
            when_busy=when_busy,
            wait=wait,
            data_dir=data_dir,
            as_json=as_json,
        ),
        as_json=as_json,
    )


@_app.command()
def lanes(
    conversation: Annotated[
        str | None, typer.Option("--conversation", "-c", metavar="ID", help="Of this one only.")
    ] = None,
    data_dir: _DataDir = _DATA_DIR,
    as_json: _Json = False,
) -> None:
    """List lanes: each conversation with each agent."""
    from laneway.cli.lanes import list_lanes

    _run(list_lanes(conversation, data_dir=data_dir, as_json=as_json), as_json=as_json)


@_app.command()
def show(
    conversation: _Conversation,
    agent: _Agent,
    app: Annotated[
        str | None, typer.Option(metavar="APP", help="Show the lane of the agent's contract in this application.")
    ] = None,
    contract: Annotated[str | None, typer.Option(metavar="DIGEST", help="Show the lane of this contract.")] = None,
    tree: Annotated[bool, typer.Option("--tree", help="Show its turns with those that they handed work to.")] = False,
    data_dir: _DataDir = _DATA_DIR,
    as_json: _Json = False,
) -> None:
    """Show a lane.

    Its turns, messages, checkpoint and epoch, and what it is doing.
    """
    from laneway.cli.inspection import show_lane

    _run(
        show_lane(conversation, agent, app=app, contract=contract, data_dir=data_dir, as_json=as_json, tree=tree),
        as_json=as_json,
    )


@_app.command()
def export(
    conversation: _Conversation,
    agent: _Agent,
    app: Annotated[
        str | None, typer.Option(metavar="APP", help="Export the lane of the agent's contract in this application.")
    ] = None,
    contract: Annotated[str | None, typer.Option(metavar="DIGEST", help="Export the lane of this contract.")] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to; - for standard output.")
    ] = "-",
    archives: Annotated[
        bool, typer.Option("--archives", help="With what the lane has archived: an object with messages and archives.")
    ] = False,
    data_dir: _DataDir = _DATA_DIR,
    as_json: _Json = False,
) -> None:
    """Write a lane's history as JSON.

    The committed messages, as a list in their framework's own form.
    """
    from laneway.cli.transfer import export_lane

    _run(
        export_lane(
            conversation,
            agent,
            app=app,
            contract=contract,
            output=output,
            archives=archives,
            data_dir=data_dir,
            as_json=as_json,
        ),
        as_json=as_json,
    )


@_app.command("import")
def import_(
    app: _App,
    conversation: _Conversation,
    agent: _Agent,
    file: Annotated[str, typer.Argument(metavar="FILE", help="what `laneway export` writes; - for standard input")],
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Close unanswered calls, remove results without one, rename reused call ids."),
    ] = False,
    turn_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Names the import: run again, it is not done twice.")
    ] = None,
    data_dir: _DataDir = _DATA_DIR,
    as_json: _Json = False,
) -> None:
    """Open a lane with a history from a file.

    It is checked whole before anything is written.
    """
    from laneway.cli.transfer import import_history

    _run(
        import_history(
            app, conversation, agent, file, repair=repair, turn_id=turn_id, data_dir=data_dir, as_json=as_json
        ),
        as_json=as_json,
    )


@_app.command()
def compact(
    app: _App,
    conversation: _Conversation,
    agent: _Agent,
    focus: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the summary should pay particular attention to.")
    ] = None,
    keep: Annotated[int, typer.Option(min=1, metavar="N", help="How many of the newest messages stay.")] = 2,
    turn_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Names the compaction: run again, it is not done twice.")
    ] = None,
    data_dir: _DataDir = _DATA_DIR,
    as_json: _Json = False,
) -> None:
    """Sum up a lane's history.

    Its older messages give way to a summary; it says what happened, or why nothing did.
    """
    from laneway.cli.compaction import compact_lane

    _run(
        compact_lane(
            app, conversation, agent, focus=focus, keep=keep, turn_id=turn_id, data_dir=data_dir, as_json=as_json
        ),
        as_json=as_json,
    )


@_app.command()
def cancel(
    conversation: _Conversation,
    agent: _Agent,
    turn_id: Annotated[str, typer.Argument(metavar="TURN_ID", help="the turn")],
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", callback=_positive, help="How long to wait for its end.")
    ] = 30.0,
    data_dir: _DataDir = _DATA_DIR,
    as_json: _Json = False,
) -> None:
    """Cancel a turn.

    Wherever it is, in the queue or running; waits until it has ended.
    """
    from laneway.cli.lanes import cancel_turn

    _run(
        cancel_turn(conversation, agent, turn_id, timeout=timeout, data_dir=data_dir, as_json=as_json), as_json=as_json
    )


_Request = Annotated[
    str, typer.Argument(metavar="REQUEST", help="the request's id, or the beginning of it; see `laneway pending`")
]


@_app.command()
def pending(
    conversation: Annotated[
        str | None, typer.Option("--conversation", "-c", metavar="ID", help="Of this one only.")
    ] = None,
    data_dir: _DataDir = _DATA_DIR,
    as_json: _Json = False,
) -> None:
    """List what turns wait for.

    Approvals, results of external tools, questions.
    """
    from laneway.cli.requests import list_pending

    _run(list_pending(conversation, data_dir=data_dir, as_json=as_json), as_json=as_json)


@_app.command()
def approve(
    request: _Request,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="Call the tool with these instead of the model's.")
    ] = None,
    data_dir: _DataDir = _DATA_DIR,
    as_json: _Json = False,
) -> None:
    """Let a tool call run that waits for approval."""
    _answer(request, lambda requests: requests.approval(arguments), data_dir=data_dir, as_json=as_json)


@_app.command()
def deny(
    request: _Request,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="What the model is told.")] = None,
    data_dir: _DataDir = _DATA_DIR,
    as_json: _Json = False,
) -> None:
    """Refuse a tool call that waits for approval."""
    _answer(request, lambda requests: requests.denial(reason), data_dir=data_dir, as_json=as_json)


@_app.command()
def answer(
    request: _Request,
    result: Annotated[str | None, typer.Argument(metavar="RESULT", help="the result, as JSON")] = None,
    error: Annotated[
        str | None, typer.Option(metavar="TEXT", help="There is no result: what the model is told.")
    ] = None,
    data_dir: _DataDir = _DATA_DIR,
    as_json: _Json = False,
) -> None:
    """Give the result of an external tool, or the answer to a question."""
    _answer(request, lambda requests: requests.answer_of(result, error), data_dir=data_dir, as_json=as_json)


def _answer(request: str, make: Callable[[Any], Any], *, data_dir: Path, as_json: bool) -> None:
    from laneway.cli import requests

    async def give() -> None:
        await requests.give_answer(request, make(requests), data_dir=data_dir, as_json=as_json)

    _run(give(), as_json=as_json)


@_app.command()
def doctor(data_dir: _DataDir = _DATA_DIR, as_json: _Json = False) -> None:
    """Look at Temporal and Redis.

    Whether they can carry conversations without losing any.
    """
    from laneway.cli.health import examine

    _run(examine(data_dir=data_dir, as_json=as_json), as_json=as_json)


def _run(command: Coroutine[Any, Any, int | None], *, as_json: bool) -> None:
    import asyncio

    def call() -> int | None:
        try:
            return asyncio.run(command)
        except asyncio.CancelledError:  # a second Ctrl-C, while the first one's stop was going on
            raise KeyboardInterrupt from None

    raise typer.Exit(guarded(call, as_json=as_json))


@runtime_checkable
class _Refusal(Protocol):
    # What the command line's parser raises has these; its classes' home differs between typer's versions.
    exit_code: int

    def format_message(self) -> str: ...


def run(arguments: Sequence[str]) -> int:
    """Run a command line. Returns the exit code."""
    take_any_text()
    command = typer.main.get_command(_app)
    try:
        return int(command.main(args=list(arguments), prog_name="laneway", standalone_mode=False) or 0)
    except Exception as error:
        if not isinstance(error, _Refusal):
            raise
        as_json = "--json" in arguments
        message = error.format_message()
        if not message or type(error).__name__ == "NoArgsIsHelpError":
            sys.stderr.write(f"{message}\n")
            return error.exit_code
        line = f"{message.rstrip('.')}; {_usage_hint(error)}"
        return report(BadUsage(line), as_json=as_json)


def _usage_hint(error: object) -> str:
    command = getattr(getattr(error, "ctx", None), "command_path", "laneway")
    return f"see `{command} --help`"
