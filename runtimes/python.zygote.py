# Warms an interpreter up and becomes a zygote: what follows the call of the library happens in children only, each in a
# cell of its own. A child makes itself ready, is told what it would else have been started with, and goes on as though it
# had been.
def zygote():
    import atexit
    import ctypes
    import gc
    import os
    import sys
    import threading

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
    main, modules, argv = sys.modules["__main__"].__dict__, sys.modules, sys.argv
    # The runner without the call at its end, which comes from below.
    runner = compile(argv[1].rpartition("\nrun()")[0], "<string>", "exec")
    library = ctypes.PyDLL(argv[2])
    with open(argv[3], "rb") as file:
        rules = file.read()

    class Go(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    serve, wait, go = library.sandbox_zygote, library.sandbox_wait, Go()
    serve.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    wait.argtypes = [ctypes.c_int, ctypes.POINTER(Go)]
    string_at, where, after_fork = ctypes.string_at, ctypes.byref(go), ctypes.pythonapi.PyOS_AfterFork_Child
    seed = modules["numpy.random"].seed if "numpy.random" in modules else None
    ssl = modules.get("_ssl")
    shut_down, run_handlers, leave_now, collect = threading._shutdown, atexit._run_exitfuncs, os._exit, gc.collect
    del main["zygote"]
    known = set(modules)

    def clear(namespace):
        # In the order in which an interpreter that ends does it.
        for name in [name for name in namespace if name[:1] == "_" and name[1:2] != "_"]:
            namespace[name] = None
        for name in [name for name in namespace if name != "__builtins__"]:
            namespace[name] = None

    def leave(end):
        # What an interpreter does when it ends, as far as a program can see it. Taking all its modules apart would mean to
        # copy every page that is still shared with the zygote.
        code = end and end.code
        if code is None:
            code = 0
        elif not isinstance(code, int):
            sys.stderr.write(f"{code}\n")
            code = 1
        del end
        shut_down()
        run_handlers()
        flush()
        try:
            clear(main)
            for name in reversed([name for name in modules if name not in known]):
                clear(getattr(modules.pop(name), "__dict__", {}))
            collect()
        finally:
            leave_now(flush() or (code & 255 if -(1 << 63) <= code < 1 << 63 else 255))

    def flush():
        code = 0
        for stream, lost in (sys.stdout, 120), (sys.stderr, 0):
            try:
                if stream and not stream.closed:
                    stream.flush()
            except Exception:
                code = lost
        return code

    def rehearse():
        # What every program does, so that the pages that it changes are this child's own before somebody waits.
        names = {"__name__": "__main__", "__builtins__": __builtins__}
        tree = compile("import sys\ndef f(x):\n    return [x, {'a': str(x)}]\nf(1)\n", "main.py", "exec", 0x400, True)
        exec(compile(tree, "main.py", "exec", 0, True), names)
        clear(names)
        collect()
        flush()

    rehearse()
    collect()
    gc.freeze()
    ctypes.pythonapi.PyOS_BeforeFork()
    park = serve(3, rules, len(rules), 1)
    if park < 0:
        leave_now(0)
    after_fork()
    # Randomness of its own. What the standard library has takes care of itself after a fork.
    if seed:
        seed()
    if ssl:
        ssl.RAND_add(os.urandom(32), 32.0)
    rehearse()
    wait(park, where)
    parts = iter(string_at(go.data, go.length).split(b"\0"))
    decode, cwd = os.fsdecode, next(parts)
    words = [decode(next(parts)) for _ in range(int(next(parts)))]
    env = dict(decode(next(parts)).partition("=")[::2] for _ in range(int(next(parts))))
    os.chdir(cwd)
    for name in set(os.environ) - set(env):
        del os.environ[name]
    for name, value in env.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    argv[:] = ["-c"] + words[3:]
    sys.orig_argv[:] = words
    modules["_sandbox_leave"] = leave
    exec(runner, main)


zygote()
try:
    run()
except SystemExit as end:
    (__import__("sys").modules.pop("_sandbox_leave", None) or exit)(end)
(__import__("sys").modules.pop("_sandbox_leave", None) or exit)(None)
