"""Starts nginx, the application server and Redis under `fettle record --kernel`, and asks them.

bed.py FETTLE FOLDER threads|loop|node CLIENTS REQUESTS: leaves FOLDER/bed.fettle, and FOLDER/truth with a line for
each connection: the ports of its asking and of its answering end, and the numbers of the requests that
went over it. One port alone names no connection: the kernel gives it to several that ask different
servers.
"""

import collections
import os
import signal
import socket
import subprocess
import sys
import threading
import time

fettle, folder, kind, clients, requests = sys.argv[1:6]
clients, requests = int(clients), int(requests)
here = os.path.dirname(os.path.abspath(__file__))
program = f"node {here}/app.js" if kind == "node" else f"{sys.executable} {here}/app.py"
os.makedirs(folder, exist_ok=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


front, app, store = free_port(), free_port(), free_port()
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
with open(f"{folder}/servers.sh", "w") as script:
    script.write(f"""
redis-server --port {store} --save '' --appendonly no --daemonize no >/dev/null &
servers="$!"
{program} {app} {store} {folder}/app.log {kind} &
servers="$servers $!"
nginx -p {folder} -c {folder}/nginx.conf &
servers="$servers $!"
echo $$ > {folder}/sh.pid
trap 'kill $servers' TERM
wait
wait
""")
record = [fettle, "record", "--kernel", "--no-probes", "-o", f"{folder}/bed.fettle", "--"]
recorder = subprocess.Popen(record + ["sh", f"{folder}/servers.sh"])


def connect(port):
    for _ in range(400):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nobody listens on port {port}")


for port in (store, app, front):
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
os.kill(int(open(f"{folder}/sh.pid").read()), signal.SIGTERM)
recorder.wait()
for line in open(f"{folder}/app.log"):
    number, asking, storing = map(int, line.split())
    truth[asking, app].append(number)
    truth[storing, store].append(number)
with open(f"{folder}/truth", "w") as out:
    for ports, of in truth.items():
        out.write(" ".join(map(str, [*ports, *of])) + "\n")
print(f"{requests} requests by {clients} clients in {took:.2f} s, {len(failed)} failed")
sys.exit(1 if failed else 0)
