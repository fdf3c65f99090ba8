"""Calls of the Deployment API, by HTTP and JSON, at whichever controller answers."""
from __future__ import annotations

import http.client
import json
import logging
import os
import queue
import socket
import ssl
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Set
from urllib.parse import urlsplit

from . import _files

log = logging.getLogger("dbcontroller_client")

CALL_TIMEOUT = 2.0  # seconds, of a call that does not wait for anything
LONGEST_ANSWER = 16 << 20


class ControllerError(Exception):
    """A controller refused a call, or did not answer ('unavailable')."""

    def __init__(self, code: str, message: str, answered: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.answered = answered  # by a controller


class OtherDeploymentError(Exception):
    """A controller is one of another deployment."""


class Controllers:
    def __init__(
        self, addresses: Sequence[str], deployment: str, token: Optional[str], token_file: Optional[str],
        ca_file: Optional[str], cert_file: Optional[str], key_file: Optional[str],
    ) -> None:
        self.deployment = deployment  # its name, once it is known
        self.token, self.token_file = token, token_file
        self._warned: Set[str] = set()  # files that everybody can read
        self._ca_file, self._cert_file, self._key_file = ca_file, cert_file, key_file
        self._reading = threading.Lock()  # guards tls, and the state of its files
        self.tls: Optional[ssl.SSLContext] = None
        self._files: Any = None
        self._lost = ""  # why exchanged certificates were not taken
        if ca_file or cert_file:
            self._files, self.tls = self._state(), self._read()
        self.all: List[Controller] = [Controller(a, self) for a in addresses]

    def _state(self) -> Any:
        """What changes when a certificate is exchanged."""
        found = [os.stat(file) for file in (self._ca_file, self._cert_file, self._key_file) if file]
        return [(info.st_mtime_ns, info.st_size, info.st_ino) for info in found]

    def _read(self) -> ssl.SSLContext:
        for file in (self._ca_file, self._key_file):
            if file:
                _files.check(file)
        if self._key_file:
            self._warn(self._key_file, "a key")
        tls = ssl.create_default_context(cafile=self._ca_file)
        if self._cert_file:
            tls.load_cert_chain(self._cert_file, self._key_file)
        return tls

    def context(self) -> ssl.SSLContext:
        """The context for a new connection. It reads exchanged certificates again, and keeps the former ones while it cannot."""
        if self.tls is None:
            return ssl.create_default_context()
        with self._reading:
            try:
                state = self._state()
                if state != self._files:
                    self.tls, self._files = self._read(), state
            except (OSError, ValueError) as err:  # an SSLError is an OSError
                if str(err) != self._lost:
                    self._lost = str(err)
                    log.warning("the exchanged certificates cannot be used, going on with the former ones: %s", err)
            return self.tls

    def token_in(self, file: str) -> str:
        """The token of a file. It is read for each call, since it may have been exchanged."""
        token = _files.trusted(file).strip()
        self._warn(file, "a token")
        return token

    def _warn(self, file: str, what: str) -> None:
        """Warns once of a secret that every user of the machine can read."""
        if file not in self._warned and _files.exposed(file):
            self._warned.add(file)
            log.warning("everybody on this machine can read %s, which has %s: chmod o-r it", file, what)

    def ask(self, method: str, request: Dict[str, Any], accept: Callable[[Any], None]) -> Any:
        """Asks all controllers at once, since one may stand still, and returns the first answer that accept takes."""
        answers: "queue.Queue[Any]" = queue.Queue()

        def one(c: Controller) -> None:
            try:
                answer = c.call(method, request)
                accept(answer)
                answers.put(answer)
            except Exception as err:
                answers.put(err)

        for c in self.all:
            threading.Thread(target=one, args=(c,), daemon=True).start()
        said = []
        for _ in self.all:
            answer = answers.get()
            if not isinstance(answer, Exception):
                return answer
            said.append(str(answer))
        raise ControllerError("unavailable", "; ".join(said))


class Controller:
    def __init__(self, address: str, of: Controllers) -> None:
        self.of = of
        url = urlsplit(address if "://" in address else f"{'https' if of.tls else 'http'}://{address}")
        try:
            port = url.port
        except ValueError:
            port = None
        if url.scheme not in ("http", "https") or not url.hostname or url.username or url.password or url.path not in ("", "/") or url.query or port is None:
            raise ValueError(f"{url.hostname} is no address of a controller: give HOST:PORT or https://HOST:PORT")
        self.host, self.port, self.secure = url.hostname, port, url.scheme == "https"
        self.name = f"{self.host}:{port}"
        if not self.secure and of.tls:
            raise ValueError(f"http://{self.name} is without TLS, and a certificate was given: give https://{self.name}")
        if not self.secure and (of.token or of.token_file) and self.host not in ("localhost", "127.0.0.1", "::1"):
            raise ValueError(f"http://{self.name} is without TLS, and a token would be readable on the way: give https://{self.name}")

    def connection(self) -> http.client.HTTPConnection:
        if self.secure:
            return http.client.HTTPSConnection(self.host, self.port, timeout=CALL_TIMEOUT, context=self.of.context())
        return http.client.HTTPConnection(self.host, self.port, timeout=CALL_TIMEOUT)

    def call(
        self, method: str, request: Dict[str, Any], timeout: float = CALL_TIMEOUT, over: Optional[http.client.HTTPConnection] = None,
    ) -> Any:
        """Calls over a connection that is kept, or one of its own. A ControllerError has the API's code."""
        headers = {"Content-Type": "application/json"}
        secret = self.of.token
        if self.of.token_file:
            try:
                secret = self.of.token_in(self.of.token_file)
            except OSError as err:
                raise ControllerError("unauthenticated", f"{self.name}: {method}: {err.strerror} ({self.of.token_file})") from None
        if secret:
            headers["Authorization"] = f"Bearer {secret}"
        if self.of.deployment:
            request = {"name": self.of.deployment, **request}
        conn = over or self.connection()
        try:
            conn.timeout = timeout
            if conn.sock is not None:
                conn.sock.settimeout(timeout)
            conn.request("POST", f"/dbcontroller.v1.DeploymentService/{method}", json.dumps(request).encode(), headers)
            res = conn.getresponse()
            text = res.read(LONGEST_ANSWER + 1)
            status = res.status
            if len(text) > LONGEST_ANSWER:
                raise http.client.HTTPException("its answer is too long")
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as err:  # the last two: it was closed meanwhile
            conn.close()
            why = f"no answer within {timeout} s" if isinstance(err, socket.timeout) else str(err) or type(err).__name__
            raise ControllerError("unavailable", f"{self.name}: {method}: {why}") from None
        finally:
            if over is None:
                conn.close()
        try:
            answer = json.loads(text)
            if not isinstance(answer, dict):
                raise ValueError
        except ValueError:
            conn.close()
            raise ControllerError("unavailable", f"{self.name}: {method}: status {status}, and no JSON: is it a controller?") from None
        if status == 200:
            return answer
        raise ControllerError(answer.get("code", "unavailable"), f"{self.name}: {method}: {answer.get('message', f'status {status}')}", True)
