# Unicode: normalisation, code points and bytes, case folding, categories, encodings.
import sys
import textwrap
import unicodedata

sys.stdout.reconfigure(encoding="utf-8")


def strip_accents(text):
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(ch for ch in decomposed if not unicodedata.combining(ch))


def is_palindrome(text):
    letters = [ch for ch in text.casefold() if ch.isalpha()]
    return letters == letters[::-1]


for sample in ("naïve", "日本語", "🎉", "e\u0301"):
    sizes = len(sample), len(sample.encode()), len(sample.encode("utf-16-le"))
    print(sample, *sizes)

print("composed:", len(unicodedata.normalize("NFC", "e\u0301")))
print("folded:", "STRASSE".casefold() == "straße".casefold())
print("stripped:", strip_accents("Crème Brûlée à Zürich"))
print("name:", unicodedata.name("π"), unicodedata.category("π"), unicodedata.numeric("½"))
print("upper:", "straße ﬁn".upper())
print("title:", "they're bill's friends".title(), "|", "o'neill".capitalize())
print("digits:", int("٣٤"), "²".isdigit(), "²".isdecimal())
print("palindrome:", is_palindrome("A man, a plan, a canal: Panama!"))
print("replaced:", "café".encode("ascii", "replace"), "café".encode("ascii", "xmlcharrefreplace"))
try:
    b"\xff\xfe\xfa".decode("utf-8")
except UnicodeDecodeError as error:
    print("invalid at byte", error.start)
print("translated:", "hello world".translate(str.maketrans("lo", "01", "h")))
print(textwrap.fill("the rain in spain stays mainly in the plain", width=16))
