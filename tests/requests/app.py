"""An application server that asks Redis, and writes down which request came over which connection.

app.py PORT REDIS_PORT LOG threads|loop [POSTGRES_PORT]: HTTP/1.1 with keep-alive, a thread for each
connection or one event loop for all, a pool of connections to Redis; threads ask PostgreSQL as well if
there is a port, from another pool. LOG gets words for each exchange with a server: the request's number,
then ASKING:ANSWERING, its ports. Extraction never sees it.
"""

import asyncio
import os
import queue
import socket
import struct
import sys
import threading

PORT, REDIS_PORT, LOG, KIND = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
POSTGRES_PORT = int(sys.argv[5]) if len(sys.argv) > 5 else None
log = os.open(LOG, os.O_CREAT | os.O_WRONLY | os.O_APPEND)


def command(number):
    key = b"key%d" % (number % 100)
    return b"*2\r\n$4\r\nINCR\r\n$%d\r\n%s\r\n" % (len(key), key)


def number_of(head):
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"x-number:"):
            return int(line.split(b":")[1])
    return -1


def work(number):
    return sum(i * i for i in range(2000 + number % 1000))


def reply(number, value):
    body = b"%d %d %s\n" % (number, work(number), value.strip())
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: keep-alive\r\n\r\n%s" % (len(body), body)


def note(number, asking, answering):
    os.write(log, b"%d %d:%d\n" % (number, asking, answering))


def message(kind, data):
    return kind + struct.pack("!I", len(data) + 4) + data


def answer_of(server):
    """What PostgreSQL sends until it is ready for the next question."""
    data = b""
    while data[-6:-1] != b"Z\0\0\0\5":
        more = server.recv(65536)
        if not more:
            raise SystemExit("PostgreSQL has gone")
        data += more
    return data


def serve_threads():
    pool = queue.SimpleQueue()

    def ask(number):
        try:
            store = pool.get_nowait()
        except queue.Empty:
            store = socket.create_connection(("127.0.0.1", REDIS_PORT))
        store.sendall(command(number))
        value = store.recv(4096)
        # Before another thread uses the connection: the log has exchanges in their order.
        note(number, store.getsockname()[1], REDIS_PORT)
        pool.put(store)
        return value[1:]

    bases = queue.SimpleQueue()

    def look_up(number):
        try:
            base = bases.get_nowait()
        except queue.Empty:
            base = socket.create_connection(("127.0.0.1", POSTGRES_PORT))
            who = b"user\0postgres\0database\0postgres\0\0"
            base.sendall(message(b"", struct.pack("!I", 3 << 16) + who))
            answer_of(base)
            note(number, base.getsockname()[1], POSTGRES_PORT)
        base.sendall(message(b"Q", b"SELECT %d + count(*) FROM pg_class\0" % number))
        answer_of(base)
        note(number, base.getsockname()[1], POSTGRES_PORT)
        bases.put(base)

    def talk(client, address):
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                more = client.recv(65536)
                if not more:
                    client.close()
                    return
                data += more
            head, data = data.split(b"\r\n\r\n", 1)
            number = number_of(head)
            value = ask(number)
            if POSTGRES_PORT:
                look_up(number)
            note(number, address[1], PORT)
            client.sendall(reply(number, value))

    server = socket.create_server(("127.0.0.1", PORT), backlog=512)
    while True:
        client, address = server.accept()
        threading.Thread(target=talk, args=(client, address), daemon=True).start()


async def serve_loop():
    pool = []

    async def ask(number):
        reader, writer = pool.pop() if pool else await asyncio.open_connection("127.0.0.1", REDIS_PORT)
        writer.write(command(number))
        value = await reader.readline()
        port = writer.get_extra_info("sockname")[1]
        pool.append((reader, writer))
        return value[1:], port

    async def talk(reader, writer):
        port = writer.get_extra_info("peername")[1]
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                writer.close()
                return
            number = number_of(head)
            value, store = await ask(number)
            note(number, store, REDIS_PORT)
            note(number, port, PORT)
            writer.write(reply(number, value))

    server = await asyncio.start_server(talk, "127.0.0.1", PORT, backlog=512)
    await server.serve_forever()


if KIND == "threads":
    serve_threads()
else:
    asyncio.run(serve_loop())
