"""FastAPI under uvicorn: each request asks two questions at once, then a third one, by httpx.

server.py PORT ASKED LOG [LOOP]. LOG gets which request went over which connection, a line for each exchange.
"""

import asyncio
import os
import sys

import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse

PORT, ASKED, LOG = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
log = os.open(LOG, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
app = FastAPI()
client = httpx.AsyncClient(limits=httpx.Limits(max_connections=128, max_keepalive_connections=128))


def note(number, asking, answering):
    os.write(log, b"%d %d:%d\n" % (number, asking, answering))


async def ask(number, what):
    # The answer's connection is known once its head is there; no other request uses it before it is closed.
    async with client.stream("GET", f"http://127.0.0.1:{ASKED}/{what}") as response:
        stream = response.extensions["network_stream"]
        note(number, stream.get_extra_info("client_addr")[1], ASKED)
        return len(await response.aread())


@app.get("/")
async def serve(request: Request):
    number = int(request.headers["x-number"])
    note(number, request.client.port, PORT)
    parts = await asyncio.gather(ask(number, "part/0"), ask(number, "part/1"))
    third = await ask(number, "third")
    return PlainTextResponse(f"{number} {sum(parts) + third}\n")


uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="error", access_log=False,
            loop=sys.argv[4] if len(sys.argv) > 4 else "auto")
