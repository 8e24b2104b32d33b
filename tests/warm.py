"""`turnlog` as a process of its own that need not import anything: forked from a parent that has everything imported.

It has its own streams, environment, directory and exit code, and signals reach it, as if it had been started; only what
happens before `main` is missing. What is about that starts a real process.
"""

import atexit
import gc
import io
import json
import os
import pkgutil
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import turnlog

NOT_IMPORTED = ("turnlog.__main__", "turnlog.providers.", "turnlog.adapters.")
"""The first acts at once. The others import the libraries of all models and of all agent frameworks: few tests need
them, and not all of them are installed.
"""
LENGTH_BYTES = 4
PATIENCE = {
    "turnlog.server.service.READY_S": 120,
    "turnlog.server.service.LAST_NOTES_S": 120,
    "turnlog.server.api.channels.ACKNOWLEDGED_S": 120,
    "turnlog.channels.gateway.LAST_REPLIES_S": 120,
}
"""Limits after which a server says that it is too slow, or leaves something for later: a busy machine is both."""
ROOT = str(Path(__file__).parents[1])


class Process(subprocess.Popen):
    """Made, fed, read and waited for like any other; its parent, which reaps it, tells the exit code through a pipe."""

    def __init__(self, *args, files_max=None, constants=None, main="turnlog.cli.main:main", module="", **how):
        """`constants`: of modules, by dotted name, for tests that would otherwise wait for ten seconds to pass.

        `main`: what is called, as module:function. `module`: a module that takes seconds to import, as those of
        agent frameworks do; the parent is another one, which has imported that and nothing else.
        """
        self._module = module
        self._special = {"files_max": files_max, "constants": constants or {}, "main": main}
        super().__init__(args, **how)

    def _execute_child(self, args, *how):
        cwd, env, pipes = how[4], how[5], how[9:15]
        ours, theirs = os.pipe()
        wanted = {
            "args": [str(arg) for arg in args],
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd or os.getcwd()),
            **self._special,
        }
        streams = (pipes[0], pipes[3], pipes[5])
        descriptors = [own if given == -1 else given for own, given in enumerate(streams)]
        _parent(self._module).send(wanted, [*descriptors, theirs])
        os.close(theirs)
        self._close_pipe_fds(*pipes)
        self._told = io.FileIO(ours)
        self.pid = int.from_bytes(self._told.read(LENGTH_BYTES))
        self._child_created = True

    def _internal_poll(self, *_args, **_given):
        if self.returncode is None and self._has_ended(0):
            self._end()
        return self.returncode

    def _wait(self, timeout):
        if self.returncode is None:
            if not self._has_ended(timeout):
                raise subprocess.TimeoutExpired(self.args, timeout)
            self._end()
        return self.returncode

    def _has_ended(self, timeout):
        """By `poll`: `select` refuses descriptors above 1023, which a long run of tests may come to."""
        waiting = select.poll()
        waiting.register(self._told, select.POLLIN)
        return bool(waiting.poll(None if timeout is None else timeout * 1000))

    def _end(self):
        self.returncode = int.from_bytes(self._told.read(LENGTH_BYTES), signed=True)
        self._told.close()


def run(*args, stdin="", timeout=120, **how):
    """Like `subprocess.run`, with output captured as text."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Process(*args, text=True, **pipes, **how) as process:
        try:
            out, err = process.communicate(stdin, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(args, process.returncode, out, err)


def start_code(code, *args, module="", **how):
    """Like `python -c code args` with its end outside of the claim: the interpreter is not taken apart."""
    return Process(code, *args, main=RUN_CODE, module=module, **how)


def run_code(code, *args, **how):
    """The same, until it has ended."""
    return run(code, *args, main=RUN_CODE, **how)


RUN_CODE = "tests.warm:_execute"


def _execute():
    code = sys.argv[1]
    sys.argv = ["-c", *sys.argv[2:]]
    exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})


class _Parent:
    def __init__(self, module):
        self._socket, theirs = socket.socketpair()
        with theirs:
            clean = {k: v for k, v in os.environ.items() if not k.startswith(("TURNLOG_", "COV_", "PYTEST_"))}
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno()), module],
                env={**clean, "LANG": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        atexit.register(self.end)

    def send(self, wanted, descriptors):
        body = json.dumps(wanted).encode()
        socket.send_fds(self._socket, [len(body).to_bytes(LENGTH_BYTES)], descriptors)
        self._socket.sendall(body)

    def end(self):
        self._socket.close()
        self._process.wait()


@lru_cache
def _parent(module):
    return _Parent(module)


def _fork_for_each(requests):
    """Returns in each child, with what it is asked to do and its streams; in the parent, when nobody asks any more."""
    wake, told = os.pipe()
    os.set_blocking(told, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(told)
    children = {}
    while True:
        ready = select.select([wake, requests], [], [])[0]
        if wake in ready:
            os.read(wake, 4096)
            _tell_ends(children)
        if requests in ready:
            length, descriptors, _, _ = socket.recv_fds(requests, LENGTH_BYTES, 4)
            if not length:
                sys.exit()
            body = requests.recv(int.from_bytes(length), socket.MSG_WAITALL)
            if pid := os.fork():
                children[pid] = descriptors.pop()
                os.write(children[pid], pid.to_bytes(LENGTH_BYTES))
                for descriptor in descriptors:
                    os.close(descriptor)
            else:
                return json.loads(body), descriptors


def _tell_ends(children):
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        pipe = children.pop(pid)
        try:
            os.write(pipe, os.waitstatus_to_exitcode(status).to_bytes(LENGTH_BYTES, signed=True))
        except BrokenPipeError:
            pass  # the process that started it is gone
        os.close(pipe)


def _become(wanted, descriptors):
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    names = ("stdin", "stdout", "stderr")
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    for number, name in enumerate(names):
        old = getattr(sys, name)
        how = {"encoding": old.encoding, "errors": old.errors, "closefd": False}
        buffering = 1 if number == 2 or (number and os.isatty(number)) else -1
        setattr(sys, name, open(number, "w" if number else "r", buffering, **how))  # noqa: SIM115 - stays open
    os.environ.clear()
    os.environ.update(wanted["env"])
    os.chdir(wanted["cwd"])
    if limit := wanted["files_max"]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    sys.argv = ["turnlog", *wanted["args"]]
    patience = {} if wanted["main"] == RUN_CODE else PATIENCE
    for path, value in {**patience, **wanted["constants"]}.items():
        _set(path, value)
    module, _, function = wanted["main"].partition(":")
    return getattr(import_module(module), function)


def _set(path, value):
    owner, name = find(path)
    assert hasattr(owner, name) or path in PATIENCE, f"there is no {path}"
    setattr(owner, name, value)


def find(path):
    """The module and the name of a constant."""
    module, _, name = path.rpartition(".")
    return import_module(module), name


def _import_everything():
    for module in pkgutil.walk_packages(turnlog.__path__, "turnlog."):
        if not module.name.startswith(NOT_IMPORTED):
            import_module(module.name)
    import_module("turnlog.providers.scripted")
    import_module("turnlog.providers.offline")
    import_module("uvloop")
    import_module("litestar").Litestar(logging_config=None)  # imports what is imported for the first application only


def _end_quickly(main):
    """As the interpreter would end, without taking every module apart first: that takes longer than most commands."""
    try:
        main()
        code = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    if sys.argv[2]:
        import_module(sys.argv[2])
    else:
        _import_everything()
    sys.path.append(ROOT)
    gc.collect()
    gc.freeze()  # a collection in a child would otherwise copy all of it
    _end_quickly(_become(*_fork_for_each(socket.socket(fileno=int(sys.argv[1])))))
