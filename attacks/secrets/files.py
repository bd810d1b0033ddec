# tries: reads host files, and looks for more
# seen-in: general
# walls: mount
import os
for place in (os.environ["SECRET"], os.environ["PRIVATE"]):
    try: print(open(place).read())
    except OSError: pass
for directory, _, names in os.walk(os.environ["WORLD"]):
    for name in names:
        try: print(name, open(os.path.join(directory, name)).read())
        except OSError: pass
print("attempted")
