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
    from weakref import ref as reference

    packages = os.environ.get("PYTHONPATH")
    # What most programs import. A package that cannot be imported is the program's business, if it wants it at all.
    names = ["ast", "collections", "dataclasses", "datetime", "decimal", "enum", "functools", "heapq", "itertools",
             "json", "math", "random", "re", "statistics", "string", "time", "traceback", "typing"]
    # Of the packages only those that are known to be safe: the others may make state at import that runs must not share.
    preload = set(sys.argv[3].split(","))
    installed = sorted(name.split(".")[0] for name in os.listdir(packages)) if packages else []
    names += [name for name in installed if name in preload]
    for name in dict.fromkeys(names):
        if name.isidentifier() and not name.startswith("_"):
            try:
                __import__(name)
            except BaseException:
                pass
    modules, argv = sys.modules, sys.argv
    # The runner without the call at its end, which comes from below.
    runner = compile(argv[1].rpartition("\nrun()")[0], "<string>", "exec")
    library = ctypes.PyDLL(argv[2])

    class Go(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    serve, wait, go = library.sandbox_zygote, library.sandbox_wait, Go()
    serve.argtypes = [ctypes.c_int, ctypes.c_int]
    wait.argtypes = [ctypes.c_int, ctypes.POINTER(Go)]
    string_at, where, after_fork = ctypes.string_at, ctypes.byref(go), ctypes.pythonapi.PyOS_AfterFork_Child
    ssl = modules.get("_ssl")
    shut_down, run_handlers, leave_now, collect = threading._shutdown, atexit._run_exitfuncs, os._exit, gc.collect
    known = set(modules)
    execute, executable = os.execv, sys.executable

    # Sources of random numbers that exist already, however deep in a package. Each child renews them. (The standard
    # library's own takes care of itself after a fork, and what asks the kernel needs nothing.)
    kinds = {modules["random"].Random: lambda source: source.seed()}
    numpy = modules.get("numpy.random")
    if numpy:
        def renew(source):
            source.bit_generator.state = type(source.bit_generator)().state

        def renew_old(source):
            # Through its own setter, which also forgets the number that it keeps for the next call.
            source.set_state(numpy.RandomState().get_state(legacy=False))

        kinds.update({numpy.Generator: renew, numpy.RandomState: renew_old})
    # By their real type: some packages have objects that load something when they are asked for their class.
    sources = [(source, renewed) for source in gc.get_objects() for kind, renewed in kinds.items()
               if issubclass(type(source), kind) and not issubclass(type(source), modules["random"].SystemRandom)]
    if numpy:
        sources.append((numpy.mtrand._rand, renew_old))

    def leave(code):
        # What an interpreter does when it ends, as far as a program can see it: threads, handlers, streams, then what the
        # program has made. Taking all modules apart would mean to copy every page that is still shared with the zygote.
        if code is None:
            code = 0
        elif not isinstance(code, int):
            sys.stderr.write(f"{code}\n")
            code = 1
        shut_down()
        run_handlers()
        flush()
        try:
            left = [weak(modules.pop(name)) for name in list(modules) if name not in known or name == "__main__"]
            collect()
            for namespace in reversed([module().__dict__ for module in left if module()]):
                for name in [name for name in namespace if name[:1] == "_" and name[1:2] != "_"]:
                    namespace[name] = None
                for name in [name for name in namespace if name != "__builtins__"]:
                    namespace[name] = None
        finally:
            lost = flush()
            if -(1 << 63) <= code < 1 << 63:
                leave_now(lost or code & 255)
            try:
                # What an interpreter says about such a code depends on its version.
                execute(executable, [executable, "-S", "-c", f"raise SystemExit({int(code)})"])
            finally:
                leave_now(255)

    def weak(module):
        try:
            return reference(module)
        except TypeError:
            return lambda: None

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
        names.clear()
        collect()
        flush()

    def reopen(name, number, mode, buffering):
        # Made for other descriptors than are behind the number now.
        old = getattr(sys, name)
        buffer = open(number, mode + "b", buffering, closefd=False)
        getattr(buffer, "raw", buffer).name = f"<{name}>"
        lines = buffering and (buffer.isatty() or name == "stderr")
        new = type(old)(buffer, old.encoding, old.errors, "\n", lines, not buffering)
        new.mode = mode
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)

    rehearse()
    collect()
    gc.freeze()
    ctypes.pythonapi.PyOS_BeforeFork()
    park = serve(3, 1)
    if park < 0:
        leave_now(0)
    after_fork()
    # Randomness of its own. One that cannot be renewed ends the child, so that runs start without a zygote.
    try:
        for source, renewed in sources:
            renewed(source)
    except BaseException:
        leave_now(126)
    if ssl:
        ssl.RAND_add(os.urandom(32), 32.0)
    rehearse()
    # The program gets a module of its own, so that it can go while this one is still at work.
    main = type(sys)("__main__")
    main.__dict__.update((name, value) for name, value in globals().items() if name.startswith("__"))
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
    for stream in ("stdin", 0, "r", -1), ("stdout", 1, "w", 0), ("stderr", 2, "w", 0):
        reopen(*stream)
    modules["__main__"] = main
    exec(runner, main.__dict__)
    return main.run, leave


run, leave = zygote()
code = None
try:
    run()
except SystemExit as end:
    code = end.code
del run
leave(code)
