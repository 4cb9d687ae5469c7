"""One libzmq socket for Chiasm's ZMTP tests: `peer.py ROLE [PORT] [OPTION=VALUE ...]`.

Roles
  router          binds a port of its own, prints it, answers each request
  dealer, req, pub  connect to PORT, print what they see

A request of `bytes:N` is answered with N bytes, any other with itself reversed. Options are set
before bind or connect, unlike upstream's (libzmq copies them at connect). `watch` makes a dealer
report what its monitor sees instead of talking. Every wait ends after WAIT_MS.
"""

import sys

import zmq
from zmq.utils.monitor import recv_monitor_message

WAIT_MS = 20_000
# Around the frame format's boundaries: short and long lengths, nothing, the router's limit.
SIZES = [0, 1, 7, 254, 255, 256, 257, 4096, 65_535, 65_536]
WATCHED = {
    zmq.EVENT_HANDSHAKE_SUCCEEDED: "handshake",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "failed",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "failed",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "failed",
    zmq.EVENT_DISCONNECTED: "disconnected",
}


def say(text):
    print(text, flush=True)


def set_options(socket, arguments):
    for argument in arguments:
        name, value = argument.split("=")
        value = int(value) if value.isdigit() else value.encode()
        socket.setsockopt(getattr(zmq, name), value)


def answer(payload):
    if payload.startswith(b"bytes:"):
        return bytes(int(payload[6:]))
    return payload[::-1]


def router(socket):
    say(socket.bind_to_random_port("tcp://127.0.0.1"))
    while True:
        identity, empty, payload = socket.recv_multipart()
        assert empty == b""
        socket.send_multipart([identity, b"", answer(payload)])


def watch(socket, port):
    monitor = socket.get_monitor_socket()
    monitor.RCVTIMEO = WAIT_MS
    socket.connect(f"tcp://127.0.0.1:{port}")
    while True:
        event = recv_monitor_message(monitor)["event"]
        if event in WATCHED:
            say(WATCHED[event])


def dealer(socket, port):
    socket.connect(f"tcp://127.0.0.1:{port}")
    for size in SIZES:
        payload = bytes(byte % 251 for byte in range(size))
        socket.send_multipart([b"", payload])
        assert socket.recv_multipart() == [b"", payload[::-1]], size
    say("ok")
    socket.recv_multipart()


def req(socket, port):
    socket.connect(f"tcp://127.0.0.1:{port}")
    socket.send(b"question")
    assert socket.recv() == b"noitseuq"
    say("ok")


def main():
    role, *arguments = sys.argv[1:]
    socket = zmq.Context().socket(getattr(zmq, role.upper()))
    socket.RCVTIMEO = WAIT_MS
    socket.LINGER = 0
    if role == "router":
        set_options(socket, arguments)
        return router(socket)
    port, *arguments = arguments
    watching = "watch" in arguments
    set_options(socket, [argument for argument in arguments if argument != "watch"])
    if watching or role == "pub":
        return watch(socket, port)
    return {"dealer": dealer, "req": req}[role](socket, port)


main()
