"""A real endpoint on loopback that speaks chat completions; a function stands in for the model."""

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from peira.verifiers.chat import close_connections

Model = Callable[[dict[str, Any]], "str | tuple[int, dict[str, str], str]"]


class Endpoint:
    """Its address, and every request it has seen."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    @property
    def shown(self) -> str:
        """All text that any model was ever shown here."""
        return "\n".join(message["content"] for body in self.requests for message in body["messages"])


@contextlib.contextmanager
def endpoint(model: Model) -> Iterator[Endpoint]:
    """Serve on a free port until the context ends."""
    state = Endpoint(model)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            state.requests.append(body)
            state.headers.append({name.lower(): value for name, value in self.headers.items()})
            said = state.model(body)
            if isinstance(said, str):
                said = 200, {}, json.dumps({"choices": [{"message": {"role": "assistant", "content": said}}]})
            status, headers, text = said
            raw = text.encode()
            with contextlib.suppress(OSError):
                self.send_response(status)
                for name, value in {"content-length": str(len(raw)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(raw)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        close_connections()
        server.shutdown()
        thread.join()
        server.server_close()


def tag_in(body: dict[str, Any]) -> str:
    """The tag that the rules ask to repeat."""
    return re.search(r'"tag": "([0-9a-f]{8})"', body["messages"][0]["content"])[1]


def section(body: dict[str, Any], name: str) -> str:
    """The fenced text under that name, as a model would see it."""
    tag = tag_in(body)
    shown = body["messages"][0]["content"] + body["messages"][1]["content"]
    return re.search(rf"<{name}-{tag}>\n(.*?)\n</{name}-{tag}>", shown, re.DOTALL)[1]


def items(body):
    """Names of the items that a rubric asks for, and whether they are to be extracted."""
    rules = body["messages"][0]["content"]
    return re.findall(r"^(i\d+)", rules, re.MULTILINE), '"status"' in rules
