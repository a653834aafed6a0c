"""Records a server of a runtime whose tasks ask two questions at once and then a third one, under load.

bed.py FETTLE FOLDER KIND CLIENTS REQUESTS, KIND one of `programs` below. The server says which request went over which
connection, which Fettle never sees. Leaves FOLDER/bed.fettle, and FOLDER/truth as tests/requests/bed.py does:
a line for each connection, its two ports and the numbers of the requests that went over it in order.
"""

import atexit
import collections
import glob
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

fettle, folder, kind, clients, requests = sys.argv[1:6]
clients, requests = int(clients), int(requests)
here = os.path.dirname(os.path.abspath(__file__))
os.makedirs(folder, exist_ok=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def java(least):
    """A JDK of this version or a newer one."""
    for home in sorted(glob.glob("/usr/lib/jvm/*")):
        try:
            release = open(f"{home}/release").read()
        except OSError:
            continue
        version = re.search(r'JAVA_VERSION="(\d+)', release)
        if version and int(version[1]) >= least:
            return f"{home}/bin/java"
    # What starts it says that it is not there.
    return f"jdk-{least}-or-newer"


front, asked, store, broker = free_port(), free_port(), free_port(), free_port()
go = f"{folder}/server"
subprocess.run(["go", "build", "-o", go, f"{here}/server.go"], check=True,
               env={**os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off"})
log = f"{folder}/server.log"
nats = f"{folder}/nats"
if kind == "nats":
    # Debian's client is where its packages of Go are.
    subprocess.run(["go", "build", "-o", nats, "."], check=True, cwd=f"{here}/nats",
                   env={**os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off", "GOPATH": "/usr/share/gocode"})
programs = {
    "go": f"{go} serve {front} {asked} {log}",
    "node": f"node {here}/server.js {front} {asked} {log}",
    "uvicorn": f"/usr/bin/python3 {here}/server.py {front} {asked} {log} uvloop",
    "asyncio": f"/usr/bin/python3 {here}/server.py {front} {asked} {log} asyncio",
    **{f"aiohttp-{mode}": f"/usr/bin/python3 {here}/store.py {front} {asked} {store} {log} {mode}"
       for mode in ["tasks", "threads", "queue"]},
    **{f"java-{number}": f"java -Xshare:auto {here}/Server.java {front} {asked} {log} {number}" for number in [1, 2]},
    **{f"virtual-{mode}": f"{java(21)} {here}/Virtual.java {front} {asked} {log} {mode}" for mode in ["turns", "both"]},
    "nats": f"{nats} serve {front} {broker} {asked} {log}",
    "ruby": f"ruby {here}/server.rb {front} {asked} {log}",
    "php": f"/usr/bin/python3 {here}/php.py {folder}/php {front} {log}",
    **{f"node-{mode}": f"node {here}/pool.js {front} {asked} {log} {mode}" for mode in ["turns", "both"]},
}
more = ""
if kind == "nats":
    others = [f"nats-server -a 127.0.0.1 -p {broker} > /dev/null 2>&1"] + 2 * [f"{nats} work 0 {broker} {asked} {log}"]
    more = "".join(f"{program} &\nservers=\"$servers $!\"\n" for program in others)
with open(f"{folder}/servers.sh", "w") as script:
    script.write(f"""
{go} answer {asked} {log} &
servers="$!"
redis-server --port {store} --save '' --appendonly no --daemonize no > /dev/null &
servers="$servers $!"
{programs[kind]} &
servers="$servers $!"
{more}
echo $$ > {folder}/sh.pid
trap 'kill $servers' TERM
wait
wait
wait
""")
record = [fettle, "record", "--kernel", "--no-probes", "-o", f"{folder}/bed.fettle"]
if kind == "nats":
    record += ["--payload", "16000"]
recorder = subprocess.Popen(record + ["--", "sh", f"{folder}/servers.sh"])


def stop():
    """Ends the servers, and with them the recording."""
    if recorder.poll() is None:
        os.kill(int(open(f"{folder}/sh.pid").read()), signal.SIGTERM)
        recorder.wait()


atexit.register(stop)


def connect(port):
    for _ in range(400):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


for port in [asked, store, front]:
    connect(port).close()
time.sleep(0.3)

truth = collections.defaultdict(list)
numbers = iter(range(requests))
lock = threading.Lock()
failed = []


def ask():
    s = connect(front)
    while True:
        with lock:
            number = next(numbers, None)
        if number is None:
            break
        s.sendall(b"GET / HTTP/1.1\r\nHost: bed\r\nX-Number: %d\r\n\r\n" % number)
        data = b""
        while b"\n" not in data.partition(b"\r\n\r\n")[2]:
            more = s.recv(65536)
            if not more:
                break
            data += more
        if b"%d " % number not in data.partition(b"\r\n\r\n")[2]:
            failed.append((number, data))
    s.close()


began = time.time()
threads = [threading.Thread(target=ask) for _ in range(clients)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
took = time.time() - began
time.sleep(0.3)
stop()
for line in open(log):
    number, exchange = line.split()
    asking, answering = map(int, exchange.split(":"))
    truth[asking, answering].append(number)
with open(f"{folder}/truth", "w") as out:
    for ports, of in truth.items():
        out.write(" ".join(map(str, [*ports, *of])) + "\n")
print(f"{requests} requests by {clients} clients in {took:.2f} s, {len(failed)} failed")
sys.exit(1 if failed else 0)
