# Regular expressions: parsing access-log lines with named groups, substitution with a function.
import re
from collections import defaultdict

LOG = """\
10.0.0.1 - - [01/Mar/2024:10:00:00 +0000] "GET /index.html HTTP/1.1" 200 512
10.0.0.2 - - [01/Mar/2024:10:00:01 +0000] "POST /api/items HTTP/1.1" 201 64
10.0.0.1 - - [01/Mar/2024:10:00:02 +0000] "GET /missing HTTP/1.1" 404 0
this line is damaged
10.0.0.3 - - [01/Mar/2024:10:00:05 +0000] "GET /api/items?id=7 HTTP/1.1" 200 2048
"""

LINE = re.compile(
    r"""
    (?P<host>\S+)\s\S+\s\S+\s
    \[(?P<time>[^\]]+)\]\s
    "(?P<method>[A-Z]+)\s(?P<path>[^\s?"]+)(?:\?(?P<query>[^\s"]*))?\s[^"]*"\s
    (?P<status>\d{3})\s(?P<size>\d+)
    """,
    re.VERBOSE,
)

by_status, sizes, bad = defaultdict(list), defaultdict(int), []
for number, line in enumerate(LOG.splitlines(), 1):
    match = LINE.fullmatch(line)
    if match is None:
        bad.append(number)
        continue
    by_status[int(match["status"])].append(f"{match['method']} {match['path']}")
    sizes[match["host"]] += int(match["size"])
    if match["query"]:
        print("query:", dict(pair.split("=") for pair in match["query"].split("&")))

for status, requests in sorted(by_status.items()):
    print(status, requests)
print("bytes:", dict(sorted(sizes.items())))
print("bad lines:", bad)

print(re.sub(r"_([a-z])", lambda m: m[1].upper(), "snake_case_to_camel"))
print(re.split(r"\s*[,;]\s*", "a , b;c ;  d"))
print(re.findall(r"\b(\w)\w*\1\b", "level area stats gag noon test"))
