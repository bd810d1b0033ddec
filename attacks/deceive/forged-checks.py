# tries: reads the token that the checks print at their end, and prints it itself
# seen-in: SandboxFusion
# walls: template
# template: yes
# expect: runtime_error
# known: code that shares a process with its checks can claim that it has passed them
import os
pairs = open("/proc/self/environ", "rb").read().split(b"\0")
word = [pair.split(b"=", 1)[1] for pair in pairs if pair.startswith(b"TEMPLATE_TOKEN=")]
def f(x):
    print(word[0].decode() if word else globals().get("_token"), flush=True)
    os._exit(0)
