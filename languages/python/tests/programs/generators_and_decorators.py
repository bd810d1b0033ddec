# Language features: generators, decorators, pattern matching, descriptors.
import functools
import itertools


def counted(function):
    @functools.wraps(function)
    def wrapper(*args):
        wrapper.calls += 1
        return function(*args)

    wrapper.calls = 0
    return wrapper


@counted
def slow_fibonacci(n):
    return n if n < 2 else slow_fibonacci(n - 1) + slow_fibonacci(n - 2)


def primes():
    composites = {}
    for n in itertools.count(2):
        factors = composites.pop(n, None)
        if factors is None:
            yield n
            composites[n * n] = [n]
        else:
            for factor in factors:
                composites.setdefault(n + factor, []).append(factor)


class Positive:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return getattr(instance, self.name)

    def __set__(self, instance, value):
        if value <= 0:
            raise ValueError(f"{self.name[1:]} must be positive")
        setattr(instance, self.name, value)


class Square:
    side = Positive()

    def __init__(self, side):
        self.side = side


def describe(shape):
    match shape:
        case {"kind": "circle", "r": r} if r > 10:
            return "large circle"
        case {"kind": "circle"}:
            return "circle"
        case [x, *rest]:
            return f"list of {1 + len(rest)} from {x}"
        case Square(side=side):
            return f"square of {side}"
        case _:
            return "unknown"


print("fib(15):", slow_fibonacci(15), "in", slow_fibonacci.calls, "calls")
print("primes:", list(itertools.islice(primes(), 10)))
print("sum below 10000:", sum(itertools.takewhile(lambda p: p < 10000, primes())))
for shape in ({"kind": "circle", "r": 11}, {"kind": "circle"}, [7, 8, 9], Square(4), 3):
    print(describe(shape))
try:
    Square(-1)
except ValueError as error:
    print("error:", error)
