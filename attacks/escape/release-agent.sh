# tries: makes the host run a program when a cgroup becomes empty
# seen-in: CVE-2022-0492 Linux
# walls: mount, seccomp, kernel
won() { echo "$1"; exit 99; }
mkdir -p group
for kind in cgroup cgroup2; do
    mount -t $kind -o memory none group 2>/dev/null && won "mounted $kind"
    mount -t $kind none group 2>/dev/null && won "mounted $kind"
done
unshare -UrC true 2>/dev/null && won "made a cgroup namespace"
for place in /sys/fs/cgroup /sys/fs/cgroup/*; do
    ls "$place" 2>/dev/null | grep -q . && won "sees what is in $place"
    { : > "$place/release_agent"; } 2>/dev/null && won "opened $place/release_agent"
done
find / -xdev -name release_agent 2>/dev/null | grep -q . && won "found a release_agent"
echo attempted
