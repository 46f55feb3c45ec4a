"""Inserts one row into the outbox with `sqlite3`, beside a row of its own, in one transaction.

Prints the id.
"""

import argparse
import sqlite3

PAYLOAD = '{"from": "sqlite3", "n": 9007199254740993, "s": "\\u0000"}'


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--id", default="sqlite3-1")
    parser.add_argument("--aggregate", default="ord-731")
    options = parser.parse_args()
    connection = sqlite3.connect(options.file, timeout=30, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE IF NOT EXISTS python_orders (id TEXT PRIMARY KEY)")
    connection.execute("INSERT INTO python_orders VALUES (?)", (options.aggregate,))
    connection.execute(
        "INSERT INTO onceward_outbox (id, aggregatetype, aggregateid, type, payload)"
        " VALUES (?, 'order', ?, 'order.accepted', ?)",
        (options.id, options.aggregate, PAYLOAD),
    )
    connection.execute("COMMIT")
    connection.close()
    print(options.id)


if __name__ == "__main__":
    main()
