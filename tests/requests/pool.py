"""Starts two HTTP services under `fettle record --payload`, one behind the other, and asks the first one.

pool.py FETTLE FOLDER CLIENTS REQUESTS. The first service reads in a thread for each connection and has others ask, of
a pool, which take any of the questions that wait, and any connection to the second service that is free: only the
`traceparent` that it passes on says what is asked for which question. Leaves FOLDER/bed.fettle, and FOLDER/truth as
bed.py does, of what both services wrote down.
"""

import collections
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

HERE = os.path.abspath(__file__)
WORKERS = 8


def read(connection, rest=b""):
    """A head and what is behind it; nothing at the end."""
    while b"\r\n\r\n" not in rest:
        data = connection.recv(65536)
        if not data:
            return None, b""
        rest += data
    head, _, rest = rest.partition(b"\r\n\r\n")
    return head, rest


def number_of(head):
    return int(head.split(b" ")[1].strip(b"/"))


def parent(number):
    return b"traceparent: 00-%032x-%016x-01\r\n" % (number + 1, random.getrandbits(63) + 1)


def answer(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


class Log:
    """A line for each question: the port of its other end, and its number."""

    def __init__(self, path):
        self.file, self.lock = open(path, "w", buffering=1), threading.Lock()

    def line(self, port, number):
        with self.lock:
            self.file.write(f"{port} {number}\n")


def serve(port, handle):
    with socket.create_server(("127.0.0.1", port), backlog=256) as listener:
        while True:
            connection, (_, peer) = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=handle, args=(connection, peer), daemon=True).start()


def inner(port, path):
    log = Log(path)

    def handle(connection, peer):
        while (head := read(connection)[0]) is not None:
            log.line(peer, number_of(head))
            time.sleep(random.random() * 0.003)
            answer(connection)

    serve(port, handle)


def outer(port, path, behind):
    log = Log(path)
    waiting, free, changed = [], [], threading.Condition()

    def take(of):
        return of.pop(random.randrange(len(of)))

    def work():
        while True:
            with changed:
                while not waiting or not free:
                    changed.wait()
                (head, done), connection = take(waiting), take(free)
            number = number_of(head)
            traces = [line for line in head.split(b"\r\n") if line.startswith(b"traceparent")]
            connection.sendall(b"GET /%d HTTP/1.1\r\nHost: inner\r\n%s\r\n\r\n" % (number, traces[0]))
            read(connection)
            with changed:
                free.append(connection)
                changed.notify_all()
            done.set()

    for _ in range(WORKERS):
        free.append(socket.create_connection(("127.0.0.1", behind)))
        threading.Thread(target=work, daemon=True).start()

    def handle(connection, peer):
        while (head := read(connection)[0]) is not None:
            log.line(peer, number_of(head))
            done = threading.Event()
            with changed:
                waiting.append((head, done))
                changed.notify_all()
            done.wait()
            answer(connection)

    serve(port, handle)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port):
    for _ in range(400):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nobody listens on port {port}")


def main(fettle, folder, clients, requests):
    os.makedirs(folder, exist_ok=True)
    front, back = free_port(), free_port()
    program = f"{sys.executable} {HERE}"
    script = (f"{program} inner {back} {folder}/inner.log & servers=$!; "
              f"{program} outer {front} {folder}/outer.log {back} & servers=\"$servers $!\"; "
              "trap 'kill $servers' TERM; wait; wait")
    with open(f"{folder}/record.log", "w") as log:
        recorder = subprocess.Popen([fettle, "record", "--kernel", "--no-probes", "--payload", "512", "-o", f"{folder}/bed.fettle",
                                     "--", "sh", "-c", script], stdout=log, stderr=log)
    try:
        wait_for(back)
        wait_for(front)
        numbers = iter(range(requests))
        lock = threading.Lock()

        def ask():
            with socket.create_connection(("127.0.0.1", front)) as connection:
                while True:
                    with lock:
                        number = next(numbers, None)
                    if number is None:
                        return
                    connection.sendall(b"GET /%d HTTP/1.1\r\nHost: outer\r\n%s\r\n" % (number, parent(number)))
                    assert read(connection)[0].startswith(b"HTTP/1.1 200")

        askers = [threading.Thread(target=ask) for _ in range(clients)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
    finally:
        children = subprocess.run(["pgrep", "-P", str(recorder.pid), "-x", "sh"], capture_output=True, text=True).stdout
        for child in children.split():
            os.kill(int(child), signal.SIGTERM)
        status = recorder.wait(timeout=60)
    connections = collections.defaultdict(list)
    for port, log in ((front, "outer.log"), (back, "inner.log")):
        with open(f"{folder}/{log}") as lines:
            for line in lines:
                peer, number = line.split()
                connections[peer, port].append(number)
    with open(f"{folder}/truth", "w") as truth:
        for (peer, port), numbers in connections.items():
            truth.write(" ".join([peer, str(port), *numbers]) + "\n")
    sys.exit(status not in (0, 143))


if sys.argv[1] == "inner":
    inner(int(sys.argv[2]), sys.argv[3])
elif sys.argv[1] == "outer":
    # Its threads ask when the second service is there.
    wait_for(int(sys.argv[4]))
    outer(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
else:
    main(sys.argv[1], os.path.abspath(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
