import http.server
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
from support.answers import mutants


def make_server(path, classes, shape):
    program = torch.export.load(path).module()

    def classify(body):
        try:
            images = torch.tensor(json.loads(body)["images"])
        except (ValueError, KeyError, TypeError, RuntimeError):
            raise ValueError('Send JSON: {"images": [[[[0, 255, ...]]]]}.') from None
        if images.dtype != torch.int64:
            raise ValueError("Pixels are whole numbers.")
        if images.ndim != 4 or tuple(images.shape[1:]) != tuple(shape):
            raise ValueError(f"Images have the shape [B, {', '.join(map(str, shape))}].")
        if images.min() < 0 or images.max() > 255:
            raise ValueError("Pixels are numbers from 0 to 255.")
        with torch.no_grad():
            return [classes[i] for i in program(images.to(torch.uint8)).argmax(1)]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            length = self.headers.get("Content-Length", "")
            if self.path != "/classify":
                return self.reply(404, {"error": "Post to /classify."})
            if not (length.isascii() and length.isdigit()):
                return self.reply(411, {"error": "Announce the length of the body."})
            length = int(length)
            if length > 1_000_000:
                return self.reply(413, {"error": "At most 1,000,000 bytes."})
            try:
                found = classify(self.rfile.read(length))
            except ValueError as problem:
                return self.reply(400, {"error": str(problem)})
            self.reply(200, {"classes": found})

        def do_GET(self):
            self.reply(405, {"error": "Use POST: send images to /classify."})

        def reply(self, status, content):
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def simpler(path, classes, shape):
    model = torch.export.load(path).module()

    class Service(BaseHTTPRequestHandler):
        def do_POST(self):
            self.reply(*(404, "There is only /classify.") if self.path != "/classify" else self.classify())

        def do_GET(self):
            self.reply(405, "Use POST: send images to /classify.")

        def reply(self, status, answer):
            body = json.dumps({"classes" if status == 200 else "error": answer}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def classify(self):
            try:
                length = int(self.headers["Content-Length"])
                if length > 1_000_000:
                    return 413, "At most 1,000,000 bytes."
                body = self.rfile.read(length) if length >= 0 else b""
                images = np.asarray(json.loads(body)["images"])
                if images.dtype.kind != "i" or images.min() < 0 or images.max() > 255:
                    return 422, "Pixels are integers from 0 to 255."
                if images.shape != (len(images), *shape):
                    return 422, f"Each image has the shape {tuple(shape)}."
                with torch.inference_mode():
                    numbers = model(torch.from_numpy(images.astype(np.uint8))).argmax(dim=1)
                return 200, [classes[number] for number in numbers.tolist()]
            except Exception as problem:
                return 400, f"Send JSON with a list of images. This went wrong: {problem!r}"

        def log_message(self, *words):
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Service)


SERVER = 'ThreadingHTTPServer(("127.0.0.1", 0), Handler)'

RIGHT = [make_server, simpler]

WRONG = {
    "no_server": mutants(make_server, SERVER, "Handler", f"{SERVER}.serve_forever()"),
    "one_port": mutants(make_server, '("127.0.0.1", 0)', '("127.0.0.1", 47613)'),
    "open_to_all": mutants(make_server, "127.0.0.1", "0.0.0.0"),
    "good_request": [
        *mutants(make_server, "argmax(1)", "argmax(0)", "argmin(1)"),
        *mutants(make_server, "self.reply(200", "self.reply(201"),
        *mutants(make_server, '{"classes": found}', '{"class": found}'),
        *mutants(make_server, "program(images", "program((images / 255)"),
    ],
    "dead_afterward": mutants(
        make_server,
        "except ValueError as problem:",
        "except ValueError as problem:\n                self.server.socket.close()",
    ),
    "not_refused": [
        *mutants(make_server, "except (ValueError, KeyError, TypeError, RuntimeError):", "except ZeroDivisionError:"),
        *mutants(make_server, "if images.dtype != torch.int64:", "if False:"),
        *mutants(make_server, "do_GET", "do_PUT"),
        *mutants(make_server, "self.reply(400", "self.reply(500"),
    ],
    "one_at_a_time": mutants(make_server, "return ThreadingHTTPServer(", "return http.server.HTTPServer("),
    "length": mutants(make_server, "if length > 1_000_000:", "if length >= 1_000_000:", "if False:"),
    "elsewhere": mutants(make_server, 'if self.path != "/classify":', "if False:"),
    "mute": mutants(make_server, '{"error": str(problem)}', "{}"),
}
assert http
