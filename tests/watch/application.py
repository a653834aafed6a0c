"""What gunicorn serves: it hangs when it is asked to."""


def application(environ, start):
    while environ["PATH_INFO"] == "/spins":
        pass
    start("200 OK", [("Content-Length", "5")])
    return [b"done\n"]
