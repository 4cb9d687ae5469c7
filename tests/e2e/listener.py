"""A listening socket of nobody's: what proves that somebody has, or has not, been contacted."""

import socket


class Listener:
    """Listens and answers nothing. The system completes every connection, which then waits here."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._socket.setblocking(False)
        self._accepted: list[socket.socket] = []

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def connections(self) -> int:
        """How many connections there have been."""
        while True:
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                return len(self._accepted)
            self._accepted.append(connection)

    def close(self) -> None:
        for open_socket in [self._socket, *self._accepted]:
            open_socket.close()
