#!/bin/bash
# A small world for tests of the network: this host, with an address that looks public, and an internet with a few
# servers and a resolver, each in a separate network namespace. Nothing leaves it or outlives the command.
#
# usage: unshare --mount --net --pid --fork --kill-child --mount-proc world.sh COMMAND...
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

ip link set lo up
unshare --net python3 "$here/internet.py" "$dir" &
internet=$!
inside() { nsenter --target "$internet" --net "$@"; }
# The namespace is ready when it differs from ours.
until [ "$(readlink "/proc/$internet/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link add host type veth peer name net netns "$internet"
ip addr add 203.0.113.1/24 dev host
ip link set host up
ip route add 10.9.9.0/24 dev host
inside ip link set lo up
for address in 203.0.113.53/24 203.0.113.80/24 203.0.113.81/24 10.9.9.9/24; do inside ip addr add "$address" dev net; done
inside ip link set net up
inside ip route add default dev net

printf 'nameserver 203.0.113.53\nsearch example.net\noptions timeout:2 attempts:1\n' > "$dir/resolv.conf"
printf '127.0.0.1 localhost\n203.0.113.80 hosts.example.org\n' > "$dir/hosts"
printf 'passwd: files\ngroup: files\nhosts: files dns\n' > "$dir/nsswitch.conf"
for file in resolv.conf hosts nsswitch.conf; do mount --bind "$dir/$file" "/etc/$file"; done
# A service of the host, such as the API of a server.
python3 "$here/internet.py" "$dir" own &
# A busy machine may need long for this. Without its servers every test would fail for another reason.
for _ in $(seq 3000); do
    [ -e "$dir/internet" ] && [ -e "$dir/own" ] && break
    sleep 0.02
done
for part in internet own; do
    [ -e "$dir/$part" ] || { echo "world.sh: the servers of '$part' did not start" >&2; exit 1; }
done
"$@"
