# Goes before the runner in restricted runs: only safe built-ins, no imports. A convenience, not a boundary.
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


