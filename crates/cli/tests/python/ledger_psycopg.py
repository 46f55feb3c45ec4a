"""Has one effect for a delivered message, with `psycopg`: the ledger row and the business row commit
together, and a second delivery finds the ledger row and changes nothing.

Prints how many ledger rows each try inserted.
"""

import argparse

import psycopg

BY_MESSAGE = """
INSERT INTO onceward.ledger (subscription, source, type, identity, recordedtime, result)
VALUES (%(subscription)s, %(source)s, %(type)s, %(identity)s, %(recordedtime)s, %(result)s)
ON CONFLICT DO NOTHING
"""
BY_OPERATION = """
INSERT INTO onceward.operation_ledger (subscription, source, type, identity, result)
VALUES (%(subscription)s, %(source)s, %(type)s, %(identity)s, %(result)s)
ON CONFLICT DO NOTHING
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    for name in ("subscription", "source", "type", "identity"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--recordedtime", help="as delivered; without it, by operation")
    options = parser.parse_args()
    row = vars(options) | {"result": '{"shipment": "s-1"}'}
    with psycopg.connect(options.url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS python_shipments (id text)")
        connection.commit()
        for _ in range(2):
            statement = BY_MESSAGE if options.recordedtime else BY_OPERATION
            inserted = connection.execute(statement, row).rowcount
            if inserted == 1:
                connection.execute("INSERT INTO python_shipments VALUES (%s)", (options.identity,))
            connection.commit()
            print(inserted)


if __name__ == "__main__":
    main()
