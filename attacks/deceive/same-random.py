# tries: predicts the random numbers of a later run
# seen-in: zeroboot
# walls: kernel
# differs: yes
import os, random, ssl, uuid
print(os.urandom(8).hex(), random.random(), uuid.uuid4(), ssl.RAND_bytes(8).hex(), sep="\n")
print("attempted")
