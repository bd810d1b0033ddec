# Warms an interpreter up and becomes a zygote: what follows the call of the library happens in children only, each in a
# cell of its own. A child is told what it would else have been started with, and goes on as though it had been.
def zygote():
    import ctypes
    import gc
    import os
    import sys

    packages = os.environ.get("PYTHONPATH")
    # What most programs import. A package that cannot be imported is the program's business, if it wants it at all.
    names = ["ast", "collections", "dataclasses", "datetime", "decimal", "enum", "functools", "heapq", "itertools",
             "json", "math", "random", "re", "statistics", "string", "time", "traceback", "typing"]
    names += sorted(name.split(".")[0] for name in os.listdir(packages)) if packages else []
    for name in dict.fromkeys(names):
        if name.isidentifier() and not name.startswith("_"):
            try:
                __import__(name)
            except BaseException:
                pass
    runner = compile(sys.argv[1], "<string>", "exec")
    library = ctypes.PyDLL(sys.argv[2])
    with open(sys.argv[3], "rb") as file:
        rules = file.read()

    class Go(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    serve, go = library.sandbox_zygote, Go()
    serve.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int, ctypes.POINTER(Go)]
    string_at, after_fork = ctypes.string_at, ctypes.pythonapi.PyOS_AfterFork_Child
    seed = sys.modules["numpy.random"].seed if "numpy.random" in sys.modules else None
    ssl = sys.modules.get("_ssl")
    gc.collect()
    gc.freeze()
    ctypes.pythonapi.PyOS_BeforeFork()
    if serve(3, rules, len(rules), 1, ctypes.byref(go)) != 0:
        os._exit(0)
    after_fork()
    # Randomness of its own. What the standard library has takes care of itself after a fork.
    if seed:
        seed()
    if ssl:
        ssl.RAND_add(os.urandom(32), 32.0)
    parts = iter(string_at(go.data, go.length).split(b"\0"))
    decode, cwd = os.fsdecode, next(parts)
    argv = [decode(next(parts)) for _ in range(int(next(parts)))]
    env = dict(decode(next(parts)).partition("=")[::2] for _ in range(int(next(parts))))
    os.chdir(cwd)
    for name in set(os.environ) - set(env):
        del os.environ[name]
    for name, value in env.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    sys.argv[:] = ["-c"] + argv[3:]
    sys.orig_argv[:] = argv
    main = sys.modules["__main__"].__dict__
    del main["zygote"]
    return runner


exec(zygote())
