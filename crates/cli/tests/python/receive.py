"""Receives pushes and checks their signatures with the package `standardwebhooks`.

Prints its port as the first line, {"port": N}, and then one JSON line for each request, before it
is answered: verified or not, headers, body and its SHA-256. A bad signature is answered with 401.
"""

import argparse
import hashlib
import http.server
import json
import pathlib
import threading

from standardwebhooks import Webhook, WebhookVerificationError


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        line = {
            "path": self.path,
            "headers": headers,
            "body": body.decode(errors="backslashreplace"),
            "sha256": hashlib.sha256(body).hexdigest(),
            "error": None,
        }
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
        """Requests are printed as JSON."""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, options):
        super().__init__(("127.0.0.1", options.port), Receiver)
        self.webhook = Webhook(options.secret_file.read_text().split()[0])
        self.failures_left = options.fail_first
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
        with self.lock:
            print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--secret-file", type=pathlib.Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--fail-first", type=int, default=0, help="answers of 500 before 204")
    server = Server(parser.parse_args())
    print(json.dumps({"port": server.server_port}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
