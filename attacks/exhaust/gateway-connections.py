# tries: leaves connections through the gateway behind, each with a thread and sockets outside of its cell
# seen-in: 0.1.0: connections that were being made outlived the run
# walls: gateway
# network: full
# limits: open_files=256
# alone: yes
import socket
heads = [b"", b"CONNECT ", b"CONNECT 192.0.2.1:443 HTTP/1.1\r\n\r\n", b"GET http://198.51.100.1/ HTTP/1.1\r\n\r\n",
         b"CONNECT there-is-no-such-host.invalid:443 HTTP/1.1\r\n\r\n"]
kept = []
for number in range(150):
    try:
        kept.append(socket.create_connection(("127.0.0.1", 3128), 2))
        kept[-1].sendall(heads[number % len(heads)])
    except OSError: pass
for number in range(50):
    try:
        kept.append(socket.socket())
        kept[-1].setblocking(False)
        kept[-1].connect_ex(("192.0.2.1", 443))
    except OSError: pass
print("attempted")
