"""`laneway dev` and `laneway worker`: processes that run on until they are told to stop."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import PATIENCE_S, CommandLine, DevProcess, terminal

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_gone(pid):
        assert time.monotonic() < deadline, f"process {pid} goes on"
        time.sleep(0.05)


def test_client_commands_find_it_by_themselves(dev: DevProcess):
    """No variable is set; the folder is enough."""
    done = dev.line.run("send", "shop.py", "c", "talker", "hello")
    assert (done.code, done.out) == (0, "you said hello\n")
    assert dev.line.run("lanes", "--json").json()["lanes"][0]["conversation"] == "c"
    found = dev.line.run("doctor", "--json").json()
    assert (found["status"], found["dev"]) == ("ok", True)


def test_it_goes_before_variables_and_chat_says_so(dev: DevProcess):
    """Nobody should think to be talking to another server."""
    done = dev.line.run("chat", "shop.py", "talker", stdin="hi\n", LANEWAY_REDIS_URL="redis://127.0.0.1:1/0")
    assert (done.code, done.out) == (0, "you said hi\n")
    assert "talking to the `laneway dev` of .laneway; not used: LANEWAY_REDIS_URL" in done.err


def test_a_second_one_on_the_same_folder_is_refused(dev: DevProcess):
    done = dev.line.run("dev", "shop.py")
    assert done.code == 2
    assert re.match(r"laneway: the data folder '.*\.laneway' is in use by the process with pid \d+; stop it", done.err)


def test_a_change_of_the_code_starts_the_worker_anew(dev: DevProcess):
    """The servers stay, and the next turn runs the new code."""
    servers = [event for event in dev.seen if event["event"] == "dev.servers"]
    before = dev.seen[-1]["pid"]
    source = dev.line.folder / "shop.py"
    source.write_text(source.read_text().replace('"you"', '"now you"'))
    assert dev.wait_for("dev.reload")["changed"] == ["shop.py"]
    assert dev.wait_for("worker.ready")["pid"] != before
    wait_until_gone(before)
    assert dev.line.run("send", "shop.py", "c", "talker", "hello").out == "now you said hello\n"
    assert [event for event in dev.seen if event["event"] == "dev.servers"] == servers


def test_code_that_does_not_import_is_told_and_waited_on(dev: DevProcess):
    """The servers stay; once it is corrected the worker is back."""
    source = dev.line.folder / "shop.py"
    good = source.read_text()
    source.write_text(good + "\nraise RuntimeError('half written')\n")
    dev.wait_for("dev.waiting")
    (error,) = [event for event in dev.seen if event.get("error")]
    assert error["error"] == "ConfigurationError"
    assert "shop.py does not import: RuntimeError: half written (shop.py, line " in error["message"]
    source.write_text(good)
    dev.wait_for("worker.ready")


def test_a_worker_that_is_killed_is_replaced(dev: DevProcess):
    """Its turns go on in the next one."""
    pid = next(event["pid"] for event in reversed(dev.seen) if event["event"] == "worker.ready")
    os.kill(pid, signal.SIGKILL)
    assert dev.wait_for("dev.worker_ended")["code"] == -signal.SIGKILL
    assert dev.wait_for("worker.ready")["pid"] != pid


def test_a_worker_joins_it_and_stops_when_it_is_told_to(dev: DevProcess):
    """SIGTERM is a clean end."""
    worker = DevProcess.start(dev.line, "shop.py", command="worker")
    try:
        ready: dict[str, Any] = worker.wait_for("worker.ready")
        assert ready["agents"] == ["pricer", "talker"]
        assert ready["temporal_address"] == dev.seen[0]["temporal_address"]
        assert worker.interrupt(signal.SIGTERM) == 0
        assert worker.wait_for("worker.stopped")["pid"] == ready["pid"]
    finally:
        worker.end()


def test_ctrl_c_at_the_terminal_stops_everything_and_keeps_the_data(bare: CommandLine):
    """Neither servers nor worker are left; the next one goes on with the conversations."""
    with terminal(bare, "dev", "shop.py") as screen:
        screen.expect(r"Temporal +127\.0\.0\.1:\d+")
        screen.expect("worker ready +pricer, talker")
        worker = int(screen.expect(r"pid \d+").split()[1])
        pids = [int(pid) for pid in re.findall(r'"pid": ?(\d+)', (bare.folder / ".laneway/servers.json").read_text())]
        assert bare.run("send", "shop.py", "c", "talker", "hello").code == 0
        screen.press_ctrl_c()
        screen.expect("stopped; .laneway keeps every conversation")
        assert screen.wait() == 0
    assert "Traceback" not in screen.shown
    assert len(pids) == 2
    for pid in (*pids, worker):
        assert is_gone(pid)
    with terminal(bare, "dev", "shop.py") as screen:
        screen.expect("worker ready")
        assert bare.run("lanes", "--json").json()["lanes"][0]["conversation"] == "c"


def test_killed_it_takes_servers_and_worker_with_it(bare: CommandLine):
    """However it ends, nothing is left running."""
    dev = DevProcess.start(bare, "shop.py")
    try:
        worker = dev.wait_for("worker.ready")["pid"]
        servers = dev.seen[0]["pids"].values()
        dev.process.kill()
        for pid in (worker, *servers):
            wait_until_gone(pid)
    finally:
        dev.end()


def test_an_app_that_does_not_load_in_the_first_place_ends_it(bare: CommandLine):
    """With the line that says why, and no server left."""
    (bare.folder / "shop.py").write_text("import nothing_like_it\n")
    done = bare.run("dev", "shop.py")
    assert done.code == 2
    assert done.err == (
        "laneway: shop.py does not import: ModuleNotFoundError: No module named 'nothing_like_it' (shop.py, line 1: "
        "import nothing_like_it); correct it and try again\n"
    )
    assert not (bare.folder / ".laneway" / "dev.json").exists()
