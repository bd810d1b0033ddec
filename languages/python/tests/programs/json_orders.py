# JSON in, dataclasses and exact decimals in the middle, JSON out.
import json
from dataclasses import asdict, dataclass, field
from decimal import Decimal

ORDERS = """
[
  {"id": 1, "customer": "Ada", "lines": [
    {"sku": "pen", "qty": 3, "price": 1.20}, {"sku": "ink", "qty": 1, "price": 7.50}]},
  {"id": 2, "customer": "Linus", "lines": [{"sku": "disk", "qty": 2, "price": 49.95}]},
  {"id": 3, "customer": "Ada", "lines": [{"sku": "paper", "qty": 10, "price": 0.35}]}
]
"""


@dataclass
class Account:
    orders: list[int] = field(default_factory=list)
    units: int = 0
    total: Decimal = Decimal(0)

    def add(self, order):
        self.orders.append(order["id"])
        for line in order["lines"]:
            self.units += line["qty"]
            self.total += line["qty"] * line["price"]


def encode(value):
    if isinstance(value, Decimal):
        return f"{value:.2f}"
    raise TypeError(f"cannot encode {type(value).__name__}")


accounts = {}
for order in json.loads(ORDERS, parse_float=Decimal):
    accounts.setdefault(order["customer"], Account()).add(order)

report = {name: asdict(account) for name, account in accounts.items()}
print(json.dumps(report, default=encode, sort_keys=True))
print(json.dumps({"accented": "\u00e9", "none": None, "nested": [1, [2.5, True]]}, indent=2))
try:
    json.loads('{"broken": [1, 2}')
except json.JSONDecodeError as error:
    print(f"bad JSON at line {error.lineno} column {error.colno}")
