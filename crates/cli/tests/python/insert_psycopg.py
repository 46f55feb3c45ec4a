"""Inserts one row into the outbox with `psycopg`, beside a row of its own, in one transaction.

Prints the id.
"""

import argparse

import psycopg

PAYLOAD = '{"from": "psycopg", "n": 9007199254740993, "s": "\\u0000"}'


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--id", default="psycopg-1")
    parser.add_argument("--aggregate", default="ord-731")
    options = parser.parse_args()
    with psycopg.connect(options.url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS python_orders (id text PRIMARY KEY)")
        connection.execute("INSERT INTO python_orders VALUES (%s)", (options.aggregate,))
        connection.execute(
            "INSERT INTO onceward.outbox (id, aggregatetype, aggregateid, type, payload)"
            " VALUES (%s, 'order', %s, 'order.accepted', %s)",
            (options.id, options.aggregate, PAYLOAD),
        )
    print(options.id)


if __name__ == "__main__":
    main()
