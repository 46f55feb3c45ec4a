"""Receives pushes and checks their signatures with the package `standardwebhooks`.

Prints its port as the first line, {"port": N}. Each request becomes one JSON line in the output
file: verified or not, headers, body. A bad signature is answered with 401.
"""

import argparse
import http.server
import json
import os
import pathlib
import threading

from standardwebhooks import Webhook, WebhookVerificationError


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        line = {"path": self.path, "headers": headers, "body": body.decode(), "error": None}
        try:
            self.server.webhook.verify(body, headers, json_parse=False)
        except WebhookVerificationError as error:
            line["error"] = str(error)
        line["verified"] = line["error"] is None
        line["status"] = self.server.status(line["verified"])
        self.server.write(line)
        self.send_response(line["status"])
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Requests are in the output file."""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, options):
        super().__init__(("127.0.0.1", options.port), Receiver)
        self.webhook = Webhook(options.secret_file.read_text().split()[0])
        self.failures_left = options.fail_first
        self.out = options.out.open("a", encoding="utf-8")
        self.lock = threading.Lock()

    def status(self, verified):
        with self.lock:
            if not verified:
                return 401
            if self.failures_left > 0:
                self.failures_left -= 1
                return 500
            return 204

    def write(self, line):
        """On disk before the answer, so that what was answered was also kept."""
        with self.lock:
            self.out.write(json.dumps(line) + "\n")
            self.out.flush()
            os.fsync(self.out.fileno())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--secret-file", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--fail-first", type=int, default=0, help="answers of 500 before 204")
    server = Server(parser.parse_args())
    print(json.dumps({"port": server.server_port}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
