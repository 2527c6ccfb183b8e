import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
from answers.capstone._lab import written
from support.answers import mutants


def simpler(path, classes, shape):
    model = torch.export.load(path).module()

    class Service(BaseHTTPRequestHandler):
        def do_POST(self):
            status, answer = (404, "There is only /classify.") if self.path != "/classify" else self.classify()
            body = json.dumps({"classes" if status == 200 else "error": answer}).encode()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def classify(self):
            try:
                length = int(self.headers["Content-Length"])
                if length > 1_000_000:
                    return 413, "At most 1,000,000 bytes."
                images = np.asarray(json.loads(self.rfile.read(max(length, 0)))["images"])
                assert images.dtype.kind == "i" and 0 <= images.min() <= images.max() <= 255, "integers from 0 to 255"
                assert images.shape == (len(images), *shape), f"each image has the shape {tuple(shape)}"
                with torch.inference_mode():
                    numbers = model(torch.from_numpy(images.astype(np.uint8))).argmax(dim=1)
                return 200, [classes[number] for number in numbers.tolist()]
            except Exception as problem:
                return 422, f"Send JSON with a list of images. This went wrong: {problem!r}"

        def log_message(self, *words):
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Service)


make_server = written("serve").make_server
SERVER = 'ThreadingHTTPServer(("127.0.0.1", 0), Handler)'

RIGHT = [make_server, simpler]

WRONG = {
    "no_server": mutants(make_server, SERVER, "Handler", f"{SERVER}.serve_forever()"),
    "address": mutants(make_server, '"127.0.0.1", 0', '"127.0.0.1", 47613', '"0.0.0.0", 0'),
    "good_request": [
        *mutants(make_server, "dim=1", "dim=0"),
        *mutants(make_server, '{"classes": classify', '{"class": classify'),
    ],
    "dead_afterward": mutants(make_server, "self.reply(400", "self.server.socket.close(); self.reply(400"),
    "not_refused": [
        *mutants(make_server, "except (ValueError, KeyError, TypeError, RuntimeError):", "except ZeroDivisionError:"),
        *mutants(make_server, "if images.dtype != torch.int64 or", "if"),
        *mutants(make_server, "do_GET", "do_PUT"),
        *mutants(make_server, "self.reply(400", "self.reply(500"),
    ],
    "one_at_a_time": mutants(
        make_server, "return ThreadingHTTPServer(", "from http.server import HTTPServer; return HTTPServer("
    ),
    "mute": mutants(make_server, '{"error": str(problem)}', "{}"),
    None: [
        *mutants(make_server, "> 1_000_000", ">= 1_000_000", "> 1e9"),
        *mutants(make_server, 'if self.path != "/classify":', "if False:"),
    ],
}
