"""Runs a user's analysis on what `fettle requests --python` streams to it.

Fettle starts this with a socket as standard input, the analysis's file as first argument, and the
analysis's own arguments after it. Both sides send frames: the length of a name and the name, then
the length of an Arrow IPC stream and the stream; lengths are little-endian, of 4 and 8 bytes. A
frame without a name is the last one.

The analysis keeps standard output and standard error for itself.
"""

import importlib.util
import json
import os
import socket
import struct
import sys
import traceback

# Exit statuses that Fettle knows the meaning of.
NO_PYARROW = 77
FAILED = 78

try:
    import pyarrow as pa
    import pyarrow.ipc
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(NO_PYARROW)


def receive(source):
    """The name and the table of the next frame; None after the last one."""
    (length,) = struct.unpack("<I", exactly(source, 4))
    if length == 0:
        return None
    name = exactly(source, length).decode()
    (length,) = struct.unpack("<Q", exactly(source, 8))
    return name, exactly(source, length)


def exactly(source, length):
    data = source.read(length)
    if len(data) != length:
        # Fettle has said why, if there is something to say.
        sys.exit(FAILED)
    return data


def send(target, name, payload):
    name = name.encode() or b" "
    target.write(struct.pack("<I", len(name)) + name + struct.pack("<Q", len(payload)))
    target.write(payload)


def load(path):
    spec = importlib.util.spec_from_file_location("analysis", path)
    if spec is None:
        # A file without the usual ending is Python all the same.
        loader = importlib.machinery.SourceFileLoader("analysis", path)
        spec = importlib.util.spec_from_loader("analysis", loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["analysis"] = module
    # What lies beside the analysis can be imported.
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec.loader.exec_module(module)
    return module


def tables(found):
    """What dispose() returned, as titles and tables."""
    if found is None:
        return
    if isinstance(found, dict):
        for title, table in found.items():
            for _, one in tables(table):
                yield str(title), one
    elif isinstance(found, pa.Table):
        yield "", found
    elif isinstance(found, pa.RecordBatch):
        yield "", pa.Table.from_batches([found])
    elif isinstance(found, list) and all(isinstance(row, dict) for row in found):
        yield "", pa.Table.from_pylist(found)
    else:
        raise TypeError(
            "dispose() returns a pyarrow.Table, a list of dicts (rows), a dict of titles and "
            f"tables, or None, and not {type(found).__name__}"
        )


def run(path, arguments, link):
    source, target = link.makefile("rb"), link.makefile("wb")
    module = load(path)
    handlers = {
        name[3:]: function
        for name, function in vars(module).items()
        if name.startswith("on_") and callable(function)
    }
    if hasattr(module, "init"):
        module.init(arguments)
    send(target, "handlers", json.dumps(sorted(handlers)).encode())
    target.flush()
    while (frame := receive(source)) is not None:
        name, payload = frame
        with pa.ipc.open_stream(payload) as reader:
            for batch in reader:
                handlers[name](batch)
    found = module.dispose() if hasattr(module, "dispose") else None
    for title, table in tables(found):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        send(target, title, sink.getvalue().to_pybytes())
    target.write(struct.pack("<I", 0))
    target.flush()


def main():
    link = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    path, arguments = sys.argv[1], sys.argv[2:]
    sys.argv = [path] + arguments
    try:
        run(path, arguments, link)
    except (BrokenPipeError, ConnectionResetError):
        sys.exit(FAILED)
    except Exception as error:
        # The analysis's own frames, without those of this driver.
        frames = error.__traceback__
        driver = main.__code__.co_filename
        while frames is not None and frames.tb_frame.f_code.co_filename == driver:
            frames = frames.tb_next
        traceback.print_exception(type(error), error, frames)
        sys.exit(FAILED)


main()
