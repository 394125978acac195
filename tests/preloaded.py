"""Commands in forks of a process that has the library imported: a page of many commands imports torch once.

`python -m tests.preloaded --serve SOCKET` serves; as a script, with a socket and the words of a command, this file asks
it for that command, with its own directory, environment and standard streams, and ends as the command does. The server
computes nothing, so that what it forks may.
"""

import array
import json
import os
import socket
import sys

MESSAGE = 1 << 20  # bytes of a request at most


def ask(path: str, words: list[str]) -> int:
    """The exit code of a command; of Python's own if the words are `-c` and some code."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(path)
        request = json.dumps({"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}).encode()
        streams = array.array("i", [0, 1, 2])
        server.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        return int(server.recv(16) or b"1")


def serve(path: str) -> None:
    """Until it is killed; `ready` on standard output says that it listens."""
    import importlib
    import pkgutil

    import torch._dynamo  # noqa: F401  # which every optimizer loads

    import clozeworks

    for module in pkgutil.walk_packages(clozeworks.__path__, "clozeworks."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            asker, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _answer(asker)
            asker.close()
            while _reap():
                pass


def _reap() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] > 0
    except ChildProcessError:
        return False


def _answer(asker: socket.socket) -> None:
    """In a process of its own: start what is asked for, and say how it ended."""
    request, streams, *_ = socket.recv_fds(asker, MESSAGE, 3)
    child = os.fork()
    if child == 0:
        asker.close()
        _become(streams, **json.loads(request))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    asker.send(str(code if code >= 0 else 128 - code).encode())
    os._exit(0)


def _become(streams: list[int], words: list[str], folder: str, environment: dict[str, str]) -> None:
    """Run the command as if this were its own process, and end."""
    import traceback
    import types

    status = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin, sys.stdout, sys.stderr = (open(n, "r" if n == 0 else "w", closefd=False) for n in range(3))  # noqa: SIM115
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.path.insert(0, folder)
        if words[:1] == ["-c"]:
            sys.argv = ["-c"]
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(words[1], "<page>", "exec"), vars(main))
        else:
            from clozeworks.cli.main import leave

            sys.argv = ["clozeworks", *words]
            leave()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2])
    sys.exit(ask(sys.argv[1], sys.argv[2:]))
