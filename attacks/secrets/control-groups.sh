# tries: finds out in which control groups of the host it is
# seen-in: general
# walls: cgroup
while read -r line; do echo "cgroup=$line"; done < /proc/self/cgroup
while read -r line; do echo "cgroup=$line"; done < /proc/1/cgroup
echo attempted
