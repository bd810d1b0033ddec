# SQL: an in-memory SQLite database with joins, grouping, transactions and a user function.
import sqlite3

SCHEMA = """
CREATE TABLE product (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, cents INTEGER NOT NULL);
CREATE TABLE movement (
    product INTEGER NOT NULL REFERENCES product (id),
    change INTEGER NOT NULL CHECK (change <> 0)
);
"""

db = sqlite3.connect(":memory:")
db.row_factory = sqlite3.Row
db.executescript(SCHEMA)
db.create_function("euros", 1, lambda cents: f"{cents // 100}.{cents % 100:02d}")

with db:
    db.executemany(
        "INSERT INTO product (name, cents) VALUES (?, ?)",
        [("bolt", 15), ("hammer", 1299), ("saw", 2450)],
    )
    db.executemany(
        "INSERT INTO movement SELECT id, ? FROM product WHERE name = ?",
        [(200, "bolt"), (-30, "bolt"), (4, "hammer"), (-1, "hammer")],
    )

STOCK = """
SELECT name, COALESCE(SUM(change), 0) AS stock, euros(COALESCE(SUM(change), 0) * cents) AS worth
FROM product LEFT JOIN movement ON movement.product = product.id
GROUP BY product.id ORDER BY stock DESC
"""
for row in db.execute(STOCK):
    print(f"{row['name']:<8}{row['stock']:>4}{row['worth']:>8}")

try:
    with db:
        db.execute("UPDATE product SET cents = cents * 2")
        db.execute("INSERT INTO product (name, cents) VALUES ('saw', 1)")
except sqlite3.IntegrityError as error:
    print("rolled back:", error)
print("total price:", db.execute("SELECT SUM(cents) FROM product").fetchone()[0])

FIBONACCI = """
WITH RECURSIVE fib (n, a, b) AS (SELECT 0, 0, 1 UNION ALL SELECT n + 1, b, a + b FROM fib WHERE n < 90)
SELECT a FROM fib WHERE n = 90
"""
print("fib(90):", db.execute(FIBONACCI).fetchone()[0])
