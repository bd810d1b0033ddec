# Warms an interpreter up and becomes a zygote: what follows the call of the library happens in children only, each in a
# cell of its own. A child makes itself ready, is told what it would else have been started with, and goes on as though it
# had been.
def zygote():
    import atexit
    import ctypes
    import gc
    import os
    import stat
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
    runner = compile(argv[1].rpartition("\nprepare()")[0], "<string>", "exec")
    library = ctypes.PyDLL(argv[2])

    class Go(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    serve, wait, go = library.sandbox_zygote, library.sandbox_wait, Go()
    serve.argtypes = [ctypes.c_int, ctypes.c_int]
    wait.argtypes = [ctypes.c_int, ctypes.POINTER(Go)]
    string_at, where, after_fork = ctypes.string_at, ctypes.byref(go), ctypes.pythonapi.PyOS_AfterFork_Child
    ssl = modules.get("_ssl")
    shut_down, run_handlers, leave_now, collect = threading._shutdown, atexit._run_exitfuncs, os._exit, gc.collect
    threads, handlers = threading._active, atexit._ncallbacks
    known = set(modules)
    execute, executable = os.execv, sys.executable

    # Python's own work after a fork repairs what other threads have left, and calls what modules have registered. It
    # writes to 190 pages. A process with one thread needs none of the former, and of the latter what the standard library
    # registers is done below. The list of what is registered has no name, but it refers to this function.
    random = modules["random"]
    registered = [it for it in gc.get_referrers(threading._after_fork) if type(it) is list]
    usual = [threading._after_fork, random._inst.seed]
    plain = len(threads) == 1 and len(registered) == 1 and all(hook in usual for hook in registered[0])
    thread, thread_id = threading.main_thread(), threading.get_native_id

    # Sources of random numbers that exist already, however deep in a package. Each child renews them. (What asks the
    # kernel needs nothing.)
    def seeding(source):
        source.seed()
        # What that calls in turn. The rest of it has been done now, and is the same every time.
        return super(random.Random, source).seed if type(source).seed is random.Random.seed else source.seed

    kinds = {random.Random: seeding}
    numpy = modules.get("numpy.random")
    if numpy:
        def renewing(source):
            def renew():
                source.bit_generator.state = type(source.bit_generator)().state
            return renew

        def renewing_old(source):
            def renew():
                # Through its own setter, which also forgets the number that it keeps for the next call.
                source.set_state(numpy.RandomState().get_state(legacy=False))
            return renew

        kinds.update({numpy.Generator: renewing, numpy.RandomState: renewing_old})
    # By their real type: some packages have objects that load something when they are asked for their class.
    renewals = [renewal(source) for source in gc.get_objects() for kind, renewal in kinds.items()
                if issubclass(type(source), kind) and not issubclass(type(source), random.SystemRandom)]
    if numpy:
        renewals.append(renewing_old(numpy.mtrand._rand))

    def leave(code):
        # What an interpreter does when it ends, as far as a program can see it: threads, handlers, streams, then what the
        # program has made. Taking all modules apart would mean to copy every page that is still shared with the zygote.
        if code is None:
            code = 0
        elif not isinstance(code, int):
            sys.stderr.write(f"{code}\n")
            code = 1
        # One thread and no handler: there is nothing to wait for, and nothing that could tell.
        if len(threads) > 1 or handlers():
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

    def kind_of(number):
        status = os.fstat(number)
        return stat.S_IFMT(status.st_mode), status.st_rdev

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

    # The program gets a module of its own, so that it can go while this one is still at work.
    own, path = modules["__main__"], sys.path[0]

    def begin(words):
        main = modules["__main__"] = type(sys)("__main__")
        main.__dict__.update((name, value) for name, value in own.__dict__.items() if name.startswith("__"))
        argv[:] = ["-c"] + words[3:]
        sys.orig_argv[:] = words
        exec(runner, main.__dict__)
        return main.prepare()

    # Most runs have the environment of this process, a program by the usual name and no arguments, no input, and pipes
    # for output. All that depends on it is made here. A child whose run differs makes its own.
    encode, chdir = os.fsencode, os.chdir
    words, environment, cwd = [sys.orig_argv[0], "-c", argv[1], "main.py"], dict(os.environ), os.getcwd()
    variables = [f"{name}={value}" for name, value in environment.items()]
    text = [cwd, str(len(words)), *words, str(len(variables)), *variables, ""]
    usual = b"\0".join(encode(part) for part in text)
    streams = ("stdin", 0, "r", -1), ("stdout", 1, "w", 0), ("stderr", 2, "w", 0)
    nothing, ends = os.dup(1), os.pipe()
    for number in 1, 2:
        os.dup2(ends[1], number)
    for stream in streams:
        reopen(*stream)
    made_for = [kind_of(number) for _, number, _, _ in streams]
    for number in 1, 2:
        os.dup2(nothing, number)
    for number in nothing, *ends:
        os.close(number)
    run = begin(words)
    remove = os.remove
    with open(words[-1], "w") as file:
        file.write("import sys\ndef f(x):\n    return [str(x)]\nprint(f(1), len(sys.argv))\nf(2)\n")
    del file
    if os.path.exists(os.path.join(os.path.dirname(library._name), "large-pages")):
        library.sandbox_use_large_pages()
    collect()
    gc.freeze()
    if not plain:
        ctypes.pythonapi.PyOS_BeforeFork()
    # A rehearsal, of which no run knows, finds out which pages programs change.
    is_rehearsal = library.sandbox_rehearse() == 0
    if is_rehearsal:
        leave_now = library.sandbox_end_rehearsal
    else:
        remove(words[-1])
        park = serve(3, 1)
        if park < 0:
            leave_now(0)
    if plain:
        thread._native_id = thread_id()
    else:
        after_fork()
    # Randomness of its own. One that cannot be renewed ends the child, so that runs start without a zygote.
    try:
        for renew in renewals:
            renew()
    except BaseException:
        leave_now(126)
    if ssl:
        ssl.RAND_add(os.urandom(32), 32.0)
    text = usual
    if not is_rehearsal:
        wait(park, where)
        text = string_at(go.data, go.length)
    if text == usual:
        chdir(cwd)
    else:
        parts = iter(text.split(b"\0"))
        decode, cwd = os.fsdecode, next(parts)
        words = [decode(next(parts)) for _ in range(int(next(parts)))]
        env = dict(decode(next(parts)).partition("=")[::2] for _ in range(int(next(parts))))
        chdir(cwd)
        for name in set(os.environ) - set(env):
            del os.environ[name]
        for name, value in env.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
        sys.path[0] = path
        run = begin(words)
    for stream, made in zip(streams, made_for):
        if kind_of(stream[1]) != made:
            reopen(*stream)
    return run, leave


run, leave = zygote()
code = None
try:
    run()
except SystemExit as end:
    code = end.code
del run
leave(code)
