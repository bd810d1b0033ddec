# Runs a program as `python3 FILE ARGS` would, in the module __main__, and leaves the value of its last expression and
# the reason of its failure in the directory $RESULT. A function `restrict` that was defined before is asked first. All
# that is known before the program is comes first: a zygote does that once for all its children.
def prepare():
    import os
    import sys

    del sys.argv[0]
    path = os.path.abspath(sys.argv[0])
    if sys.path[0] == "":
        sys.path[0] = os.path.dirname(path)
    result = os.environ.pop("RESULT", "")
    main = sys.modules["__main__"].__dict__
    del main["prepare"]
    restrict = main.pop("restrict", None)
    main["__file__"] = path
    # Kept: the program may replace them.
    os_open, read, write, close, flags = os.open, os.read, os.write, os.close, os.O_WRONLY | os.O_CREAT | os.O_TRUNC

    def leave(name, text):
        try:
            file = os_open(result + "/" + name, flags, 0o644)
            write(file, text[:65536].encode("utf-8", "backslashreplace"))
            close(file)
        except (OSError, ValueError):
            pass

    def content():
        file, parts = os_open(path, 0), []
        while not parts or parts[-1]:
            parts.append(read(file, 1 << 16))
        close(file)
        return b"".join(parts)

    def compiled(part, mode):
        return compile(part, path, mode, 0, True)

    def by_lines(source):
        # The program up to its last line that begins in the first column, and the rest, if both are complete. Making a
        # syntax tree writes to more pages, each of which is copied in the child of a zygote.
        start, stop = 0, len(source)
        while stop > 0:
            start = source.rfind(b"\n", 0, stop) + 1
            if source[start:start + 1] not in b"#)]} \t\r\n\f":
                break
            start, stop = 0, start - 1
        # A declared encoding and imports from the future are meant for both. Not every version complains of a line that is
        # to be continued and is the last.
        declared = b"coding" in b"".join(source.split(b"\n", 2)[:2]) or b"__future__" in source
        if declared or source[:start].rstrip(b"\r\n").endswith(b"\\"):
            return None
        last = b"\n" * source.count(b"\n", 0, start) + source[start:]
        try:
            first = compiled(source[:start], "exec") if start else None
            try:
                return first, compiled(last, "eval")
            except SyntaxError:
                return None if b";" in last else (first, compiled(last, "exec"))
        except SyntaxError:
            return None

    def by_statements(source):
        nonlocal main
        import _ast
        tree = compile(source, path, "exec", 0x400, True)  # 0x400: only the syntax tree
        if restrict:
            main = restrict(tree)
        last = "None"
        if tree.body and type(tree.body[-1]).__name__ == "Expr":
            last = _ast.Expression(tree.body.pop().value)
        return compiled(tree, "exec"), compiled(last, "eval")

    def run():
        try:
            source = content()
            first, last = not restrict and by_lines(source) or by_statements(source)
            if first:
                exec(first, main)
            value = eval(last, main)
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

    return run


prepare()()
