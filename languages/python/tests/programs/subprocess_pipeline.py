# Processes: child interpreters with pipes, exit codes, environment, and a fork with a pipe.
import json
import os
import subprocess
import sys


def python(code, *args, **options):
    return subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=30, **options
    )


upper = python("import sys; sys.stdout.write(sys.stdin.read().upper())", input="through a pipe\n")
print("child said:", upper.stdout.strip())

failed = python("import sys; print('oops', file=sys.stderr); sys.exit(3)")
print("exit code:", failed.returncode, "stderr:", failed.stderr.strip())

settings = python("import os; print(os.environ['GREETING'])", env={**os.environ, "GREETING": "hello"})
print("environment:", settings.stdout.strip())

arguments = python("import json, sys; print(json.dumps(sys.argv[1:]))", "two words", "$HOME;*")
print("arguments:", json.loads(arguments.stdout))

reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.close(reader)
    os.write(writer, str(sum(range(1, 101))).encode())
    os._exit(7)
os.close(writer)
print("forked child sent:", os.read(reader, 100).decode())
print("forked child left with:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
