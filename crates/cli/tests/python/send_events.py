"""Sends events with the package `cloudevents`, in binary and in structured mode.

Prints one JSON line for each: mode, id, status, answer, and the data as text, exactly as sent.
"""

import argparse
import http.client
import json
import pathlib
import sys
import urllib.parse
from datetime import datetime, timezone

from cloudevents.core.bindings.http import to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

MODES = {"binary": to_binary, "structured": to_structured}


def events(prefix, event_type, mode, count, keys):
    """JSON data with a number past 2^53 and attributes that need encoding, then plain text."""
    for number in range(count):
        attributes = {
            "id": f"{prefix}-{mode}-{number}",
            "source": "//python/orders",
            "type": event_type,
            "subject": f"ord-{number % keys}",
            "operationid": f"{prefix}-{mode}-{number}-checkout",
            "note": 'Größe "50%" €',
            # By default the package takes the moment at which it makes the event, so that the same
            # event made again would be another one.
            "time": datetime(2026, 3, 1, 12, 0, number % 60, 123456, tzinfo=timezone.utc),
        }
        # Left out on the first one, as the package's own first example does.
        if number:
            attributes["datacontenttype"] = "application/json"
        yield CloudEvent(attributes=attributes, data={"n": 2**53 + 1 + number, "s": "Ü\u0000"})
    attributes["id"] = f"{prefix}-{mode}-text"
    attributes["operationid"] = f"{prefix}-{mode}-text-checkout"
    attributes["datacontenttype"] = "text/csv"
    yield CloudEvent(attributes=attributes, data="a;b\n1;2\n")


def data_as_sent(mode, event, message):
    """The data's text: the body, or what the package wrote into the document."""
    if mode == "binary" or isinstance(event.get_data(), str):
        text = message.body.decode() if mode == "binary" else event.get_data()
        return text
    text = JSONFormat().write_data(event.get_data(), "application/json").decode()
    assert text in message.body.decode(), "the document does not hold the data as they were written"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="address of /v1/messages")
    parser.add_argument("--type", default="order.accepted")
    parser.add_argument("--mode", choices=sorted(MODES), action="append")
    parser.add_argument("--count", type=int, default=2, help="JSON events for each mode")
    parser.add_argument("--keys", type=int, default=2, help="subjects that they are spread over")
    parser.add_argument("--prefix", default="py", help="beginning of every id")
    parser.add_argument("--token-file", type=pathlib.Path)
    options = parser.parse_args()

    url = urllib.parse.urlsplit(options.url)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
    fine = True
    for mode in options.mode or sorted(MODES):
        for event in events(options.prefix, options.type, mode, options.count, options.keys):
            message = MODES[mode](event, JSONFormat())
            headers = dict(message.headers)
            if options.token_file:
                headers["Authorization"] = "Bearer " + options.token_file.read_text().strip()
            connection.request("POST", url.path, body=message.body, headers=headers)
            answer = connection.getresponse()
            line = {
                "mode": mode,
                "id": event.get_id(),
                "status": answer.status,
                "answer": json.loads(answer.read()),
                "data": data_as_sent(mode, event, message),
            }
            fine = fine and answer.status == 202
            print(json.dumps(line), flush=True)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
