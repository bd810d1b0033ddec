# Files: writing and reading CSV in a temporary directory, binary records, pathlib.
import csv
import struct
import tempfile
from itertools import groupby
from pathlib import Path
from statistics import mean, median

ROWS = [
    ("north", "anvil", 12, 9.5),
    ("south", "rope, 10 m", 3, 4.0),
    ("north", 'nail "long"', 500, 0.02),
    ("east", "rope, 10 m", 7, 4.0),
    ("south", "anvil", 1, 9.5),
]


def write(path):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["region", "item", "quantity", "price"])
        writer.writerows(ROWS)


def read(path):
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            yield row["region"], row["item"], int(row["quantity"]), float(row["price"])


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "sales.csv"
    write(path)
    rows = list(read(path))
    print("round trip:", rows == ROWS)
    print("third line:", path.read_text().splitlines()[3])

    records = Path(folder, "sales.bin")
    records.write_bytes(b"".join(struct.pack("<Hd", q, p) for _, _, q, p in rows))
    print("binary size:", records.stat().st_size)
    worth = sum(q * p for q, p in struct.iter_unpack("<Hd", records.read_bytes()))
    print(f"stock worth: {worth:.2f}")
    print("files:", sorted(entry.name for entry in Path(folder).iterdir()))

for region, group in groupby(sorted(rows), key=lambda row: row[0]):
    quantities = [row[2] for row in group]
    print(f"{region:<6}{sum(quantities):>5}{mean(quantities):>8.1f}")
print("median quantity:", median(row[2] for row in rows))
print("folder removed:", not Path(folder).exists())
