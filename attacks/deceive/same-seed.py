# tries: predicts a later run's secrets from the random bytes that the kernel gave an interpreter at its start
# seen-in: 0.1.0: all children of a warm interpreter had the same bytes at AT_RANDOM
# walls: kernel
# differs: yes
import ctypes
lookup = ctypes.CDLL(None).getauxval
lookup.restype = ctypes.c_void_p
print(ctypes.string_at(lookup(25), 16).hex())
print("attempted")
