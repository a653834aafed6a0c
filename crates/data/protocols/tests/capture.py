"""Makes the files in `captured`: what real clients and servers say to each other, read by read.

capture.py FOLDER [NAME...]: starts a broker of Kafka's protocol, a WebSocket server, RabbitMQ, PHP-FPM, Mosquitto, PostgreSQL,
Redis, memcached, nginx (HTTP/1.1 and HTTP/2), a gRPC server,
MariaDB and NATS, or those that are named, has clients talk to them through a proxy, and writes a line for each
read: `>` for what the client said, `<` for what the server did, in hexadecimal. A line `=` begins a new connection.
Needs (Debian): postgresql redis-server memcached nginx curl python3-psycopg2 python3-redis python3-grpcio
mariadb-server mariadb-client python3-pymysql sysbench openssl nats-server php-fpm
mosquitto python3-paho-mqtt rabbitmq-server python3-pika
python3-websockets python3-confluent-kafka strace; and PyPI's nats-py
"""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent import futures

out = os.path.abspath(sys.argv[1])
os.makedirs(out, exist_ok=True)
scratch = tempfile.mkdtemp()
running = []


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(*command, **more):
    running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more))


def wait_for(port):
    for _ in range(1000):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"no one listens on port {port}")


class Proxy:
    """Forwards connections to a server and writes down what was said."""

    def __init__(self, name, server):
        wait_for(server)
        self.lines, self.server = [], server
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.name = name
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.server))
            for s in (client, server):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            lines = ["="]
            self.lines.append(lines)
            for sign, a, b in ((">", client, server), ("<", server, client)):
                threading.Thread(target=self.forward, args=(lines, sign, a, b), daemon=True).start()

    def forward(self, lines, sign, a, b):
        try:
            while data := a.recv(65536):
                lines.append(f"{sign} {data.hex()}")
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def write(self):
        time.sleep(0.2)
        with open(f"{out}/{self.name}", "w") as file:
            file.writelines(f"{line}\n" for lines in self.lines for line in lines)


def postgres():
    import psycopg2

    port, bin = free_port(), sorted(os.listdir("/usr/lib/postgresql"))[-1]
    bin, data = f"/usr/lib/postgresql/{bin}/bin", f"{scratch}/pg"
    os.chmod(scratch, 0o755)
    os.mkdir(data)
    shutil.chown(data, "postgres")
    run = ["runuser", "-u", "postgres", "--"]
    subprocess.run([*run, f"{bin}/initdb", "-D", data, "-A", "trust", "-N"], check=True, stdout=subprocess.DEVNULL)
    start(*run, f"{bin}/postgres", "-D", data, "-p", str(port), "-k", data, "-F")
    proxy = Proxy("postgres", port)
    time.sleep(1)
    proxy.lines.clear()
    db = psycopg2.connect(host="127.0.0.1", port=proxy.port, user="postgres", dbname="postgres", sslmode="prefer")
    db.autocommit = True
    cursor = db.cursor()
    for text in ("CREATE TABLE t (a int, b text)", "INSERT INTO t SELECT n, repeat('x', 30) FROM generate_series(1, 20) n",
                 "SELECT * FROM t", "SELECT nothing FROM t"):
        try:
            cursor.execute(text)
        except psycopg2.Error:
            pass
    db.close()
    # The extended protocol, with prepared statements.
    script = f"{scratch}/bench.sql"
    with open(script, "w") as file:
        file.write("\\set a random(1, 20)\nSELECT b FROM t WHERE a = :a;\nUPDATE t SET b = 'y' WHERE a = :a;\n")
    subprocess.run(["pgbench", "-h", "127.0.0.1", "-p", str(proxy.port), "-U", "postgres", "-n", "-M", "prepared",
                    "-t", "2", "-f", script, "postgres"], check=True, stdout=subprocess.DEVNULL)
    proxy.write()


def redis_():
    import redis

    port = free_port()
    start("redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", scratch)
    proxy = Proxy("redis", port)
    client = redis.Redis(port=proxy.port)
    client.set("color", "blue")
    client.get("color")
    client.get("nothing")
    client.rpush("list", *range(30))
    client.lrange("list", 0, -1)
    with client.pipeline(transaction=True) as pipe:
        pipe.incr("n").incr("n").hset("h", "a", "1").hgetall("h").execute()
    try:
        client.lpop("color")
    except redis.ResponseError:
        pass
    client.set("big", b"\r\n*9" * 300)
    client.get("big")
    proxy.write()


def memcached():
    port = free_port()
    start("memcached", "-p", str(port), "-u", "nobody", "-l", "127.0.0.1")
    proxy = Proxy("memcached", port)
    s = socket.create_connection(("127.0.0.1", proxy.port))

    def ask(text, end):
        s.sendall(text)
        data = b""
        while not data.endswith(end):
            data += s.recv(65536)

    ask(b"set a 0 0 5\r\nGET\r\n\r\n", b"STORED\r\n")
    ask(b"get a b\r\n", b"END\r\n")
    ask(b"set n 0 0 1 noreply\r\n5\r\nincr n 2\r\n", b"7\r\n")
    ask(b"delete zz\r\nget a\r\nmg a v\r\nmg zz v\r\n", b"EN\r\n")
    ask(b"ms m 3\r\nabc\r\nmn\r\n", b"MN\r\n")
    ask(b"incr a x\r\n", b"argument\r\n")
    ask(b"stats\r\n", b"END\r\n")
    s.close()
    s = socket.create_connection(("127.0.0.1", proxy.port))

    def binary(op, key=b"", extras=b"", value=b"", opaque=0):
        body = extras + key + value
        return bytes([0x80, op]) + len(key).to_bytes(2, "big") + bytes([len(extras), 0, 0, 0]) \
            + len(body).to_bytes(4, "big") + opaque.to_bytes(4, "big") + bytes(8) + body

    s.sendall(binary(1, b"k", bytes(8), b"value", 1))
    s.recv(100)
    # Two that are answered only if there is something, and one that always is.
    s.sendall(binary(9, b"none", opaque=2) + binary(9, b"k", opaque=3) + binary(10, opaque=4))
    time.sleep(0.1)
    s.recv(1000)
    s.close()
    proxy.write()


def http():
    one, two = free_port(), free_port()
    os.mkdir(f"{scratch}/www")
    with open(f"{scratch}/www/page", "w") as page:
        page.write("page\n" * 400)
    with open(f"{scratch}/nginx.conf", "w") as conf:
        conf.write(f"""
daemon off; pid {scratch}/nginx.pid; error_log {scratch}/nginx.log;
events {{ }}
http {{
  access_log off; client_body_temp_path {scratch}/a; proxy_temp_path {scratch}/b; fastcgi_temp_path {scratch}/c;
  uwsgi_temp_path {scratch}/d; scgi_temp_path {scratch}/e; gzip on; gzip_types *; gzip_min_length 1;
  server {{ listen 127.0.0.1:{one}; root {scratch}/www; }}
  server {{ listen 127.0.0.1:{two} http2; root {scratch}/www; }}
}}
""")
    os.chmod(f"{scratch}/www", 0o755)
    start("nginx", "-p", scratch, "-c", f"{scratch}/nginx.conf")
    for name, port, flags in (("http1", one, []), ("http2", two, ["--http2-prior-knowledge"])):
        proxy = Proxy(name, port)
        proxy.lines.clear()
        at = f"http://127.0.0.1:{proxy.port}"
        urls = [f"{at}/page", "-o", "/dev/null", f"{at}/missing?a=1", "-o", "/dev/null"]
        curl = ["curl", "-s", *flags]
        subprocess.run([*curl, *urls, "--next", "-s", *flags, "-d", "x" * 2000, f"{at}/page", "-o", "/dev/null",
                        "--next", "-s", *flags, "-I", f"{at}/page", "-o", "/dev/null",
                        "--next", "-s", *flags, "--compressed", f"{at}/page", "-o", "/dev/null"])
        if name == "http2":
            subprocess.run([*curl, "-Z", *urls, f"{at}/page?b", "-o", "/dev/null"])
        proxy.write()


def grpc_():
    import grpc

    def identity(data):
        return data

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            def one(request, context):
                if details.method.endswith("Fail"):
                    context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")
                return request * 2

            return grpc.unary_unary_rpc_method_handler(one, identity, identity)

    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    proxy = Proxy("grpc", port)
    with grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as channel:
        for method in ("Echo", "Fail", "Echo"):
            call = channel.unary_unary(f"/shop.Cart/{method}", identity, identity)
            try:
                call(b"hello")
            except grpc.RpcError:
                pass
        call = channel.unary_unary("/shop.Cart/Echo", identity, identity)
        for waiting in [call.future(b"%d" % n) for n in range(4)]:
            waiting.result()
    proxy.write()


def mysql():
    import pymysql

    port, data = free_port(), f"{scratch}/mysql"
    os.chmod(scratch, 0o755)
    subprocess.run(["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=mysql",
                    "--auth-root-authentication-method=normal"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=test",
                    "-keyout", f"{scratch}/key", "-out", f"{scratch}/cert"], check=True, stderr=subprocess.DEVNULL)
    os.chmod(f"{scratch}/key", 0o644)
    start("mariadbd", "--no-defaults", f"--datadir={data}", "--user=mysql", f"--port={port}", "--bind-address=127.0.0.1",
          f"--socket={data}/socket", "--skip-name-resolve", f"--ssl-key={scratch}/key", f"--ssl-cert={scratch}/cert")
    proxy = Proxy("mysql", port)
    proxy.lines.clear()
    on = {"host": "127.0.0.1", "port": proxy.port, "user": "root", "autocommit": True, "read_timeout": 5}
    setup = pymysql.connect(host="127.0.0.1", port=port, user="root")
    for text in ("CREATE DATABASE shop", "CREATE USER buyer@'127.0.0.1' IDENTIFIED BY 'secret'",
                 "GRANT ALL ON shop.* TO buyer@'127.0.0.1'"):
        setup.cursor().execute(text)
    setup.close()
    db = pymysql.connect(**on, database="shop", client_flag=pymysql.constants.CLIENT.MULTI_STATEMENTS, local_infile=True)
    cursor = db.cursor()
    os.chdir(scratch)
    with open("rows.csv", "w") as rows:
        rows.write("".join(f"{n},{'z' * 20}\n" for n in range(21, 41)))
    for text in ("CREATE TABLE t (a int, b text)", "INSERT INTO t SELECT seq, repeat('x', 30) FROM seq_1_to_20",
                 "SELECT * FROM t", "SELECT * FROM t WHERE a > 100", "SELECT nothing FROM t", "SELECT 1; UPDATE t SET b = 'y'; SELECT a FROM t LIMIT 3",
                 "CREATE PROCEDURE p() BEGIN SELECT 1; SELECT 2; END", "CALL p()",
                 "LOAD DATA LOCAL INFILE 'rows.csv' INTO TABLE t FIELDS TERMINATED BY ','"):
        try:
            cursor.execute(text)
            while cursor.nextset():
                pass
        except pymysql.Error:
            pass
    db.ping()
    db.select_db("mysql")
    db.close()
    # What is prepared, with and without a cursor; and commands that libraries do not send by themselves.
    db = pymysql.connect(**on, database="shop")

    def command(code, body, packets=1):
        db._execute_command(code, body)
        for _ in range(packets):
            db._read_packet()

    command(0x16, b"SELECT a, b FROM t WHERE a < ?", 6)
    execute = (1).to_bytes(4, "little") + b"%c" + (1).to_bytes(4, "little") + b"\0\1\3\0" + (4).to_bytes(4, "little")
    command(0x17, execute.replace(b"%c", b"\0"), 8)
    command(0x17, execute.replace(b"%c", b"\1"), 4)
    command(0x1C, bytes([1, 0, 0, 0, 2, 0, 0, 0]), 3)
    command(0x1A, bytes([1, 0, 0, 0]))
    command(0x18, bytes([1, 0, 0, 0, 0, 0]) + b"5", 0)
    command(0x19, bytes([1, 0, 0, 0]), 0)
    command(0x16, b"UPDATE t SET b = 'w'", 1)
    command(0x17, (2).to_bytes(4, "little") + b"\0\1\0\0\0")
    for code, body, packets in ((0x09, b"", 1), (0x04, b"t\0", 3), (0x1B, b"\1\0", 1), (0x1F, b"", 1), (0x0E, b"", 1)):
        command(code, body, packets)
    try:
        command(0x16, b"SELECT FROM")
    except pymysql.Error:
        pass
    db.close()
    try:
        pymysql.connect(**{**on, "user": "buyer", "password": "wrong"})
    except pymysql.Error:
        pass
    pymysql.connect(**{**on, "user": "buyer", "password": "secret"}, database="shop").close()
    # Without an EOF behind columns.
    db = pymysql.connect(**on, database="shop", client_flag=1 << 24)
    command(0x03, b"SELECT a FROM t WHERE a < 4", 6)
    command(0x03, b"SELECT a FROM t WHERE a > 100", 3)
    command(0x16, b"SELECT a, b FROM t WHERE a < ?", 4)
    command(0x17, execute.replace(b"%c", b"\0"), 7)
    command(0x17, execute.replace(b"%c", b"\1"), 4)
    command(0x1C, bytes([1, 0, 0, 0, 2, 0, 0, 0]), 3)
    db.close()
    # The library in C.
    at = ["-h127.0.0.1", f"-P{proxy.port}"]
    client = ["mariadb", "--no-defaults", *at, "-uroot", "shop"]
    subprocess.run([*client, "--skip-ssl", "-e", "SELECT a FROM t LIMIT 2; DELETE FROM t WHERE a = 1; SELECT b FROM u; SELECT 1"],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    bench = ["sysbench", "oltp_read_write", "--mysql-host=127.0.0.1", f"--mysql-port={proxy.port}", "--mysql-user=root",
             "--mysql-db=shop", "--tables=1", "--table-size=10", "--range_size=3", "--events=2", "--threads=1"]
    subprocess.run([*bench, "prepare"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*bench, "run"], check=True, stdout=subprocess.DEVNULL)
    for more in (["--compress", "--skip-ssl"], ["--ssl"]):
        subprocess.run([*client, *more, "-e", "SELECT 1"], check=True, stdout=subprocess.DEVNULL)
    proxy.write()


def nats():
    import nats as nats_py

    port = free_port()
    start("nats-server", "-a", "127.0.0.1", "-p", str(port))
    proxy = Proxy("nats", port)
    proxy.lines.clear()

    async def talk():
        at = f"nats://127.0.0.1:{proxy.port}"
        server = await nats_py.connect(at)

        async def answer(message):
            await message.respond(message.data * 2)

        async def ignore(_):
            pass

        await server.subscribe("shop.price", "workers", answer)
        await server.subscribe("shop.news", cb=ignore)
        await server.flush()
        client = await nats_py.connect(at)
        for n in range(3):
            await client.request("shop.price", b"%d\r\nPUB x 1" % n)
        await client.request("shop.price", b"with headers", headers={"Trace": "7"})
        await asyncio.gather(*(client.request("shop.price", b"%d" % n) for n in range(3)))
        await client.publish("shop.news", b"n" * 5000)
        try:
            await client.request("shop.missing", b"")
        except nats_py.errors.NoRespondersError:
            pass
        # It is on the way when the connection ends.
        await client.publish("shop.lost", b"", reply="shop.never")
        await client.drain()
        await server.close()

    asyncio.run(talk())
    proxy.write()


def fastcgi():
    port, front = free_port(), free_port()
    www = f"{scratch}/php"
    os.mkdir(www)
    os.chmod(scratch, 0o755)
    os.chmod(www, 0o755)
    with open(f"{www}/page.php", "w") as page:
        page.write("""<?php
if (isset($_GET["missing"])) { http_response_code(404); }
if (isset($_GET["large"])) { echo str_repeat("x", 12000); }
if (isset($_GET["fails"])) { error_log("it fails"); nothing(); }
echo "page", strlen(file_get_contents("php://input"));
""")
    with open(f"{scratch}/fpm.conf", "w") as conf:
        conf.write(f"[global]\nerror_log = {scratch}/fpm.log\ndaemonize = no\n[www]\nlisten = 127.0.0.1:{port}\n"
                   "user = nobody\ngroup = nogroup\npm = static\npm.max_children = 1\n")
    fpm = sorted(name for name in os.listdir("/usr/sbin") if name.startswith("php-fpm"))[-1]
    start(fpm, "--nodaemonize", "--fpm-config", f"{scratch}/fpm.conf")
    proxy = Proxy("fastcgi", port)
    proxy.lines.clear()
    with open(f"{scratch}/php.conf", "w") as conf:
        conf.write(f"""
daemon off; pid {scratch}/php.pid; error_log {scratch}/php.log; user nobody nogroup;
events {{ }}
http {{
  access_log off; client_body_temp_path {scratch}/f; proxy_temp_path {scratch}/g; fastcgi_temp_path {scratch}/h;
  uwsgi_temp_path {scratch}/i; scgi_temp_path {scratch}/j;
  upstream php {{ server 127.0.0.1:{proxy.port}; keepalive 2; }}
  server {{
    listen 127.0.0.1:{front}; root {www};
    location ~ \\.php$ {{ include /etc/nginx/fastcgi.conf; fastcgi_pass php; fastcgi_keep_conn on; }}
  }}
}}
""")
    start("nginx", "-p", scratch, "-c", f"{scratch}/php.conf")
    wait_for(front)
    at = f"http://127.0.0.1:{front}/page.php"
    for more in (["-H", "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", f"{at}?secret=1"], [f"{at}?missing"],
                 [f"{at}?fails"], ["-d", "x" * 5000, at], [f"{at}?large"], ["-I", at], [at]):
        subprocess.run(["curl", "-s", "-o", "/dev/null", *more], check=True)
    proxy.write()


def mqtt():
    import paho.mqtt.client as paho
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    port = free_port()
    with open(f"{scratch}/mosquitto.conf", "w") as conf:
        conf.write(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_topic_alias 10\n")
    start("mosquitto", "-c", f"{scratch}/mosquitto.conf")
    proxy = Proxy("mqtt", port)
    proxy.lines.clear()

    def client(name, version, **more):
        arrived = threading.Semaphore(0)
        client = paho.Client(client_id=name, protocol=version, **more)
        for done in ("on_connect", "on_subscribe", "on_unsubscribe", "on_publish", "on_message"):
            setattr(client, done, lambda *_: arrived.release())
        client.connect("127.0.0.1", proxy.port, keepalive=1)
        client.loop_start()
        arrived.acquire(timeout=5)
        return client, arrived

    def step(arrived, times=1):
        for _ in range(times):
            assert arrived.acquire(timeout=5)
        time.sleep(0.1)

    one, at_one = client("reader", paho.MQTTv311)
    two, at_two = client("writer", paho.MQTTv5)
    one.subscribe([("shop/+/price", 2), ("shop/news", 1)])
    step(at_one)
    for quality in (0, 1, 2):
        two.publish("shop/7/price", b"%d" % quality * 300, qos=quality)
        step(at_two)
        step(at_one)
    asks = Properties(PacketTypes.PUBLISH)
    asks.ResponseTopic, asks.CorrelationData = "shop/answers", b"17"
    asks.UserProperty = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    two.subscribe("shop/answers", qos=0)
    step(at_two)
    three, at_three = client("worker", paho.MQTTv5)
    three.subscribe("shop/asks", qos=1)
    step(at_three)
    two.publish("shop/asks", b"how much?", qos=1, properties=asks)
    step(at_two)
    step(at_three)
    answer = Properties(PacketTypes.PUBLISH)
    answer.CorrelationData = b"17"
    three.publish("shop/answers", b"much", qos=0, properties=answer)
    step(at_three)
    step(at_two)
    for _ in range(2):
        alias = Properties(PacketTypes.PUBLISH)
        alias.TopicAlias = 3
        two.publish("shop/news" if _ == 0 else "", b"news", qos=0, properties=alias)
        step(at_two)
        step(at_one)
    one.unsubscribe("shop/news")
    step(at_one)
    time.sleep(1.5)
    for ended in (one, two, three):
        ended.disconnect()
        ended.loop_stop()
    proxy.write()


def amqp():
    import pika

    port, data = free_port(), f"{scratch}/rabbit"
    os.mkdir(data)
    env = {**os.environ, "RABBITMQ_NODENAME": f"fettle{port}@localhost", "RABBITMQ_NODE_PORT": str(port), "RABBITMQ_BASE": data,
           "RABBITMQ_DIST_PORT": str(free_port()), "ERL_EPMD_PORT": str(free_port()), "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_MNESIA_BASE": f"{data}/mnesia",
           "RABBITMQ_LOG_BASE": data, "RABBITMQ_ENABLED_PLUGINS_FILE": f"{data}/plugins", "HOME": data, "RABBITMQ_PID_FILE": f"{data}/pid"}
    server = "/usr/lib/rabbitmq/bin/rabbitmq-server"
    start(server, env=env)
    proxy = Proxy("amqp", port)
    proxy.lines.clear()

    def connect():
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", proxy.port, heartbeat=0, socket_timeout=10))

    client, worker = connect(), connect()
    asks, works = client.channel(), worker.channel()
    works.queue_declare("work")
    works.basic_qos(prefetch_count=10)
    answers = asks.queue_declare("", exclusive=True).method.queue
    asks.exchange_declare("news", "topic")
    asks.queue_bind(answers, "news", "shop.*")

    def work(channel, method, properties, body):
        reply = pika.BasicProperties(correlation_id=properties.correlation_id)
        channel.basic_publish("", properties.reply_to, body * 2, reply)
        if body != b"7":
            channel.basic_ack(method.delivery_tag)

    works.basic_consume("work", work)
    arrived = []
    asks.basic_consume(answers, lambda *message: arrived.append(message), auto_ack=True)
    headers = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "n": 7, "deep": {"a": [1, "b"]}}
    for n in (7, 8):
        asks.basic_publish("", "work", b"%d" % n, pika.BasicProperties(reply_to=answers, correlation_id=f"id-{n}", headers=headers,
                                                                       content_type="text/plain", delivery_mode=2))
        worker.process_data_events(0.5)
        client.process_data_events(0.5)
    works.basic_ack(0, multiple=True)
    asks.basic_publish("news", "shop.price", b"x" * 300)
    client.process_data_events(0.5)
    # Confirmed: one by one, and one that no one gets.
    sure = client.channel()
    sure.confirm_delivery()
    sure.basic_publish("news", "shop.stock", b"one")
    try:
        sure.basic_publish("", "nowhere", b"two", mandatory=True)
    except pika.exceptions.UnroutableError:
        pass
    client.process_data_events(0.2)
    sure.queue_declare("box")
    sure.basic_publish("", "box", b"three")
    sure.basic_get("box", auto_ack=True)
    sure.basic_get("box", auto_ack=True)
    sure.queue_delete("box")
    try:
        client.channel().queue_declare("missing", passive=True)
    except pika.exceptions.ChannelClosedByBroker:
        pass
    assert len(arrived) == 4, arrived
    client.close()
    worker.close()
    proxy.write()
    quiet = {"env": env, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["/usr/lib/rabbitmq/bin/rabbitmqctl", "stop"], **quiet)
    # Erlang's daemon of names, which it has started, would stay.
    subprocess.run(["epmd", "-kill"], **quiet)


def websocket():
    import websockets

    async def talk():
        async def serve(connection):
            async for message in connection:
                await connection.send(message * 2)
                if message == "bye":
                    await connection.ping()
                    await connection.close(1011, "enough")

        async with websockets.serve(serve, "127.0.0.1", 0) as server:
            proxy = Proxy("websocket", server.sockets[0].getsockname()[1])
            await asyncio.sleep(0.1)
            proxy.lines.clear()
            at = f"ws://127.0.0.1:{proxy.port}/chat?secret=1"
            for more in ({}, {"compression": None}):
                async with websockets.connect(at, **more) as client:
                    for message in ("hello", b"bytes", "long " * 60, "longer " * 1000):
                        await client.send(message)
                        await client.recv()
                    await client.send(iter(["in ", "several ", "frames"]))
                    await client.recv()
                    await (await client.ping())
                    if more:
                        await client.send("bye")
                        await client.recv()
                        await client.wait_closed()
            proxy.write()

    asyncio.run(talk())


KAFKA = """
from confluent_kafka import Consumer, KafkaException, Producer
import time
quick = {"socket.nagle.disable": True, "topic.metadata.refresh.interval.ms": 100000}
one = Producer({"bootstrap.servers": "localhost", "test.mock.num.brokers": 1, "client.id": "shop", **quick})
broker = list(one.list_topics(timeout=5).brokers.values())[0]
at = f"{broker.host}:{broker.port}"
for n in range(3):
    one.produce("orders", b"order %d " % n * 20)
    one.flush(5)
two = Producer({"bootstrap.servers": at, "client.id": "careless", "acks": 0, **quick})
two.produce("news", b"nobody waits for this")
two.flush(5)
reader = Consumer({"bootstrap.servers": at, "group.id": "workers", "auto.offset.reset": "earliest", "client.id": "worker", **quick})
reader.subscribe(["orders"])
read, until = 0, time.monotonic() + 10
while read < 3 and time.monotonic() < until:
    message = reader.poll(0.5)
    read += message is not None and not message.error()
assert read == 3
reader.close()
"""


def kafka():
    # Debian has no broker: librdkafka's own for tests, in the program that asks it.
    trace = f"{scratch}/kafka.trace"
    calls = "accept,accept4,recvmsg,sendmsg,close"
    subprocess.run(["strace", "-f", "-qq", "-xx", "-s", "1000000", "-e", f"trace={calls}", "-o", trace, sys.executable, "-c", KAFKA],
                   check=True, stderr=subprocess.DEVNULL)
    begun, connections, lines = {}, {}, []
    for line in open(trace):
        thread, call = line.split(None, 1)
        if call.rstrip().endswith("<unfinished ...>"):
            begun[thread] = call.rstrip()[:-len("<unfinished ...>")].rstrip()
            continue
        if call.startswith("<... "):
            call = begun.pop(thread) + call[call.index("resumed>") + len("resumed>"):]
        name, _, rest = call.partition("(")
        if " = -1 " in rest or " = " not in rest:
            continue
        result = int(rest.rsplit(" = ", 1)[1].split()[0])
        if name.startswith("accept"):
            connections[result] = ["="]
            lines.append(connections[result])
            continue
        fd = int(rest.split(",")[0].split(")")[0])
        if name == "close":
            connections.pop(fd, None)
        elif fd in connections and result > 0:
            parts = rest.split("iov_base=\"")[1:]
            data = "".join(part.split("\"")[0] for part in parts).replace("\\x", "")[:2 * result]
            connections[fd].append(f"{'>' if name == 'recvmsg' else '<'} {data}")
    with open(f"{out}/kafka", "w") as file:
        file.writelines(f"{line}\n" for of in lines if len(of) > 1 for line in of)


ALL = {"kafka": kafka, "websocket": websocket, "amqp": amqp, "fastcgi": fastcgi, "mqtt": mqtt, "postgres": postgres, "redis": redis_, "memcached": memcached, "http": http, "grpc": grpc_, "mysql": mysql, "nats": nats}
try:
    for name in sys.argv[2:] or ALL:
        ALL[name]()
finally:
    for process in running:
        process.terminate()
