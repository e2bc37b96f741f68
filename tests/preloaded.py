"""Programs that start fast: each is a fork of one process that has loaded the libraries once.

A start of `localjudge` imports torch, transformers and SciPy, which costs seconds of CPU time, and the pages of
the guide alone start it 180 times. The fork of a process that has imported them costs milliseconds, and is a
real process with its own directory, environment, arguments, standard streams, signals and exit code:

    with Preloaded(os.environ) as programs:
        subprocess.run([*programs.localjudge, "show", run])

The command is a small client. It hands its standard streams to the server, which forks; it passes signals on,
and ends as the fork ends. SIGUSR1 is passed on as SIGKILL, since nothing can follow a SIGKILL of the client
itself: then the server kills the fork a moment later.

The interpreter and the libraries have read the environment of the server, not of the client (except
PYTHONIOENCODING). So tests of imports, of variables that libraries read at import, and of the streams before
the first line of a program start a real interpreter, or a server with that environment.
"""

from __future__ import annotations

import marshal
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, NoReturn

# A start imports this file: what only the server needs is imported there.
MAIN = os.path.join(os.path.dirname(os.path.dirname(__file__)), "localjudge", "__main__.py")
LIBRARIES = (
    "localjudge.studies.by_system_or_tag", "localjudge.report.tables",
    "localjudge.engines.transformers.transformers_engine", "localjudge.report.run_report",
    "localjudge.runs.pipeline", "scipy.stats", "sklearn.metrics",
    "transformers.models.llama.modeling_llama", "transformers.processing_utils",
)  # fmt: skip
THREADS = {"jemalloc_bg_thd"}
"""Threads that a process may have besides the one that forks: jemalloc starts this one again in a fork."""
KILL = signal.SIGUSR1
"""The signal to a client that kills its fork."""
PASSED_ON = {KILL: signal.SIGKILL} | {each: each for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}


class Preloaded:
    """The process that forks, for as long as the context lasts; it ends if this process does."""

    def __init__(self, environment: Mapping[str, str], stderr: IO[bytes] | None = None) -> None:
        import subprocess

        pipe = subprocess.PIPE
        command = [sys.executable, __file__]
        self._server = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=stderr, text=True, env=dict(environment)
        )
        assert self._server.stdout
        self._address = self._server.stdout.readline().strip()
        assert self._address, "the libraries cannot be imported"

    def __enter__(self) -> Preloaded:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    @property
    def client(self) -> list[str]:
        """Return the command that runs the script that follows it, with the script's arguments."""
        return [sys.executable, "-I", "-S", __file__, self._address]

    @property
    def localjudge(self) -> list[str]:
        return self.script(MAIN)

    def script(self, file: object) -> list[str]:
        """Return the command that runs a script; the script's arguments may follow."""
        return [*self.client, str(file)]


def preload() -> None:
    """Import what the programs use. A library that starts a thread is refused: a fork would lack the thread.

    The garbage collector of a fork looks at no object that is here: it would copy the memory of all of them.
    """
    import gc
    from importlib import import_module
    from pathlib import Path
    from pkgutil import iter_modules

    gc.disable()
    given = dict(os.environ)
    import_module("localjudge.cli.options").settle_environment()
    commands = import_module("localjudge.cli").__path__
    for name in (*(module.name for module in iter_modules(commands, "localjudge.cli.")), *LIBRARIES):
        import_module(name)
    os.environ.clear()
    os.environ |= given
    gc.freeze()
    gc.enable()
    others = (task for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid()))
    threads = {(task / "comm").read_text("utf-8").strip() for task in others}
    assert threads <= THREADS, f"started at import: {threads - THREADS}"


def serve() -> tuple[bytes, list[int]]:
    """Fork for each client, and send it the exit status; return its request in the fork."""
    import selectors

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind("")  # Linux chooses a name that is not a file
    listener.listen(64)
    print(listener.getsockname()[1:].decode(), flush=True)
    events = selectors.DefaultSelector()
    events.register(sys.stdin, selectors.EVENT_READ)
    events.register(listener, selectors.EVENT_READ)
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for ready, _ in events.select():
            if ready.fileobj is sys.stdin:  # the tests have ended
                sys.exit()
            if ready.fileobj is listener:
                client, _ = listener.accept()
                request, streams, _, _ = socket.recv_fds(client, 1 << 20, 3)
                if (process := os.fork()) == 0:
                    events.close()
                    listener.close()
                    client.close()
                    for handle, other in running.values():
                        os.close(handle)
                        other.close()
                    return request, streams
                for stream in streams:
                    os.close(stream)
                running[process] = os.pidfd_open(process), client
                for source in running[process]:
                    events.register(source, selectors.EVENT_READ, process)
            elif ready.data in running:
                process, (handle, client) = ready.data, running[ready.data]
                if ready.fileobj is client:
                    os.kill(process, int(client.recv(64) or signal.SIGKILL))
                    continue
                _, status = os.waitpid(process, 0)
                for source in running.pop(process):
                    events.unregister(source)
                os.close(handle)
                with client, suppress(BrokenPipeError):
                    client.send(str(status).encode())


def become(request: bytes, streams: list[int]) -> NoReturn:
    """Run a script as a new process would, to the handlers of its exit.

    The rest, where an interpreter frees each object, would copy all memory of the server, and takes a second.
    """
    import atexit
    import locale
    import runpy
    import threading
    import traceback

    arguments, folder, environment = marshal.loads(request)
    sys.argv = [os.fsdecode(each) for each in arguments]
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environb.clear()
    os.environb |= environment
    encoding = os.environ.get("PYTHONIOENCODING") or locale.getencoding()
    sys.stdin = open(0, encoding=encoding, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding=encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115
    code: object = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else bool(code))


def start(address: str, *arguments: str) -> None:
    """Have the server run a script, and end as it ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        server.connect(b"\0" + address.encode())
        # As bytes: the server may decode them otherwise.
        request = [os.fsencode(each) for each in arguments], os.getcwdb(), dict(os.environb)
        socket.send_fds(server, [marshal.dumps(request)], [0, 1, 2])
        for number in PASSED_ON:
            signal.signal(number, lambda number, _: server.send(b"%d" % PASSED_ON[number]) and None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        status = int(server.recv(64))
    if os.WIFSIGNALED(status):
        with suppress(OSError):  # nothing can be set for SIGKILL
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    if sys.argv[1:]:
        start(*sys.argv[1:])
    else:
        preload()
        become(*serve())
