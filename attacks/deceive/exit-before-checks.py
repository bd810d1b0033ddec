# tries: exits successfully before anything was checked
# seen-in: SandboxFusion
# walls: template
# template: yes
# expect: runtime_error
import os
def f(x):
    os._exit(0)
