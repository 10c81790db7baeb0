# SPDX-License-Identifier: Apache-2.0
"""A service that answers as it is told to, well or not: what a client has to cope with.

    with Stub(answers) as stub:      # answers(request) -> bytes to send, or None to hang up
        place.env["FA_TUNE_SERVER"] = stub.address

A request has method, path, body (bytes), headers (lower-case names) and send(bytes), for answers
that come in pieces.
"""
import json
import os
import shutil
import socket
import tempfile
import threading


class Request:
    def __init__(self, connection, head, body):
        first, *rest = head.decode("latin-1").split("\r\n")
        self.method, self.path, _ = first.split(" ")
        self.headers = {name.lower(): value.strip() for name, _, value in
                        (line.partition(":") for line in rest)}
        self.body = body
        self.send = connection.sendall

    def json(self):
        return json.loads(self.body)


def reply(status, body=b"", **headers):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = ["HTTP/1.1 %d X" % status, "Content-Length: %d" % len(body)]
    lines += ["%s: %s" % (name.replace("_", "-"), value) for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def failure(status, code, message, **more):
    return reply(status, dict({"error": {"code": code, "message": message}}, **more))


def event(name, data):
    return ("event: %s\ndata: %s\n\n" % (name, json.dumps(data))).encode()


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class Stub:
    """piece: how many bytes of an answer are sent at a time; 0: all of them."""

    def __init__(self, answers, tcp=False, piece=0):
        self.answers, self.tcp, self.piece = answers, tcp, piece
        self.requests = []
        self.connections = 0
        self.folder = None

    def __enter__(self):
        if self.tcp:
            self.listener = socket.create_server(("127.0.0.1", 0))
            self.address = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        else:
            self.folder = tempfile.mkdtemp(prefix="fts-")  # a Unix socket's path is short
            self.path = os.path.join(self.folder, "s")
            self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.listener.bind(self.path)
            self.listener.listen(64)
            self.address = "unix:" + self.path
        self.open = True
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.open = False
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self.listener.close()
        self.thread.join()
        if self.folder is not None:
            shutil.rmtree(self.folder)

    def accept(self):
        while self.open:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        data = b""
        try:
            while True:
                while b"\r\n\r\n" not in data:
                    more = connection.recv(65536)
                    if not more:
                        return
                    data += more
                head, _, data = data.partition(b"\r\n\r\n")
                request = Request(connection, head, b"")
                size = int(request.headers.get("content-length", "0"))
                while len(data) < size:
                    data += connection.recv(65536)
                request.body, data = data[:size], data[size:]
                self.requests.append(request)
                answer = self.answers(request)
                if answer is None:
                    return
                for at in range(0, len(answer), self.piece or len(answer)):
                    connection.sendall(answer[at:at + (self.piece or len(answer))])
                if b"\r\nConnection: close\r\n" in answer:
                    return
        except OSError:
            pass  # the client has hung up
        finally:
            connection.close()
