# Runs a program as `python3 FILE ARGS` would, in the module __main__, and leaves the value of its last expression and
# the reason of its failure in the directory $RESULT. A function `restrict` that was defined before is asked first.
def run():
    import os
    import sys

    del sys.argv[0]
    path = os.path.abspath(sys.argv[0])
    if sys.path[0] == "":
        sys.path[0] = os.path.dirname(path)
    result = os.environ.pop("RESULT", "")
    main = sys.modules["__main__"].__dict__
    del main["run"]
    restrict = main.pop("restrict", None)
    main["__file__"] = path
    # Kept: the program may replace them.
    os_open, write, close, flags = os.open, os.write, os.close, os.O_WRONLY | os.O_CREAT | os.O_TRUNC

    def leave(name, text):
        try:
            file = os_open(result + "/" + name, flags, 0o644)
            write(file, text[:65536].encode("utf-8", "backslashreplace"))
            close(file)
        except (OSError, ValueError):
            pass

    try:
        with open(path, "rb") as file:
            source = file.read()
        tree = compile(source, path, "exec", 0x400, True)  # 0x400: only the syntax tree
        if restrict:
            main = restrict(tree)
        last = tree.body.pop() if tree.body and type(tree.body[-1]).__name__ == "Expr" else None
        exec(compile(tree, path, "exec", 0, True), main)
        if last is not None:
            import _ast
            value = eval(compile(_ast.Expression(last.value), path, "eval", 0, True), main)
            if value is not None:
                leave("value", repr(value))
        return
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename == "<string>":
            trace = trace.tb_next
        kind = type(error)
        where = "" if kind.__module__ in ("builtins", "__main__") else kind.__module__ + "."
        try:
            said = error.msg if isinstance(error, SyntaxError) else str(error)
        except Exception:
            said = "<exception str() failed>"
        leave("error", where + kind.__qualname__ + (": " + said.strip().split("\n")[0] if said else ""))
        error.__traceback__ = trace
        sys.excepthook(kind, error, trace)
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
    sys.exit(code)


run()
