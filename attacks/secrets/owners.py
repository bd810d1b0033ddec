# tries: learns user ids of the host from the owners of files
# seen-in: general
# walls: user
# known-without: user: without a user namespace the owners of files are the host's ids
# needs: root
import os
place = os.path.join(os.environ["SHOWN"], "owned")
print(os.stat(place).st_uid, os.stat(place).st_gid, open("/proc/self/uid_map").read())
print("attempted")
