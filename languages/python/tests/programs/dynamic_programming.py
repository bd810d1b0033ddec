# Dynamic programming: edit distance, common subsequence, knapsack, coins, partitions.
from functools import lru_cache


def edit_distance(a, b):
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        current = [i]
        for j, y in enumerate(b, 1):
            current.append(min(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (x != y)))
        previous = current
    return previous[-1]


def longest_common_subsequence(a, b):
    @lru_cache(maxsize=None)
    def length(i, j):
        if i == len(a) or j == len(b):
            return 0
        if a[i] == b[j]:
            return 1 + length(i + 1, j + 1)
        return max(length(i + 1, j), length(i, j + 1))

    return length(0, 0)


def knapsack(items, capacity):
    best = [0] * (capacity + 1)
    for weight, value in items:
        for room in range(capacity, weight - 1, -1):
            best[room] = max(best[room], best[room - weight] + value)
    return best[capacity]


def ways_to_sum(parts, total):
    ways = [1] + [0] * total
    for part in parts:
        for amount in range(part, total + 1):
            ways[amount] += ways[amount - part]
    return ways[total]


print("kitten -> sitting:", edit_distance("kitten", "sitting"))
print("intention -> execution:", edit_distance("intention", "execution"))
print("common subsequence:", longest_common_subsequence("ABCBDAB", "BDCABA"))
print("knapsack:", knapsack([(1, 1), (3, 4), (4, 5), (5, 7)], 7))
print("change for 200:", ways_to_sum([1, 2, 5, 10, 20, 50, 100, 200], 200))
print("partitions of 100:", ways_to_sum(range(1, 101), 100))
