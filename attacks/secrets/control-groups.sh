# tries: finds out the names of its cgroups on the host
# seen-in: general
# walls: cgroup
while read -r line; do echo "cgroup=$line"; done < /proc/self/cgroup
while read -r line; do echo "cgroup=$line"; done < /proc/1/cgroup
echo attempted
