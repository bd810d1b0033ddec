# Runs a program as `python3 FILE ARGS` would, in the module __main__, and leaves the value of its last expression and
# the reason of its failure in the directory $RESULT. With --restricted, only with safe built-ins and without imports.
def run():
    import os
    import sys

    restricted = sys.argv[1] == "--restricted"
    del sys.argv[:1 + restricted]
    path = os.path.abspath(sys.argv[0])
    if not restricted:
        sys.path[0] = os.path.dirname(path)
    result = os.environ.pop("RESULT", "")
    main = sys.modules["__main__"].__dict__
    del main["run"]
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

    def restrict(tree):
        """The namespace of a restricted program. Refuses what is not allowed, before anything runs."""
        import _ast
        import builtins

        class RestrictedError(Exception):
            __module__ = "builtins"
            __qualname__ = "RestrictedError"

        def refuse(node, what):
            raise RestrictedError("%s is not allowed in restricted mode (line %d)" % (what, node.lineno))

        names = """abs all any ascii bin bool bytearray bytes callable chr complex dict divmod enumerate filter float
            format frozenset hash hex id input int isinstance issubclass iter len list map max min next object oct ord
            pow print property range repr reversed round set slice sorted staticmethod classmethod str sum super tuple
            zip True False None NotImplemented Ellipsis __build_class__ __debug__""".split()
        safe = {name: getattr(builtins, name) for name in names}
        for name, value in vars(builtins).items():
            if isinstance(value, type) and issubclass(value, BaseException):
                safe[name] = value
        safe["type"] = lambda value: type(value)
        safe["__name__"] = "__main__"
        inner = {"format_map", "mro", "gi_frame", "gi_code", "cr_frame", "cr_code", "ag_frame", "ag_code", "tb_frame",
                 "tb_next", "f_back", "f_builtins", "f_code", "f_globals", "f_locals"}

        nodes, found = [tree], []
        while nodes:
            node = nodes.pop()
            found.append(node)
            for field in node._fields:
                value = getattr(node, field, None)
                children = value if isinstance(value, list) else [value]
                nodes.extend(child for child in children if isinstance(child, _ast.AST))
        own = {node.id for node in found if isinstance(node, _ast.Name) and not isinstance(node.ctx, _ast.Load)}
        own |= {node.arg for node in found if isinstance(node, _ast.arg)}
        own |= {node.name for node in found if type(node).__name__ in ("FunctionDef", "AsyncFunctionDef", "ClassDef")}
        for node in sorted(found, key=lambda node: getattr(node, "lineno", 0)):
            if isinstance(node, (_ast.Import, _ast.ImportFrom)):
                refuse(node, "importing '%s'" % (getattr(node, "module", None) or node.names[0].name))
            elif isinstance(node, _ast.Attribute) and (node.attr.startswith("_") or node.attr in inner):
                refuse(node, "the attribute '%s'" % node.attr)
            elif isinstance(node, _ast.Name) and node.id != "__name__" and node.id not in own:
                if node.id.startswith("__") or node.id not in safe and hasattr(builtins, node.id):
                    refuse(node, "'%s'" % node.id)
        return {"__builtins__": safe, "__name__": "__main__"}

    try:
        with open(path, "rb") as file:
            source = file.read()
        tree = compile(source, path, "exec", 0x400, True)  # 0x400: only the syntax tree
        if restricted:
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
