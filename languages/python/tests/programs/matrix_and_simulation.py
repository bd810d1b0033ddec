# Exact matrix maths with fractions, and a simulation driven by its own random generator.
from fractions import Fraction


class MinimalStandard:
    """Park and Miller's generator; from seed 1 its 10000th value is 1043618065."""

    def __init__(self, seed=1):
        self.state = seed

    def next(self):
        self.state = self.state * 16807 % 2147483647
        return self.state


def multiply(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def inverse(matrix):
    size = len(matrix)
    rows = [
        [Fraction(x) for x in row] + [Fraction(i == j) for j in range(size)]
        for i, row in enumerate(matrix)
    ]
    for column in range(size):
        pivot = next(r for r in range(column, size) if rows[r][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [x / rows[column][column] for x in rows[column]]
        for r in range(size):
            if r != column:
                factor = rows[r][column]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[column])]
    return [row[size:] for row in rows]


def estimate_pi(samples):
    random, inside = MinimalStandard(), 0
    for _ in range(samples):
        x, y = random.next() / 2147483647, random.next() / 2147483647
        inside += x * x + y * y < 1
    return 4 * inside / samples


def hilbert(size):
    return [[Fraction(1, i + j + 1) for j in range(size)] for i in range(size)]


for row in inverse(hilbert(4)):
    print(" ".join(f"{str(x):>5}" for x in row))
identity = [[int(i == j) for j in range(4)] for i in range(4)]
print("product is identity:", multiply(hilbert(4), inverse(hilbert(4))) == identity)

generator = MinimalStandard()
for _ in range(10000):
    last = generator.next()
print("10000th value:", last)
print("pi within 0.02:", abs(estimate_pi(50000) - 3.14159265) < 0.02)
