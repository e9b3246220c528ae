"""The processes that render chat templates, when they do not answer."""

import fcntl
import gc
import os
import resource
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from penstock.router.chat import renderer
from penstock.router.chat.renderer import NUM_PROCESSES, SECONDS, Renderer, RendererProcess, Renderers
from penstock.router.errors import RouterError, TemplateError

TEMPLATES = {"default": "{{ text }}"}


def stop(process: RendererProcess) -> None:
    """Stops a process, and returns when it reads nothing more."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


def wait_for_question(process: RendererProcess) -> None:
    """Waits until something is written to a stopped process."""
    while fcntl.ioctl(process.link, termios.TIOCOUTQ, bytes(4)) == bytes(4):
        time.sleep(0.01)


def test_a_process_that_is_stopped_is_replaced_though_its_socket_is_full(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:
    once_more = renderer._once_more

    def patiently(impatient: Renderer, question: str) -> dict[str, Any]:
        impatient._seconds = SECONDS
        return once_more(impatient, question)

    monkeypatch.setattr(renderer, "_once_more", patiently)
    renderers = Renderers(TEMPLATES)
    renderers.compile()
    [process] = renderers.each[-1]._processes
    stop(process)
    renderers.each[-1]._seconds = 1.0
    text = "a" * 1_000_000
    began = time.monotonic()
    assert renderers.render("default", {"text": text}) == text
    assert time.monotonic() - began >= 1.0
    assert process.returncode == -signal.SIGKILL
    assert caplog.messages == [
        "a template process is lost, no answer within 1 s: a new one renders the conversation"]


def test_a_process_that_is_killed_at_rest_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    renderers = Renderers(TEMPLATES)
    renderers.compile()
    [process] = renderers.each[-1]._processes
    os.kill(process.pid, signal.SIGKILL)
    while process.poll() is None:
        time.sleep(0.01)
    assert renderers.render("default", {"text": "a"}) == "a"
    assert caplog.messages == ["a template process has ended with status -9: a new one is started"]


def test_a_process_that_is_killed_while_it_renders_is_replaced() -> None:
    renderers = Renderers(TEMPLATES)
    renderers.compile()
    [process] = renderers.each[-1]._processes
    stop(process)
    with ThreadPoolExecutor(1) as thread:
        rendered = thread.submit(renderers.render, "default", {"text": "a"})
        wait_for_question(process)
        os.kill(process.pid, signal.SIGKILL)
        assert rendered.result() == "a"
    assert process.returncode == -signal.SIGKILL


def test_two_lost_processes_are_the_servers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    renderers = Renderers(TEMPLATES)
    renderers.compile()
    monkeypatch.setattr(renderer, "_COMMAND", (sys.executable, "-c", "raise SystemExit(3)"))
    for each in renderers.each:
        for process in each._processes:
            process.kill()
            process.wait()
    with pytest.raises(RouterError, match="can't be rendered: its process ended with status 3") as caught:
        renderers.render("default", {"text": "a"})
    assert not isinstance(caught.value, TemplateError)
    assert caught.value.status == 500
    monkeypatch.undo()
    assert renderers.render("default", {"text": "a"}) == "a"


@contextmanager
def few_file_descriptors(num_free: int) -> Iterator[None]:
    """Leaves this process so many file descriptors."""
    gc.collect()  # what other tests left would be closed in the block
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 8, limits[1]))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(num_free):
            os.close(taken.pop())
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_conversation_is_rendered_though_no_file_descriptor_is_free() -> None:
    renderers = Renderers(TEMPLATES)
    renderers.compile()
    with few_file_descriptors(0):
        assert renderers.render("default", {"text": "a"}) == "a"


def open_files() -> set[str]:
    """The names of this process's open files: of sockets and pipes, which no two have in common."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the folder itself, closed by now
            found.add(os.readlink(f"/proc/self/fd/{fd}"))
    return found


@pytest.mark.parametrize("num_free", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_a_process_is_started_when_there_are_file_descriptors_again(
    num_free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renderer, "_PAUSE_SECONDS", 0.05)
    renderers = Renderers(TEMPLATES)
    before = open_files()
    with ThreadPoolExecutor(1) as thread:
        with few_file_descriptors(num_free):
            rendered = thread.submit(renderers.render, "default", {"text": "a"})
            with pytest.raises(TimeoutError):
                rendered.result(5 * renderer._PAUSE_SECONDS)
        assert rendered.result() == "a"
    assert len(open_files() - before) == 1


def test_a_process_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renderer, "_COMMAND", ("/nowhere",))
    with pytest.raises(RouterError, match=r"its process can't be started: .*'/nowhere'"):
        Renderers(TEMPLATES, seconds=0.1).render("default", {"text": "a"})


def test_what_takes_long_holds_up_no_other() -> None:
    renderers = Renderers(TEMPLATES)
    for each in renderers.each:
        each.compile()
    [process] = renderers.each[-1]._processes
    stop(process)
    with ThreadPoolExecutor(1) as thread:
        slow = thread.submit(renderers.render, "default", {"text": "slow"})
        wait_for_question(process)
        for _ in range(NUM_PROCESSES):
            assert renderers.render("default", {"text": "a"}) == "a"
        assert not slow.done()
        process.send_signal(signal.SIGCONT)
        assert slow.result() == "slow"
    assert process.returncode is None


def test_nothing_is_left_when_it_is_closed_amid_a_rendering(caplog: pytest.LogCaptureFixture) -> None:
    renderers = Renderers(TEMPLATES)
    renderers.compile()
    [process] = renderers.each[-1]._processes
    stop(process)
    with ThreadPoolExecutor(1) as thread:
        rendered = thread.submit(renderers.render, "default", {"text": "a"})
        wait_for_question(process)
        renderers.close()
        with pytest.raises(RouterError, match="its template is closed"):
            rendered.result()
    with pytest.raises(RouterError, match="its template is closed"):
        renderers.render("default", {"text": "a"})
    assert process.returncode == -signal.SIGKILL
    assert not any(each._processes for each in renderers.each)
    assert not caplog.messages


def test_nothing_is_left_when_it_is_closed_amid_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    renderers, has_begun, may_go_on = Renderers(TEMPLATES), threading.Event(), threading.Event()
    start, started = renderer._start, []

    def slowly(deadline: float) -> RendererProcess:
        started.append(start(deadline))
        has_begun.set()
        may_go_on.wait()
        return started[0]

    monkeypatch.setattr(renderer, "_start", slowly)
    with ThreadPoolExecutor(2) as threads:
        rendered = threads.submit(renderers.render, "default", {"text": "a"})
        has_begun.wait()
        closed = threads.submit(renderers.close)
        while not renderers.each[-1]._is_closed:
            time.sleep(0.01)
        may_go_on.set()
        closed.result()
        with pytest.raises(RouterError, match="its template is closed"):
            rendered.result()
    assert started[0].returncode == -signal.SIGKILL
    assert len(started) == 1


def test_a_process_whose_router_is_dead_ends_in_silence() -> None:
    process = subprocess.Popen(renderer._COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    process.stdout.close()
    process.stdin.write(b"{}\n")
    process.stdin.close()
    assert process.stderr
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == -signal.SIGPIPE


def test_a_process_whose_router_died_before_it_read_an_answer_ends_in_silence() -> None:
    ours, its = socket.socketpair()
    with its:
        process = subprocess.Popen(renderer._COMMAND, stdin=its, stdout=its, stderr=subprocess.PIPE, text=True)
    ours.sendall(b"{}\n")
    while not ours.recv(100, socket.MSG_PEEK).endswith(b"\n"):
        time.sleep(0.01)
    ours.close()
    assert process.communicate() == (None, "")
    assert process.returncode == 0
