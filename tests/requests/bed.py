"""Starts nginx or haproxy, an application server and Redis under `fettle record --kernel`, and asks them.

bed.py FETTLE FOLDER threads|loop|node|queue|postgres|held CLIENTS REQUESTS. The application server is
app.py with threads or an event loop (whose steps get probes), app.js, queue.cpp (whose queue gets probes),
or app.py with threads that ask PostgreSQL as well, or before which is haproxy instead of nginx, with four
connections for all: what others ask it holds back. Leaves FOLDER/bed.fettle, and FOLDER/truth with a line
for each connection: the ports of its asking and of its answering end, and the numbers of the requests
that went over it. One port alone names no connection: the kernel gives it to several that ask different
servers.
"""

import atexit
import collections
import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

# What the schema `asyncio` needs.
CPYTHON = [
    "long _Py_HashPointer(void *task)",
    "int _PyDict_SetItem_KnownHash(void *tasks, void *loop, void *task)",
    "void *_PyDict_GetItem_KnownHash(void *tasks)",
    "int _PyDict_DelItem_KnownHash(void *tasks)",
    "int PyObject_CallFinalizerFromDealloc(void *task)",
    "int PyByteArray_Resize(void *buffer, long size)",
]

fettle, folder, kind, clients, requests = sys.argv[1:6]
clients, requests = int(clients), int(requests)
here = os.path.dirname(os.path.abspath(__file__))
os.makedirs(folder, exist_ok=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


front, app, store, base = free_port(), free_port(), free_port(), free_port()
probes = ["--no-probes"]
before = ""
if kind == "node":
    program = f"node {here}/app.js {app} {store} {folder}/app.log"
elif kind == "queue":
    server = f"{folder}/queue"
    subprocess.run(["g++", "-g", "-O2", "-o", server, f"{here}/queue.cpp", "-lpthread"], check=True)
    program = f"{server} {app} {store} {folder}/app.log"
    probes = ["--only", "TaskQueue::*", "--args", "TaskQueue::*"]
elif kind == "postgres":
    programs = max(glob.glob("/usr/lib/postgresql/*/bin"))
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
    data = f"{folder}/data"
    os.mkdir(data)
    if os.getuid() == 0:
        shutil.chown(data, "postgres", "postgres")
    else:
        user = []
    subprocess.run([*user, f"{programs}/initdb", "-A", "trust", "-U", "postgres", "-D", data],
                   cwd="/", check=True, stdout=subprocess.DEVNULL)
    before = " ".join([*user, f"{programs}/postgres", "-D", data, "-p", str(base), "-k", data,
                       "-c listen_addresses=127.0.0.1 -c fsync=off -c jit=off >/dev/null 2>&1 &"])
    program = f"{sys.executable} {here}/app.py {app} {store} {folder}/app.log threads {base}"
else:
    served = "threads" if kind == "held" else kind
    program = f"{sys.executable} {here}/app.py {app} {store} {folder}/app.log {served}"
    if kind == "loop":
        probes = ["--lib", "libpython3*"]
        for prototype in CPYTHON:
            probes += ["--only", re.search(r"\w+(?=\()", prototype)[0], "--args", prototype]
with open(f"{folder}/nginx.conf", "w") as conf:
    conf.write(f"""
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  keepalive_requests 1000000;
  upstream app {{ server 127.0.0.1:{app}; keepalive 64; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{front};
    location / {{ proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
""")
proxy = f"nginx -p {folder} -c {folder}/nginx.conf"
if kind == "held":
    proxy = f"haproxy -f {folder}/haproxy.cfg"
    with open(f"{folder}/haproxy.cfg", "w") as conf:
        conf.write(f"""
global
  nbthread 2
defaults
  mode http
  timeout client 30s
  timeout server 30s
  timeout connect 5s
  http-reuse always
listen front
  bind 127.0.0.1:{front}
  server app 127.0.0.1:{app} maxconn 4
""")
with open(f"{folder}/servers.sh", "w") as script:
    script.write(f"""
redis-server --port {store} --save '' --appendonly no --daemonize no >/dev/null &
servers="$!"
{before and before + ' servers="$servers $!"'}
{program} &
servers="$servers $!"
{proxy} &
servers="$servers $!"
echo $$ > {folder}/sh.pid
trap 'kill $servers' TERM
wait
wait
""")
record = [fettle, "record", "--kernel", *probes, "-o", f"{folder}/bed.fettle", "--"]
recorder = subprocess.Popen(record + ["sh", f"{folder}/servers.sh"])


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
    raise SystemExit(f"nobody listens on port {port}")


for port in [store] + [base] * bool(before) + [app, front]:
    connect(port).close()
time.sleep(0.3)

truth = collections.defaultdict(list)
numbers = iter(range(requests))
lock = threading.Lock()
failed = []


def ask():
    s = connect(front)
    port = s.getsockname()[1]
    mine = []
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
                failed.append((number, data))
                break
            data += more
        if not data.partition(b"\r\n\r\n")[2].startswith(b"%d " % number):
            failed.append((number, data))
        mine.append(number)
    truth[port, front] = mine
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
for line in open(f"{folder}/app.log"):
    number, *exchanges = line.split()
    for exchange in exchanges:
        asking, answering = map(int, exchange.split(":"))
        truth[asking, answering].append(number)
with open(f"{folder}/truth", "w") as out:
    for ports, of in truth.items():
        out.write(" ".join(map(str, [*ports, *of])) + "\n")
print(f"{requests} requests by {clients} clients in {took:.2f} s, {len(failed)} failed")
sys.exit(1 if failed else 0)
