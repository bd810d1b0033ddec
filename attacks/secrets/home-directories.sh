# tries: looks for keys and credentials where people and clouds keep them
# seen-in: general
# walls: mount
# known-without: mount: Landlock protects the content of files and directories, but not whether they exist
# Looking is enough. Nothing is opened.
for place in /root /home/*/.ssh /etc/shadow /etc/gshadow /etc/ssh /etc/sudoers /etc/machine-id /etc/kubernetes /var/lib \
    /var/log /var/run/secrets /run/docker.sock /run/containerd /run/systemd /boot /sys/class /lost+found; do
    if [ -e "$place" ] || [ -L "$place" ]; then echo "sees $place"; seen=yes; fi
done
[ -z "$seen" ] || exit 99
echo attempted
