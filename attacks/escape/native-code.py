# tries: calls the kernel from Python without any wrapper, with its own machine code
# seen-in: dify-sandbox, code interpreters
# walls: seccomp, user
import ctypes, mmap, os
# mov eax, 272 (unshare); mov edi, CLONE_NEWUSER; syscall; ret
code = bytes.fromhex("b810010000bf000000100f05c3")
if os.uname().machine == "x86_64":
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    call = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    result = call()
else:
    result = ctypes.CDLL(None).unshare(0x10000000)
if result == 0:
    print("made a user namespace", flush=True)
    os._exit(99)
print("attempted")
