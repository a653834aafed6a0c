"""aiohttp on asyncio's own loop: each request asks Redis, then an HTTP server, then Redis twice at once.

store.py PORT ASKED STORE LOG MODE. MODE is `tasks`; `threads`, where threads of a pool ask for the request; or `queue`,
where four tasks take what is to be asked from a queue, which nothing outside of the program sees. LOG gets which
request went over which connection, a line for each exchange.
"""

import asyncio
import contextlib
import http.client
import os
import sys
import threading

import aiohttp
import redis.asyncio
from aiohttp import web

PORT, ASKED, STORE = map(int, sys.argv[1:4])
log = os.open(sys.argv[4], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
MODE = sys.argv[5]
work = None
client = None
store = redis.asyncio.ConnectionPool(host="127.0.0.1", port=STORE, max_connections=200)


def note(number, asking, answering):
    os.write(log, b"%s %d:%d\n" % (str(number).encode(), asking, answering))


async def get(number, key):
    connection = await store.get_connection("GET")
    try:
        note(number, connection._writer.get_extra_info("sockname")[1], STORE)
        await connection.send_command("GET", key)
        return await connection.read_response()
    finally:
        await store.release(connection)


async def ask(number, what):
    async with client.get(f"http://127.0.0.1:{ASKED}/{what}") as response:
        answer = await response.text()
        # The server says over which connection it was asked; nothing else is asked there before this is known.
        note(number, int(answer.split()[-1]), ASKED)
        return len(answer)


async def tasks(number):
    await get(number, "one")
    size = await ask(number, "what")
    await asyncio.gather(get(number, "two"), get(number, "three"))
    return size


local = threading.local()


def ask_from_thread(number, what):
    """As a library does that knows nothing of event loops: a connection for each thread."""
    if not hasattr(local, "connection"):
        local.connection = http.client.HTTPConnection("127.0.0.1", ASKED)
        local.connection.connect()
    note(number, local.connection.sock.getsockname()[1], ASKED)
    local.connection.request("GET", f"/{what}")
    return len(local.connection.getresponse().read())


async def threads(number):
    first = await asyncio.to_thread(ask_from_thread, number, "first")
    return first + await asyncio.to_thread(ask_from_thread, number, "second")


async def take():
    while True:
        number, done = await work.get()
        done.set_result(await ask(number, "queued"))


async def queue(number):
    done = asyncio.get_running_loop().create_future()
    await work.put((number, done))
    return await done


async def serve(request):
    number = int(request.headers["x-number"])
    note(number, request.transport.get_extra_info("peername")[1], PORT)
    size = await {"tasks": tasks, "threads": threads, "queue": queue}[MODE](number)
    return web.Response(text=f"{number} {size}\n")


async def main():
    global client, work
    work = asyncio.Queue()
    client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=128))
    workers = [asyncio.create_task(take()) for _ in range(4)]
    app = web.Application()
    app.router.add_get("/", serve)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", PORT).start()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*workers)


asyncio.run(main())
