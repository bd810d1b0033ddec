# Threads: an executor counting primes, a lock around shared state, a producer and consumers.
import queue
import threading
from concurrent.futures import ThreadPoolExecutor


def is_prime(n):
    if n < 2:
        return False
    return all(n % d for d in range(2, int(n**0.5) + 1))


def count_primes(bounds):
    return sum(map(is_prime, range(*bounds)))


class Account:
    def __init__(self):
        self.balance = 0
        self.lock = threading.Lock()

    def deposit(self, times):
        for _ in range(times):
            with self.lock:
                self.balance += 1


def consume(work, done):
    while (item := work.get()) is not None:
        done.append(item.upper())


with ThreadPoolExecutor(max_workers=4) as pool:
    ranges = [(start, start + 1000) for start in range(0, 10000, 1000)]
    per_range = list(pool.map(count_primes, ranges))
print("primes per thousand:", per_range)
print("primes below 10000:", sum(per_range))

account = Account()
depositors = [threading.Thread(target=account.deposit, args=(2500,)) for _ in range(4)]
for thread in depositors:
    thread.start()
for thread in depositors:
    thread.join()
print("balance:", account.balance)

work, done = queue.Queue(), []
consumers = [threading.Thread(target=consume, args=(work, done)) for _ in range(3)]
for thread in consumers:
    thread.start()
for name in ["red", "green", "blue", "cyan"]:
    work.put(name)
for _ in consumers:
    work.put(None)
for thread in consumers:
    thread.join()
print("consumed:", sorted(done))
