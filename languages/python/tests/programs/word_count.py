# Word frequencies of standard input: collections.Counter and stable sorting.
import re
import sys
from collections import Counter


def words(stream):
    for line in stream:
        yield from re.findall(r"[a-z']+", line.lower())


def main():
    counts = Counter(words(sys.stdin))
    print(f"{counts.total()} words, {len(counts)} distinct")
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    for word, count in ranked[:5]:
        print(f"{word:<6} {count} {'#' * count}")


if __name__ == "__main__":
    main()
