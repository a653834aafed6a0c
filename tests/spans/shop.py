"""A shop of thirteen services, each a process of its own, whose spans are written as OTLP JSON.

shop.py FOLDER RATE SECONDS [SEED]. Starts the services, asks the front RATE times a second, whether it has
answered or not, ends them, and leaves a file of spans for each process in FOLDER. Each process reports
what it was asked and what it asks, with ids that come with each question: they are the truth that
`fettle requests --without-ids` does not look at.

Services do real work: sums over texts, a database (SQLite, in threads), caches that have a thing or not, calls
in turn, at once, and some that are not always made. What else a service would wait for, such as a bank, is a
timer.
"""

import asyncio
import hashlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time

INSTANCES = {
    "front": 1, "user": 1, "catalogue": 1, "price": 1, "stock": 2, "review": 1, "recommend": 1,
    "search": 1, "cart": 1, "order": 1, "payment": 1, "shipping": 1, "store": 1,
}
SPAN_KIND = {"server": 2, "client": 3}


class Service:
    """A process: what it was asked, whom it asks, what it reports."""

    def __init__(self, name, ports, seed):
        self.name, self.ports = name, ports
        self.random = random.Random(seed)
        self.idle = {other: [] for other in ports}
        self.spans, self.cache = [], {}
        self.turn = 0

    def span(self, kind, name, trace, parent, peer=None):
        attributes = [] if peer is None else [{"key": "peer.service", "value": {"stringValue": peer}}]
        span = {
            "traceId": trace, "spanId": f"{self.random.getrandbits(64):016x}", "parentSpanId": parent,
            "name": name, "kind": SPAN_KIND[kind], "attributes": attributes,
            "startTimeUnixNano": str(time.time_ns()),
        }
        return span

    def port(self, span, name, port):
        span["attributes"].append({"key": name, "value": {"intValue": str(port)}})

    def end(self, span):
        span["endTimeUnixNano"] = str(time.time_ns())
        self.spans.append(span)

    def write(self, folder, number):
        resource = {"attributes": [
            {"key": "service.name", "value": {"stringValue": self.name}},
            {"key": "process.pid", "value": {"intValue": str(os.getpid())}},
        ]}
        with open(f"{folder}/{self.name}-{number}.otlp.jsonl", "w") as file:
            for at in range(0, len(self.spans), 500):
                scope = {"spans": self.spans[at:at + 500]}
                file.write(json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}) + "\n")

    async def wait(self, ms):
        """Something outside that takes about so long."""
        await asyncio.sleep(self.random.lognormvariate(0, 0.35) * ms / 1000)

    def work(self, rounds):
        """Something that has to be computed."""
        text = b"shop" * 64
        for _ in range(rounds):
            text = hashlib.sha256(text).digest() * 8
        return text[:8].hex()

    def cached(self, share):
        """Whether the cache has what is asked for."""
        return self.random.random() < share

    async def call(self, context, service, operation):
        trace, parent = context
        span = self.span("client", f"{service}/{operation}", trace, parent, service)
        instances = self.ports[service]
        self.turn += 1
        port = instances[self.turn % len(instances)]
        idle = self.idle[service]
        usable = [one for one in idle if one[0] == port]
        if usable:
            connection = usable[-1]
            idle.remove(connection)
        else:
            connection = (port, *await asyncio.open_connection("127.0.0.1", port))
        _, reader, writer = connection
        question = {"operation": operation, "trace": trace, "span": span["spanId"], "from": self.name}
        writer.write(json.dumps(question).encode() + b"\n")
        await reader.readline()
        idle.append(connection)
        self.end(span)
        self.port(span, "network.local.port", writer.get_extra_info("sockname")[1])

    async def together(self, context, *calls):
        await asyncio.gather(*(self.call(context, service, operation) for service, operation in calls))

    async def serve(self, reader, writer):
        port = writer.get_extra_info("peername")[1]
        while line := await reader.readline():
            question = json.loads(line)
            name = f"{self.name}/{question['operation']}"
            peer = question["from"] if question["from"] in INSTANCES else None
            span = self.span("server", name, question["trace"], question["span"] or "", peer)
            self.port(span, "network.peer.port", port)
            handler = getattr(self, f"{self.name}_{question['operation']}")
            answer = await handler((question["trace"], span["spanId"]))
            writer.write(json.dumps({"answer": answer}).encode() + b"\n")
            self.end(span)

    # The front.

    async def front_home(self, c):
        await self.call(c, "user", "session")
        await self.together(c, ("catalogue", "list"), ("recommend", "some"), ("cart", "count"))
        return self.work(20)

    async def front_product(self, c):
        await self.call(c, "user", "session")
        await self.call(c, "catalogue", "one")
        await self.together(c, ("review", "list"), ("stock", "level"), ("recommend", "some"))
        return self.work(10)

    async def front_search(self, c):
        await self.call(c, "search", "find")
        await self.together(c, *[("price", "one")] * self.random.randint(1, 4))
        return self.work(10)

    async def front_checkout(self, c):
        await self.call(c, "user", "session")
        await self.call(c, "cart", "get")
        await self.call(c, "order", "place")
        return self.work(5)

    # What it asks.

    async def user_session(self, c):
        if not self.cached(0.8):
            await self.call(c, "store", "user")
        return self.work(5)

    async def catalogue_list(self, c):
        if not self.cached(0.6):
            await self.call(c, "store", "rows")
        await self.together(c, ("price", "many"), ("stock", "level"))
        return self.work(20)

    async def catalogue_one(self, c):
        if not self.cached(0.5):
            await self.call(c, "store", "row")
        await self.call(c, "price", "one")
        return self.work(5)

    async def price_one(self, c):
        if not self.cached(0.7):
            await self.call(c, "store", "row")
        await self.wait(2)
        return self.work(2)

    async def price_many(self, c):
        await self.call(c, "store", "rows")
        return self.work(10)

    async def stock_level(self, c):
        await self.wait(4)
        return self.work(3)

    async def stock_take(self, c):
        await self.call(c, "store", "write")
        return self.work(3)

    async def review_list(self, c):
        if not self.cached(0.4):
            await self.call(c, "store", "rows")
            await self.call(c, "user", "session")
        return self.work(5)

    async def recommend_some(self, c):
        await self.wait(15)
        await self.call(c, "catalogue", "one")
        return self.work(30)

    async def search_find(self, c):
        await self.wait(10)
        await self.together(c, ("store", "rows"), ("stock", "level"))
        return self.work(20)

    async def cart_count(self, c):
        if not self.cached(0.5):
            await self.call(c, "store", "row")
        return self.work(2)

    async def cart_get(self, c):
        await self.call(c, "store", "rows")
        await self.together(c, *[("price", "one")] * self.random.randint(1, 3))
        return self.work(5)

    async def order_place(self, c):
        await self.together(c, ("stock", "take"), ("user", "session"))
        await self.call(c, "payment", "charge")
        await self.call(c, "store", "write")
        await self.call(c, "shipping", "book")
        return self.work(10)

    async def payment_charge(self, c):
        await self.wait(60)
        if not self.cached(0.9):
            await self.wait(60)
        await self.call(c, "store", "write")
        return self.work(5)

    async def shipping_book(self, c):
        await self.wait(8)
        await self.call(c, "store", "write")
        return self.work(5)

    # The database.

    def rows(self, count):
        database = sqlite3.connect(self.database)
        found = database.execute("SELECT id, name FROM things WHERE id % 97 < 20 LIMIT ?", (count,)).fetchall()
        database.close()
        return len(found)

    async def query(self, count):
        await asyncio.get_running_loop().run_in_executor(None, self.rows, count)
        await self.wait(3)
        return count

    async def store_user(self, c):
        return await self.query(1)

    async def store_row(self, c):
        return await self.query(1)

    async def store_rows(self, c):
        return await self.query(60)

    async def store_write(self, c):
        await self.wait(5)
        return await self.query(1)

    def fill(self, folder):
        self.database = f"{folder}/store.db"
        if self.name == "store":
            database = sqlite3.connect(self.database)
            database.execute("CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT)")
            database.executemany("INSERT INTO things VALUES (?, ?)", [(n, f"thing {n}") for n in range(5000)])
            database.commit()
            database.close()


async def service(name, number, folder, ports, seed):
    one = Service(name, ports, f"{seed}/{name}/{number}")
    one.fill(folder)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = await asyncio.start_server(one.serve, "127.0.0.1", ports[name][number])
    print("ready", flush=True)
    await stop.wait()
    server.close()
    one.write(folder, number)
    # Connections that are still open would hold it up.
    os._exit(0)


async def ask(ports, rate, seconds, seed):
    """Asks the front; returns how many questions were answered."""
    chance = random.Random(f"{seed}/clients")
    port = ports["front"][0]
    idle, tasks = [], []

    async def one(operation):
        connection = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
        question = {"operation": operation, "trace": f"{chance.getrandbits(128):032x}", "span": None, "from": "client"}
        connection[1].write(json.dumps(question).encode() + b"\n")
        await connection[0].readline()
        idle.append(connection)

    begin, at = time.monotonic(), 0.0
    while at < seconds:
        at += chance.expovariate(rate)
        await asyncio.sleep(max(0, begin + at - time.monotonic()))
        operation = chance.choices(["home", "product", "search", "checkout"], [4, 3, 2, 1])[0]
        tasks.append(asyncio.create_task(one(operation)))
    await asyncio.gather(*tasks)
    return len(tasks)


def free_ports(count):
    import socket

    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def main():
    if sys.argv[1] == "--service":
        name, number, folder, ports, seed = sys.argv[2:]
        asyncio.run(service(name, int(number), folder, json.loads(ports), seed))
        return
    folder, rate, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    seed = sys.argv[4] if len(sys.argv) > 4 else "1"
    os.makedirs(folder, exist_ok=True)
    free = free_ports(sum(INSTANCES.values()))
    ports = {name: [free.pop() for _ in range(count)] for name, count in INSTANCES.items()}
    started = []
    try:
        for name, count in INSTANCES.items():
            for number in range(count):
                command = [sys.executable, __file__, "--service", name, str(number), folder, json.dumps(ports), seed]
                started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        for one in started:
            if one.stdout.readline() != b"ready\n":
                sys.exit("a service did not start")
        answered = asyncio.run(ask(ports, rate, seconds, seed))
    finally:
        for one in started:
            one.terminate()
        for one in started:
            one.wait()
    os.remove(f"{folder}/store.db")
    print(f"{answered} questions answered")


main()
